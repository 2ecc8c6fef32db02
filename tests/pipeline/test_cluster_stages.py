"""P8: posts, trace and oracle on a cluster of separate processes are those of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet

from tests.pipeline.test_cluster import PATIENCE_S, ROOT, cluster
from thyme.pipeline.warehouse import Stage, Warehouse
from thyme.traces.match import Match, MatchConfig
from thyme.traces.oracle import Expected, expected_notifications
from thyme.traces.rows import operation_of
from thyme.traces.rules import Rules, match_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = MatchConfig(posts=600, users=40, tags=60)
RULES = Rules(boolean_share=0.5)
DRIVER = """
import json, sys
from pathlib import Path
from tests.pipeline.sweeping import HASTE
from tests.pipeline.test_cluster_stages import CONFIG, RULES
from thyme.pipeline.jobs import ask_oracle, build_trace, synthesise_posts
from thyme.pipeline.session import spark_session
from thyme.pipeline.warehouse import Warehouse

def seen(batches):
    import pyarrow, thyme
    for batch in batches:
        yield pyarrow.RecordBatch.from_pylist([{"place": thyme.__file__}] * batch.num_rows)

master, folder = sys.argv[1:]
settings = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "3"}
haste = {f"spark.{role}.extraJavaOptions": HASTE for role in ("driver", "executor")}
spark = spark_session(master, settings | haste)
rows = spark.range(0, 8, 1, 8).mapInArrow(seen, "place string").collect()
w = Warehouse(folder)
trace = build_trace(spark, w, synthesise_posts(spark, w, 5, CONFIG), 12, 6, RULES)
ask_oracle(spark, w, trace)
spark.stop()
Path(folder, "seen.json").write_text(json.dumps([row["place"] for row in rows]))
"""


def rows_of(stage: Stage, table: str) -> list[dict[str, Any]]:
    """The rows in the order of the files."""
    files = sorted(Path(stage.table(table)).glob("*.parquet"))
    return [row for file in files for row in parquet.read_table(file).to_pylist()]


@pytest.mark.slow
def test_a_cluster_gives_the_trace_and_the_oracle_of_one_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "w"
    with cluster(tmp_path) as (master, _):
        subprocess.run(
            [sys.executable, "-c", DRIVER, master, str(folder)],
            cwd=ROOT,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            check=True,
            timeout=PATIENCE_S,
        )

    # Workers had the package from the driver, and not only because it is installed here.
    assert all("thyme.zip" in place for place in json.loads((folder / "seen.json").read_text()))
    wanted = match_trace(6, Match(5, CONFIG), 12, RULES)
    rows = rows_of(Warehouse(folder).open("trace"), "operations")
    assert [row.pop("number") for row in rows] == list(range(len(rows)))
    filled = [{name: value for name, value in row.items() if value is not None} for row in rows]
    assert tuple(map(operation_of, filled)) == wanted.operations
    notes = [Expected(**row) for row in rows_of(Warehouse(folder).open("oracle"), "notifications")]
    assert notes == expected_notifications(wanted)
