"""CSV files: reads their headers, and finds out which large files can be read in pieces.

A text of a CSV file may contain line breaks, so in general one task has to read a file from its
start. A file whose lines are all whole records may be split instead. `find_splittable` checks that
in tasks, line by line: every field is either free of quotes or quoted from its start to its end.
Entry points: `read_header`, `find_splittable`.
Clauses: P1, P8.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from thyme.pipeline.storage import local_path, reader_path

SPLIT_BYTES = 128 * 1024 * 1024
"""Smaller files are one task each anyway."""
OPTIONS: Mapping[str, Any] = {
    "header": True,
    "escape": '"',
    "mode": "PERMISSIVE",
    "encoding": "UTF-8",
}
_HEADER_BYTES_MAX = 1 << 16
_FIELD = r'(?:"(?:[^"]|"")*+"|[^",]*+)'
_RECORD = re.compile(rf"{_FIELD}(?:,{_FIELD})*+", re.DOTALL)


def read_header(spark: SparkSession, path: str) -> tuple[str, ...]:
    """The names of a file's columns; none if the file is empty."""
    line = _first_line(path)
    names = () if line is None else tuple(line.split(","))
    plain = line is not None and '"' not in line and "\r" not in line and all(names)
    if plain and len({name.lower() for name in names}) == len(names):
        return names
    return tuple(spark.read.options(multiLine=True, **OPTIONS).csv(reader_path(path)).columns)


def _first_line(path: str) -> str | None:
    """The first line of a local file, without the mark of its encoding; None if unknown."""
    if (local := local_path(path)) is None:
        return None
    opened = gzip.open if path.endswith(".gz") else open
    try:
        with cast("IO[bytes]", opened(local, "rb")) as file:
            line = file.readline(_HEADER_BYTES_MAX)
        text = line.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return None
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else None


def find_splittable(spark: SparkSession, paths: Sequence[str]) -> set[str]:
    """The large files among `paths` in which every line is a record."""
    large = {reader_path(path): path for path in paths if _is_large(path)}
    if not large:
        return set()
    lines = spark.read.option("lineSep", "\n").text([*large])
    marked = lines.select(F.input_file_name().alias("source"), "value").where(
        F.contains("value", F.lit('"')) | F.contains("value", F.lit("\r"))
    )
    broken = marked.mapInArrow(_select_partial_lines, "source string").distinct().collect()
    if not broken:
        return set(large.values())
    sources = {row["source"] for row in broken}
    return {path for path in large.values() if not any(_is_source(each, path) for each in sources)}


def _is_source(source: str, path: str) -> bool:
    """Whether Spark's name of a file is that of a path; in doubt it is."""
    local = local_path(source)
    return local is None or str(local) == os.path.abspath(path)


def _is_large(path: str) -> bool:
    local = local_path(path)
    if path.endswith(".gz"):
        return False
    return local is None or local.stat().st_size > SPLIT_BYTES


def _select_partial_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The sources of lines that are not whole records."""
    for batch in batches:
        sources, lines = (batch.column(name).to_pylist() for name in ("source", "value"))
        found = {
            source
            for source, line in zip(sources, lines, strict=True)
            if not is_record(line.removesuffix("\r"))
        }
        yield pa.RecordBatch.from_pydict({"source": pa.array(sorted(found), pa.string())})


def is_record(line: str) -> bool:
    """Whether a line is a whole record: it ends outside of quotes, however they are read."""
    return "\r" not in line and _RECORD.fullmatch(line) is not None
