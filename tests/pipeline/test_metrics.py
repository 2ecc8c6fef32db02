"""Metrics: statistics over the runs of a sweep, and the work of cells (P6, S14–S16).

The measures of single runs have their tests in tests/sim/results/test_measures.py."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.pipeline.planned import planned
from thyme.pipeline import metrics
from thyme.pipeline.schemas import MEASURES, RUNS
from thyme.pipeline.sweep.results import flat_table, table_schema
from thyme.pipeline.sweep.run_schemas import RUN_PART, RUN_TABLES
from thyme.pipeline.sweep.runs.planned_run import ResultRow
from thyme.pipeline.sweep.runs.task import simulate
from thyme.pipeline.warehouse import Draft, Warehouse
from thyme.sim.scenario import Substrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tables_of(spark: SparkSession, folder: Path, rows: list[ResultRow]) -> metrics.RunTables:
    """The tables of simulated runs, in a warehouse."""
    table = pa.Table.from_pylist([row | {"compiled": True} for row in rows], RUN_PART)
    parts = spark.createDataFrame(table)

    def build(draft: Draft) -> None:
        for name in RUN_TABLES:
            draft.write(name, flat_table(parts, name), schema=table_schema(name))

    stage = Warehouse(folder).get_or_build("runs", {}, {}, build)
    return metrics.RunTables(spark, stage, [row["run_id"] for row in rows])


def test_p6_the_measures_of_runs_are_read_as_they_were_computed(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [simulate(planned(tmp_path, substrate)) for substrate in Substrate]

    found = metrics.select_measures(tables_of(spark, tmp_path / "w", rows)).collect()

    assert {(row["run_id"], row["measure"]): row["value"] for row in found} == {
        (row["run_id"], each["measure"]): each["value"] for row in rows for each in row["measures"]
    }


def test_the_numbers_do_not_depend_on_the_partitions(spark: SparkSession, tmp_path: Path) -> None:
    rows = [simulate(planned(tmp_path, topology=topology)) for topology in (1, 2, 3)]
    tables = tables_of(spark, tmp_path / "w", rows)
    runs, measures = metrics.select_runs(tables), metrics.select_measures(tables)

    def whole(parts: int) -> list[Any]:
        points = metrics.aggregate_points(measures.repartition(parts), runs.repartition(parts))
        return sorted(map(tuple, points.collect()))

    assert whole(1) == whole(5)


def test_s16_a_point_has_mean_deviation_and_interval(spark: SparkSession) -> None:
    runs = [(f"r{n}", "static", "ls", "paper", 4, 4.0, n, 1, 0) for n in (1, 2, 3)]
    runs.append(("r4", "static", "es", "paper", 4, 4.0, 1, 1, 0))
    measured = [("r1", "m", 1.0), ("r2", "m", 2.0), ("r3", "m", 6.0), ("r4", "m", 5.0)]

    found = metrics.aggregate_points(
        spark.createDataFrame(measured, MEASURES),
        spark.createDataFrame(runs, RUNS),
    ).collect()

    by_substrate = {row["substrate"]: row for row in found}
    ls, es = by_substrate["ls"], by_substrate["es"]
    assert (ls["runs"], ls["mean"], ls["least"], ls["most"]) == (3, 3.0, 1.0, 6.0)
    assert ls["sd"] == pytest.approx(math.sqrt(7))
    assert ls["ci95"] == pytest.approx(4.3026527 * math.sqrt(7 / 3))
    assert (es["runs"], es["mean"], es["sd"], es["ci95"]) == (1, 5.0, None, None)


def test_c16_the_work_of_cells_is_counted_by_their_size(
    spark: SparkSession, tmp_path: Path
) -> None:
    row = simulate(planned(tmp_path, Substrate.DCS))
    loads = [
        {"node": node, "type": kind, "sent": sent, "forwarded": forwarded}
        for node, kind, sent, forwarded in (
            (0, "CellPacket/CellNotify", 5, 1),
            (1, "Notify", 2, 0),
            (2, "CellPacket/CellNotify", 7, 0),
            (3, "CellPacket/Renotify", 9, 0),
        )
    ]
    others = dict.fromkeys(("sent_bytes", "heard", "heard_bytes", "forwarded_bytes"), 0)
    cells = [0, 0, 1, 2]
    row |= {
        "loads": [load | others for load in loads],
        "devices": [
            device | {"cell": cell} for device, cell in zip(row["devices"], cells, strict=True)
        ],
    }

    found = metrics.measure_cell_work(tables_of(spark, tmp_path / "w", [row])).collect()

    assert sorted((each["cell_nodes"], each["cells"], each["sent"]) for each in found) == [
        (1, 2, 7), (2, 1, 6),
    ]  # fmt: skip
