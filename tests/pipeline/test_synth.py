"""P1: the synthetic match on Spark equals the synthetic match."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from thyme.pipeline.posts.synthetic import lookup_table, synthetic_posts
from thyme.pipeline.schemas import POSTS
from thyme.traces.posts import Post
from thyme.traces.synthetic.counter_rng import WEIGHT_BITS, WeightedChoice
from thyme.traces.synthetic.football_match import FITTED_MATCHES, FootballMatch, FootballMatchConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIGS = [
    FootballMatchConfig(posts=1_000, users=300, tags=2_000),
    *(replace(match, posts=500, users=200) for match in FITTED_MATCHES.values()),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_post_is_that_of_the_pure_match_whatever_the_partitions(
    spark: SparkSession, config: FootballMatchConfig
) -> None:
    frame = synthetic_posts(spark, 7, config, partitions=3)

    assert frame.dtypes == [(field.name, field.dataType.simpleString()) for field in POSTS]
    rows = [Post(*row[:4], tuple(row["tags"])) for row in frame.collect()]
    assert rows == list(FootballMatch(7, config))


@given(st.lists(st.sampled_from([0.0, 1e-9, 0.3, 1.0, 1e4]), min_size=1).filter(any), st.data())
def test_the_steps_of_a_search_reach_every_sector_of_a_wheel(
    weights: list[float], data: st.DataObject
) -> None:
    ends = WeightedChoice(weights).ends
    starts, steps = lookup_table(ends)
    near = st.sampled_from(ends).flatmap(lambda end: st.integers(end - 2, end + 2))
    lot = min(max(data.draw(near | st.integers(0, 2**WEIGHT_BITS - 1)), 0), 2**WEIGHT_BITS - 1)
    place = starts[lot >> (WEIGHT_BITS - (len(starts) - 1).bit_length())]
    padded = [*ends, *[2**WEIGHT_BITS] * 2 * len(weights)]
    for step in steps:
        place += step if padded[place + step - 1] <= lot else 0
    assert place == bisect_right(ends, lot)
