"""Parquet: reads and writes rows of operations; needs pyarrow (extras `sim` and `pipeline`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from thyme.distribution import install_hint
from thyme.traces.files import InputFileError
from thyme.traces.row_codec import COLUMNS, OperationRow, missing_columns_message

_BATCH_ROWS = 65_536


def rows_to_parquet(path: str, rows: Iterable[OperationRow]) -> bytes:
    """Encodes rows as a Parquet file."""
    arrow, parquet = _import_pyarrow(path)
    table = arrow.Table.from_pylist(list(rows), schema=_schema(arrow))
    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_parquet_rows(path: str) -> Iterator[OperationRow]:
    """Reads the rows of a Parquet file; ignores columns that are not in COLUMNS."""
    arrow, parquet = _import_pyarrow(path)
    try:
        file = parquet.ParquetFile(path)
    except OSError as error:
        raise InputFileError(path, f"cannot be read: {error.strerror or error}") from error
    except arrow.ArrowException as error:
        raise InputFileError(path, f"this is not Parquet: {error}") from error
    with file:
        if lacking := missing_columns_message(file.schema_arrow.names):
            raise InputFileError(path, lacking)
        try:
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(COLUMNS)):
                yield from _table_rows(path, arrow, arrow.Table.from_batches([batch]))
        except (OSError, arrow.ArrowException) as error:
            raise InputFileError(path, f"this is not Parquet: {error}") from error


def _table_rows(path: str, arrow: ModuleType, table: Any) -> Iterator[OperationRow]:
    columns = []
    for field in _schema(arrow):
        column = table.column(field.name)
        if not _is_compatible(arrow, column.type, field.type):
            raise InputFileError(path, f"{field.name}: must be {field.type}, not {column.type}")
        columns.append(column.cast(field.type).to_pylist())
    for values in zip(*columns, strict=True):
        yield {
            name: value
            for name, value in zip(COLUMNS, values, strict=True)
            if value is not None and value != ""
        }


def _is_compatible(arrow: ModuleType, found: Any, wanted: Any) -> bool:
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


def _import_pyarrow(path: str) -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputFileError(
            path, f"Parquet needs pyarrow: {install_hint('sim')}; or use a .csv file"
        ) from error
    return pyarrow, parquet
