"""Parquet: reads and writes rows of operations; needs pyarrow (extras `sim` and `pipeline`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from thyme.traces.files import InputFileError
from thyme.traces.rows import COLUMNS, Row, missing_columns

_ROWS_AT_ONCE = 65_536


def parquet_bytes(path: str, rows: Iterable[Row]) -> bytes:
    """Encodes rows as a Parquet file."""
    arrow, parquet = _pyarrow(path)
    table = arrow.Table.from_pylist(list(rows), schema=_schema(arrow))
    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def parquet_rows(path: str) -> Iterator[Row]:
    """Reads the rows of a Parquet file; ignores columns that are not in COLUMNS."""
    arrow, parquet = _pyarrow(path)
    try:
        file = parquet.ParquetFile(path)
    except OSError as error:
        raise InputFileError(path, f"cannot be read: {error.strerror or error}") from error
    except arrow.ArrowException as error:
        raise InputFileError(path, f"this is not Parquet: {error}") from error
    with file:
        if lacking := missing_columns(file.schema_arrow.names):
            raise InputFileError(path, lacking)
        try:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(COLUMNS)):
                yield from _rows(path, arrow, arrow.Table.from_batches([batch]))
        except (OSError, arrow.ArrowException) as error:
            raise InputFileError(path, f"this is not Parquet: {error}") from error


def _rows(path: str, arrow: ModuleType, table: Any) -> Iterator[Row]:
    columns = []
    for field in _schema(arrow):
        column = table.column(field.name)
        if not _alike(arrow, column.type, field.type):
            raise InputFileError(path, f"{field.name}: must be {field.type}, not {column.type}")
        columns.append(column.cast(field.type).to_pylist())
    for values in zip(*columns, strict=True):
        yield {
            name: value
            for name, value in zip(COLUMNS, values, strict=True)
            if value is not None and value != ""
        }


def _alike(arrow: ModuleType, found: Any, wanted: Any) -> bool:
    """Whether a column of one type can be read as the other, such as int32 as int64."""
    types = arrow.types
    if types.is_null(found):
        return True
    if types.is_int64(wanted):
        return bool(types.is_integer(found))
    if types.is_list(wanted):
        return bool(types.is_list(found) and types.is_string(found.value_type))
    return bool(types.is_string(found) or types.is_large_string(found))


def _schema(arrow: ModuleType) -> Any:
    kinds = {int: arrow.int64(), str: arrow.string(), list: arrow.list_(arrow.string())}
    return arrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])


def _pyarrow(path: str) -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputFileError(
            path, "Parquet needs pyarrow: pip install 'thyme[sim]', or use a .csv file"
        ) from error
    return pyarrow, parquet
