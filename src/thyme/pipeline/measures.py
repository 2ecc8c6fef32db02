"""A measure: a number of one run under a name, in a row of MEASURES.

How such rows are made of columns, for the rooms that work the numbers out: `metrics_users` and
`metrics_devices`.
Clauses: P6, S14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812


def long_form(frame: DataFrame, measured: Mapping[str, Column], of: str | None = None) -> DataFrame:
    """One row per run and measure; with `of`, the name of a measure ends in that column's word."""
    pairs = F.array(
        *(
            F.struct(_name(name, of).alias("measure"), value.cast("double").alias("value"))
            for name, value in measured.items()
        )
    )
    return frame.select("run_id", F.inline(pairs))


def _name(name: str, of: str | None) -> Column:
    return F.lit(name) if of is None else F.concat(F.lit(f"{name}."), of)


def columns(names: Sequence[str]) -> dict[str, Column]:
    """Measures that are columns already."""
    return {name: F.col(name) for name in names}


def total(values: Column) -> Column:
    """The sum of an array, in its order: sums of fractions depend on it."""
    return F.aggregate(values, F.lit(0.0), lambda total, value: total + value)
