"""Digests of the tables in a warehouse, independent of their files and of the order of their
rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.golden.frozen import digest_of_rows

LEFT_OUT = {"wall_s", "cpu_s", "compiled", "source", "title", "documents", "ours"}
"""Columns that tell how a run was simulated, and the scorecard's prose."""
_BUILD = re.compile(r"/builds/[^/]+/")
_RUN_ID = re.compile(r"(-t\d+-r\d+)-[0-9a-f]{10}$")
"""The digest at its end is over a Parquet file, whose bytes depend on the library's version."""


def digests_of_tables(warehouse: Path) -> dict[str, dict[str, Any]]:
    """The columns and a digest of the rows of each table, by its folder; a trace or a run is a
    table."""
    files: dict[str, list[Path]] = {}
    for file in sorted(warehouse.rglob("*.parquet")):
        folder = Path(_BUILD.sub("/", file.parent.as_posix()))
        # Spark chooses the names of a table's files; other files are named after their contents.
        table = folder if file.name.startswith("part-") else folder / file.stem
        name = _RUN_ID.sub(r"\1", table.relative_to(warehouse).as_posix())
        files.setdefault(name, []).append(file)
    return {name: _digest_of_table(some) for name, some in files.items()}


def _digest_of_table(files: list[Path]) -> dict[str, Any]:
    tables = [pq.read_table(file) for file in files]
    columns = tables[0].column_names
    counted = [name for name in columns if name not in LEFT_OUT]
    rows = [row for table in tables for row in table.select(counted).to_pylist()]
    for row in rows:
        if "run_id" in row:
            row["run_id"] = _RUN_ID.sub(r"\1", row["run_id"])
    return {"columns": " ".join(columns), "rows": len(rows), "digest": digest_of_rows(rows)}
