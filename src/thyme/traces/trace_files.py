"""Trace files: reads and writes traces as CSV or Parquet, depending on the file name.

Entry points: `read_trace`, `write_trace`. Equal traces give equal bytes, written atomically. Errors
name the file, the row and the field. CSV files have instants and sizes as integers and tags
separated by spaces, and may be compressed (`.csv.gz`).
Clause: S10.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from collections.abc import Iterable, Iterator

from thyme.model.errors import InputError, safe_repr
from thyme.traces.files import FilePath, InputFileError, read_text, write_atomically
from thyme.traces.operations import Operation, TraceError
from thyme.traces.parquet import read_parquet_rows, rows_to_parquet
from thyme.traces.row_codec import (
    COLUMNS,
    CellValue,
    OperationRow,
    missing_columns_message,
    operation_to_row,
    row_to_operation,
)
from thyme.traces.trace import Trace, TraceValidator

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.A)
_TO_QUOTE = re.compile(r'[",\r\n]|^\s|\s$')

RowLocation = tuple[str, int | None]
"""Location of a row: a text prefix if there are no lines, and the line number if there are."""


def read_trace(source: FilePath, users: int | None = None) -> Trace:
    """Reads a trace from a file.

    `users` is the number of users; by default the highest user number plus one. A file does not
    contain users without operations.
    """
    path = os.fspath(source)
    rows = _read_parquet(path) if _is_parquet(path) else _read_csv(path)
    validator = TraceValidator(users)
    operations: list[Operation] = []
    for (where, line), row in rows:
        try:
            operation = row_to_operation(row)
            validator.check(operation)
        except TraceError as error:
            raise InputFileError(path, f"{where}{error}", line) from error
        operations.append(operation)
    if not operations:
        raise InputFileError(path, "the table has no rows")
    highest = max(operation.user for operation in operations)
    return Trace(highest + 1 if users is None else users, tuple(operations))


def write_trace(trace: Trace, target: FilePath) -> None:
    """Writes a trace to a file, atomically."""
    path = os.fspath(target)
    write_atomically(path, trace_to_bytes(trace, path))


def trace_to_bytes(trace: Trace, path: str) -> bytes:
    """Encodes a trace as a file with this name, whose ending tells the format."""
    rows = map(operation_to_row, trace.operations)
    if _is_parquet(path):
        return rows_to_parquet(path, rows)
    data = rows_to_csv(rows)
    return _gzip(data) if path.endswith(".gz") else data


def rows_to_csv(rows: Iterable[OperationRow]) -> bytes:
    """Encodes rows as a CSV file."""
    lines = [",".join(COLUMNS)]
    lines += [",".join(_format_value(row.get(column, "")) for column in COLUMNS) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _gzip(data: bytes) -> bytes:
    """Compresses data with gzip, without file name and time: equal data give equal bytes."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
        file.write(data)
    return packed.getvalue()


def _is_parquet(path: str) -> bool:
    if path.endswith(".parquet"):
        return True
    if not path.endswith((".csv", ".csv.gz")):
        raise InputFileError(path, "traces are files named .csv, .csv.gz or .parquet")
    return False


def _read_parquet(path: str) -> Iterator[tuple[RowLocation, OperationRow]]:
    for number, row in enumerate(read_parquet_rows(path), 1):
        yield (f"row {number}: ", None), row


def _read_csv(path: str) -> Iterator[tuple[RowLocation, OperationRow]]:
    """Reads the rows of a CSV file, each with its first line number; skips blank lines."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    header: list[str] = []
    line = 1
    try:
        for values in reader:
            if not any(word.strip() for word in values):
                pass
            elif not header:
                header = _parse_header(path, line, values)
            elif len(values) != len(header):
                problem = f"the row has {len(values)} fields, but the header has {len(header)}"
                raise InputFileError(path, problem, line)
            else:
                yield ("", line), _parse_row(path, line, zip(header, values, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputFileError(path, f"this is not CSV: {error}", line) from error


def _parse_header(path: str, line: int, values: list[str]) -> list[str]:
    names = [value.strip() for value in values]
    for name in COLUMNS:
        if names.count(name) > 1:
            raise InputFileError(path, f"the header names {name} twice", line)
    if lacking := missing_columns_message(names):
        raise InputFileError(path, lacking, line)
    return names


def _parse_row(path: str, line: int, fields: Iterable[tuple[str, str]]) -> OperationRow:
    row: OperationRow = {}
    for name, value in fields:
        if name in COLUMNS and value:
            try:
                row[name] = _parse_value(name, value)
            except InputError as error:
                raise InputFileError(path, str(error), line) from error
    return row


def _parse_value(name: str, text: str) -> CellValue:
    kind = COLUMNS[name]
    if kind is list:
        return text.split()
    if kind is str:
        return text
    if not _INTEGER.fullmatch(text.strip()):
        raise TraceError(name, f"is a whole number, not {safe_repr(text)}")
    return int(text)


def _format_value(value: CellValue) -> str:
    text = " ".join(value) if isinstance(value, list) else str(value)
    if _TO_QUOTE.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text
