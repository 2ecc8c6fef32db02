"""Metrics: the measures of each run of a sweep, and their statistics over the runs of a point.

A measure is a named number of one run: `phy_bytes`, `success.retrieve`,
`latency_ms_p95.notification`. `compute_measures` collects those of `metrics.users` (success and
latency) and of `metrics.devices` (traffic, energy, storage); `aggregate_points` aggregates runs
that differ in topology and repetition only. Floats are summed in a fixed order, so the results do
not depend on the partitions.
Clauses: P6, S14–S16.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 (as all of Spark's own examples do)
from pyspark.sql.pandas.types import from_arrow_schema

from thyme.pipeline.metrics import devices, users
from thyme.pipeline.metrics.long_form import ordered_sum
from thyme.pipeline.schemas import MEASURES, POINTS, RUNS, select_schema
from thyme.pipeline.sweep.task import RESULT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUP_BY = ["series", "profile", "substrate", "nodes", "parameter", "measure"]
"""Columns that identify a row of POINTS."""
T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""Student's t for 95 % confidence, by degrees of freedom, from 1."""
T_95_MANY = 1.96


def read_results(spark: SparkSession, files: list[str]) -> DataFrame:
    """Reads the results of runs (P5) from their files."""
    return spark.read.schema(from_arrow_schema(RESULT)).parquet(*files)


def select_runs(results: DataFrame) -> DataFrame:
    """One row of RUNS per run."""
    return select_schema(results, RUNS)


def compute_measures(results: DataFrame) -> DataFrame:
    """Every measure of every run."""
    functions = (*users.USER_MEASURES, *devices.DEVICE_MEASURES)
    every = reduce(DataFrame.unionByName, (function(results) for function in functions))
    return select_schema(every.where(F.col("value").isNotNull()), MEASURES)


def aggregate_points(measured: DataFrame, run_table: DataFrame) -> DataFrame:
    """Mean, standard deviation and confidence interval over the runs of each point (S16)."""
    values = F.array_sort(F.collect_list(F.struct("run_id", "value")))
    grouped = (
        measured.join(run_table.drop("events"), "run_id")
        .groupBy(*GROUP_BY)
        .agg(F.transform(values, lambda each: each["value"]).alias("values"))
        .withColumn("runs", F.size("values").cast("bigint"))
        .withColumn("mean", ordered_sum(F.col("values")) / F.col("runs"))
    )
    squares = F.transform(F.col("values"), lambda value: F.pow(value - F.col("mean"), F.lit(2.0)))
    with_sd = grouped.withColumn(
        "sd", F.when(F.col("runs") > 1, F.sqrt(ordered_sum(squares) / (F.col("runs") - 1)))
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
    table = F.array(*(F.lit(value) for value in T_95))
    small = F.element_at(table, F.greatest(F.lit(1), count - 1).cast("int"))
    return F.when(count - 1 > len(T_95), F.lit(T_95_MANY)).otherwise(small)
