"""Tables: writes the Parquet files of one build of a stage and measures what was written.

Entry point: `Draft`, which `Warehouse.commit` hands to the function that builds a stage. Files are
only counted if they are found again with as many rows as Spark wrote: a listing that lags behind
(an eventually consistent bucket) is repeated for a while, and then refused.
Clauses: P8, P10, P11.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from thyme.pipeline.storage import Storage, WarehouseError, escape_pattern

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROWS_PER_FILE = 250_000
SAMPLE_ROWS = 20_000
"""A sample of about so many rows is enough for ranges of equal size."""
RANGES_MAX = 500
_RANGE = "range_number"
LISTING_S_MAX = 60.0
"""How long a written file may be missing from the listing of its folder."""
_LISTING_EVERY_S = 0.5
_SCRATCH = "_scratch"
_SCRATCH_OPTIONS = {
    "compression": "snappy",
    "parquet.enable.dictionary": "false",
    "parquet.enable.dictionary#source": "true",
}
"""Intermediate results are read once or twice: less work counts for more than fewer bytes. A
dictionary pays for the names of files only."""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file: its path below the stage's folder, its size, and the span of its instants."""

    path: str
    rows: int
    bytes: int
    at_us: tuple[int, int] | None = None
    """The lowest and the highest value of the column `at_us`, if the file has one."""

    def overlaps(self, start_us: int, end_us: int) -> bool:
        """Whether the file may have a row with `at_us` from `start_us` to `end_us`."""
        return self.at_us is None or (self.at_us[0] <= end_us and start_us <= self.at_us[1])


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A table: its size, its columns, and its files."""

    rows: int
    bytes: int
    columns: dict[str, str]
    """Type of each column as Spark writes it, `not null` where nulls are refused."""
    files: tuple[FileFacts, ...]

    def check_columns(self, where: str, schema: StructType) -> None:
        """Raises `WarehouseError` if the table lacks a column or has it with another type."""
        wanted = describe_columns(schema)
        if self.columns and self.columns != wanted:
            differing = sorted(
                name
                for name in {*self.columns, *wanted}
                if self.columns.get(name) != wanted.get(name)
            )
            raise WarehouseError(
                f"{where} has other columns than this version of Thyme expects "
                f"({', '.join(differing)}): build it again"
            )


def describe_columns(schema: StructType) -> dict[str, str]:
    """The types of a schema's columns as text."""
    return {
        field.name: field.dataType.simpleString() + ("" if field.nullable else " not null")
        for field in schema
    }


