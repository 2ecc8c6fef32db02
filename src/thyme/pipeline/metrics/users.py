"""User metrics: success and latency of operations; recall of notifications against the oracle.

Entry point: `USER_MEASURES`, the functions from results to measures; `metrics.tables` calls them.

Clauses: P6, S14, S15.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from thyme.pipeline.metrics.long_form import as_measures, long_form

LATENCIES = ("mean", "p50", "p95", "max")
US_PER_MS = 1_000.0


def measure_operations(results: DataFrame) -> DataFrame:
    """Success and latency by kind of operation, and of all operations as `operation`.

    For a retrieve, `not_found` counts as success if the object was deleted or expired before.
    """
    tried = results.select("run_id", F.inline("operations"))
    removed = (
        tried.where(F.col("kind").isin("insert", "delete"))
        .select("run_id", "name", _removed_us().alias("gone_us"))
        .groupBy("run_id", "name")
        .agg(F.min("gone_us").alias("gone_us"))
    )
    succeeded = (F.col("code") == "ok") | (
        (F.col("kind") == "retrieve")
        & (F.col("code") == "not_found")
        & F.coalesce(F.col("gone_us") <= F.col("ended_us"), F.lit(False))
    )
    checked = tried.join(removed, ["run_id", "name"], "left").select(
        "run_id",
        F.explode(F.array("kind", F.lit("operation"))).alias("kind"),
        succeeded.alias("ok"),
        F.when(succeeded, F.col("ended_us") - F.col("issued_us")).alias("latency_us"),
    )
    per_kind = checked.groupBy("run_id", "kind").agg(
        F.count("*").alias("issued"),
        F.count_if("ok").alias("succeeded"),
        *_latency_statistics(),
    )
    return _long_by_kind(per_kind, "issued", "succeeded")


def _removed_us() -> Column:
    """First instant at which an object may be gone: its delete, or the end of its TTL."""
    return F.when(F.col("kind") == "delete", F.col("issued_us")).otherwise(
        F.col("issued_us") + F.col("life_us")
    )


def _latency_statistics() -> list[Column]:
    """Statistics of `latency_us`; a quantile is the smallest value with rank q or more."""
    quantile = "percentile_disc({}) within group (order by latency_us)"
    return [
        (F.sum("latency_us") / F.count("latency_us")).alias("mean"),
        F.expr(quantile.format(0.5)).alias("p50"),
        F.expr(quantile.format(0.95)).alias("p95"),
        F.max("latency_us").alias("max"),
    ]


def _long_by_kind(frame: DataFrame, issued: str, good: str) -> DataFrame:
    """Measures like `success.insert` from a frame with one row per run and kind."""
    measured = as_measures((issued, good)) | {"success": F.try_divide(F.col(good), F.col(issued))}
    latencies = {f"latency_ms_{name}": F.col(name) / US_PER_MS for name in LATENCIES}
    return long_form(frame, measured | latencies, suffix="kind")


def measure_notifications(results: DataFrame) -> DataFrame:
    """Recall and latency against the oracle; duplicate, spurious and unexpected ones (S15)."""
    key = ["run_id", "user", "sid", "oid"]
    received = (
        results.select("run_id", F.inline("notifications"))
        .groupBy(*key)
        .agg(
            F.count("*").alias("times"),
            F.min_by(F.struct("told_us", "right"), "told_us").alias("first"),
        )
        .select(*key, "times", F.col("first.told_us"), F.col("first.right"))
    )
    due = due_notifications(results).withColumn("due", F.lit(True))
    compared = received.join(due, key, "full").withColumns(
        {
            "due": F.coalesce("due", F.lit(False)),
            "right": F.coalesce("right", F.lit(False)),
        }
    )
    late_us = F.greatest(F.lit(0), F.col("told_us") - F.col("due_us"))
    found = (
        compared.withColumn("latency_us", F.when(F.col("due") & F.col("right"), late_us))
        .groupBy("run_id")
        .agg(
            F.count_if("due").alias("expected"),
            F.count_if(F.col("due") & F.col("right")).alias("delivered"),
            F.count_if(F.col("told_us").isNotNull() & ~F.col("right")).alias("spurious"),
            F.count_if(~F.col("due") & F.col("right")).alias("unexpected"),
            F.sum(F.coalesce(F.col("times") - 1, F.lit(0))).alias("duplicates"),
            *_latency_statistics(),
        )
        .withColumn("kind", F.lit("notification"))
    )
    others = long_form(found, as_measures(("spurious", "unexpected", "duplicates")))
    return _long_by_kind(found, "expected", "delivered").unionByName(others)


def due_notifications(results: DataFrame) -> DataFrame:
    """The notifications of a perfect execution and when each is due: at once, or, if the
    subscriber's device is down, when it is up again. Without a restart, none is due."""
    spans = F.filter("downtimes", lambda span: span["user"] == F.col("user"))
    due = F.aggregate(
        spans,
        F.col("origin_us") + F.col("at_us"),
        lambda at, span: F.when(
            (span["since_us"] <= at) & (span["until_us"].isNull() | (at < span["until_us"])),
            span["until_us"],
        ).otherwise(at),
    )
    return (
        results.select("run_id", "origin_us", "end_us", "downtimes", F.inline("expected"))
        .withColumn("due_us", due)
        .where(F.col("due_us") < F.col("end_us"))
        .select("run_id", "user", "sid", "oid", "due_us")
    )


USER_MEASURES = (measure_operations, measure_notifications)
