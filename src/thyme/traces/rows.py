"""Row codec: converts operations to rows of a table and back.

A table of operations has the columns of `COLUMNS`. A row has values in the columns of its kind and
leaves the others empty; an empty optional column means ⊥, never, or nothing. `trace_files` reads
and writes whole files.
Clause: S10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, assert_never

from thyme.model.errors import shown
from thyme.model.frames import TimeFrame
from thyme.model.tags import as_tags
from thyme.traces.operations import (
    Delete,
    Insert,
    Operation,
    Subscribe,
    TraceError,
    Unsubscribe,
    about,
)
from thyme.traces.trace import KINDS, kind_of

Value = int | str | list[str]
Row = dict[str, Value]
"""The values of a row, by column; empty columns are absent."""

COLUMNS: dict[str, type] = {
    "at_us": int,
    "user": int,
    "op": str,
    "oid": str,
    "tags": list,
    "size": int,
    "summary_size": int,
    "life_us": int,
    "text": str,
    "sid": str,
    "query": str,
    "start_us": int,
    "end_us": int,
}
_COMMON = ("at_us", "user", "op")
_MUST = {
    "insert": (*_COMMON, "oid", "tags", "size"),
    "delete": (*_COMMON, "oid"),
    "subscribe": (*_COMMON, "sid", "query"),
    "unsubscribe": (*_COMMON, "sid"),
}
_MAY = {
    "insert": ("summary_size", "life_us", "text"),
    "delete": (),
    "subscribe": ("start_us", "end_us"),
    "unsubscribe": (),
}


def row_of(operation: Operation) -> Row:
    """Converts an operation to a row."""
    row: Row = {"at_us": operation.at_us, "user": operation.user, "op": kind_of(operation)}
    match operation:
        case Insert():
            row |= {"oid": operation.oid, "tags": list(operation.tags), "size": operation.size}
            row["summary_size"] = operation.summary_size
            if operation.life_us is not None:
                row["life_us"] = operation.life_us
            if operation.text:
                row["text"] = operation.text
        case Delete():
            row["oid"] = operation.oid
        case Subscribe():
            row |= {"sid": operation.sid, "query": operation.query}
            if operation.frame.start_us is not None:
                row["start_us"] = operation.frame.start_us
            if operation.frame.end_us is not None:
                row["end_us"] = operation.frame.end_us
        case Unsubscribe():
            row["sid"] = operation.sid
        case _:
            assert_never(operation)
    return row


def operation_of(row: Row) -> Operation:
    """Converts a row to an operation; raises a `TraceError` that names the field."""
    kind = row.get("op")
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise TraceError("op", f"is one of {known}, not {shown(kind or '')}")
    assert isinstance(kind, str)
    for field in _MUST[kind]:
        if field not in row:
            raise TraceError(field, f"is empty, but every {kind} has one")
    for field in row:
        if field not in _MUST[kind] and field not in _MAY[kind]:
            raise TraceError(field, f"no {kind} has one, but this is {shown(row[field])}")
    return _made(kind, row)


def missing_columns(names: Collection[str]) -> str:
    """The error message for a table without some columns; empty if it has all."""
    missing = [name for name in COLUMNS if name not in names]
    return f"the table lacks the columns {', '.join(missing)}" if missing else ""


def _made(kind: str, row: Mapping[str, Any]) -> Operation:
    common = row["at_us"], row["user"]
    match kind:
        case "insert":
            with about("tags"):
                tags = as_tags(row["tags"])
            return Insert(
                *common,
                row["oid"],
                tags,
                row["size"],
                row.get("summary_size", 0),
                row.get("text", ""),
                row.get("life_us"),
            )
        case "delete":
            return Delete(*common, row["oid"])
        case "subscribe":
            with about("start_us"):
                frame = TimeFrame(row.get("start_us"), row.get("end_us"))
            return Subscribe(*common, row["sid"], row["query"], frame)
        case _:
            return Unsubscribe(*common, row["sid"])
