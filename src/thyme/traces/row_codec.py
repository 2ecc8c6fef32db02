"""Row codec: converts operations to rows of a table and back.

A table of operations has the columns of `COLUMNS`. A row has values in the columns of its kind and
leaves the others empty; an empty optional column means ⊥, never, or nothing. `trace_files` reads
and writes whole files.
Clause: S10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, assert_never

from thyme.model.errors import safe_repr
from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    TraceError,
    UnsubscribeOperation,
    error_context,
)
from thyme.traces.trace import KINDS, operation_kind

CellValue = int | str | list[str]
OperationRow = dict[str, CellValue]
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
_REQUIRED = {
    "insert": (*_COMMON, "oid", "tags", "size"),
    "delete": (*_COMMON, "oid"),
    "subscribe": (*_COMMON, "sid", "query"),
    "unsubscribe": (*_COMMON, "sid"),
}
_OPTIONAL = {
    "insert": ("summary_size", "life_us", "text"),
    "delete": (),
    "subscribe": ("start_us", "end_us"),
    "unsubscribe": (),
}


def operation_to_row(operation: Operation) -> OperationRow:
    """Converts an operation to a row."""
    row: OperationRow = {
        "at_us": operation.at_us,
        "user": operation.user,
        "op": operation_kind(operation),
    }
    match operation:
        case InsertOperation():
            row |= {"oid": operation.oid, "tags": list(operation.tags), "size": operation.size}
            row["summary_size"] = operation.summary_size
            if operation.life_us is not None:
                row["life_us"] = operation.life_us
            if operation.text:
                row["text"] = operation.text
        case DeleteOperation():
            row["oid"] = operation.oid
        case SubscribeOperation():
            row |= {"sid": operation.sid, "query": operation.query}
            if operation.frame.start_us is not None:
                row["start_us"] = operation.frame.start_us
            if operation.frame.end_us is not None:
                row["end_us"] = operation.frame.end_us
        case UnsubscribeOperation():
            row["sid"] = operation.sid
        case _:
            assert_never(operation)
    return row


def row_to_operation(row: OperationRow) -> Operation:
    """Converts a row to an operation; raises a `TraceError` that names the field."""
    kind = row.get("op")
    if kind not in KINDS:
        known = ", ".join(KINDS)
        raise TraceError("op", f"is one of {known}, not {safe_repr(kind or '')}")
    assert isinstance(kind, str)
    for field in _REQUIRED[kind]:
        if field not in row:
            raise TraceError(field, f"is empty, but every {kind} has one")
    for field in row:
        if field not in _REQUIRED[kind] and field not in _OPTIONAL[kind]:
            raise TraceError(field, f"no {kind} has one, but this is {safe_repr(row[field])}")
    return _make_operation(kind, row)


def missing_columns_message(names: Collection[str]) -> str:
    """The error message for a table without some columns; empty if it has all."""
    missing = [name for name in COLUMNS if name not in names]
    return f"the table lacks the columns {', '.join(missing)}" if missing else ""


def _make_operation(kind: str, row: Mapping[str, Any]) -> Operation:
    common = row["at_us"], row["user"]
    match kind:
        case "insert":
            with error_context("tags"):
                tags = as_tags(row["tags"])
            return InsertOperation(
                *common,
                row["oid"],
                tags,
                row["size"],
                row.get("summary_size", 0),
                row.get("text", ""),
                row.get("life_us"),
            )
        case "delete":
            return DeleteOperation(*common, row["oid"])
        case "subscribe":
            with error_context("start_us"):
                frame = TimeFrame(row.get("start_us"), row.get("end_us"))
            return SubscribeOperation(*common, row["sid"], row["query"], frame)
        case _:
            return UnsubscribeOperation(*common, row["sid"])
