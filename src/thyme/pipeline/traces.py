"""Traces on Spark: turns the posts of the most active users into a table of operations.

Entry point: `operations_from_posts`. For the same posts and seed its result equals that of
`traces.posts_to_trace`, however the posts are partitioned. Posts become inserts by Spark
expressions; subscriptions, deletes and unsubscribes are drawn user by user by the functions of
`traces.posts_to_trace`, which draw ranks of tags; a join turns ranks into tags. Only the names of
the chosen users pass through the driver.
Clauses: P3, P8, S10, C21.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby
from math import gcd
from operator import itemgetter
from typing import Any, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from thyme.model.errors import InputError
from thyme.pipeline.schemas import DRAWN, OPERATIONS, rows_to_batch, select_schema
from thyme.traces.operations import InsertOperation
from thyme.traces.posts import top_users
from thyme.traces.posts_to_trace import (
    JOURNAL_RULES,
    SubscriptionDraw,
    TraceRules,
    UserRole,
    assign_roles,
    can_publish,
    draw_deletes,
    draw_subscriptions,
    draw_unsubscribes,
    wants_to_delete,
)
from thyme.traces.query_tags import RankDraw, TagUses, choose_ranks
from thyme.traces.row_codec import operation_to_row, row_to_operation
from thyme.traces.trace import KINDS, Trace

BUCKETS = 1_024
"""Number of time spans into which a trace is split to number its operations."""
ROWS_PER_FILE = 250_000
BATCH_ROWS = 5_000
_BUCKET_SIGN = "\0"
"""First character of the word that stands for a time span; no tag has it."""
_SORT_ORDER = ("at_us", "user", "kind", "posted_us", "drawn", "oid")
"""Sort order of operations: by instant, user, kind (inserts, deletes, subscribes, unsubscribes),
then in the order in which the rules draw them."""


class InsertKey(NamedTuple):
    """The fields of an insert that the rule for deletes needs."""

    at_us: int
    oid: str


StoreTable = Callable[[str, DataFrame], DataFrame]
"""Computes a frame that is read several times, keeps it under a name, and returns what was kept."""


def operations_from_posts(
    posts: DataFrame,
    users: int,
    seed: int,
    rules: TraceRules = JOURNAL_RULES,
    publishers_share: float | None = None,
    store: StoreTable = lambda _name, frame: frame,
) -> DataFrame:
    """The trace of the most active users, sorted, in the columns of OPERATIONS."""
    seen = posts.where(_is_insertable(rules))
    names = most_active_users(seen, users)
    user_roles = assign_roles(seed, users, publishers_share)
    spark = posts.sparkSession
    publishers = _publisher_table(spark, names, user_roles)
    published = seen.where(_is_chosen(rules)).join(F.broadcast(publishers), "user").drop("user")
    inserts = published.select(
        _compress_us(rules).alias("at_us"),
        F.col("number").alias("user"),
        F.lit("insert").alias("op"),
        F.col("at_us").alias("posted_us"),
        F.col("post_id").alias("oid"),
        "tags",
        F.octet_length("text").cast("long").alias("size"),
        F.lit(rules.summary_size).cast("long").alias("summary_size"),
        F.when(F.col("text") != "", F.col("text")).alias("text"),
    )
    deletes = (
        inserts.join(F.broadcast(_deleter_table(spark, seed, user_roles, rules)), "user")
        .select("user", "at_us", "posted_us", "oid")
        .repartition("user")
        .sortWithinPartitions("user", "posted_us", "oid")
        .mapInArrow(_delete_mapper(seed, rules), DRAWN)
    )
    subscribers = [user for user, role in enumerate(user_roles) if role is not UserRole.PUBLISHER]
    subscriber_table = _user_table(spark, subscribers)
    words = store("words", count_words(inserts, rules.lasts_us))
    tags = words.where(~_is_bucket_word())
    ranks = choose_ranks(count_uses(tags), rules.query_tags, rules.candidate_share)
    drawing = subscriber_table.mapInArrow(_subscribe_mapper(seed, ranks, rules), DRAWN)
    asked = store("asked", drawing)
    queries = fill_queries(asked, rank_tags(tags))
    others = deletes.drop("shape", "ranks")
    drawn = store("drawn", queries.unionByName(others, allowMissingColumns=True))
    sizes = _bucket_sizes(words, drawn, rules.lasts_us)
    operations = inserts.unionByName(drawn, allowMissingColumns=True)
    return with_numbers(operations, rules.lasts_us, sizes)


def most_active_users(posts: DataFrame, users: int) -> list[str]:
    """The names of the most active users, most active first, ties by name."""
    counts = posts.groupBy("user").count()
    first = counts.orderBy(F.desc("count"), "user").limit(max(users, 1)).collect()
    return top_users({row["user"]: row["count"] for row in first}, users)


def count_words(inserts: DataFrame, lasts_us: int) -> DataFrame:
    """The number of inserts of each tag and of each time span, counted in one pass: a time span is
    a word that cannot be a tag."""
    bucket = F.concat(F.lit(_BUCKET_SIGN), _bucket(lasts_us).cast("string"))
    words = inserts.select(F.explode(F.concat("tags", F.array(bucket))).alias("word"))
    return words.groupBy("word").count()


def _is_bucket_word() -> Column:
    return F.startswith("word", F.lit(_BUCKET_SIGN))


def _bucket_sizes(words: DataFrame, drawn: DataFrame, lasts_us: int) -> list[int]:
    """The number of operations in each time span."""
    number = F.substr("word", F.lit(len(_BUCKET_SIGN) + 1)).cast("int").alias("bucket")
    inserted = words.where(_is_bucket_word()).select(number, "count")
    others = drawn.groupBy(_bucket(lasts_us).alias("bucket")).count()
    sizes = [0] * BUCKETS
    for row in inserted.unionByName(others).collect():
        sizes[row["bucket"]] += row["count"]
    return sizes


def _bucket(lasts_us: int) -> Column:
    return F.floor(F.col("at_us") * BUCKETS / lasts_us).cast("int")


def count_uses(tags: DataFrame) -> list[TagUses]:
    """Spark's `query_tags.count_uses`."""
    groups = tags.groupBy(F.col("count").alias("uses")).agg(F.count("*").alias("tags"))
    return [TagUses(row["uses"], row["tags"]) for row in groups.orderBy(F.desc("uses")).collect()]


