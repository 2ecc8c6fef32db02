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

from thyme.model.errors import InputError, shown
from thyme.traces.files import InputFileError, Source, read_text, write_whole
from thyme.traces.operations import Operation, TraceError
from thyme.traces.parquet import parquet_bytes, parquet_rows
from thyme.traces.rows import COLUMNS, Row, Value, missing_columns, operation_of, row_of
from thyme.traces.trace import Ledger, Trace

_WHOLE = re.compile(r"[+-]?\d{1,19}", re.A)
_TO_QUOTE = re.compile(r'[",\r\n]|^\s|\s$')

Place = tuple[str, int | None]
"""Location of a row: a text prefix if there are no lines, and the line number if there are."""


def read_trace(source: Source, users: int | None = None) -> Trace:
    """Reads a trace from a file.

    `users` is the number of users; by default the highest user number plus one. A file does not
    contain users without operations.
    """
    path = os.fspath(source)
    rows = _parquet(path) if _is_parquet(path) else _csv(path)
    ledger = Ledger(users)
    operations: list[Operation] = []
    for (where, line), row in rows:
        try:
            operation = operation_of(row)
            ledger.take(operation)
        except TraceError as error:
            raise InputFileError(path, f"{where}{error}", line) from error
        operations.append(operation)
    if not operations:
        raise InputFileError(path, "the table has no rows")
    highest = max(operation.user for operation in operations)
    return Trace(highest + 1 if users is None else users, tuple(operations))


def write_trace(trace: Trace, target: Source) -> None:
    """Writes a trace to a file, atomically."""
    path = os.fspath(target)
    rows = map(row_of, trace.operations)
    if _is_parquet(path):
        data = parquet_bytes(path, rows)
    else:
        data = csv_bytes(rows)
        if path.endswith(".gz"):
            data = _compressed(data)
    write_whole(path, data)


def csv_bytes(rows: Iterable[Row]) -> bytes:
    """Encodes rows as a CSV file."""
    lines = [",".join(COLUMNS)]
    lines += [",".join(_written(row.get(column, "")) for column in COLUMNS) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _compressed(data: bytes) -> bytes:
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


def _parquet(path: str) -> Iterator[tuple[Place, Row]]:
    for number, row in enumerate(parquet_rows(path), 1):
        yield (f"row {number}: ", None), row


def _csv(path: str) -> Iterator[tuple[Place, Row]]:
    """Reads the rows of a CSV file, each with its first line number; skips blank lines."""
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    header: list[str] = []
    line = 1
    try:
        for words in reader:
            if not any(word.strip() for word in words):
                pass
            elif not header:
                header = _header(path, line, words)
            elif len(words) != len(header):
                problem = f"the row has {len(words)} fields, but the header has {len(header)}"
                raise InputFileError(path, problem, line)
            else:
                yield ("", line), _row(path, line, zip(header, words, strict=True))
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputFileError(path, f"this is not CSV: {error}", line) from error


def _header(path: str, line: int, words: list[str]) -> list[str]:
    names = [word.strip() for word in words]
    for name in COLUMNS:
        if names.count(name) > 1:
            raise InputFileError(path, f"the header names {name} twice", line)
    if lacking := missing_columns(names):
        raise InputFileError(path, lacking, line)
    return names


def _row(path: str, line: int, words: Iterable[tuple[str, str]]) -> Row:
    row: Row = {}
    for name, word in words:
        if name in COLUMNS and word:
            try:
                row[name] = _read(name, word)
            except InputError as error:
                raise InputFileError(path, str(error), line) from error
    return row


def _read(name: str, word: str) -> Value:
    kind = COLUMNS[name]
    if kind is list:
        return word.split()
    if kind is str:
        return word
    if not _WHOLE.fullmatch(word.strip()):
        raise TraceError(name, f"is a whole number, not {shown(word)}")
    return int(word)


def _written(value: Value) -> str:
    text = " ".join(value) if isinstance(value, list) else str(value)
    if _TO_QUOTE.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text
