"""CSV files: reads the rows of CSV files, each with its own header, with Spark.

Entry point: `csv_rows`. A file is read as Latin-1, in which every byte is a character, so that
bytes that are not UTF-8 reach the quarantine unchanged. The separator is found from the header.
Clauses: P1, P2.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import IO, Any, cast

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from thyme.model.errors import safe_repr
from thyme.pipeline.posts.csv_splitting import find_splittable
from thyme.pipeline.posts.formats import COLUMNS, PostReader
from thyme.pipeline.schemas import RAW
from thyme.pipeline.storage import local_path, reader_path
from thyme.traces.files import InputFileError

SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
_BYTES = "ISO-8859-1"
_BOM = "\ufeff"
_UTF16_BOMS = ("ÿþ", "þÿ")
_RECORD = "record"
"""The column with the text of a record as it is in the file."""
_BROKEN = "broken"
_HEADER_BYTES_MAX = 1 << 16
_OPTIONS: dict[str, Any] = {
    "escape": '"',
    "mode": "PERMISSIVE",
    "encoding": _BYTES,
    "ignoreLeadingWhiteSpace": False,
    "ignoreTrailingWhiteSpace": False,
}


class CsvHeader(msgspec.Struct, frozen=True):
    """The first row of a CSV file, and the separator of its columns."""

    names: tuple[str, ...]
    separator: str


def csv_rows(
    spark: SparkSession, files: Sequence[str], reader: PostReader, source: Column
) -> DataFrame:
    """The rows of files after their headers, in the columns of RAW; files with equal headers are
    read together.

    `fields` is null for a row that is broken: with a quote that does not end, or with more or fewer
    values than the header has.
    """
    groups: dict[CsvHeader, list[str]] = {}
    for path in files:
        if not _is_empty(path):
            groups.setdefault(read_header(spark, path, reader), []).append(path)
    tables = []
    for header, paths in groups.items():
        split = find_splittable(spark, paths, header.separator)
        for multi_line in (True, False):
            if some := [path for path in paths if (path not in split) is multi_line]:
                tables.append(_read_table(spark, some, header, reader, source, multi_line))
    return reduce(DataFrame.unionByName, tables or [spark.createDataFrame([], RAW)])


def _is_empty(path: str) -> bool:
    local = local_path(path)
    return local is not None and not local.stat().st_size


def _read_table(
    spark: SparkSession,
    paths: Sequence[str],
    header: CsvHeader,
    reader: PostReader,
    source: Column,
    multi_line: bool,
) -> DataFrame:
    # Spark tells the text of a record only if it has another number of values than the schema: here
    # every record with more than one. Its values are then parsed from its text.
    rows = (
        spark.read.schema(f"first string, {_RECORD} string")
        .options(header=True, enforceSchema=True, sep=header.separator, **_OPTIONS)
        .options(columnNameOfCorruptRecord=_RECORD, multiLine=multi_line)
        .csv([reader_path(path) for path in paths])
    )
    places = [f"c{number}" for number in range(len(header.names))]
    schema = ", ".join(f"{name} string" for name in (*places, _BROKEN))
    options = {"sep": header.separator, "columnNameOfCorruptRecord": _BROKEN, **_OPTIONS}
    parsed = F.from_csv(F.col(_RECORD), schema, options).alias("parsed")
    found = rows.select(source, F.coalesce(_RECORD, "first").alias("record"), parsed)
    wanted = {reader.column(name) for name in COLUMNS}
    values = [
        F.make_valid_utf8(_original_bytes(F.col(f"parsed.{place}"))).alias(name)
        for place, name in zip(places, header.names, strict=True)
        if name in wanted
    ]
    is_whole = F.col("parsed").isNotNull() & F.col(f"parsed.{_BROKEN}").isNull()
    fields = F.when(is_whole, F.to_json(F.struct(*values)))
    return found.select(
        "source", _original_bytes(F.col("record")).alias("raw"), fields.alias("fields")
    )


def _original_bytes(text: Column) -> Column:
    """A string with the bytes of the file, from one with a character for each byte."""
    return F.encode(text, _BYTES).cast("string")


def check_header(path: str, reader: PostReader) -> None:
    """Rejects a file that lacks a column, without Spark, if its header can be read without it."""
    if _first_values(path, ",") is not None:
        read_header(None, path, reader)


def read_header(spark: SparkSession | None, path: str, reader: PostReader) -> CsvHeader:
    """Reads the header of a file and finds the separator that gives the needed columns. Spark is
    needed for headers that `check_header` does not read."""
    needed = needed_columns(reader)
    headers: list[CsvHeader] = []
    for separator in SEPARATORS:
        header = _read_first_row(spark, path, separator)
        headers.append(header)
        if needed <= set(header.names):
            break
    else:
        header = max(headers, key=lambda each: len(each.names))
    check_columns(path, header.names, reader, f" (separated by {SEPARATORS[header.separator]})")
    return header


def _read_first_row(spark: SparkSession | None, path: str, separator: str) -> CsvHeader:
    values = _first_values(path, separator)
    if values is None:
        assert spark is not None
        rows = spark.read.options(header=False, sep=separator, multiLine=True, **_OPTIONS)
        found = rows.csv(reader_path(path)).first()
        values = ["" if value is None else str(value) for value in found or ()]
    if values and values[0].startswith(_UTF16_BOMS):
        raise InputFileError(path, "is UTF-16 text: save it as UTF-8")
    names = [value.encode("latin-1").decode(errors="replace").strip() for value in values]
    if not any(names):
        raise InputFileError(path, "has no header: its first line names the columns")
    names[0] = names[0].removeprefix(_BOM).strip().strip('"')
    return CsvHeader(tuple(names), separator)


def _first_values(path: str, separator: str) -> list[str] | None:
    """The first row of a local file that has no quotes in it; None if Spark has to read it."""
    if (local := local_path(path)) is None:
        return None
    opened = gzip.open if path.endswith(".gz") else open
    try:
        with cast("IO[bytes]", opened(local, "rb")) as file:
            line = file.readline(_HEADER_BYTES_MAX)
    except (OSError, EOFError, zlib.error):
        return None
    text = line.decode("latin-1")
    plain = text.endswith("\n") and '"' not in text and text.strip()
    return text.rstrip("\r\n").split(separator) if plain else None


def needed_columns(reader: PostReader) -> set[str]:
    """The columns that a table must have: those of user and time, that of the text unless there is
    one of tags, and all mapped ones."""
    words = () if "tags" in reader.columns else ("text",)
    return {reader.column(name) for name in ("user", "time", *words, *reader.columns)}


def check_columns(path: str, names: Sequence[str], reader: PostReader, about: str = "") -> None:
    """Rejects a table without a needed column, or with two of the name: which one is meant?"""
    needed = needed_columns(reader)
    lacking = sorted(needed - set(names))
    if lacking:
        word = "column" if len(lacking) == 1 else "columns"
        shown = ", ".join(safe_repr(name, 40).strip("'") for name in names[:30])
        raise InputFileError(
            path,
            f"lacks the {word} {', '.join(lacking)}; it has {shown}{about}: "
            "map columns with --columns user=…,time=…,text=… (or tags=… if there are no texts)",
        )
    twice = sorted(name for name, count in Counter(names).items() if count > 1 and name in needed)
    if twice:
        raise InputFileError(path, f"has the column {', '.join(twice)} twice: rename one of them")
