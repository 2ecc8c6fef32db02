"""Metrics: the logs of the runs joined with the oracle, and what they come to per point.

A measure is a number of one run under a name: `phy_bytes`, `success.retrieve`,
`latency_ms_p95.notification`. `measures` works all of them out; `points` aggregates the runs that
differ in topology and repetition only. Sums of fractions are taken in a fixed order, so the
numbers do not depend on the partitions.
Clauses: P6, S14–S16, S18.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's own examples do)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructType

from thyme.pipeline.runs import RESULT
from thyme.pipeline.schemas import shaped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = (  # one row per run that ended
    StructType()
    .add("run_id", StringType(), nullable=False)
    .add("series", StringType(), nullable=False)
    .add("substrate", StringType(), nullable=False)
    .add("profile", StringType(), nullable=False)
    .add("nodes", IntegerType(), nullable=False)
    .add("parameter", DoubleType(), nullable=False)
    .add("topology", LongType(), nullable=False)
    .add("repetition", LongType(), nullable=False)
    .add("events", LongType(), nullable=False)
)
MEASURES = (  # one row per run and measure that it has
    StructType()
    .add("run_id", StringType(), nullable=False)
    .add("measure", StringType(), nullable=False)
    .add("value", DoubleType(), nullable=False)
)
POINT = ["series", "profile", "substrate", "nodes", "parameter", "measure"]
POINTS = (  # one row per point and measure; of one run there is no deviation
    StructType()
    .add("series", StringType(), nullable=False)
    .add("profile", StringType(), nullable=False)
    .add("substrate", StringType(), nullable=False)
    .add("nodes", IntegerType(), nullable=False)
    .add("parameter", DoubleType(), nullable=False)
    .add("measure", StringType(), nullable=False)
    .add("runs", LongType(), nullable=False)
    .add("mean", DoubleType(), nullable=False)
    .add("sd", DoubleType())
    .add("ci95", DoubleType())
    .add("least", DoubleType(), nullable=False)
    .add("most", DoubleType(), nullable=False)
)
CELL_WORK = (  # one row per run of DCS and number of nodes that some of its cells have
    StructType()
    .add("run_id", StringType(), nullable=False)
    .add("cell_nodes", LongType(), nullable=False)
    .add("cells", LongType(), nullable=False)
    .add("sent", LongType(), nullable=False)
)

LATENCIES = ("mean", "p50", "p95", "max")
TRAFFIC = ("phy_bytes", "phy_frames", "mac_retransmissions", "forwarded_bytes", "control_bytes")
HELD = ("objects", "object_bytes", "metadata", "subscriptions")
MS = 1_000.0
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""Student's t for a confidence of 95 %, by degrees of freedom from 1 on."""
T_95_MANY = 1.96


def read_results(spark: SparkSession, files: list[str]) -> DataFrame:
    """The results of runs (P5), from their files."""
    return spark.read.schema(from_arrow_schema(RESULT)).parquet(*files)


def runs(results: DataFrame) -> DataFrame:
    """Which runs there are."""
    return shaped(results, RUNS)


def measures(results: DataFrame) -> DataFrame:
    """Every number of every run."""
    parts = (
        traffic(results),
        operations(results),
        notifications(results),
        load(results),
        energy(results),
        storage(results),
        messages(results),
        model(results),
    )
    whole = reduce(DataFrame.unionByName, parts)
    return shaped(whole.where(F.col("value").isNotNull()), MEASURES)


def points(measured: DataFrame, run_table: DataFrame) -> DataFrame:
    """Mean, standard deviation and confidence interval over the runs of a point (S16)."""
    values = F.array_sort(F.collect_list(F.struct("run_id", "value")))
    grouped = (
        measured.join(run_table.drop("events"), "run_id")
        .groupBy(*POINT)
        .agg(F.transform(values, lambda each: each["value"]).alias("values"))
        .withColumn("runs", F.size("values").cast("bigint"))
        .withColumn("mean", _sum(F.col("values")) / F.col("runs"))
    )
    squares = F.transform(F.col("values"), lambda value: F.pow(value - F.col("mean"), F.lit(2.0)))
    spread = grouped.withColumn(
        "sd", F.when(F.col("runs") > 1, F.sqrt(_sum(squares) / (F.col("runs") - 1)))
    )
    return shaped(
        spread.select(
            *POINT,
            "runs",
            "mean",
            "sd",
            (_t95(F.col("runs")) * F.col("sd") / F.sqrt("runs")).alias("ci95"),
            F.array_min("values").alias("least"),
            F.array_max("values").alias("most"),
        ),
        POINTS,
    )


def _sum(values: Column) -> Column:
    """In the order of the array."""
    return F.aggregate(values, F.lit(0.0), lambda total, value: total + value)


def _t95(count: Column) -> Column:
    table = F.array(*(F.lit(value) for value in T_95))
    small = F.element_at(table, F.greatest(F.lit(1), count - 1).cast("int"))
    return F.when(count - 1 > len(T_95), F.lit(T_95_MANY)).otherwise(small)


