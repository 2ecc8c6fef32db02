"""Long form: turns columns of measured values into rows of MEASURES (run, measure, value).

Entry point: `long_form`, used by `metrics.users` and `metrics.devices`.
Clauses: P6, S14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812


def long_form(
    frame: DataFrame, measured: Mapping[str, Column], suffix: str | None = None
) -> DataFrame:
    """One row per run and measure; `suffix` names a column whose value ends the measure's name."""
    pairs = F.array(
        *(
            F.struct(
                _measure_name(name, suffix).alias("measure"), value.cast("double").alias("value")
            )
            for name, value in measured.items()
        )
    )
    return frame.select("run_id", F.inline(pairs))


def _measure_name(name: str, suffix: str | None) -> Column:
    return F.lit(name) if suffix is None else F.concat(F.lit(f"{name}."), suffix)


def as_measures(names: Sequence[str]) -> dict[str, Column]:
    """Measures that are columns of the frame, by name."""
    return {name: F.col(name) for name in names}


def ordered_sum(values: Column) -> Column:
    """Sum of an array in its order: the sum of floats depends on the order."""
    return F.aggregate(values, F.lit(0.0), lambda total, value: total + value)
