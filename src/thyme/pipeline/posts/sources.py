"""Sources: reads files of posts in any supported format, with Spark.

Every row of a file becomes one line of JSON, which `posts.formats` parses into a post or rejects
with a reason. Each row ends up either in the posts or in the quarantine, with the reason and the
raw row. Entry points: `load_raw_rows`, `parse_rows`.
Clauses: P1, P2.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import reduce
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from thyme.model.errors import InputError
from thyme.pipeline.posts.csv_files import OPTIONS, find_splittable, read_header
from thyme.pipeline.posts.formats import InvalidPost, PostReader, read_post
from thyme.pipeline.schemas import PARSED, POSTS, QUARANTINE, RAW, rows_to_batch, select_schema
from thyme.pipeline.storage import local_path, reader_path
from thyme.traces.files import InputFileError

DUPLICATE = "duplicate id"
_CORRUPT = "__broken__"
_GZIP = b"\x1f\x8b"


def expand_files(given: Sequence[str]) -> list[str]:
    """Expands paths, folders and patterns to readable files; URIs are returned unchanged."""
    found: list[str] = []
    for each in given:
        local = local_path(each)
        path = each if local is None else str(local)
        if local is None:
            found.append(path)
        elif Path(path).is_dir():
            inside = (file for file in Path(path).rglob("*") if file.is_file())
            found += sorted(str(file) for file in inside if not file.name.startswith((".", "_")))
        elif has_magic(path) and not Path(path).exists():
            found += sorted(glob(path))
        else:
            found.append(path)
    if not found:
        raise InputError(f"there is no file {', '.join(given)}")
    return [path if local_path(path) is None else _check_file(path) for path in found]


def _check_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            compressed = file.read(2) == _GZIP
    except OSError as error:
        raise InputFileError(path, f"cannot be read: {error.strerror or error}") from error
    if compressed and not path.endswith(".gz"):
        raise InputFileError(path, "is compressed: name it .gz")
    if path.endswith(".gz") and not compressed and os.path.getsize(path):
        raise InputFileError(path, "is named .gz but is not compressed")
    return os.path.abspath(path)


def load_raw_rows(spark: SparkSession, files: Sequence[str], reader: PostReader) -> DataFrame:
    """The unparsed rows of files, in the columns of RAW; blank lines are skipped."""
    if reader.form == "csv":
        rows = _csv_rows(spark, files, reader)
    elif reader.form == "parquet":
        rows = reduce(DataFrame.unionByName, [_parquet_rows(spark, path, reader) for path in files])
    else:
        lines = spark.read.text([reader_path(path) for path in files])
        filled = lines.where(F.length(F.trim("value")) > 0)
        rows = filled.select(_source_column(), F.col("value").alias("raw"))
    return select_schema(rows, RAW)


def _source_column() -> Column:
    return F.input_file_name().alias("source")


def _csv_rows(spark: SparkSession, files: Sequence[str], reader: PostReader) -> DataFrame:
    """The rows of CSV files; files with equal headers are read together."""
    splittable = find_splittable(spark, files)
    groups: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    for path in files:
        if names := read_header(spark, path):
            _check_columns(path, names, reader)
            groups.setdefault((names, path in splittable), []).append(reader_path(path))
    tables = [_csv_table(spark, paths, names, split) for (names, split), paths in groups.items()]
    return reduce(DataFrame.unionByName, tables) if tables else spark.createDataFrame([], RAW)


def _csv_table(
    spark: SparkSession, paths: Sequence[str], names: Sequence[str], split: bool
) -> DataFrame:
    schema = ", ".join(f"`{name.replace('`', '``')}` string" for name in [*names, _CORRUPT])
    table = spark.read.schema(schema).options(
        columnNameOfCorruptRecord=_CORRUPT, multiLine=not split, **OPTIONS
    )
    as_json = F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)))
    raw = F.coalesce(F.col(_CORRUPT), as_json).alias("raw")
    return table.csv(list(paths)).select(_source_column(), raw)


def _parquet_rows(spark: SparkSession, path: str, reader: PostReader) -> DataFrame:
    rows = spark.read.parquet(reader_path(path))
    _check_columns(path, rows.columns, reader)
    options = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    as_json = F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns)), options)
    return rows.select(_source_column(), as_json.alias("raw"))


def _check_columns(path: str, names: Sequence[str], reader: PostReader) -> None:
    """Rejects a table without a required column: none of its rows could be a post."""
    needed = {"user", "time", "text", *reader.columns}
    lacking = sorted(reader.column(name) for name in needed if reader.column(name) not in names)
    if lacking:
        raise InputFileError(
            path,
            f"lacks the column {', '.join(lacking)}; it has {', '.join(names)} "
            "(map columns with --columns user=…,time=…,text=…)",
        )


def parse_rows(raw: DataFrame, reader: PostReader) -> DataFrame:
    """Parses each row of RAW into a post or a reason for rejection, in the columns of PARSED."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sources, lines, valid = (
                batch.column(name).to_pylist() for name in ("source", "raw", "valid")
            )
            rows = map(_parse_row, sources, lines, valid, [reader] * len(lines))
            yield rows_to_batch(list(rows), _parsed_schema())

    valid = F.is_valid_utf8("raw")
    if reader.form == "csv":
        # Text lines keep their bytes, but the CSV reader replaces invalid UTF-8 by U+FFFD.
        valid &= ~F.contains("raw", F.lit("\ufffd"))
    marked = raw.select("source", F.make_valid_utf8("raw").alias("raw"), valid.alias("valid"))
    return marked.mapInArrow(read, PARSED)


def valid_posts(rows: DataFrame) -> DataFrame:
    """The accepted rows of PARSED, in the columns of POSTS."""
    return select_schema(rows.where("reason IS NULL"), POSTS)


def invalid_rows(rows: DataFrame) -> DataFrame:
    """The rejected rows of PARSED, in the columns of QUARANTINE."""
    return select_schema(rows.where("reason IS NOT NULL"), QUARANTINE)


def _parse_row(source: str, line: str, valid: bool, reader: PostReader) -> dict[str, Any]:
    row: dict[str, Any] = {"source": source, "raw": line}
    try:
        if not valid:
            raise InvalidPost("not UTF-8")
        post = read_post(line, reader)
    except InvalidPost as error:
        return row | {"reason": str(error)}
    return row | msgspec.structs.asdict(post)


def _parsed_schema() -> pa.Schema:
    kinds = {"string": pa.string(), "bigint": pa.int64(), "array<string>": pa.list_(pa.string())}
    return pa.schema([(field.name, kinds[field.dataType.simpleString()]) for field in PARSED])
