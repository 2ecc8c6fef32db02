"""Recall: lost and late notifications, as far as the events themselves tell.

Entry point: `measure_recall`. The inserts and subscriptions among the events are a trace, so the
oracle of the pipeline (`thyme.pipeline.oracle`) gives the notifications that they should cause;
each is then looked for among the notification events. Only objects published while a subscription
was active count: past matches come by pages that the application may never ask for. A pair close to
the start or end of its subscription, or to the delete of its object, is unsure, because clocks
differ and messages take time. A subscriber whose events are not exported is not known at all.
Clauses: P9, P4, S14.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, LongType, StringType, StructType

from thyme.events.event import NOTIFICATION, OPERATION
from thyme.pipeline.oracle import expected_notifications
from thyme.pipeline.schemas import OPERATIONS, select_schema

DEADLINE_US = 10_000_000
"""A notification that takes longer is late."""
CLOSE_US = 60_000_000
"""A window is closed this long after its end: what has not arrived by then counts as lost."""
UNSURE_US = 5_000_000
"""Distance from the start or end of a subscription within which nothing is expected for sure; the
limit for clocks that differ (`thyme.live.node_factory.CLOCK_SKEW_US`)."""

FACTS = (  # one row per event that recall depends on
    StructType()
    .add("what", StringType(), nullable=False)
    .add("fact_us", LongType(), nullable=False)
    .add("at_us", LongType(), nullable=False)
    .add("took_us", LongType())
    .add("world", StringType(), nullable=False)
    .add("node", StringType(), nullable=False)
    .add("key", StringType())
    .add("tags", ArrayType(StringType()))
    .add("life_us", LongType())
    .add("sid", StringType())
    .add("query", StringType())
    .add("start_us", LongType())
    .add("end_us", LongType())
)
"""`what` is insert, delete, subscribe, unsubscribe or notification; `fact_us` is the instant of the
event, of a notification the publication of its object."""
RECALL = (  # one row per window of publication and world
    StructType()
    .add("window_us", LongType(), nullable=False)
    .add("world", StringType(), nullable=False)
    .add("expected", LongType(), nullable=False)
    .add("in_time", LongType(), nullable=False)
    .add("late", LongType(), nullable=False)
    .add("lost", LongType(), nullable=False)
    .add("unsure", LongType(), nullable=False)
)


def select_facts(events: DataFrame) -> DataFrame:
    """The facts among events: operations that succeeded, and notifications of new objects."""
    operation = (
        (F.col("kind") == OPERATION)
        & (F.col("code") == "ok")
        & F.col("op").isin("insert", "delete", "subscribe", "unsubscribe")
    )
    notification = (F.col("kind") == NOTIFICATION) & ~F.coalesce("past", F.lit(False))
    what = F.when(notification, F.lit("notification")).otherwise(F.col("op"))
    fact_us = F.coalesce(F.when(notification, F.col("published_us")), F.col("at_us"))
    facts = events.where(operation | notification)
    return facts.withColumn("what", what).withColumn("fact_us", fact_us).select(FACTS.names)


def measure_recall(facts: DataFrame, window_us: int, first_us: int, closed_us: int) -> DataFrame:
    """Counts expected, late and lost notifications of the windows from `first_us` to `closed_us`,
    which are starts of windows; the facts may be of more time."""
    inserts = facts.where(
        (F.col("what") == "insert") & F.col("fact_us").between(first_us, closed_us - 1)
    )
    subscribes = facts.where("what = 'subscribe'").dropDuplicates(["sid"])
    unsubscribes = _first(facts, "unsubscribe", "sid", "unsubscribed_us")
    deletes = _first(facts, "delete", "key", "deleted_us")
    arrivals = (
        facts.where("what = 'notification'")
        .groupBy("sid", "key")
        .agg(F.min("at_us").alias("arrived_us"))
    )
    pairs = _expected_pairs(inserts, subscribes)
    judged = (
        pairs.join(unsubscribes, "sid", "left")
        .join(deletes, "key", "left")
        .join(arrivals, ["sid", "key"], "left")
        .withColumn("sure", _is_sure())
        .where((F.col("published_us") >= F.col("started_us")) | F.col("arrived_us").isNotNull())
    )
    return _count(judged, window_us)


def _expected_pairs(inserts: DataFrame, subscribes: DataFrame) -> DataFrame:
    """Every subscription and new object that match, with the instants that decide about them."""
    objects = inserts.select(
        F.col("fact_us").alias("number"),
        F.col("fact_us").alias("at_us"),
        F.xxhash64("node").alias("user"),
        F.lit("insert").alias("op"),
        F.col("key").alias("oid"),
        "tags",
        "life_us",
    )
    asked = subscribes.select(
        F.col("at_us").alias("number"),
        "at_us",
        F.xxhash64("node").alias("user"),
        F.lit("subscribe").alias("op"),
        "sid",
        "query",
        "start_us",
        "end_us",
    )
    operations = objects.unionByName(asked, allowMissingColumns=True)
    for field in OPERATIONS:
        if field.name not in operations.columns:
            operations = operations.withColumn(field.name, F.lit(None).cast(field.dataType))
    found = expected_notifications(select_schema(operations, OPERATIONS)).where("not past")
    of_object = inserts.select("key", "world", F.col("fact_us").alias("published_us"))
    of_subscription = subscribes.select(
        "sid",
        F.col("world").alias("subscription_world"),
        (F.col("at_us") + F.coalesce("took_us", F.lit(0))).alias("started_us"),
        "end_us",
    )
    return (
        found.select("sid", F.col("oid").alias("key"))
        .join(of_object, "key")
        .join(of_subscription, "sid")
        .where("world = subscription_world")
    )


def _is_sure() -> Column:
    """Condition: the subscription was active for long enough around the publication."""
    published = F.col("published_us")

    def is_later(instant: str) -> Column:
        return F.coalesce(F.col(instant) > published + UNSURE_US, F.lit(True))

    started = published >= F.col("started_us") + UNSURE_US
    return started & is_later("end_us") & is_later("unsubscribed_us") & is_later("deleted_us")


def _first(facts: DataFrame, what: str, key: str, name: str) -> DataFrame:
    """The first instant of an operation on each subscription or object."""
    return facts.where(F.col("what") == what).groupBy(key).agg(F.min("at_us").alias(name))


def _count(judged: DataFrame, window_us: int) -> DataFrame:
    published, sure, arrived = F.col("published_us"), F.col("sure"), F.col("arrived_us")
    delay = arrived - published

    def count_if(condition: Column) -> Column:
        return F.count(F.when(condition, F.lit(1)))

    counted = judged.groupBy(
        (published - F.pmod(published, F.lit(window_us))).alias("window_us"), "world"
    ).agg(
        count_if(sure).alias("expected"),
        count_if(sure & (delay <= DEADLINE_US)).alias("in_time"),
        count_if(sure & (delay > DEADLINE_US)).alias("late"),
        count_if(sure & arrived.isNull()).alias("lost"),
        count_if(~sure).alias("unsure"),
    )
    return select_schema(counted, RECALL)