def rank_tags(counts: DataFrame) -> DataFrame:
    """Every tag (`word`) with its rank by number of posts, from 0, ties by name."""
    ordered = counts.repartition(1).sortWithinPartitions(F.desc("count"), "word")
    # In a single partition, these ids are the numbers of the rows.
    return ordered.select(F.monotonically_increasing_id().alias("rank"), F.col("word").alias("tag"))


def fill_queries(drawn: DataFrame, tags: DataFrame) -> DataFrame:
    """Replaces shapes and ranks of drawn operations by queries."""
    ranks = drawn.where("ranks IS NOT NULL").select("sid", F.posexplode("ranks"))
    named = ranks.withColumnRenamed("col", "rank").join(tags, "rank")
    lists = named.groupBy("sid").agg(
        F.sort_array(F.collect_list(F.struct("pos", "tag")))["tag"].alias("filled")
    )
    query = F.array_join(
        F.zip_with(
            F.split("shape", r"\{\}"),
            F.col("filled"),
            lambda text, tag: F.concat(text, F.coalesce(tag, F.lit(""))),
        ),
        "",
    )
    is_subscribe = F.col("op") == "subscribe"
    filled = drawn.join(lists, "sid", "left").withColumn("query", F.when(is_subscribe, query))
    return filled.drop("shape", "ranks", "filled")


