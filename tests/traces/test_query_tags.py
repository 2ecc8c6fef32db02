"""The three readings of "one tag chosen at random" from the most popular 60 % (P3, D28)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.errors import InputError
from thyme.model.tags import as_tags
from thyme.traces.query_tags import (
    QueryTags,
    RankDraw,
    TagUses,
    choose_candidates,
    choose_ranks,
    count_uses,
)

POPULARITY = dict(zip(as_tags([*"abcde"]), (2, 2, 3, 1, 9), strict=True))
READINGS = st.sampled_from(QueryTags)


@pytest.mark.parametrize(
    ("share", "kept"), [(0.6, "eca"), (1.0, "ecabd"), (0.1, "e"), (0.61, "ecab")]
)
@pytest.mark.parametrize("reading", [QueryTags.DISTINCT, QueryTags.USED])
def test_p3_the_most_popular_share_of_the_tags_are_candidates(
    share: float, kept: str, reading: QueryTags
) -> None:
    assert "".join(choose_candidates(POPULARITY, reading, share).tags) == kept


@pytest.mark.parametrize(
    ("share", "kept"), [(0.5, "e"), (0.6, "ec"), (0.7, "ec"), (0.8, "eca"), (1.0, "ecabd")]
)
def test_p3_common_tags_make_up_the_share_of_all_uses(share: float, kept: str) -> None:
    """Of 17 uses, 9 are of e, 3 of c, 2 each of a and b, 1 of d."""
    assert "".join(choose_candidates(POPULARITY, QueryTags.COMMON, share).tags) == kept


def test_p3_a_tag_is_drawn_as_often_as_it_is_used() -> None:
    tags, ranks = choose_candidates(POPULARITY, QueryTags.USED, 0.8)
    rng = Random(1)
    drawn = Counter(tags[ranks.draw(rng)] for _ in range(16_000))
    assert {tag: round(count / 1_000) for tag, count in drawn.items()} == {
        "e": 9, "c": 3, "a": 2, "b": 2,
    }  # fmt: skip


def test_p3_the_default_draws_each_candidate_equally_often() -> None:
    rng = Random(1)
    drawn = Counter(choose_candidates(POPULARITY).ranks.draw(rng) for _ in range(3_000))
    assert {rank: round(count / 500) for rank, count in drawn.items()} == {0: 2, 1: 2, 2: 2}


@given(st.lists(st.integers(1, 30), min_size=3, max_size=40), READINGS, st.integers(0, 2**32))
def test_every_tag_of_a_formula_is_another_candidate(
    uses: list[int], reading: QueryTags, seed: int
) -> None:
    ranks, rng = choose_ranks(count_uses(uses), reading, 1.0), Random(seed)
    first = ranks.draw(rng)
    chosen = {first, *ranks.draw_others(rng, first, 2)}
    assert len(chosen) == 3
    assert chosen <= {*range(ranks.candidates)}


@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=40),
    st.floats(0.01, 1.0),
    st.integers(0, 2**32),
)
def test_ranks_drawn_by_use_are_those_of_a_list_of_all_uses(
    uses: list[int], share: float, seed: int
) -> None:
    """The grouped counts against the plain reading: a ticket for each use of a candidate."""
    ranked = sorted(uses, reverse=True)
    ranks = choose_ranks(count_uses(uses), QueryTags.USED, share)
    tickets = [rank for rank, each in enumerate(ranked[: ranks.candidates]) for _ in range(each)]
    assert ranks.draw(Random(seed)) == tickets[Random(seed).randrange(len(tickets))]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.floats(0.01, 1.0))
def test_common_tags_are_the_least_number_with_the_share(uses: list[int], share: float) -> None:
    ranked = sorted(uses, reverse=True)
    count = choose_ranks(count_uses(uses), QueryTags.COMMON, share).candidates
    wanted = share * sum(uses) - 1e-6
    assert sum(ranked[:count]) >= wanted > sum(ranked[: count - 1]) - 1


def test_tags_with_as_many_posts_are_counted_together() -> None:
    assert count_uses(POPULARITY.values()) == [
        TagUses(9, 1), TagUses(3, 1), TagUses(2, 2), TagUses(1, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("reading", QueryTags)
def test_without_tags_there_are_no_candidates(reading: QueryTags) -> None:
    assert choose_candidates({}, reading).tags == ()
    assert choose_candidates({}, reading).ranks.candidates == 0


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
@pytest.mark.parametrize("reading", QueryTags)
def test_a_share_above_one_is_refused(reading: QueryTags, share: float) -> None:
    with pytest.raises(InputError, match="above 0 and at most 1"):
        choose_candidates(POPULARITY, reading, share)


def test_a_draw_from_one_candidate_needs_no_luck() -> None:
    assert RankDraw(1).draw(Random(1)) == 0
