"""Rows: parses the rows of files, batch by batch, in Spark's Python workers.

Entry point: `parse_batches`, which turns each row into a post or a reason for rejection, and a page
of posts into several. `posts.formats` has the rules of one row, `posts.sources` the files.
Clauses: P1, P2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from thyme.pipeline.posts.formats import (
    InvalidPost,
    PostReader,
    lacks_zone,
    make_post,
    read_fields,
    split_page,
)
from thyme.pipeline.schemas import PARSED, RAW, rows_to_batch, select_schema

_ARROW_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "array<string>": pa.list_(pa.string()),
}


def with_original_bytes(rows: DataFrame) -> DataFrame:
    """Separates text and bytes: `raw` becomes valid UTF-8; if it was not, `raw_bytes` keeps it."""
    original = F.when(~F.is_valid_utf8("raw"), F.col("raw").cast("binary"))
    made = rows.withColumns({"raw_bytes": original, "raw": F.make_valid_utf8("raw")})
    if "fields" not in rows.columns:
        made = made.withColumn("fields", F.lit(None).cast("string"))
    return select_schema(made, RAW)


def parse_batches(raw: DataFrame, reader: PostReader) -> DataFrame:
    """Parses each row of RAW into posts or a reason for rejection, in the columns of PARSED. A page
    of posts becomes one row per post; any other row stays one row."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = (each for row in batch.to_pylist() for each in _split_row(row, reader))
            yield rows_to_batch([parse_row(row, reader) for row in rows], _arrow_schema(PARSED))

    return raw.mapInArrow(read, PARSED)


def _split_row(row: dict[str, Any], reader: PostReader) -> list[dict[str, Any]]:
    """The rows of RAW of the posts in a page; the row itself if it is not a page."""
    if row["raw_bytes"] is not None or row["fields"] is not None or reader.form == "csv":
        return [row]
    parts = split_page(row["raw"], reader.form)
    return [row] if parts == [row["raw"]] else [row | {"raw": part} for part in parts]


def parse_row(row: dict[str, Any], reader: PostReader) -> dict[str, Any]:
    """Parses one row of RAW into a row of PARSED."""
    line = row["fields"]
    kept = {name: row[name] for name in ("source", "raw", "raw_bytes")}
    try:
        if row["raw_bytes"] is not None:
            raise InvalidPost("not UTF-8")
        if line is None:
            if reader.form == "csv":
                raise InvalidPost("broken row")
            line = row["raw"]
        fields = read_fields(line, reader)
        post = make_post(fields, reader)
    except InvalidPost as error:
        return kept | {"reason": str(error)}
    assumed = reader.zone is None and lacks_zone(fields.get("time"))
    return kept | msgspec.structs.asdict(post) | {"zone_assumed": assumed}


def _arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema(
        [(field.name, _ARROW_TYPES[field.dataType.simpleString()]) for field in schema]
    )
