"""The whole pipeline in a process of its own, for the test that runs it on a cluster.

    python -m tests.pipeline.clustered FOLDER MASTER

makes posts, trace and oracle in FOLDER, sweeps a few runs into FOLDER/runs, and writes the path of
the package on each worker, and the messages by type of all runs, to FOLDER/told.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.pipeline.sweeping import many, measured, started
from thyme.pipeline.jobs import build_trace, compute_oracle, generate_posts
from thyme.pipeline.sweep.runner import sweep
from thyme.pipeline.sweep.task import PlannedRun
from thyme.pipeline.warehouse import Warehouse
from thyme.traces.football_match import FootballMatchConfig
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


def main(folder: Path, master: str) -> None:
    """Runs every stage, one after the other."""
    spark = started(master)
    places = spark.sparkContext.parallelize(range(8), 8).map(place).collect()
    warehouse = Warehouse(folder)
    posts = generate_posts(spark, warehouse, POSTS_SEED, CONFIG)
    compute_oracle(spark, warehouse, build_trace(spark, warehouse, posts, USERS, TRACE_SEED, RULES))
    runs = every_other(folder)
    sweep(spark, runs, folder / "runs")
    told = {"places": places, "measured": measured(spark, runs, folder)}
    (folder / "told.json").write_text(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
