"""The whole pipeline in a process of its own, for the test that runs it on a cluster.

    python -m tests.pipeline.clustered FOLDER MASTER

imports posts, makes trace and oracle, sweeps a few runs and computes their metrics, all in the
warehouse FOLDER. It writes the path of the package on each worker, the number of runs that were
simulated by compiled modules, and the metrics to FOLDER/told.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.pipeline.sweeping import many, measured, started
from thyme.pipeline.jobs import build_trace, compute_oracle, import_posts
from thyme.pipeline.posts.formats import PostReader
from thyme.pipeline.sweep.planned_run import PlannedRun
from thyme.pipeline.sweep.results import RunResults
from thyme.pipeline.sweep.runner import sweep
from thyme.pipeline.warehouse import Warehouse
from thyme.traces.football_match import FootballMatch, FootballMatchConfig
from thyme.traces.posts_to_trace import TraceRules

CONFIG = FootballMatchConfig(posts=600, users=40, tags=60)
RULES = TraceRules(boolean_share=0.5)
POSTS_SEED, TRACE_SEED, USERS = 5, 6, 12


def every_other(folder: Path) -> list[PlannedRun]:
    """Runs of each substrate."""
    return many(folder)[::2]


def place(_: int) -> str:
    """The path from which a worker imports the package."""
    import thyme

    return str(thyme.__file__)


def write_posts(folder: Path) -> list[str]:
    """The posts of a match in two files, as JSON lines."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(
            {"id": post.post_id, "user": post.user, "time": post.at_us, "text": post.text}
            | {"tags": list(post.tags)}
        )
        for post in FootballMatch(POSTS_SEED, CONFIG)
    ]
    files = [folder / f"posts-{number}.jsonl" for number in (0, 1)]
    for number, file in enumerate(files):
        file.write_text("\n".join(lines[number::2]) + "\n")
    return list(map(str, files))


def main(folder: Path, master: str) -> None:
    """Runs every stage, one after the other."""
    spark = started(master)
    places = spark.sparkContext.parallelize(range(8), 8).map(place).collect()
    warehouse = Warehouse(folder)
    files = write_posts(folder / "files")
    posts = import_posts(spark, warehouse, files, PostReader(form="jsonl"))
    compute_oracle(spark, warehouse, build_trace(spark, warehouse, posts, USERS, TRACE_SEED, RULES))
    runs = every_other(folder)
    results = RunResults(warehouse)
    swept = sweep(spark, runs, results)
    results.compact(spark)
    told = {
        "places": places,
        "compiled": swept.compiled,
        "failures": [failure.error for failure in swept.failures],
        "measured": measured(spark, runs, folder),
    }
    (folder / "told.json").write_text(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
