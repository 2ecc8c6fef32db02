"""Device metrics: radio traffic, messages by type and by formula, load, energy and storage.

Entry point: `DEVICE_MEASURES`, the functions from results to measures; `metrics.tables` calls them.

Clauses: P6, S14, S18.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from thyme.pipeline.metrics.long_form import as_measures, long_form, ordered_sum
from thyme.pipeline.schemas import CELL_WORK, select_schema
from thyme.sim.results.measurements import NOTIFY

TRAFFIC = ("phy_bytes", "phy_frames", "mac_retransmissions", "forwarded_bytes", "control_bytes")
STORED = ("objects", "object_bytes", "metadata", "subscriptions")


def measure_traffic(results: DataFrame) -> DataFrame:
    """Frames, bytes and retransmissions of the radio (S14)."""
    exceeded = F.aggregate(
        "drops",
        F.lit(0).cast("bigint"),
        lambda total, drop: (
            total + F.when(drop["cause"] == "exceeded", drop["messages"]).otherwise(F.lit(0))
        ),
    )
    share = F.col("control_bytes") / F.col("phy_bytes")
    more = {"mac_exceeded": exceeded, "control_share": share}
    return long_form(results, as_measures(TRAFFIC) | more)


def measure_messages(results: DataFrame) -> DataFrame:
    """Messages and bytes sent, by message type."""
    by_type = (
        results.select("run_id", F.inline("loads"))
        .groupBy("run_id", "type")
        .agg(F.sum("sent").alias("sent"), F.sum("sent_bytes").alias("sent_bytes"))
    )
    sent = {"messages": F.col("sent"), "bytes": F.col("sent_bytes")}
    return long_form(by_type, sent, suffix="type")


def measure_model(results: DataFrame) -> DataFrame:
    """Messages predicted by the formulas of Table 6, and simulated messages (S18)."""
    parts = results.select("run_id", F.inline("model"))
    return long_form(parts, as_measures(("formula", "simulated")), suffix="part")


def measure_load(results: DataFrame) -> DataFrame:
    """Messages sent and received by the busiest node and cell, and their Gini coefficient."""
    by_node = (
        results.select("run_id", F.inline("loads"))
        .groupBy("run_id", "node")
        .agg(F.sum(F.col("sent") + F.col("heard")).alias("load"))
    )
    devices = results.select("run_id", F.inline("devices")).select("run_id", "node", "cell")
    loads = devices.join(by_node, ["run_id", "node"], "left").fillna(0, ["load"])
    by_cell = loads.groupBy("run_id", "cell").agg(F.sum("load").alias("load"))
    return _max_and_gini(loads, "node").unionByName(_max_and_gini(by_cell, "cell"))


def _max_and_gini(loads: DataFrame, over: str) -> DataFrame:
    """The maximum and the Gini coefficient (0 if all loads are equal)."""
    rank = F.row_number().over(Window.partitionBy("run_id").orderBy("load", over))
    size, total = F.count("*"), F.sum("load")
    gini = 2 * F.sum(F.col("rank") * F.col("load")) / (size * total) - (size + 1) / size
    found = (
        loads.withColumn("rank", rank)
        .groupBy("run_id")
        .agg(F.max("load").alias("max"), gini.alias("gini"))
    )
    return long_form(found, {f"load_max.{over}": F.col("max"), f"load_gini.{over}": F.col("gini")})


def measure_energy(results: DataFrame) -> DataFrame:
    """Energy of user devices only; the ES server is mains-powered."""
    phones = F.filter("devices", lambda device: ~device["server"])
    joules = F.transform(phones, lambda device: device["joules"])
    shares = F.transform(phones, lambda device: device["battery_share"])
    return long_form(
        results,
        {
            "energy_j_mean": ordered_sum(joules) / F.size(joules),
            "energy_j_max": F.array_max(joules),
            "battery_share_max": F.array_max(shares),
        },
    )


def measure_storage(results: DataFrame) -> DataFrame:
    """Records stored by nodes at the end: objects, their bytes, metadata, subscriptions."""
    found: dict[str, Column] = {}
    for name in STORED:
        counts = F.col(f"devices.{name}").cast("array<double>")
        found[f"storage_mean.{name}"] = ordered_sum(counts) / F.size(counts)
        found[f"storage_max.{name}"] = F.array_max(counts)
    return long_form(results, found)


def measure_cell_work(results: DataFrame) -> DataFrame:
    """Notification messages originated by the nodes of cells, by cell size (C16)."""
    dcs = results.where(F.col("substrate") == "dcs")
    started = (
        dcs.select("run_id", F.inline("loads"))
        .where(F.col("type").rlike(f"(^|/)({'|'.join(NOTIFY)})$"))
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
    return select_schema(
        by_size.agg(F.count("*").alias("cells"), F.sum("sent").alias("sent")), CELL_WORK
    )


DEVICE_MEASURES = (
    measure_traffic,
    measure_messages,
    measure_model,
    measure_load,
    measure_energy,
    measure_storage,
)
