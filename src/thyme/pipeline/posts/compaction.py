"""Compaction: merges the small files that many imports left, folder by folder.

Entry points: `has_small_files`, `compact_posts`. The rows stay the same, and so do traces of them.
Clause: P10.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from thyme.pipeline.schemas import FILES, POSTS, QUARANTINE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from thyme.pipeline.tables import Draft, FileFacts
    from thyme.pipeline.warehouse import Stage

SMALL_BYTES = 8_000_000
"""Files below this size are merged."""


def has_small_files(base: Stage) -> bool:
    """Whether a day, or another table, has several small files."""
    return any(_files_to_merge(base, table) for table in _COMPACTED)


def compact_posts(spark: SparkSession, draft: Draft, base: Stage) -> None:
    """Rewrites the small files of each day, and of the other tables, as few; keeps the others."""
    for table, (schema, order) in _COMPACTED.items():
        if (facts := base.manifest.tables.get(table)) is None:
            continue
        merged = _files_to_merge(base, table)
        draft.keep(table, facts, [each for each in facts.files if each not in merged])
        if merged:
            frame = base.read_files(spark, schema, merged)
            _write_compacted(draft, table, frame, schema, order)


def _files_to_merge(base: Stage, table: str) -> list[FileFacts]:
    """The small files of a table, where a folder has several."""
    folders: dict[str, list[FileFacts]] = {}
    for file in base.manifest.tables[table].files if table in base.manifest.tables else ():
        if file.bytes < SMALL_BYTES:
            folder = file.path.partition(f"/{table}/")[2].rpartition("/")[0]
            folders.setdefault(folder, []).append(file)
    return [each for files in folders.values() if len(files) > 1 for each in files]


def _write_compacted(
    draft: Draft, table: str, frame: DataFrame, schema: StructType, order: Sequence[str]
) -> None:
    if table != "posts":
        draft.write(table, frame, order=order, schema=schema)
        return
    # The folders of the files that are merged: a day is not split into other units.
    folder = F.regexp_extract("_metadata.file_path", "/day=([^/]+)/", 1).cast("date").alias("day")
    draft.write(table, frame.select("*", folder), order=order, schema=schema, partition_by=("day",))


_COMPACTED = {
    "posts": (POSTS, ("at_us", "post_id")),
    "quarantine": (QUARANTINE, ("source", "reason", "raw")),
    "files": (FILES, ("file",)),
}
