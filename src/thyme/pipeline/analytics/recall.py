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

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructType

from thyme.pipeline.oracle import expected_notifications
from thyme.pipeline.schemas import OPERATIONS, select_schema

DEADLINE_US = 10_000_000
"""A notification that takes longer is late."""
CLOSE_US = 60_000_000
"""A window is closed this long after its end: what has not arrived by then counts as lost."""
UNSURE_US = 5_000_000
"""Distance from the start or end of a subscription within which nothing is expected for sure; the
limit for clocks that differ (`thyme.live.node_factory.CLOCK_SKEW_US`)."""

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


class RecallFacts(NamedTuple):
    """The facts that the windows from `first_us` to `closed_us` depend on."""

    inserts: DataFrame
    notifications: DataFrame
    subscribes: DataFrame
    unsubscribes: DataFrame
    deletes: DataFrame
    subscribe_count: int


def measure_recall(facts: RecallFacts, window_us: int, first_us: int, closed_us: int) -> DataFrame:
    """Counts expected, late and lost notifications of the windows from `first_us` to `closed_us`,
    which are starts of windows; the facts may be of more time."""
    inserts = facts.inserts.where(F.col("fact_us").between(first_us, closed_us - 1))
    near = F.col("fact_us").between(first_us - UNSURE_US, closed_us + UNSURE_US)
    arrivals = (
        facts.notifications.where(near)
        .groupBy("sid", "key")
        .agg(F.min("at_us").alias("arrived_us"))
    )
    subscribes = facts.subscribes.dropDuplicates(["sid"])
    pairs = _expected_pairs(inserts, subscribes, facts.subscribe_count)
    judged = (
        pairs.join(_first(facts.unsubscribes, "sid", "unsubscribed_us"), "sid", "left")
        .join(_first(facts.deletes, "key", "deleted_us"), "key", "left")
        .join(arrivals, ["sid", "key"], "left")
        .withColumn("sure", _is_sure())
        .where(_is_active() | F.col("arrived_us").isNotNull())
    )
    return _count(judged, window_us)


def _expected_pairs(inserts: DataFrame, subscribes: DataFrame, subscribe_count: int) -> DataFrame:
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
    operations = select_schema(operations, OPERATIONS)
    found = expected_notifications(operations, subscribe_count).where("not past")
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


def _is_active() -> Column:
    """Condition: the subscription was active at the publication, as far as clocks tell."""
    published, ended = F.col("published_us"), F.col("unsubscribed_us")
    is_open = F.coalesce(published <= ended + UNSURE_US, F.lit(True))
    return (published >= F.col("started_us")) & is_open


def _first(facts: DataFrame, key: str, name: str) -> DataFrame:
    """The first instant of an operation on each subscription or object."""
    return facts.groupBy(key).agg(F.min("at_us").alias(name))


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
