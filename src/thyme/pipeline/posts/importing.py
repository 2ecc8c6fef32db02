"""Import: adds the posts of new files to a table of posts, each file exactly once.

Entry point: `PostImport`, whose `build` fills the draft of the stage `posts`. One pass parses plain
rows by Spark's expressions and writes them, by day and sorted by time, into files of posts. If
there are other rows, the files are read again, and Python parses these. The posts are written
before it is known whether ids occur twice (`posts.duplicates`): files with duplicates are written
again without them.
Clauses: P1, P2, P8, P10, P11.
"""

from __future__ import annotations

import os
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from thyme.model.errors import InputError
from thyme.pipeline.posts.duplicates import Duplicates, DuplicateSearch
from thyme.pipeline.posts.plain_rows import PLAIN, can_be_plain, with_plain_posts
from thyme.pipeline.posts.rows import parse_batches
from thyme.pipeline.posts.sources import (
    DUPLICATE,
    invalid_rows,
    load_raw_rows,
    valid_posts,
)
from thyme.pipeline.schemas import FILES, POSTS, QUARANTINE, RAW, STAGED, select_schema
from thyme.pipeline.storage import lacks_file_system, local_path
from thyme.pipeline.tables import ROWS_PER_FILE, Sample, sampling_rate
from thyme.traces.files import InputFileError

if TYPE_CHECKING:
    from thyme.pipeline.posts.formats import PostReader
    from thyme.pipeline.tables import Draft, FileFacts
    from thyme.pipeline.warehouse import Stage

DAY_US = 86_400_000_000
DAYS_MAX = 400
"""An import that spans more days is stored by month or year instead: files stay few."""
SCATTERED = 4
"""Posts in so many times the files that they need are moved to the files of their days."""
_PARSED = "parsed"
_ORDER, _DISTINCT = ("at_us", "post_id"), ("post_id", "text")
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


