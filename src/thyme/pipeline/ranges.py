"""Ranges: splits a table into consecutive ranges of its sort order, all of about the same size.

Spark's own `repartitionByRange` computes the whole table twice: first to sample it, then to move
its rows. Here the caller provides the sample, a table that is much smaller. Entry point:
`split_by_sample`.
Clauses: P8, P10.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SAMPLE_ROWS = 20_000
"""A sample of about so many rows is enough for ranges of equal size."""
RANGES_MAX = 500
_RANGE = "range_number"


class Sample(NamedTuple):
    """Some rows of a table: one in so many."""

    frame: DataFrame
    one_in: int


def sampling_rate(rows: int) -> int:
    """One in how many rows makes a sample of SAMPLE_ROWS."""
    return max(1, rows // SAMPLE_ROWS)


def split_by_sample(
    frame: DataFrame, order: Sequence[str], sample: Sample, rows_per_range: int
) -> DataFrame:
    """The rows of a frame, in partitions that are consecutive ranges of `order`."""
    found = sorted(map(tuple, sample.frame.select(*order).collect()))
    bounds = choose_bounds(found, len(found) * sample.one_in, rows_per_range)
    if not bounds:
        return frame.coalesce(1)
    numbered = frame.withColumn(_RANGE, _range_number(order, bounds))
    return numbered.repartitionById(len(bounds) + 1, _RANGE).drop(_RANGE)


def choose_bounds(
    found: Sequence[tuple[Any, ...]], rows: int, rows_per_range: int
) -> list[tuple[Any, ...]]:
    """The first values of all ranges but the first, from the sorted rows of a sample."""
    ranges = min(-(-rows // rows_per_range), RANGES_MAX)
    return sorted({found[len(found) * number // ranges] for number in range(1, ranges)})


def _range_number(order: Sequence[str], bounds: Sequence[tuple[Any, ...]]) -> Column:
    """The number of the range that a row belongs to, from 0, by a binary search."""
    from pyspark.sql import functions as F  # noqa: N812

    firsts = Counter(bound[0] for bound in bounds)

    def search(low: int, high: int) -> Column:
        if low == high:
            return F.lit(low)
        middle = (low + high + 1) // 2
        bound = bounds[middle - 1]
        # Where the first column tells all bounds apart, the others need not be compared.
        compared = bound if firsts[bound[0]] > 1 else bound[:1]
        is_above = _is_at_least(order, compared)
        return F.when(is_above, search(middle, high)).otherwise(search(low, middle - 1))

    return search(0, len(bounds))


def _is_at_least(order: Sequence[str], bound: Sequence[Any]) -> Column:
    """Condition: the columns of a row are not before a bound."""
    from pyspark.sql import functions as F  # noqa: N812

    column, value = F.col(order[0]), F.lit(bound[0])
    if len(bound) == 1:
        return column >= value
    return (column > value) | ((column == value) & _is_at_least(order[1:], bound[1:]))
