"""The whole pipeline in a process of its own, for the test that runs it on a cluster.

    python -m tests.pipeline.clustered FOLDER MASTER

imports posts, makes trace and oracle, sweeps a few runs and computes their metrics, all in the
warehouse FOLDER. It writes the path of the package on each worker, the number of runs that were
simulated by compiled modules, and the metrics to FOLDER/told.json. Then it imports the files of
FOLDER/bucket/in by URIs of a bucket that is FOLDER/bucket, and follows the events of FOLDER/events.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pipeline import event_files
from tests.pipeline.buckets import SCHEME, bucket_options
from tests.pipeline.sweeping import many, measured, started
from thyme.pipeline.jobs import build_trace, compute_oracle, import_posts
from thyme.pipeline.posts.formats import PostReader
from thyme.pipeline.sweep.results import RunResults
from thyme.pipeline.sweep.runner import sweep
from thyme.pipeline.sweep.runs.planned_run import PlannedRun
from thyme.pipeline.warehouse import Warehouse
from thyme.traces.posts_to_trace import TraceRules
from thyme.traces.synthetic.football_match import FootballMatch, FootballMatchConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READER = PostReader(form="jsonl")
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


def run_stages(spark: SparkSession, folder: Path) -> None:
    """Runs every stage, one after the other."""
    places = spark.sparkContext.parallelize(range(8), 8).map(place).collect()
    warehouse = Warehouse(folder)
    posts = import_posts(spark, warehouse, write_posts(folder / "files"), READER)
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


def import_from_bucket(spark: SparkSession, folder: Path) -> None:
    """Imports two files one after the other, then all of them again."""
    for name, value in bucket_options("cluster", folder).items():
        spark.conf.set(name, value)
    uri = f"{SCHEME}://cluster"
    warehouse = Warehouse(f"{uri}/w")
    for number in (1, 2):
        import_posts(spark, warehouse, [f"{uri}/in/{number}.jsonl"], READER)
    if import_posts(spark, warehouse, [f"{uri}/in"], READER).built_now:
        raise SystemExit("the files were imported again")


def main(folder: Path, master: str) -> None:
    """Does all of it in one session."""
    spark = started(master)
    run_stages(spark, folder)
    import_from_bucket(spark, folder / "bucket")
    event_files.follow_once(spark, str(folder / "events"), str(folder / "out"))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
