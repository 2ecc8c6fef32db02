"""Points like those of an evaluation of Thyme-Infrastructure, with invented numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from thyme.report.infra.points import METRICS_STAGE, InfraPoints

Numbers = dict[tuple[str, str, str], dict[float, float]]
"""Values by the parameter, for each series, variant and measure."""
SEEDS = (1, 2, 3)
NOTES = {"preset": "made-up", "failures": [], "versions": {"thyme": "0"}}


def _over_time(prefix: str, values: list[float]) -> dict[str, float]:
    return {f"{prefix}{number}": value for number, value in enumerate(values, 1)}


def as_the_thesis_says() -> Numbers:
    """Numbers for which every claim of the thesis holds."""
    found: Numbers = {
        ("addresses", "infra", "station.routed"): {0.0: 2_300, 0.5: 300, 1.0: 0},
        ("addresses", "infra", "address_store_bytes"): {0.0: 400, 0.5: 9_000, 1.0: 18_000},
        ("addresses", "infra", "unpublished_share"): {0.0: 1, 0.5: 1, 1.0: 1},
        ("addresses", "infra", "deletes"): {0.0: 50, 0.5: 50, 1.0: 50},
        ("ranking", "ranking", "hit_ratio.local_popularity"): {0.0: 0.42},
        ("ranking", "no-ranking", "hit_ratio.local_popularity"): {0.0: 0.32},
        ("worlds", "publishes", "part.1"): {1.0: 0.34, 2.0: 0.72, 5.0: 0.97},
        ("worlds", "publishes", "part.2"): {1.0: 0.33, 2.0: 0.14, 5.0: 0.02},
        ("worlds", "publishes", "part.3"): {1.0: 0.33, 2.0: 0.14, 5.0: 0.01},
        ("batches", "infra", "station.items_served"): {1.0: 9_000, 2.0: 11_500, 6.0: 14_000},
        ("batches", "infra", "division_cpu_ms"): {1.0: 496, 2.0: 515, 6.0: 729},
        ("failover", "infra", "cell_data_share"): {0.0: 1.0},
        ("failover", "infra", "stable_node_failures"): {0.0: 40},
        ("failover", "infra", "cell_data_cycles"): {0.0: 200},
        ("traffic", "infra", "mobile.messages_to_mobiles"): {0.0: 540_000},
        ("traffic", "dcs", "mobile.messages_to_mobiles"): {0.0: 600_000},
        ("traffic", "infra", "mobile.messages"): {0.0: 590_000},
        ("traffic", "dcs", "mobile.messages"): {0.0: 600_000},
        ("traffic", "infra", "mobile.bytes"): {0.0: 13e9},
        ("traffic", "dcs", "mobile.bytes"): {0.0: 19e9},
        ("move", "dcs", "move.received"): {5.0: 96, 100.0: 2_801},
        ("move", "dcs", "move.sent"): {5.0: 40, 100.0: 50},
        ("move", "infra", "move.sent"): {5.0: 0, 100.0: 0},
        ("move", "infra", "move.received"): {5.0: 0, 100.0: 0},
        ("goal", "infra", "hot.bytes"): {0.0: 1e6},
        ("goal", "dcs", "hot.bytes"): {0.0: 4e6},
        ("goal", "infra", "hot.energy_j"): {0.0: 499},
        ("goal", "dcs", "hot.energy_j"): {0.0: 884},
    }
    for kind in ("insert", "delete", "subscribe", "unsubscribe", "retrieve"):
        found["operations", "dcs", f"latency_ms_mean.{kind}"] = {1.0: 10, 2.0: 27}
    sizes = {5_000.0: 0.02, 1e6: 0.2, 5e6: 1.0, 1e7: 2.0}
    for way, seconds in (
        ("replica", 0.7), ("station", 0.34), ("far-station", 0.4), ("far-replica", 0.9),
        ("cloud", 5.0),
    ):  # fmt: skip
        line = {size: 1e3 * seconds * share for size, share in sizes.items()}
        found["downloads", way, "download_ms"] = line
    for hops, seconds in ((1, 0.7), (2, 2.0)):
        line = {size: 1e3 * seconds * share for size, share in sizes.items()}
        found["downloads", f"dcs-{hops}", "latency_ms_mean.retrieve"] = line
    for variant, prefix, values in (
        ("ranking", "requested_at.", [5.0, 40, 70, 60, 50, 45, 40]),
        ("no-ranking", "requested_at.", [5.0, 40, 80, 120, 160, 200, 240]),
    ):
        for measure, value in _over_time(prefix, values).items():
            found["ranking", variant, measure] = {0.0: value}
    for variant, values in (("notices", [50.0, 60, 60, 60]), ("no-notices", [50.0, 100, 100, 100])):
        for measure, value in _over_time("answer_items_at.", values).items():
            found["consumption", variant, measure] = {0.0: value}
    for measure, value in _over_time("past_from_cells_at.", [100.0, 60, 20, 0]).items():
        found["goal", "infra", measure] = {0.0: value}
    return found


def infra_tables(numbers: Numbers) -> dict[str, pa.Table]:
    """The tables of an evaluation, with intervals of one hundredth."""
    points = [
        {
            "series": series, "profile": "paper", "substrate": variant, "nodes": 100,
            "parameter": parameter, "measure": measure, "runs": 5, "mean": float(value),
            "sd": 0.0, "ci95": abs(value) / 100, "least": float(value), "most": float(value),
        }
        for (series, variant, measure), line in numbers.items()
        for parameter, value in line.items()
    ]  # fmt: skip
    places = sorted({(*key[:2], x) for key, line in numbers.items() for x in line})
    runs = [
        {
            "run_id": f"{series}-{variant}-{x}-{seed}", "series": series, "substrate": variant,
            "nodes": 100, "parameter": x, "repetition": seed,
        }
        for series, variant, x in places
        for seed in SEEDS
    ]  # fmt: skip
    measures = [
        {
            "run_id": f"{series}-{variant}-{x}-{seed}", "measure": measure,
            # Seeds differ by much, so only pairs of runs tell that 2 % more is more.
            "value": value * (1 + seed / 10),
        }
        for (series, variant, measure), line in numbers.items()
        for x, value in line.items()
        for seed in SEEDS
    ]  # fmt: skip
    return {
        "points": pa.Table.from_pylist(points),
        "runs": pa.Table.from_pylist(runs),
        "measures": pa.Table.from_pylist(measures),
    }


def infra_points(numbers: Numbers) -> InfraPoints:
    """The points as the report reads them."""
    return InfraPoints(infra_tables(numbers), NOTES)


def write_infra_metrics(warehouse: Path, numbers: Numbers) -> None:
    """Writes a stage like that of an evaluation."""
    stage = warehouse / METRICS_STAGE
    (stage / "manifests").mkdir(parents=True)
    tables = {}
    for name, table in infra_tables(numbers).items():
        pq.write_table(table, stage / f"{name}.parquet")
        tables[name] = {"files": [{"path": f"{name}.parquet"}]}
    manifest = {
        "tables": tables,
        "notes": {key: value for key, value in NOTES.items() if key != "versions"},
        "versions": NOTES["versions"],
    }
    (stage / "manifests" / "000001.json").write_text(json.dumps(manifest))
