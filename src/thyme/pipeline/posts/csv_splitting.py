"""CSV splitting: finds the large CSV files that Spark may read in pieces.

A text of a CSV file may contain line breaks, so in general one task has to read a file from its
start. A file whose lines are all whole records may be split instead. `find_splittable` checks that
in tasks, line by line: every field is either free of quotes or quoted from its start to its end.
Entry point: `find_splittable`.
Clauses: P1, P8.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from thyme.pipeline.storage import local_path, reader_path

SPLIT_BYTES = 128 * 1024 * 1024
"""Smaller files are one task each anyway."""


def find_splittable(spark: SparkSession, paths: Sequence[str], separator: str) -> set[str]:
    """The large files among `paths` in which every line is a record; their columns are separated
    by `separator`."""
    large = {reader_path(path): path for path in paths if _is_large(path)}
    if not large:
        return set()
    lines = spark.read.option("lineSep", "\n").text([*large])
    marked = lines.select(F.input_file_name().alias("source"), "value").where(
        F.contains("value", F.lit('"')) | F.contains("value", F.lit("\r"))
    )

    def select_partial_lines(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The sources of lines that are not whole records."""
        for batch in batches:
            sources, texts = (batch.column(name).to_pylist() for name in ("source", "value"))
            found = {
                source
                for source, line in zip(sources, texts, strict=True)
                if not is_record(line.removesuffix("\r"), separator)
            }
            yield pa.RecordBatch.from_pydict({"source": pa.array(sorted(found), pa.string())})

    broken = marked.mapInArrow(select_partial_lines, "source string").distinct().collect()
    if not broken:
        return set(large.values())
    named = {row["source"] for row in broken}
    return {path for path in large.values() if not any(_is_source(each, path) for each in named)}


def _is_source(source: str, path: str) -> bool:
    """Whether Spark's name of a file is that of a path; in doubt it is."""
    local = local_path(source)
    return local is None or str(local) == os.path.abspath(path)


def _is_large(path: str) -> bool:
    local = local_path(path)
    if path.endswith(".gz"):
        return False
    return local is None or local.stat().st_size > SPLIT_BYTES


def is_record(line: str, separator: str = ",") -> bool:
    """Whether a line is a whole record: it ends outside of quotes, however they are read."""
    return "\r" not in line and _record_pattern(separator).fullmatch(line) is not None


@cache
def _record_pattern(separator: str) -> re.Pattern[str]:
    mark = re.escape(separator)
    field = rf'(?:"(?:[^"]|"")*+"|[^"{mark}]*+)'
    return re.compile(rf"{field}(?:{mark}{field})*+", re.DOTALL)