class Draft:
    """A stage under construction: add frames by `write`, files in `path`, facts by `add_notes`."""

    def __init__(self, storage: Storage, stage: str, build: str) -> None:
        self._storage = storage
        self._stage = stage
        self.build = build
        """The folder of this build, below the stage's."""
        self.notes: dict[str, Any] = {}
        self._kept: dict[str, list[FileFacts]] = {}
        self._columns: dict[str, dict[str, str]] = {}
        self._written: dict[str, int | None] = {}
        self._discarded: set[str] = set()

    def check_writable(self) -> None:
        """Creates a file, so that a build without permission fails at once, not at its end."""
        self._storage.create(f"{self._stage}/{self.build}/{_SCRATCH}/started", b"")

    def path(self, table: str) -> Path:
        """The folder of a table, for callers that write its Parquet files themselves."""
        folder = self._storage.folder
        if folder is None:
            raise WarehouseError(
                f"{self._storage.uri} cannot store single files: use a folder that all "
                "machines share"
            )
        path = folder / self._stage / self.build / table
        path.mkdir(parents=True, exist_ok=True)
        self._written.setdefault(table, None)
        return path

    def write_file(self, table: str, name: str, data: bytes) -> None:
        """Adds a Parquet file to a table whose files have names of their own."""
        self._storage.create(f"{self._stage}/{self.build}/{table}/{name}", data)
        self._written.setdefault(table, None)

    def write(
        self,
        table: str,
        frame: DataFrame,
        order: Sequence[str] = (),
        files: int | None = None,
        *,
        schema: StructType | None = None,
        partition_by: Sequence[str] = (),
        sample: Sample | None = None,
        rows_per_file: int = ROWS_PER_FILE,
        distinct: Sequence[str] = (),
    ) -> None:
        """Writes a table in few files, globally sorted by the columns of `order` if given; adds
        files if this build has written some of the table before.

        A `sample` of its rows spares computing the frame twice; then a file has about
        `rows_per_file` rows. Most values of the `distinct`
        columns differ, so they get no dictionary. Nulls in columns that `schema` (default: the
        frame's) declares without nulls are an error.
        """
        if order and sample is not None:
            ranges = split_by_sample(frame, order, sample, rows_per_file)
            frame = ranges.sortWithinPartitions(*partition_by, *order)
        elif order:
            spread = (files, *order) if files else order
            frame = frame.repartitionByRange(*spread).sortWithinPartitions(*partition_by, *order)
        elif files:
            frame = frame.coalesce(files)
        schema = schema or frame.schema
        self._columns[table] = describe_columns(schema)
        options = {f"parquet.enable.dictionary#{name}": "false" for name in distinct}
        path = self._spark_path(table)
        found = _write_observed(frame, path, schema, partition_by, options=options)
        nulls = [
            name for place, name in enumerate(schema.names) if found.get("nulls", 0) >> place & 1
        ]
        if nulls:
            raise WarehouseError(
                f"{self._storage.uri}/{self._stage}: the table {table} has nulls in "
                f"{', '.join(nulls)}, where there must be none"
            )
        self._written[table] = (self._written.get(table) or 0) + found["rows"]

    def write_scratch(
        self, name: str, frame: DataFrame, counted: Column | None = None
    ) -> dict[str, int]:
        """Writes an intermediate result of this build; returns its number of rows, as `rows`, and
        of those for which a condition holds, as `counted`."""
        path = self._spark_path(f"{_SCRATCH}/{name}")
        return _write_observed(frame, path, None, (), counted, _SCRATCH_OPTIONS)

    def read_scratch(self, spark: SparkSession, name: str, schema: StructType) -> DataFrame:
        """An intermediate result of this build as a frame."""
        path = escape_pattern(self._spark_path(f"{_SCRATCH}/{name}"))
        return spark.read.schema(schema).parquet(path)

    def files(self, table: str) -> list[FileFacts]:
        """The files of a table that this build wrote."""
        return self._find_files(table)

    def rows_written(self, table: str) -> int:
        """The number of rows of a table that this build wrote."""
        return self._written.get(table) or 0

    def read(self, spark: SparkSession, table: str, schema: StructType) -> DataFrame:
        """A table that this build wrote, as a frame."""
        return self.read_files(spark, schema, self.files(table))

    def read_files(
        self, spark: SparkSession, schema: StructType, files: Sequence[FileFacts]
    ) -> DataFrame:
        """Some files of a table that this build wrote, as a frame."""
        return read_parquet_files(spark, self._storage, self._stage, schema, files)

    def discard(self, table: str, files: Iterable[FileFacts]) -> None:
        """Removes files that this build wrote, after their rows were written again."""
        for each in files:
            self._discarded.add(each.path)
            self._written[table] = (self._written[table] or 0) - each.rows
            self._storage.delete(f"{self._stage}/{each.path}")

    def keep(self, table: str, facts: TableFacts, files: Iterable[FileFacts] | None = None) -> None:
        """Lists files of the version before in the new one: all of a table, or some."""
        self._kept[table] = list(facts.files if files is None else files)
        self._columns.setdefault(table, facts.columns)

    def add_notes(self, **facts: Any) -> None:
        """Adds facts, as JSON values, to the notes of the manifest."""
        self.notes |= facts

    def measure_tables(self) -> dict[str, TableFacts]:
        """Sizes and files of all tables; removes intermediate results."""
        self._storage.delete(f"{self._stage}/{self.build}/{_SCRATCH}")
        return {
            table: self._measure_table(table) for table in sorted({*self._kept, *self._written})
        }

    def _measure_table(self, table: str) -> TableFacts:
        files = [*self._kept.get(table, ()), *self._find_files(table)]
        return TableFacts(
            rows=sum(each.rows for each in files),
            bytes=sum(each.bytes for each in files),
            columns=self._columns.get(table, {}),
            files=tuple(files),
        )

    def _find_files(self, table: str) -> list[FileFacts]:
        """The files of a table, once all of its rows are found."""
        if table not in self._written:
            return []
        wanted = self._written[table]
        until_s = time.monotonic() + LISTING_S_MAX
        while True:
            found = [*self._list_files(table)]
            rows = sum(each.rows for each in found)
            if wanted is None or rows == wanted:
                return found
            if time.monotonic() > until_s:
                raise WarehouseError(
                    f"{self._storage.uri}/{self._stage}: {wanted:,} rows of the table {table} were "
                    f"written, but its files have {rows:,}; the file system does not list all files"
                )
            time.sleep(_LISTING_EVERY_S)

    def _list_files(self, table: str) -> Iterable[FileFacts]:
        from pyarrow import parquet

        for each in self._storage.files(f"{self._stage}/{self.build}/{table}"):
            name = each.path.rpartition("/")[2]
            path = each.path.removeprefix(f"{self._stage}/")
            is_table_file = name.endswith(".parquet") and not name.startswith(("_", "."))
            if not is_table_file or path in self._discarded:
                continue
            with self._storage.open(each.path) as file:
                footer = parquet.read_metadata(file)
            yield FileFacts(
                path=path, rows=footer.num_rows, bytes=each.bytes, at_us=_span_us(footer)
            )

    def _spark_path(self, name: str) -> str:
        return self._storage.spark_path(f"{self._stage}/{self.build}/{name}")


