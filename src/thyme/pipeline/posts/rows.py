"""Rows: parses the rows of files, batch by batch, in Spark's Python workers.

Entry point: `parse_batches`, which turns each row into a post or a reason for rejection, and a page
of posts into several. `posts.formats` has the rules of one row, `posts.sources` the files.
Clauses: P1, P2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
from thyme.pipeline.schemas import PARSED, RAW, select_schema
from thyme.traces.posts import Post

NOT_UTF8 = "not UTF-8"
"""The reason of rows whose bytes are not UTF-8."""
_GIVEN = ("source", "raw", "raw_bytes", "fields")
_ORDER = (
    "source", "raw", "raw_bytes", "reason", "zone_assumed",
    "post_id", "user", "at_us", "text", "tags",
)  # fmt: skip
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
        schema = _arrow_schema(PARSED)
        for batch in batches:
            rows = ParsedRows(reader)
            for row in zip(*(batch.column(name).to_pylist() for name in _GIVEN), strict=True):
                rows.add(*row)
            yield rows.to_batch(schema)

    return raw.mapInArrow(read, PARSED)


class ParsedRows:
    """Rows of PARSED, column by column: a dictionary per row takes longer than its parsing."""

    def __init__(self, reader: PostReader) -> None:
        self._reader = reader
        self._has_pages = reader.form != "csv"
        self._columns: dict[str, list[Any]] = {field.name: [] for field in PARSED}
        self._appenders = [self._columns[name].append for name in _ORDER]

    def add(self, source: str, raw: str, raw_bytes: bytes | None, fields: str | None) -> None:
        """Adds the posts of a row of RAW, or the reason for its rejection."""
        if raw_bytes is not None:
            self._append(source, raw, raw_bytes, NOT_UTF8)
        elif fields is not None:
            self._parse(source, raw, fields)
        elif not self._has_pages:
            self._append(source, raw, None, "broken row")
        else:
            for part in split_page(raw, self._reader.form):
                self._parse(source, part, part)

    def _parse(self, source: str, raw: str, line: str) -> None:
        reader = self._reader
        try:
            fields = read_fields(line, reader)
            post = make_post(fields, reader)
        except InvalidPost as error:
            self._append(source, raw, None, str(error))
            return
        assumed = reader.zone is None and lacks_zone(fields.get("time"))
        self._append(source, raw, None, None, post, assumed)

    def _append(
        self,
        source: str,
        raw: str,
        raw_bytes: bytes | None,
        reason: str | None,
        post: Post | None = None,
        zone_assumed: bool | None = None,
    ) -> None:
        values = (
            (None, None, None, None, None)
            if post is None
            else (post.post_id, post.user, post.at_us, post.text, post.tags)
        )
        row = (source, raw, raw_bytes, reason, zone_assumed, *values)
        for append, value in zip(self._appenders, row, strict=True):
            append(value)

    def to_batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows as a batch."""
        arrays = [pa.array(self._columns[field.name], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema(
        [(field.name, _ARROW_TYPES[field.dataType.simpleString()]) for field in schema]
    )
