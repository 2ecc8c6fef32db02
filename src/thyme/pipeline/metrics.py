"""Metrics: statistics over the runs of a sweep.

The stage `runs` (`sweep.results`) has the tables of all runs, with the measures that each run
computed where it was simulated (`thyme.sim.results.measures`). `aggregate_points` aggregates runs
that differ in topology and repetition only, and `measure_cell_work` counts the messages of cells by
their size. Floats are summed in a fixed order, so the results do not depend on the partitions.
Clauses: P6, S14–S16, C16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's own examples do)
from scipy import stats

from thyme.pipeline.schemas import CELL_WORK, MEASURES, POINTS, RUNS, select_schema
from thyme.pipeline.sweep.results import read_table
from thyme.sim.measurement.measurements import NOTIFY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from thyme.pipeline.warehouse import Draft, Stage

GROUP_BY = ["series", "profile", "substrate", "nodes", "parameter", "measure"]
"""Columns that identify a row of POINTS."""
CONFIDENCE = 0.95
EXACT_RUNS_MAX = 1_000
"""Points with more runs use the normal distribution, which is within 0.2 % of Student's t."""


class RunTables:
    """The tables of the stage `runs`, of some runs only."""

    def __init__(self, spark: SparkSession, stage: Stage, run_ids: Sequence[str]) -> None:
        self._spark = spark
        self._stage = stage
        self._run_ids = list(run_ids)

    def read(self, name: str) -> DataFrame:
        """A table; its rows name their run in `run_id`."""
        table = read_table(self._spark, self._stage, name)
        return table.where(F.col("run_id").isin(self._run_ids))


def select_runs(tables: RunTables) -> DataFrame:
    """One row of RUNS per run."""
    return select_schema(tables.read("runs"), RUNS)


def select_measures(tables: RunTables) -> DataFrame:
    """One row of MEASURES per run and measure, as the run computed it."""
    return select_schema(tables.read("measures"), MEASURES)


def write_points(spark: SparkSession, draft: Draft, tables: RunTables) -> None:
    """Writes the tables that every stage of metrics has: runs, measures and points."""
    draft.write("runs", select_runs(tables), files=1)
    draft.write("measures", select_measures(tables), files=1)
    measured = draft.read(spark, "measures", MEASURES)
    draft.write("points", aggregate_points(measured, select_runs(tables)), files=1)


def aggregate_points(measured: DataFrame, run_table: DataFrame) -> DataFrame:
    """Mean, standard deviation and confidence interval over the runs of each point (S16)."""
    values = F.array_sort(F.collect_list(F.struct("run_id", "value")))
    grouped = (
        measured.join(run_table.drop("events"), "run_id")
        .groupBy(*GROUP_BY)
        .agg(F.transform(values, lambda each: each["value"]).alias("values"))
        .withColumn("runs", F.size("values").cast("bigint"))
        .withColumn("mean", _ordered_sum(F.col("values")) / F.col("runs"))
    )
    squares = F.transform(F.col("values"), lambda value: F.pow(value - F.col("mean"), F.lit(2.0)))
    with_sd = grouped.withColumn(
        "sd", F.when(F.col("runs") > 1, F.sqrt(_ordered_sum(squares) / (F.col("runs") - 1)))
    )
    return select_schema(
        with_sd.select(
            *GROUP_BY,
            "runs",
            "mean",
            "sd",
            (_t95(F.col("runs")) * F.col("sd") / F.sqrt("runs")).alias("ci95"),
            F.array_min("values").alias("least"),
            F.array_max("values").alias("most"),
        ),
        POINTS,
    )


def _t95(count: Column) -> Column:
    """Student's t of a number of runs; its quantiles are computed once, here."""
    upper = (1 + CONFIDENCE) / 2
    factors = stats.t.ppf(upper, range(1, EXACT_RUNS_MAX))
    # One literal: an expression for each factor would make a large plan.
    table = F.split(F.lit(" ".join(map(repr, map(float, factors)))), " ").cast("array<double>")
    small = F.element_at(table, F.greatest(F.lit(1), count - 1).cast("int"))
    return F.when(count > EXACT_RUNS_MAX, F.lit(float(stats.norm.ppf(upper)))).otherwise(small)


def _ordered_sum(values: Column) -> Column:
    """Sum of an array in its order: the sum of floats depends on the order."""
    return F.aggregate(values, F.lit(0.0), lambda total, value: total + value)


def measure_cell_work(tables: RunTables) -> DataFrame:
    """Notification messages originated by the nodes of cells, by cell size (C16)."""
    dcs = tables.read("runs").where(F.col("substrate") == "dcs").select("run_id")
    started = (
        tables.read("loads")
        .where(F.col("type").rlike(f"(^|/)({'|'.join(NOTIFY)})$"))
        .groupBy("run_id", "node")
        .agg(F.sum(F.col("sent") - F.col("forwarded")).alias("sent"))
    )
    cells = (
        tables.read("devices")
        .select("run_id", "node", "cell")
        .join(dcs, "run_id", "left_semi")
        .join(started, ["run_id", "node"], "left")
        .groupBy("run_id", "cell")
        .agg(F.count("*").alias("cell_nodes"), F.sum(F.coalesce("sent", F.lit(0))).alias("sent"))
    )
    by_size = cells.groupBy("run_id", "cell_nodes")
    return select_schema(
        by_size.agg(F.count("*").alias("cells"), F.sum("sent").alias("sent")), CELL_WORK
    )