class ImportCounts:
    """What an import read and rejected; `rows` are posts and rejected rows together."""

    def __init__(self) -> None:
        self.rows = 0
        self.untagged = 0
        self.zone_assumed = 0
        self.quarantined: Counter[str] = Counter()
        self.rows_of_file: Counter[str] = Counter()

    def add(self, measured: Mapping[str, int]) -> None:
        """Adds valid posts."""
        self.rows += measured["rows"]
        self.untagged += measured["untagged"]
        self.zone_assumed += measured["zone_assumed"]

    def add_source(self, measured: Mapping[str, Any], file: str) -> None:
        """Adds rows of a file that are posts, or rejected for the same reason."""
        self.rows_of_file[file] += measured["rows"]
        if measured["reason"] is None:
            self.add(measured)
        else:
            self.rows += measured["rows"]
            self.quarantined[measured["reason"]] += measured["rows"]

    def add_duplicates(self, measured: Mapping[str, int]) -> None:
        """Counts posts as duplicates that were added as valid ones."""
        self.quarantined[DUPLICATE] += measured["rows"]
        self.untagged -= measured["untagged"]
        self.zone_assumed -= measured["zone_assumed"]


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
        if self._base is not None:
            for table, facts in self._base.manifest.tables.items():
                draft.keep(table, facts)
        counts, others = self._write_posts(draft)
        found = self._find_duplicates(draft, others)
        if found is not None:
            counts.add_duplicates(found.losers.agg(*_measures()).collect()[0].asDict())
        self._arrange(draft, found)
        self._write_quarantine(draft, counts, others, found)
        draft.write("files", self._file_table(counts.rows_of_file), files=1, schema=FILES)
        self._check_rows(draft, counts)
        before = self._base.manifest.notes if self._base else {}
        draft.add_notes(
            rows_in=counts.rows + before.get("rows_in", 0),
            untagged=counts.untagged + before.get("untagged", 0),
            zone_assumed=counts.zone_assumed + before.get("zone_assumed", 0),
            quarantined=_add_counts(before.get("quarantined", {}), counts.quarantined),
            files_added=len(self.files),
            rows_added=counts.rows,
            now_us=self._reader.now_us,
        )

    def _check_rows(self, draft: Draft, counts: ImportCounts) -> None:
        written = draft.rows_written("posts")
        if counts.rows != written + counts.quarantined.total():
            raise InputError(
                f"{counts.rows} rows were read, but {written} posts written and "
                f"{dict(counts.quarantined)} quarantined; did a file change during the import?"
            )
        if not counts.rows and self._base is None:
            names = ", ".join(each.file for each in self.files)
            raise InputError(f"there is no row in {names}; check the files and --format")

    # Parsing: plain rows become files of posts at once, the others pass through a table

    def _write_posts(self, draft: Draft) -> tuple[ImportCounts, DataFrame | None]:
        """Parses all rows and writes the valid posts. Returns what was counted, and the rows that
        Python parsed, in the columns of STAGED; None if there are none."""
        counts, raw = ImportCounts(), self._raw_rows()
        lines: int | None = None
        if can_be_plain(self._reader):
            lines = self._write_plain(draft, counts)
            if not lines:
                return counts, None
            found = with_plain_posts(raw, self._reader)
            raw = select_schema(found.where(~F.col(PLAIN)), RAW)
        parsed = self._parse_in_python(draft, raw, lines)
        by_source = parsed.groupBy("source", "reason").agg(*_measures()).collect()
        for row in by_source:
            counts.add_source(row.asDict(), _plain_path(row["source"]))
        if any(row["reason"] is None for row in by_source):
            self._add_posts(draft, valid_posts(parsed))
        return counts, parsed

    def _raw_rows(self) -> DataFrame:
        return load_raw_rows(self._spark, [each.file for each in self.files], self._reader)

    def _write_plain(self, draft: Draft, counts: ImportCounts) -> int:
        """Writes the posts of plain rows; returns the number of other lines."""
        seen = Observation()
        raw = self._raw_rows()
        is_plain, number = F.col(PLAIN), _source_number(F.col("source"))
        found = with_plain_posts(raw, self._reader).observe(
            seen,
            F.count(F.lit(1)).alias("lines"),
            F.count(F.when(is_plain, 1)).alias("rows"),
            F.count(F.when(is_plain & (F.size("tags") == 0), 1)).alias("untagged"),
            F.count(F.when(is_plain & F.col("zone_assumed"), 1)).alias("zone_assumed"),
            # Exact counts, because there are no more different numbers than files.
            F.histogram_numeric(F.when(is_plain, number), F.lit(max(2, len(self.files) + 1))).alias(
                "sources"
            ),
        )
        self._add_posts(draft, select_schema(found.where(PLAIN), POSTS))
        observed: dict[str, Any] = {"lines": 0, "rows": 0, "untagged": 0, "zone_assumed": 0}
        observed |= seen.get
        counts.add(observed)
        for file, rows in self._rows_by_file(raw, observed.get("sources") or ()):
            counts.rows_of_file[file] += rows
        return int(observed["lines"] - observed["rows"])

    def _rows_by_file(self, raw: DataFrame, found: Sequence[Row]) -> Iterator[tuple[str, int]]:
        """The path and number of rows of each file, from a histogram of the numbers of sources.
        The nearest number is meant: adding up the counts of tasks rounds it."""
        if not found:
            return
        given = pa.array(raw.inputFiles(), pa.string())
        sources = self._spark.createDataFrame(pa.table({"source": given}))
        rows = sorted(sources.select(_source_number(F.col("source")), "source").collect())
        bounds = [(one[0] + other[0]) / 2 for one, other in pairwise(rows)]
        for each in found:
            yield _plain_path(rows[bisect(bounds, each["x"])][1]), round(each["y"])

    def _parse_in_python(self, draft: Draft, raw: DataFrame, lines: int | None) -> DataFrame:
        """Parses rows of RAW; `lines` is their number, which is counted if it is not known."""
        seen = Observation()
        if lines is None:
            raw = raw.observe(seen, F.count(F.lit(1)).alias("rows"))
        # Below zero: above are the numbers of plain rows.
        number = -1 - F.monotonically_increasing_id()
        parsed = parse_batches(raw, self._reader)
        numbered = parsed.withColumns({"line": F.xxhash64("raw"), "row": number})
        rows: int = draft.write_scratch(_PARSED, numbered)["rows"]
        if lines is None:
            lines = seen.get.get("rows", 0)
        if lines > rows:  # a page of posts is a line with several rows
            raise InputError(f"{lines} rows were read, but {rows} parsed")
        return draft.read_scratch(self._spark, _PARSED, STAGED)

    def _add_posts(self, draft: Draft, posts: DataFrame) -> None:
        """Writes posts where they are: each task makes a sorted file for each of its days."""
        draft.write(
            "posts",
            posts.withColumn("day", _folder_date(0)).sortWithinPartitions("day", *_ORDER),
            schema=POSTS,
            partition_by=("day",),
            distinct=_DISTINCT,
        )

    # Duplicates

    def _find_duplicates(self, draft: Draft, others: DataFrame | None) -> Duplicates | None:
        """The posts whose id another post has; None if there are none."""
        earlier = None if self._base is None else self._base.read(self._spark, "posts", POSTS)
        posts = draft.read_files(self._spark, POSTS, draft.files("posts"))
        search = DuplicateSearch(self._spark, draft, earlier)
        if not search.find_suspects(posts):
            return None
        # The files are read again: the posts lack the lines, which the quarantine needs.
        rows = None if others is None else others.where("reason IS NULL")
        if can_be_plain(self._reader):
            again = with_plain_posts(self._raw_rows(), self._reader).withColumns(
                {
                    "reason": F.lit(None).cast("string"),
                    "line": F.xxhash64("raw"),
                    "row": F.monotonically_increasing_id(),
                }
            )
            plain = select_schema(again.where(PLAIN), STAGED)
            rows = plain if rows is None else plain.unionByName(rows)
        assert rows is not None  # a reader whose rows are never plain parses them in Python
        return search.rank(rows)

    # Layout

    def _arrange(self, draft: Draft, found: Duplicates | None) -> None:
        """Writes files of posts again: those that have duplicates, or all if they are too many."""
        files = draft.files("posts")
        spans = [each.at_us for each in files if each.at_us is not None]
        if not spans:
            return
        span_us = max(last for _, last in spans) - min(first for first, _ in spans)
        if is_scattered(files, span_us):
            replaced = files
        elif found is not None:
            replaced = _files_with(self._spark, draft, files, found.ids)
        else:
            return
        posts = draft.read_files(self._spark, POSTS, replaced)
        if found is not None:
            posts = posts.join(found.ids, "post_id", "left_anti").unionByName(found.winners)
        one_in = sampling_rate(sum(each.rows for each in replaced))
        some = F.pmod(F.xxhash64("post_id"), F.lit(one_in)) == 0
        draft.write(
            "posts",
            select_schema(posts, POSTS).withColumn("day", _folder_date(span_us)),
            order=_ORDER,
            schema=POSTS,
            partition_by=("day",),
            sample=Sample(posts.where(some), one_in),
            distinct=_DISTINCT,
        )
        draft.discard("posts", replaced)

    def _write_quarantine(
        self,
        draft: Draft,
        counts: ImportCounts,
        others: DataFrame | None,
        found: Duplicates | None,
    ) -> None:
        rejected = [] if others is None else [invalid_rows(others)]
        if found is not None:
            rejected.append(invalid_rows(found.losers.withColumn("reason", F.lit(DUPLICATE))))
        if counts.quarantined:
            rows = reduce(DataFrame.unionByName, rejected)
            order = ("source", "reason", "raw")
            draft.write("quarantine", rows, order=order, schema=QUARANTINE)
        elif self._base is None:
            empty = self._spark.createDataFrame([], QUARANTINE)
            draft.write("quarantine", empty, files=1, schema=QUARANTINE)

    def _file_table(self, rows: Mapping[str, int]) -> DataFrame:
        """One row per new file, with the number of its rows."""
        table = [
            (each.file, each.bytes, each.modified_us, rows.get(each.file, 0), self.reader_text)
            for each in self.files
        ]
        return self._spark.createDataFrame(table, FILES)


