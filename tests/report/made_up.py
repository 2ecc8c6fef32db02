"""Tables like those of an evaluation, with invented numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from thyme.report.tables import (
    OPERATIONS,
    OPTIONAL_TABLES,
    STAGES,
    SUBSTRATES,
    EvaluationTables,
)

SIZES = (16, 100, 196)
SHARES = (0.05, 0.4)
SPEEDS = (0.6, 1.4, 2.5)
Value = Callable[[str, float], float]
"""A measure as a function of the substrate and of the varied parameter."""


def _ranked(es: float, ls: float, dcs: float) -> Value:
    return lambda name, x: x * {"es": es, "ls": ls, "dcs": dcs}[name]


def as_the_documents_say() -> dict[tuple[str, str], Value]:
    """Numbers for which every claim of the papers holds."""
    found: dict[tuple[str, str], Value] = {
        ("static", "phy_bytes"): _ranked(5, 5, 2),
        ("static", "mac_retransmissions"): _ranked(5, 5, 1),
        ("static", "mac_exceeded"): _ranked(5, 5, 1),
        ("static", "forwarded_bytes"): _ranked(1, 1, 2),
        ("static", "control_bytes"): _ranked(50, 50, 1),
        ("static", "control_share"): lambda name, x: {"dcs": 0.02}.get(name, 0.25),
        ("static", "success.operation"): lambda name, x: 1 - x / 891 if name == "es" else 1.0,
        ("static", "success.notification"): lambda name, x: {"es": 0.8, "ls": 0.95}.get(name, 0.96),
        ("static", "latency_ms_mean.operation"): _ranked(4, 2, 2),
        ("static", "latency_ms_mean.notification"): _ranked(4, 1, 2),
        ("static", "latency_ms_mean.retrieve"): _ranked(4, 2, 1),
        ("crash", "success.notification"): lambda name, x: 1 - x if name == "ls" else 0.97,
        ("transient", "success.retrieve"): lambda name, x: 1 - x if name == "ls" else 1.0,
        ("transient", "success.operation"): lambda name, x: 0.95,
        ("transient", "latency_ms_mean.operation"): _flat(es=500, ls=900, dcs=200),
        ("transient", "latency_ms_max.notification"): lambda name, x: (
            14_000 + 215_000 * x if name == "ls" else 3_000
        ),
        ("transient", "forwarded_bytes"): _flat(es=100, ls=900, dcs=300),
        ("mobile", "success.notification"): lambda name, x: 1 - x / 50,
        ("mobile", "latency_ms_mean.retrieve"): _flat(es=300, ls=250, dcs=200),
    }
    for kind in OPERATIONS:
        found["static", f"success.{kind}"] = lambda name, x, kind=kind: (
            0.96 if (name, kind) == ("ls", "retrieve") else 1.0
        )
    for part in (*OPERATIONS, "notification"):
        found["static", f"formula.{part}"] = lambda name, x: 100 * x
        found["static", f"simulated.{part}"] = lambda name, x: 60 * x
    return found


def _flat(**values: float) -> Value:
    return lambda name, x: values[name]


def tables(
    values: dict[tuple[str, str], Value] | None = None,
    sizes: tuple[int, ...] = SIZES,
    churn_nodes: int = 100,
    notes: dict[str, Any] | None = None,
) -> EvaluationTables:
    """The tables of an evaluation with these values."""
    values = as_the_documents_say() if values is None else values
    xs = {"static": sizes, "crash": SHARES, "transient": SHARES, "mobile": SPEEDS}
    points = [
        {
            "series": series, "profile": "paper", "substrate": name,
            "nodes": int(x) if series == "static" else churn_nodes, "parameter": float(x),
            "measure": measure, "runs": 15, "mean": float(value(name, x)), "sd": 0.001,
            "ci95": 0.001, "least": float(value(name, x)), "most": float(value(name, x)),
        }
        for (series, measure), value in values.items()
        for name in SUBSTRATES
        for x in xs[series]
    ]  # fmt: skip
    runs = [
        {
            "run_id": f"{name}-{number}",
            "series": "static",
            "substrate": name,
            "profile": "paper",
            "nodes": sizes[-1],
            "parameter": float(sizes[-1]),
        }
        for name in SUBSTRATES
        for number in range(3)
    ]
    runs += [{**runs[0], "run_id": "r1", "substrate": "dcs", "nodes": 16, "parameter": 16.0}]
    spread = [
        {"run_id": f"{name}-{number}", "measure": "phy_bytes", "value": factor + number / 10}
        for name, factor in (("es", 5.0), ("ls", 5.0), ("dcs", 2.0))
        for number in range(3)
    ]
    work = [{"run_id": "r1", "cell_nodes": size, "cells": 2, "sent": 200} for size in (1, 2, 3, 4)]
    counts = {"insert": 4500, "subscribe": 530, "delete": 31, "unsubscribe": 14}
    made = {
        "points": points,
        "runs": runs,
        "measures": [{"run_id": "r1", "measure": "phy_bytes", "value": 1.0}, *spread],
        "cell_work": work,
        "trace_counts": [
            {"users": 100, "seed": 1, "kind": kind, "operations": count}
            for kind, count in counts.items()
        ],
        "timeline": [
            {"seed": 1, "at_s": at_s, "kind": kind, "operations": 5}
            for at_s in range(0, 600, 10)
            for kind in counts
        ],
    }
    facts: dict[str, Any] = {
        "preset": "made-up", "planned": 1, "operations_s": 600, "failures": [],
        "versions": {"thyme": "0"},
    } | (notes or {})  # fmt: skip
    return EvaluationTables(
        {name: pa.Table.from_pylist(rows) for name, rows in made.items()}, facts
    )


def written(made: EvaluationTables, folder: Path) -> Path:
    """Writes the tables to a folder like a warehouse's."""
    for stage, names in STAGES.items():
        tables = {}
        optional = (name for name in OPTIONAL_TABLES.get(stage, ()) if name in made.tables)
        for name in (*names, *optional):
            file = folder / stage / "builds" / "000001-made" / name / "part-0.parquet"
            file.parent.mkdir(parents=True)
            pq.write_table(made.tables[name], file)
            tables[name] = {"files": [{"path": f"builds/000001-made/{name}/part-0.parquet"}]}
        manifest = {"notes": made.notes, "versions": made.notes["versions"], "tables": tables}
        (folder / stage / "manifests").mkdir()
        (folder / stage / "manifests" / "000001.json").write_text(json.dumps(manifest))
    return folder
