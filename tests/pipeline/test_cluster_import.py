"""P8, P11: an import on two worker processes, from and into a file system that is not `file`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import parquet

from tests.hashing import ROOT
from tests.pipeline.cluster_import import READER
from tests.pipeline.test_cluster import PATIENCE_S, cluster
from thyme.pipeline.jobs import import_posts
from thyme.pipeline.warehouse import Stage, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_S = 1_468_180_801


@pytest.mark.slow
def test_p11_a_cluster_imports_through_uris_what_one_process_imports(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    files = []
    for part in (1, 2):
        rows = [
            {"id": str(number), "user": "ana", "time": AT_S + number + part, "text": f"#t{part}"}
            for number in range(30 * part)
        ]
        file = tmp_path / "in" / f"{part}.jsonl"
        file.write_text("\n".join([*map(json.dumps, rows), "broken"]))
        files.append(str(file))
    with cluster(tmp_path) as (master, logs):
        subprocess.run(
            [sys.executable, "-m", "tests.pipeline.cluster_import", str(tmp_path), master],
            cwd=ROOT,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            check=True,
            timeout=PATIENCE_S,
        )
        executors = [path for path in logs.glob("worker-*/app-*/*") if path.is_dir()]
    assert len(executors) == 2

    alone = Warehouse(tmp_path / "alone")
    for file in files:
        import_posts(spark, alone, [file], READER)
    wanted, found = alone.open_stage("posts"), Warehouse(tmp_path / "w").open_stage("posts")
    assert rows_of(found, "posts") == rows_of(wanted, "posts")
    assert [row["reason"] for row in rows_of(found, "quarantine")] == [
        row["reason"] for row in rows_of(wanted, "quarantine")
    ]
    assert found.manifest.notes == wanted.manifest.notes


def rows_of(stage: Stage, table: str) -> list[dict[str, Any]]:
    """The rows of a table, in an order of their own."""
    read = (parquet.ParquetFile(file).read() for file in stage.table_files(table))
    return sorted((row for each in read for row in each.to_pylist()), key=repr)
