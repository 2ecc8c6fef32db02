"""Metrics: Spark computes from the logs what one process computes from the run (P6, S14–S16)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.planned import planned
from thyme.pipeline.metrics import tables
from thyme.pipeline.metrics.devices import measure_cell_work, measure_energy
from thyme.pipeline.metrics.users import LATENCIES, due_notifications, measure_operations
from thyme.pipeline.schemas import MEASURES, RUNS
from thyme.pipeline.sweep.task import PlannedRun, ResultRow, results_to_parquet, simulate
from thyme.sim.results.summary import RunSummary, summarise_run
from thyme.sim.run import run as run_alone
from thyme.sim.scenario import Series, Substrate
from thyme.traces.trace_files import read_trace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def results(spark: SparkSession, folder: Path, rows: list[ResultRow]) -> DataFrame:
    file = folder / "results.parquet"
    file.write_bytes(results_to_parquet(rows))
    return tables.read_results(spark, [str(file)])


def table(frame: DataFrame) -> dict[tuple[str, str], float]:
    return {(row["run_id"], row["measure"]): row["value"] for row in frame.collect()}


def alone(run: PlannedRun) -> dict[str, float | None]:
    """The same numbers, as `thyme sim run` computes them."""
    found = run_alone(run.scenario, read_trace(run.trace_file, run.scenario.nodes))
    outcome = summarise_run(found)
    notes = outcome.notifications
    numbers: dict[str, float | None] = {
        "phy_bytes": outcome.traffic.phy_bytes,
        "phy_frames": outcome.traffic.phy_frames,
        "mac_retransmissions": outcome.traffic.mac_retransmissions,
        "mac_exceeded": outcome.traffic.mac_exceeded,
        "forwarded_bytes": outcome.traffic.forwarded_bytes,
        "control_bytes": outcome.traffic.control_bytes,
        "expected.notification": notes.expected,
        "delivered.notification": notes.delivered,
        "success.notification": notes.recall,
        "spurious": notes.spurious,
        "unexpected": notes.unexpected,
        "duplicates": notes.duplicates,
        "load_max.node": outcome.load.max,
        "load_gini.node": outcome.load.gini,
        "energy_j_mean": outcome.energy_j.mean,
        "energy_j_max": outcome.energy_j.max,
        "storage_max.objects": outcome.storage.objects.max,
        "storage_mean.object_bytes": outcome.storage.bytes.mean,
        "storage_mean.metadata": outcome.storage.metadata.mean,
        "storage_max.subscriptions": outcome.storage.subscriptions.max,
    }
    return numbers | _latencies(outcome) | _messages(outcome)


def _latencies(outcome: RunSummary) -> dict[str, float | None]:
    numbers: dict[str, float | None] = {}
    latencies = {"notification": outcome.notifications.latency_ms}
    for kind, ops in outcome.ops.items():
        if ops.issued:
            numbers |= {f"issued.{kind}": ops.issued, f"success.{kind}": ops.success}
        latencies[kind] = ops.latency_ms
    for kind, latency in latencies.items():
        for name in LATENCIES:
            numbers[f"latency_ms_{name}.{kind}"] = getattr(latency, name)
    return numbers


def _messages(outcome: RunSummary) -> dict[str, float | None]:
    numbers: dict[str, float | None] = {}
    for kind, load in outcome.traffic.by_type.items():
        numbers |= {f"messages.{kind}": load.sent, f"bytes.{kind}": load.sent_bytes}
    for part, count in outcome.analytical.simulated.items():
        numbers[f"simulated.{part}"] = count
    numbers["formula.subscribe"] = outcome.analytical.formula.subscribe
    return numbers


def test_p6_the_logs_joined_with_the_oracle_give_what_one_process_works_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    runs = [
        *(planned(tmp_path, substrate) for substrate in Substrate),
        planned(tmp_path, Substrate.LS, kind=Series.TRANSIENT, failing=0.5),
    ]
    found = table(
        tables.compute_measures(results(spark, tmp_path, [simulate(run) for run in runs]))
    )

    for run in runs:
        for name, value in alone(run).items():
            if value is None:
                assert (run.run_id, name) not in found
            else:
                assert found[run.run_id, name] == pytest.approx(value, rel=1e-12), name


def test_the_numbers_do_not_depend_on_the_partitions(spark: SparkSession, tmp_path: Path) -> None:
    rows = [simulate(planned(tmp_path, topology=topology)) for topology in (1, 2, 3)]
    frame = results(spark, tmp_path, rows)

    def whole(parts: int) -> list[Any]:
        spread = frame.repartition(parts)
        measured = measure_energy(spread).unionByName(measure_operations(spread))
        measured = measured.where("value is not null").repartition(parts)
        return sorted(
            map(tuple, tables.aggregate_points(measured, tables.select_runs(spread)).collect())
        )

    assert whole(1) == whole(5)


def test_s15_who_is_down_is_told_when_it_is_back(spark: SparkSession, tmp_path: Path) -> None:
    row = simulate(planned(tmp_path))
    row |= {
        "origin_us": 100,
        "end_us": 1_000,
        "downtimes": [
            {"user": 1, "since_us": 140, "until_us": 200},
            {"user": 1, "since_us": 900, "until_us": None},
            {"user": 2, "since_us": 150, "until_us": None},
        ],
        "expected": [
            {"at_us": at_us, "user": user, "sid": "s", "oid": f"o{number}"}
            for number, (at_us, user) in enumerate(
                [
                    (30, 1),
                    (40, 1),
                    (99, 1),
                    (100, 1),
                    (850, 1),
                    (49, 2),
                    (50, 2),
                    (899, 3),
                    (900, 3),
                ]
            )
        ],
    }

    due = due_notifications(results(spark, tmp_path, [row])).collect()

    assert {each["oid"]: each["due_us"] for each in due} == {
        "o0": 130, "o1": 200, "o2": 200, "o3": 200, "o5": 149, "o7": 999,
    }  # fmt: skip


def test_s16_a_point_has_mean_deviation_and_interval(spark: SparkSession) -> None:
    runs = [(f"r{n}", "static", "ls", "paper", 4, 4.0, n, 1, 0) for n in (1, 2, 3)]
    runs.append(("r4", "static", "es", "paper", 4, 4.0, 1, 1, 0))
    measured = [("r1", "m", 1.0), ("r2", "m", 2.0), ("r3", "m", 6.0), ("r4", "m", 5.0)]

    found = tables.aggregate_points(
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

    found = measure_cell_work(results(spark, tmp_path, [row])).collect()

    assert sorted((each["cell_nodes"], each["cells"], each["sent"]) for each in found) == [
        (1, 2, 7), (2, 1, 6),
    ]  # fmt: skip