def _long(frame: DataFrame, measured: dict[str, Column]) -> DataFrame:
    """One row per run and measure."""
    pairs = F.array(
        *(
            F.struct(F.lit(name).alias("measure"), value.cast("double").alias("value"))
            for name, value in measured.items()
        )
    )
    return frame.select("run_id", F.inline(pairs))


# The air


def traffic(results: DataFrame) -> DataFrame:
    """What went over the air (S14)."""
    exceeded = F.aggregate(
        "drops",
        F.lit(0).cast("bigint"),
        lambda total, drop: (
            total + F.when(drop["cause"] == "exceeded", drop["messages"]).otherwise(F.lit(0))
        ),
    )
    return _long(
        results,
        {name: F.col(name) for name in TRAFFIC}
        | {
            "mac_exceeded": exceeded,
            "control_share": F.col("control_bytes") / F.col("phy_bytes"),
        },
    )


def messages(results: DataFrame) -> DataFrame:
    """Messages and bytes sent, by type."""
    by_type = (
        results.select("run_id", F.inline("loads"))
        .groupBy("run_id", "type")
        .agg(F.sum("sent").alias("sent"), F.sum("sent_bytes").alias("sent_bytes"))
    )
    pairs = F.array(
        *(
            F.struct(
                F.concat(F.lit(f"{prefix}."), "type").alias("measure"),
                F.col(column).cast("double").alias("value"),
            )
            for prefix, column in (("messages", "sent"), ("bytes", "sent_bytes"))
        )
    )
    return by_type.select("run_id", F.inline(pairs))


def model(results: DataFrame) -> DataFrame:
    """Messages by the formulas of Table 6, and as they were simulated (S18)."""
    parts = results.select("run_id", F.inline("model"))
    pairs = F.array(
        *(
            F.struct(
                F.concat(F.lit(f"{name}."), "part").alias("measure"), F.col(name).alias("value")
            )
            for name in ("formula", "simulated")
        )
    )
    return parts.select("run_id", F.inline(pairs))


# Operations


def operations(results: DataFrame) -> DataFrame:
    """Success and latency of each operation; and of all together, as `operation`.

    That an object is not found any more is the right answer where it was deleted, or had expired,
    before.
    """
    tried = results.select("run_id", F.inline("operations"))
    gone = (
        tried.where(F.col("kind").isin("insert", "delete"))
        .select("run_id", "name", _gone_us().alias("gone_us"))
        .groupBy("run_id", "name")
        .agg(F.min("gone_us").alias("gone_us"))
    )
    right = (F.col("code") == "ok") | (
        (F.col("kind") == "retrieve")
        & (F.col("code") == "not_found")
        & F.coalesce(F.col("gone_us") <= F.col("ended_us"), F.lit(False))
    )
    judged = tried.join(gone, ["run_id", "name"], "left").select(
        "run_id",
        F.explode(F.array("kind", F.lit("operation"))).alias("kind"),
        right.alias("ok"),
        F.when(right, F.col("ended_us") - F.col("issued_us")).alias("latency_us"),
    )
    per_kind = judged.groupBy("run_id", "kind").agg(
        F.count("*").alias("issued"),
        F.count_if("ok").alias("succeeded"),
        *_latencies(),
    )
    return _long_by_kind(per_kind, "issued", "succeeded", "success")


def _gone_us() -> Column:
    """From when on an object may be gone: a delete, or the end of its life."""
    return F.when(F.col("kind") == "delete", F.col("issued_us")).otherwise(
        F.col("issued_us") + F.col("life_us")
    )


def _latencies() -> list[Column]:
    """Of `latency_us`; a quantile is the least value that as many do not exceed."""
    quantile = "percentile_disc({}) within group (order by latency_us)"
    return [
        (F.sum("latency_us") / F.count("latency_us")).alias("mean"),
        F.expr(quantile.format(0.5)).alias("p50"),
        F.expr(quantile.format(0.95)).alias("p95"),
        F.max("latency_us").alias("max"),
    ]


def _long_by_kind(frame: DataFrame, total: str, good: str, ratio: str) -> DataFrame:
    """Rows like `success.insert` of a frame with a row per run and kind."""
    measured = {
        total: F.col(total),
        good: F.col(good),
        ratio: F.try_divide(F.col(good), F.col(total)),
    } | {f"latency_ms_{name}": F.col(name) / MS for name in LATENCIES}
    pairs = F.array(
        *(
            F.struct(
                F.concat(F.lit(f"{name}."), "kind").alias("measure"),
                value.cast("double").alias("value"),
            )
            for name, value in measured.items()
        )
    )
    return frame.select("run_id", F.inline(pairs))


# Notifications


