"""Metrics: statistics over the runs of a sweep.

The measures of each run are computed where it is simulated (`thyme.sim.results.measures`) and read
here; `aggregate_points` aggregates runs that differ in topology and repetition only, and
`measure_cell_work` counts the messages of cells by their size. Floats are summed in a fixed order,
so the results do not depend on the partitions.
Clauses: P6, S14–S16, C16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's own examples do)
from pyspark.sql.pandas.types import from_arrow_schema
from scipy import stats

from thyme.pipeline.schemas import CELL_WORK, MEASURES, POINTS, RESULT, RUNS, select_schema
from thyme.sim.measurement.measurements import NOTIFY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP_BY = ["series", "profile", "substrate", "nodes", "parameter", "measure"]
"""Columns that identify a row of POINTS."""
CONFIDENCE = 0.95
EXACT_RUNS_MAX = 1_000
"""Points with more runs use the normal distribution, which is within 0.2 % of Student's t."""


def read_results(spark: SparkSession, files: list[str]) -> DataFrame:
    """Reads the results of runs (P5) from their files."""
    return spark.read.schema(from_arrow_schema(RESULT)).parquet(*files)


def select_runs(results: DataFrame) -> DataFrame:
    """One row of RUNS per run."""
    return select_schema(results, RUNS)


def read_measures(spark: SparkSession, files: list[str]) -> DataFrame:
    """Reads the measures of runs from their files."""
    return select_schema(spark.read.schema(MEASURES).json(files), MEASURES)


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
