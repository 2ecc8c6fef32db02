"""Import: adds the posts of new files to a table of posts, each file exactly once.

Entry point: `PostImport`, whose `build` fills the draft of the stage `posts`. The rows of new files
are parsed once into an intermediate table: plain rows by Spark's expressions, the others by Python.
Duplicates are found by ids alone: first by 64-bit hashes, then exactly among the few ids whose hash
occurs twice. Of posts with the same id, the one of an earlier import is kept, else the earliest;
ties are broken by a hash of the line and its file, so the choice does not depend on partitions.
Posts are stored by day, sorted by time.
Clauses: P1, P2, P8, P10, P11.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from thyme.model.errors import InputError
from thyme.pipeline.posts.plain_rows import PLAIN, can_be_plain, with_plain_posts
from thyme.pipeline.posts.rows import parse_batches
from thyme.pipeline.posts.sources import (
    DUPLICATE,
    invalid_rows,
    load_raw_rows,
    valid_posts,
)
from thyme.pipeline.schemas import FILES, POSTS, QUARANTINE, RAW, READ, STAGED, select_schema
from thyme.pipeline.storage import lacks_file_system, local_path
from thyme.pipeline.tables import Sample, sampling_rate
from thyme.traces.files import InputFileError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from thyme.pipeline.posts.formats import PostReader
    from thyme.pipeline.tables import Draft, FileFacts
    from thyme.pipeline.warehouse import Stage

DAY_US = 86_400_000_000
DAYS_MAX = 400
"""An import that spans more days is stored by month or year instead: files stay few."""
SMALL_BYTES = 8_000_000
"""Files below this size are merged by a compaction."""
_PARSED, _OTHERS, _SUSPECTS, _LOSERS = "parsed", "others", "suspects", "losers"
_UNITS = (("day", 1), ("month", 28), ("year", 365))


class InputFile(msgspec.Struct, frozen=True, order=True):
    """A file to import. Path, size and modification time identify its contents."""

    file: str
    bytes: int
    modified_us: int


def find_input_files(spark: SparkSession, files: Sequence[str]) -> list[InputFile]:
    """Sizes and modification times of local files, and of those that URIs name: files, folders or
    patterns, listed by Spark."""
    found = {}
    for path in files:
        if (local := local_path(path)) is not None:
            facts = local.stat()
            modified_us = facts.st_mtime_ns // 1_000
            found[path] = InputFile(os.path.abspath(local), facts.st_size, modified_us)
    for path in files:
        if local_path(path) is None:
            found |= {each.file: each for each in _list_uri(spark, path)}
    return sorted(found.values())


def _list_uri(spark: SparkSession, uri: str) -> list[InputFile]:
    try:
        listed = spark.read.format("binaryFile").option("recursiveFileLookup", True).load(uri)
        rows = listed.select("path", "length", F.unix_micros("modificationTime")).collect()
    except AnalysisException as error:
        raise InputFileError(uri, "cannot be read: there is no such file") from error
    except Exception as error:
        if (problem := lacks_file_system(str(error), uri)) is not None:
            raise InputFileError(uri, problem) from error
        raise
    if not rows:
        raise InputFileError(uri, "cannot be read: there is no such file")
    return [InputFile(*row) for row in rows]


class PostImport:
    """The import of files into a table of posts that may have earlier ones."""

    def __init__(
        self,
        spark: SparkSession,
        given: Sequence[InputFile],
        reader: PostReader,
        base: Stage | None,
    ) -> None:
        self._spark = spark
        self._reader = reader
        self._base = base
        self.reader_text = describe_reader(reader)
        self.files = self._select_new(given)

    def _select_new(self, given: Sequence[InputFile]) -> list[InputFile]:
        """The files that have not been imported; an error if one has, but differently."""
        if self._base is None:
            return list(given)
        rows = self._base.read(self._spark, "files", FILES).collect()
        known = {row["file"]: row for row in rows}
        for each in given:
            if (row := known.get(each.file)) is not None:
                self._check_unchanged(each, row.asDict())
        return [each for each in given if each.file not in known]

    def _check_unchanged(self, given: InputFile, known: Mapping[str, Any]) -> None:
        advice = "nothing was imported; --replace imports the given files anew, without the others"
        if (given.bytes, given.modified_us) != (known["bytes"], known["modified_us"]):
            size = f"{known['bytes']:,} bytes then, {given.bytes:,} now"
            raise InputFileError(
                given.file,
                f"has changed since it was imported ({size}), and its posts cannot be told apart "
                f"from the others; {advice}; or give the changed file another name: then its new "
                "posts are added, and the known ones are quarantined as duplicates",
            )
        if self.reader_text != known["reader"]:
            raise InputFileError(
                given.file,
                f"was imported with other options ({known['reader']}, not {self.reader_text}); "
                f"{advice}",
            )

    def build(self, draft: Draft) -> None:
        """Writes the new files' posts and quarantine; keeps those of earlier imports."""
        staged, rows_in = self._parse(draft)
        losers = self._find_losers(draft, staged)
        totals = self._write_tables(draft, _mark_losers(staged, losers), rows_in)
        if rows_in != totals["posts"] + sum(totals["quarantined"].values()):
            raise InputError(f"{rows_in} rows were read, but {totals} written")
        if not rows_in and self._base is None:
            names = ", ".join(each.file for each in self.files)
            raise InputError(f"there is no row in {names}; check the files and --format")
        before = self._base.manifest.notes if self._base else {}
        draft.add_notes(
            rows_in=rows_in + before.get("rows_in", 0),
            untagged=totals["untagged"] + before.get("untagged", 0),
            zone_assumed=totals["zone_assumed"] + before.get("zone_assumed", 0),
            quarantined=_add_counts(before.get("quarantined", {}), totals["quarantined"]),
            files_added=len(self.files),
            rows_added=rows_in,
            now_us=self._reader.now_us,
        )

    def _parse(self, draft: Draft) -> tuple[DataFrame, int]:
        """Parses all rows into intermediate tables: plain rows by Spark, the others by Python.
        Returns the rows, in the columns of STAGED, and their number."""
        raw = load_raw_rows(self._spark, [each.file for each in self.files], self._reader)
        if not can_be_plain(self._reader):
            return self._parse_in_python(draft, _PARSED, raw, None)
        found = with_plain_posts(raw, self._reader).withColumns(
            {
                "reason": F.lit(None).cast("string"),
                "line": F.xxhash64("raw"),
                "row": F.monotonically_increasing_id(),
                # The lines of plain rows are read again in the rare case that they are needed.
                **{name: F.when(~F.col(PLAIN), F.col(name)) for name in ("raw", "fields")},
            }
        )
        written = draft.write_scratch(_PARSED, select_schema(found, READ), F.col(PLAIN))
        table = draft.read_scratch(self._spark, _PARSED, READ)
        others = written["rows"] - written["counted"]
        if not others:
            return select_schema(table, STAGED), written["rows"]
        left = select_schema(table.where(~F.col(PLAIN)), RAW)
        parsed, rows = self._parse_in_python(draft, _OTHERS, left, others)
        plain = select_schema(table.where(PLAIN), STAGED)
        return plain.unionByName(parsed), written["counted"] + rows

    def _parse_in_python(
        self, draft: Draft, name: str, raw: DataFrame, lines: int | None
    ) -> tuple[DataFrame, int]:
        """Parses rows of RAW; `lines` is their number, which is counted if it is not known."""
        seen = Observation()
        if lines is None:
            raw = raw.observe(seen, F.count(F.lit(1)).alias("rows"))
        # Below zero: above are the numbers of plain rows.
        number = -1 - F.monotonically_increasing_id()
        parsed = parse_batches(raw, self._reader)
        numbered = parsed.withColumns({"line": F.xxhash64("raw"), "row": number})
        rows: int = draft.write_scratch(name, numbered)["rows"]
        if lines is None:
            lines = seen.get.get("rows", 0)
        if lines > rows:  # a page of posts is a line with several rows
            raise InputError(f"{lines} rows were read, but {rows} parsed")
        return draft.read_scratch(self._spark, name, STAGED), rows

    def _find_losers(self, draft: Draft, staged: DataFrame) -> DataFrame | None:
        """The numbers of rows whose id another post has; None if there are none."""
        valid = staged.where("reason IS NULL")
        keys = valid.select(_key())
        base = self._base
        earlier = base.read(self._spark, "posts", POSTS) if base is not None else None
        if earlier is not None:
            keys = keys.unionByName(earlier.select(_key()))
        suspects = keys.groupBy("key").count().where("count > 1").select("key")
        if not draft.write_scratch(_SUSPECTS, suspects)["rows"]:
            return None
        found = draft.read_scratch(self._spark, _SUSPECTS, suspects.schema)
        tie = F.xxhash64("line", "source").alias("tie")
        ids = valid.select(_key(), "post_id", "at_us", tie, "row", _age(1))
        if earlier is not None:
            zeros = (F.lit(0).cast("long").alias(name) for name in ("at_us", "tie", "row"))
            ids = ids.unionByName(earlier.select(_key(), "post_id", *zeros, _age(0)))
        order = Window.partitionBy("post_id").orderBy("age", "at_us", "tie", "row")
        ranked = ids.join(found, "key", "left_semi").withColumn("place", F.row_number().over(order))
        losers = ranked.where("place > 1 AND age = 1").select("row")
        if not draft.write_scratch(_LOSERS, losers)["rows"]:
            return None
        return draft.read_scratch(self._spark, _LOSERS, losers.schema)

    def _write_tables(self, draft: Draft, marked: DataFrame, rows_in: int) -> dict[str, Any]:
        if self._base is not None:
            for table, facts in self._base.manifest.tables.items():
                draft.keep(table, facts)
        counts = _count_by_source(marked)
        kept = [row for row in counts if row["reason"] is None]
        if kept:
            span_us = max(row["last_us"] for row in kept) - min(row["first_us"] for row in kept)
            posts, one_in = valid_posts(marked), sampling_rate(rows_in)
            some = F.pmod(F.xxhash64("post_id"), F.lit(one_in)) == 0
            draft.write(
                "posts",
                posts.withColumn("day", _day_column(span_us)),
                order=("at_us", "post_id"),
                schema=POSTS,
                partition_by=("day",),
                sample=Sample(posts.where(some), one_in),
                distinct=("post_id", "text"),
            )
        quarantined: dict[str, int] = {}
        for row in counts:
            if row["reason"] is not None:
                quarantined[row["reason"]] = quarantined.get(row["reason"], 0) + row["rows"]
        if quarantined:
            rejected = self._with_lines(marked.where("reason IS NOT NULL"), quarantined)
            order = ("source", "reason", "raw")
            draft.write("quarantine", invalid_rows(rejected), order=order, schema=QUARANTINE)
        elif self._base is None:
            empty = self._spark.createDataFrame([], QUARANTINE)
            draft.write("quarantine", empty, files=1, schema=QUARANTINE)
        draft.write("files", self._file_table(counts), files=1, schema=FILES)
        return {
            "posts": sum(row["rows"] for row in kept),
            "untagged": sum(row["untagged"] for row in kept),
            "zone_assumed": sum(row["zone_assumed"] for row in kept),
            "quarantined": dict(sorted(quarantined.items())),
        }

    def _with_lines(self, rejected: DataFrame, quarantined: Mapping[str, int]) -> DataFrame:
        """Rejected rows with their lines. Those of plain rows, which can only be duplicates, are
        read from the files again: hash and id tell them from others."""
        if DUPLICATE not in quarantined or not can_be_plain(self._reader):
            return rejected
        lost = rejected.where("raw IS NULL").select("source", "line").distinct()
        files = [each.file for each in self.files]
        raw = load_raw_rows(self._spark, files, self._reader)
        lines = raw.select("source", F.xxhash64("raw").alias("line"), F.col("raw").alias("found"))
        wanted = lines.join(lost, ["source", "line"], "left_semi").distinct()
        is_of_row = F.col("raw").isNull() & F.contains("found", F.col("post_id"))
        same = [F.col(f"a.{name}") == F.col(f"b.{name}") for name in ("source", "line")]
        joined = rejected.alias("a").join(wanted.alias("b"), [*same, is_of_row], "left")
        return joined.select("a.*", "found").withColumn("raw", F.coalesce("raw", "found"))

    def _file_table(self, counts: Sequence[Row]) -> DataFrame:
        """One row per new file, with the number of its rows."""
        rows: Counter[str] = Counter()
        for row in counts:
            rows[_plain_path(row["source"])] += row["rows"]
        table = [
            (each.file, each.bytes, each.modified_us, rows[each.file], self.reader_text)
            for each in self.files
        ]
        return self._spark.createDataFrame(table, FILES)


