"""Sources: reads files of posts in any supported format, with Spark.

Every row of a file becomes a row of RAW, which `posts.rows` parses into a post or rejects with a
reason. Each row ends up either in the posts or in the quarantine, with the reason and the raw row.
Entry points: `expand_files`, `load_raw_rows`.
Clauses: P1, P2.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import reduce
from glob import glob, has_magic
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from thyme.model.errors import InputError, OptionError
from thyme.pipeline.posts.csv_files import check_columns, csv_rows
from thyme.pipeline.posts.formats import FORMATS, PostReader
from thyme.pipeline.posts.rows import with_original_bytes
from thyme.pipeline.schemas import POSTS, QUARANTINE, select_schema
from thyme.pipeline.storage import local_path, reader_path
from thyme.traces.files import InputFileError

DUPLICATE = "duplicate id"
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


_FORMATS_BY_SUFFIX = {
    ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl",
}  # fmt: skip


def guess_format(files: Sequence[str]) -> str:
    """The format that all names of files tell; an error if they differ or tell none."""
    found = {
        _FORMATS_BY_SUFFIX.get(Path(path.removesuffix(".gz")).suffix.lower()) for path in files
    }
    if len(found) == 1 and (form := found.pop()) is not None:
        return form
    raise OptionError(
        f"the names of the files do not tell one format: give --format {', '.join(FORMATS)}"
    )


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
        rows = csv_rows(spark, files, reader, _source_column())
    elif reader.form == "parquet":
        rows = reduce(DataFrame.unionByName, [_parquet_rows(spark, path, reader) for path in files])
    else:
        lines = spark.read.text([reader_path(path) for path in files])
        filled = lines.where(F.trim("value") != "")
        rows = filled.select(_source_column(), F.col("value").alias("raw"))
    return with_original_bytes(rows)


def _source_column() -> Column:
    return F.input_file_name().alias("source")


def _parquet_rows(spark: SparkSession, path: str, reader: PostReader) -> DataFrame:
    rows = spark.read.parquet(reader_path(path))
    check_columns(path, rows.columns, reader)
    options = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    as_json = F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns)), options)
    return rows.select(_source_column(), as_json.alias("raw"))


def valid_posts(rows: DataFrame) -> DataFrame:
    """The accepted rows of PARSED, in the columns of POSTS."""
    return select_schema(rows.where("reason IS NULL"), POSTS)


def invalid_rows(rows: DataFrame) -> DataFrame:
    """The rejected rows of PARSED, in the columns of QUARANTINE."""
    return select_schema(rows.where("reason IS NOT NULL"), QUARANTINE)