def _measures() -> list[Column]:
    """What is counted of rows, as in `ImportCounts`."""
    return [
        F.count(F.lit(1)).alias("rows"),
        F.count(F.when(F.col("zone_assumed"), 1)).alias("zone_assumed"),
        F.count(F.when(F.size("tags") == 0, 1)).alias("untagged"),
    ]


def describe_reader(reader: PostReader) -> str:
    """The options that determine how a file is read, as JSON."""
    values = msgspec.to_builtins(reader)
    options = {name: value for name, value in values.items() if name != "now_us" and value}
    return msgspec.json.encode(options, order="deterministic").decode()


def _add_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def _plain_path(source: str) -> str:
    """The path of a file as it was given, from the URI that Spark has for it."""
    path = unquote(source)
    local = local_path(source)
    return path if local is None else str(local)


def _source_number(source: Column) -> Column:
    """A number for a file: 52 bits of a hash, which fit into the mantissa of a double."""
    return F.shiftrightunsigned(F.xxhash64(source), 12)


def _folder_date(span_us: int) -> Column:
    """The day of a post; the first of its month or year, if all posts span very many days."""
    days = span_us // DAY_US + 1
    unit = next((name for name, length in _UNITS if days <= DAYS_MAX * length), "year")
    date = F.to_date(F.timestamp_micros("at_us"))
    return date if unit == "day" else F.trunc(date, unit)


def is_scattered(files: Sequence[FileFacts], span_us: int) -> bool:
    """Whether a table has far more files than its days and rows need: then each task had posts of
    many days. A table of very many days has other folders anyway."""
    if span_us // DAY_US + 1 > DAYS_MAX:
        return True
    folders = {each.path.rpartition("/")[0] for each in files}
    rows = sum(each.rows for each in files)
    return len(files) > SCATTERED * (len(folders) + rows // ROWS_PER_FILE + 1)


def _files_with(
    spark: SparkSession, draft: Draft, files: Sequence[FileFacts], ids: DataFrame
) -> list[FileFacts]:
    """The files that have posts with one of these ids."""
    posts = draft.read_files(spark, POSTS, files).select("post_id", "_metadata.file_path")
    found = posts.join(ids, "post_id", "left_semi").select("file_path").distinct().collect()
    names = {unquote(row["file_path"]).rpartition("/")[2] for row in found}
    return [each for each in files if each.path.rpartition("/")[2] in names]