def notifications(results: DataFrame) -> DataFrame:
    """Recall and latency against the oracle; and what was told twice, or wrongly (S15)."""
    key = ["run_id", "user", "sid", "oid"]
    heard = (
        results.select("run_id", F.inline("notifications"))
        .groupBy(*key)
        .agg(
            F.count("*").alias("times"),
            F.min_by(F.struct("told_us", "right"), "told_us").alias("first"),
        )
        .select(*key, "times", F.col("first.told_us"), F.col("first.right"))
    )
    due = due_notifications(results).withColumn("due", F.lit(True))
    held = heard.join(due, key, "full").withColumns(
        {
            "due": F.coalesce("due", F.lit(False)),
            "right": F.coalesce("right", F.lit(False)),
        }
    )
    late_us = F.greatest(F.lit(0), F.col("told_us") - F.col("due_us"))
    found = (
        held.withColumn("latency_us", F.when(F.col("due") & F.col("right"), late_us))
        .groupBy("run_id")
        .agg(
            F.count_if("due").alias("expected"),
            F.count_if(F.col("due") & F.col("right")).alias("delivered"),
            F.count_if(F.col("told_us").isNotNull() & ~F.col("right")).alias("spurious"),
            F.count_if(~F.col("due") & F.col("right")).alias("unexpected"),
            F.sum(F.coalesce(F.col("times") - 1, F.lit(0))).alias("duplicates"),
            *_latencies(),
        )
        .withColumn("kind", F.lit("notification"))
    )
    others = {name: F.col(name) for name in ("spurious", "unexpected", "duplicates")}
    return _long_by_kind(found, "expected", "delivered", "success").unionByName(
        _long(found, others)
    )


def due_notifications(results: DataFrame) -> DataFrame:
    """The notifications of a perfect execution and when each is due: at once, or when the
    subscriber's device is up again, if it is down then. Who never comes back cannot be told."""
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


# Load and energy


def load(results: DataFrame) -> DataFrame:
    """Messages sent and heard by the busiest node and cell, and how unevenly they are spread."""
    by_node = (
        results.select("run_id", F.inline("loads"))
        .groupBy("run_id", "node")
        .agg(F.sum(F.col("sent") + F.col("heard")).alias("load"))
    )
    devices = results.select("run_id", F.inline("devices")).select("run_id", "node", "cell")
    loads = devices.join(by_node, ["run_id", "node"], "left").fillna(0, ["load"])
    by_cell = loads.groupBy("run_id", "cell").agg(F.sum("load").alias("load"))
    return _spread(loads, "node").unionByName(_spread(by_cell, "cell"))


def _spread(loads: DataFrame, over: str) -> DataFrame:
    """The maximum, and Gini's measure: 0 where all have the same."""
    rank = F.row_number().over(Window.partitionBy("run_id").orderBy("load", over))
    size, total = F.count("*"), F.sum("load")
    gini = 2 * F.sum(F.col("rank") * F.col("load")) / (size * total) - (size + 1) / size
    found = (
        loads.withColumn("rank", rank)
        .groupBy("run_id")
        .agg(F.max("load").alias("max"), gini.alias("gini"))
    )
    return _long(found, {f"load_max.{over}": F.col("max"), f"load_gini.{over}": F.col("gini")})


def energy(results: DataFrame) -> DataFrame:
    """What the users' devices spent: a server has a socket."""
    phones = F.filter("devices", lambda device: ~device["server"])
    joules = F.transform(phones, lambda device: device["joules"])
    shares = F.transform(phones, lambda device: device["battery_share"])
    return _long(
        results,
        {
            "energy_j_mean": _sum(joules) / F.size(joules),
            "energy_j_max": F.array_max(joules),
            "battery_share_max": F.array_max(shares),
        },
    )


def storage(results: DataFrame) -> DataFrame:
    """What nodes keep at the end: objects and their bytes, metadata, subscriptions."""
    found: dict[str, Column] = {}
    for what in HELD:
        kept = F.col(f"devices.{what}").cast("array<double>")
        found[f"storage_mean.{what}"] = _sum(kept) / F.size(kept)
        found[f"storage_max.{what}"] = F.array_max(kept)
    return _long(results, found)


def cell_work(results: DataFrame) -> DataFrame:
    """Notification messages that the nodes of cells start, by how many nodes a cell has (C16)."""
    dcs = results.where(F.col("substrate") == "dcs")
    started = (
        dcs.select("run_id", F.inline("loads"))
        .where(F.col("type").rlike("(^|/)(Cell)?Notify$"))
        .groupBy("run_id", "node")
        .agg(F.sum(F.col("sent") - F.col("forwarded")).alias("sent"))
    )
    devices = dcs.select("run_id", F.inline("devices")).select("run_id", "node", "cell")
    cells = (
        devices.join(started, ["run_id", "node"], "left")
        .groupBy("run_id", "cell")
        .agg(F.count("*").alias("cell_nodes"), F.sum(F.coalesce("sent", F.lit(0))).alias("sent"))
    )
    by_size = cells.groupBy("run_id", "cell_nodes")
    return shaped(by_size.agg(F.count("*").alias("cells"), F.sum("sent").alias("sent")), CELL_WORK)