def with_numbers(operations: DataFrame, lasts_us: int, sizes: Sequence[int]) -> DataFrame:
    """Sorts operations and adds the number of each in the whole trace.

    Operations are split into time spans, of these `sizes`, and consecutive spans are put together
    into partitions of about the same size; the numbers of a partition start where the previous one
    ends.
    """
    cut = operations.withColumns(
        {"bucket": _bucket(lasts_us), "kind": F.array_position(_kind_array(), F.col("op"))}
    )
    parts = assign_parts(sizes, ROWS_PER_FILE)
    starts = {part: sum(sizes[: parts.index(part)]) for part in sorted({*parts})}
    placed = cut.withColumn("part", _constant_at(parts, F.col("bucket")).cast("int"))
    spread = placed.repartitionById(len(starts), "part").sortWithinPartitions(*_SORT_ORDER)
    # A partition is one part, and this function counts the rows of a partition in its lowest bits.
    place = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << 33) - 1))
    number = _constant_at([*starts.values()], F.col("part")) + place
    numbered = spread.withColumns({"number": number, "life_us": F.lit(None)})
    return select_schema(numbered, OPERATIONS)


def assign_parts(sizes: Sequence[int], rows: int) -> list[int]:
    """For each of a row of spans the number of its part: parts are consecutive spans, begin at 0,
    and have about the same size, at most about `rows`."""
    total = sum(sizes)
    count = -(-total // rows) or 1
    before = accumulate(sizes, initial=0)
    wished = [
        start * count // total if total else 0 for start, _ in zip(before, sizes, strict=False)
    ]
    # A large span leaves numbers out.
    known = {part: place for place, part in enumerate(dict.fromkeys(wished))}
    return [known[part] for part in wished]


def _constant_at(values: Sequence[int], place: Column) -> Column:
    """The value at a place of a list of constants."""
    return F.get(F.split(F.lit(" ".join(map(str, values))), " ").cast("array<bigint>"), place)


def trace_to_table(spark: SparkSession, trace: Trace) -> DataFrame:
    """Converts a trace in memory to a table."""
    names = OPERATIONS.fieldNames()
    rows = [
        {"number": number, **operation_to_row(each)} for number, each in enumerate(trace.operations)
    ]
    return spark.createDataFrame([tuple(map(row.get, names)) for row in rows], OPERATIONS)


def table_to_trace(operations: DataFrame, users: int) -> Trace:
    """Converts a table of operations to a trace in memory."""
    rows = operations.orderBy("number").drop("number").collect()
    filled = (
        {name: value for name, value in row.asDict().items() if value is not None} for row in rows
    )
    return Trace(users, tuple(row_to_operation(row) for row in filled))


def _is_insertable(rules: TraceRules) -> Column:
    """Spark expression of `posts_to_trace.is_insertable`."""
    since_us = F.col("at_us") - rules.timetable.starts_us
    within = (since_us >= 0) & (since_us < rules.timetable.length_us)
    return (F.size("tags") > 0) & within


def _is_chosen(rules: TraceRules) -> Column:
    """Spark expression of `posts_to_trace.is_chosen`."""
    return F.lit(True) if rules.one_in == 1 else F.crc32("post_id") % rules.one_in == 0


def _compress_us(rules: TraceRules) -> Column:
    """Spark expression of `TraceRules.compress_us` for the instant of a post."""
    length_us = rules.timetable.length_us
    common = gcd(rules.lasts_us, length_us)
    factor, divisor = rules.lasts_us // common, length_us // common
    if length_us * factor >= 2**63:
        raise InputError(f"{length_us} µs cannot be compressed into {rules.lasts_us} µs exactly")
    since_us = F.col("at_us") - rules.timetable.starts_us
    late_us = since_us * factor
    return ((late_us - late_us % divisor) / divisor).cast("long")


def _publisher_table(
    spark: SparkSession, names: Sequence[str], user_roles: Sequence[UserRole]
) -> DataFrame:
    numbers = [number for number, role in enumerate(user_roles) if can_publish(role)]
    users = pa.array([names[number] for number in numbers], pa.string())
    columns = {"user": users, "number": pa.array(numbers, pa.int64())}
    return spark.createDataFrame(pa.table(columns), "user string, number long")


def _deleter_table(
    spark: SparkSession, seed: int, user_roles: Sequence[UserRole], rules: TraceRules
) -> DataFrame:
    """The users who may delete something; the inserts of the others are not needed for that."""
    return _user_table(
        spark,
        [
            user
            for user, role in enumerate(user_roles)
            if can_publish(role) and wants_to_delete(seed, user, rules)
        ],
    )


def _user_table(spark: SparkSession, users: Sequence[int]) -> DataFrame:
    """The numbers of users. Made from an Arrow table, it is part of the plan; a list would pass
    through Python workers each time it is read."""
    return spark.createDataFrame(pa.table({"user": pa.array(users, pa.int64())}), "user long")


def _kind_array() -> Column:
    return F.array(*map(F.lit, KINDS))


DrawnRow = dict[str, Any]
ArrowMapper = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _delete_mapper(seed: int, rules: TraceRules) -> ArrowMapper:
    """Maps batches of inserts, grouped by user, to the deletes of each user."""

    def deleted(batches: Iterator[pa.RecordBatch]) -> Iterator[Sequence[DrawnRow]]:
        for user, rows in groupby(_iterate_rows(batches, "user", "at_us", "oid"), itemgetter(0)):
            inserts = cast(
                "list[InsertOperation]", [InsertKey(at_us, oid) for _, at_us, oid in rows]
            )
            yield [*map(operation_to_row, draw_deletes(seed, user, inserts, rules))]

    return lambda batches: _to_batches(deleted(batches))


def _subscribe_mapper(seed: int, ranks: RankDraw, rules: TraceRules) -> ArrowMapper:
    """Maps batches of users to their subscribes and unsubscribes."""

    def asked(batches: Iterator[pa.RecordBatch]) -> Iterator[Sequence[DrawnRow]]:
        for (user,) in _iterate_rows(batches, "user"):
            subscriptions = draw_subscriptions(seed, user, ranks, rules)
            unsubscribes = draw_unsubscribes(seed, user, subscriptions, rules)
            yield [
                *(_subscription_row(user, each) for each in subscriptions),
                *map(operation_to_row, unsubscribes),
            ]

    return lambda batches: _to_batches(asked(batches))


def _subscription_row(user: int, drawn: SubscriptionDraw) -> DrawnRow:
    """The row of a subscribe, whose query is a shape and ranks."""
    return {
        "at_us": drawn.at_us,
        "user": user,
        "op": "subscribe",
        "sid": drawn.sid,
        "shape": drawn.query.shape,
        "ranks": drawn.query.ranks,
        "start_us": drawn.frame.start_us,
        "end_us": drawn.frame.end_us,
    }


def _iterate_rows(batches: Iterator[pa.RecordBatch], *names: str) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)


def _to_batches(users: Iterator[Sequence[DrawnRow]]) -> Iterator[pa.RecordBatch]:
    """Batches of the operations of users, in the columns of DRAWN."""
    kinds = {
        "bigint": pa.int64(),
        "int": pa.int32(),
        "string": pa.string(),
        "array<bigint>": pa.list_(pa.int64()),
    }
    schema = pa.schema([(field.name, kinds[field.dataType.simpleString()]) for field in DRAWN])
    rows: list[DrawnRow] = []
    for drawn in users:
        rows += [{**each, "drawn": number} for number, each in enumerate(drawn)]
        if len(rows) >= BATCH_ROWS:
            yield rows_to_batch(rows, schema)
            rows = []
    yield rows_to_batch(rows, schema)