def _mark_losers(staged: DataFrame, losers: DataFrame | None) -> DataFrame:
    """The rows, those of `losers` with the reason that their id is known."""
    if losers is None:
        return staged
    lost = losers.withColumn("lost", F.lit(True))
    reason = F.when(F.col("lost"), F.lit(DUPLICATE)).otherwise(F.col("reason"))
    return staged.join(lost, "row", "left").withColumn("reason", reason)


def _count_by_source(marked: DataFrame) -> list[Row]:
    """Numbers of rows and the span of time, by file and reason (null: a post)."""
    return (
        marked.groupBy("source", "reason")
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.count(F.when(F.col("zone_assumed"), 1)).alias("zone_assumed"),
            F.count(F.when(F.size("tags") == 0, 1)).alias("untagged"),
            F.min("at_us").alias("first_us"),
            F.max("at_us").alias("last_us"),
        )
        .collect()
    )


def describe_reader(reader: PostReader) -> str:
    """The options that determine how a file is read, as JSON."""
    values = msgspec.to_builtins(reader)
    options = {name: value for name, value in values.items() if name != "now_us" and value}
    return msgspec.json.encode(options, order="deterministic").decode()


def _add_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def _key() -> Column:
    return F.xxhash64("post_id").alias("key")


def _age(value: int) -> Column:
    return F.lit(value).alias("age")


def _plain_path(source: str) -> str:
    """The path of a file as it was given, from the URI that Spark has for it."""
    path = unquote(source)
    local = local_path(source)
    return path if local is None else str(local)


def _day_column(span_us: int) -> Column:
    """The day of a post; the first of its month or year, if all posts span very many days."""
    days = span_us // DAY_US + 1
    unit = next((name for name, length in _UNITS if days <= DAYS_MAX * length), "year")
    date = F.to_date(F.timestamp_micros("at_us"))
    return date if unit == "day" else F.trunc(date, unit)


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
