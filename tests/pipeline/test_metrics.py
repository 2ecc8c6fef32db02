"""Metrics: statistics over the runs of a sweep, and the work of cells (P6, S14–S16).

The measures of single runs have their tests in tests/sim/results/test_measures.py."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.planned import planned
from thyme.pipeline import metrics
from thyme.pipeline.schemas import MEASURES, RUNS
from thyme.pipeline.sweep.task import ResultRow, measures_to_json, results_to_parquet, simulate
from thyme.sim.scenario import Substrate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def results(spark: SparkSession, folder: Path, rows: list[ResultRow]) -> DataFrame:
    file = folder / "results.parquet"
    file.write_bytes(results_to_parquet(rows))
    return metrics.read_results(spark, [str(file)])


def test_p6_the_measures_of_runs_are_read_as_they_were_computed(
    spark: SparkSession, tmp_path: Path
) -> None:
    runs = [planned(tmp_path, substrate) for substrate in Substrate]
    simulated = {run.run_id: simulate(run) for run in runs}
    files = [tmp_path / f"{run_id}.jsonl" for run_id in simulated]
    for file, (run_id, result) in zip(files, simulated.items(), strict=True):
        file.write_bytes(measures_to_json(run_id, result))

    found = metrics.read_measures(spark, list(map(str, files))).collect()

    assert {(row["run_id"], row["measure"]): row["value"] for row in found} == {
        (run_id, name): value
        for run_id, result in simulated.items()
        for name, value in result.measures.items()
    }


def test_the_numbers_do_not_depend_on_the_partitions(spark: SparkSession, tmp_path: Path) -> None:
    runs = [planned(tmp_path, topology=topology) for topology in (1, 2, 3)]
    simulated = {run.run_id: simulate(run) for run in runs}
    frame = results(spark, tmp_path, [result.row for result in simulated.values()])
    rows = [
        (run_id, name, value)
        for run_id, result in simulated.items()
        for name, value in result.measures.items()
    ]
    measures = spark.createDataFrame(rows, MEASURES)

    def whole(parts: int) -> list[Any]:
        run_table = metrics.select_runs(frame.repartition(parts))
        points = metrics.aggregate_points(measures.repartition(parts), run_table)
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
    assert ls["ci95"] == pytest.approx(4.303 * math.sqrt(7 / 3))
    assert (es["runs"], es["mean"], es["sd"], es["ci95"]) == (1, 5.0, None, None)


def test_c16_the_work_of_cells_is_counted_by_their_size(
    spark: SparkSession, tmp_path: Path
) -> None:
    row = simulate(planned(tmp_path, Substrate.DCS)).row
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

    found = metrics.measure_cell_work(results(spark, tmp_path, [row])).collect()

    assert sorted((each["cell_nodes"], each["cells"], each["sent"]) for each in found) == [
        (1, 2, 7), (2, 1, 6),
    ]  # fmt: skip
