"""P8, P10: a table is split into consecutive ranges of its order, by a sample of its rows."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812

from thyme.pipeline.tables import RANGES_MAX, Sample, choose_bounds, sampling_rate, split_by_sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = st.lists(st.tuples(st.integers(0, 9), st.text("ab", max_size=2)), min_size=1, max_size=60)


@given(ROWS, st.integers(1, 20))
def test_bounds_are_rows_of_the_sample_and_cut_it_into_even_ranges(
    rows: list[tuple[int, str]], size: int
) -> None:
    found = sorted(rows)
    bounds = choose_bounds(found, len(found), size)
    assert bounds == sorted({*bounds} & {*found})
    ranges = [sum(low <= row < high for row in found)
              for low, high in pairwise([(-1, ""), *bounds, (10, "")])]  # fmt: skip
    most_equal = max(found.count(row) for row in found)
    assert sum(ranges) == len(found)
    assert max(ranges) <= size + most_equal


def test_a_sample_is_small_and_ranges_are_not_too_many() -> None:
    assert [sampling_rate(rows) for rows in (0, 19_999, 40_000, 10**9)] == [1, 1, 2, 50_000]
    found = [(number,) for number in range(20_000)]
    assert len(choose_bounds(found, 10**12, 250_000)) == RANGES_MAX - 1
    assert choose_bounds([], 0, 250_000) == []


def test_partitions_are_ranges_also_where_many_rows_begin_alike(spark: SparkSession) -> None:
    """One instant has most of the posts: their ids tell the ranges apart."""
    rows = [(5 if number % 4 else number, f"p{number:03}") for number in range(400)]
    frame = spark.createDataFrame(rows[::-1], "at_us long, post_id string").repartition(7)
    sample = Sample(frame.where("substr(post_id, -1) IN ('3', '8')"), 5)

    split = split_by_sample(frame, ("at_us", "post_id"), sample, rows_per_range=50)

    parts: dict[int, list[tuple[int, str]]] = {}
    for row in split.select(F.spark_partition_id().alias("part"), "*").collect():
        parts.setdefault(row["part"], []).append((row["at_us"], row["post_id"]))
    ordered = [sorted(some) for _, some in sorted(parts.items())]
    assert [row for some in ordered for row in some] == sorted(rows)
    assert len(ordered) > 5
    assert max(map(len, ordered)) < 120