def read_parquet_files(
    spark: SparkSession,
    storage: Storage,
    stage: str,
    schema: StructType,
    files: Sequence[FileFacts],
) -> DataFrame:
    """Files of a stage as a frame."""
    if not files:
        return spark.createDataFrame([], schema)
    paths = (storage.spark_path(f"{stage}/{each.path}") for each in files)
    return spark.read.schema(schema).parquet(*map(escape_pattern, paths))


def _span_us(footer: Any) -> tuple[int, int] | None:
    """The lowest and highest `at_us` by the statistics in a Parquet file's footer."""
    names = [footer.schema.column(place).path for place in range(footer.num_columns)]
    if "at_us" not in names or not footer.num_rows:
        return None
    place = names.index("at_us")
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    found = [group.column(place).statistics for group in groups if group.num_rows]
    if any(each is None or not each.has_min_max for each in found):
        return None
    return min(each.min for each in found), max(each.max for each in found)


def _write_observed(
    frame: DataFrame,
    path: str,
    schema: StructType | None,
    partition_by: Sequence[str],
    counted: Column | None = None,
    options: Mapping[str, str] = {},
) -> dict[str, int]:
    """Writes a frame; returns its number of rows and of `counted` ones, and as the bits of `nulls`
    the places of the columns that have nulls where there must be none."""
    from pyspark.sql import Column, Observation
    from pyspark.sql import functions as F  # noqa: N812

    measures: list[Column] = [F.count(F.lit(1)).alias("rows")]
    if counted is not None:
        measures.append(F.count(F.when(counted, 1)).alias("counted"))
    strict = [(place, field) for place, field in enumerate(schema or ()) if not field.nullable]
    bits = [
        F.when(F.col(f"`{field.name}`").isNull(), F.lit(1 << place)).otherwise(F.lit(0))
        for place, field in strict
    ]
    if bits:
        measures.append(F.bit_or(reduce(Column.__add__, bits)).alias("nulls"))
    seen = Observation()
    # Observed last, in the tasks that write: earlier steps may run twice.
    writer = frame.observe(seen, *measures).write.mode("append").options(**options)
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.parquet(path)
    found: dict[str, int | None] = dict(seen.get)
    return {"rows": 0, "counted": 0} | {name: value or 0 for name, value in found.items()}


# Ranges: consecutive parts of a sorted table, of about the same size. Spark's own
# `repartitionByRange` computes the whole table twice, first to sample it; here the caller provides
# the sample.


class Sample(NamedTuple):
    """Some rows of a table: one in so many."""

    frame: DataFrame
    one_in: int


def sampling_rate(rows: int) -> int:
    """One in how many rows makes a sample of SAMPLE_ROWS."""
    return max(1, rows // SAMPLE_ROWS)


def split_by_sample(
    frame: DataFrame, order: Sequence[str], sample: Sample, rows_per_range: int
) -> DataFrame:
    """The rows of a frame, in partitions that are consecutive ranges of `order`."""
    found = sorted(map(tuple, sample.frame.select(*order).collect()))
    bounds = choose_bounds(found, len(found) * sample.one_in, rows_per_range)
    if not bounds:
        return frame.coalesce(1)
    numbered = frame.withColumn(_RANGE, _range_number(order, bounds))
    return numbered.repartitionById(len(bounds) + 1, _RANGE).drop(_RANGE)


def choose_bounds(
    found: Sequence[tuple[Any, ...]], rows: int, rows_per_range: int
) -> list[tuple[Any, ...]]:
    """The first values of all ranges but the first, from the sorted rows of a sample."""
    ranges = min(-(-rows // rows_per_range), RANGES_MAX)
    return sorted({found[len(found) * number // ranges] for number in range(1, ranges)})


def _range_number(order: Sequence[str], bounds: Sequence[tuple[Any, ...]]) -> Column:
    """The number of the range that a row belongs to, from 0, by a binary search."""
    from pyspark.sql import functions as F  # noqa: N812

    firsts = Counter(bound[0] for bound in bounds)

    def search(low: int, high: int) -> Column:
        if low == high:
            return F.lit(low)
        middle = (low + high + 1) // 2
        bound = bounds[middle - 1]
        # Where the first column tells all bounds apart, the others need not be compared.
        compared = bound if firsts[bound[0]] > 1 else bound[:1]
        is_above = _is_at_least(order, compared)
        return F.when(is_above, search(middle, high)).otherwise(search(low, middle - 1))

    return search(0, len(bounds))


def _is_at_least(order: Sequence[str], bound: Sequence[Any]) -> Column:
    """Condition: the columns of a row are not before a bound."""
    from pyspark.sql import functions as F  # noqa: N812

    column, value = F.col(order[0]), F.lit(bound[0])
    if len(bound) == 1:
        return column >= value
    return (column > value) | ((column == value) & _is_at_least(order[1:], bound[1:]))
