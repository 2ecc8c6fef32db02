"""Query tags: which tags the users of a trace subscribe to, and how often each.

The journal article says that queries are about the top 60 % of the most popular tags, "chosen at
random". That can be read in three ways (`QueryTags`), which differ by a factor of ten in the number
of notifications; docs/traces.md has the numbers. Tags are known by their rank here, so that a
single process and Spark draw the same queries from the same counts. Entry points:
`choose_candidates`, and `choose_ranks` where the tags are not in memory.
Clauses: P3, D28.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate
from random import Random
from typing import NamedTuple

from thyme.model.tags import Tag
from thyme.traces.posts import CANDIDATE_SHARE, share_of


class QueryTags(StrEnum):
    """A reading of the rule by which a query gets its tag."""

    DISTINCT = "distinct"
    """The most popular share of the distinct tags, each equally likely."""
    COMMON = "common"
    """The most popular tags that make up this share of all uses, each equally likely."""
    USED = "used"
    """The most popular share of the distinct tags, each as likely as it is used."""


class TagUses(NamedTuple):
    """How often tags are used: so many tags (`tags`) have so many posts each (`uses`)."""

    uses: int
    tags: int


def count_uses(uses: Iterable[int]) -> list[TagUses]:
    """The numbers of posts of all tags, put together, most used tags first."""
    return [TagUses(each, tags) for each, tags in sorted(Counter(uses).items(), reverse=True)]


class RankDraw:
    """Draws the ranks of candidate tags, from 0: each equally likely, or by its uses."""

    def __init__(self, candidates: int, uses: Sequence[TagUses] = ()) -> None:
        self.candidates = candidates
        self._uses = uses
        self._ends = list(accumulate(each.uses * each.tags for each in uses))
        self._first_ranks = list(accumulate((each.tags for each in uses), initial=0))

    def draw(self, rng: Random) -> int:
        """One rank."""
        if not self._uses:
            return rng.choice(range(self.candidates))
        place = rng.randrange(self._ends[-1])
        group = bisect_right(self._ends, place)
        uses, tags = self._uses[group]
        return self._first_ranks[group] + (place - self._ends[group] + uses * tags) // uses

    def draw_others(self, rng: Random, first: int, count: int) -> list[int]:
        """So many ranks, different from the first and from each other."""
        if not self._uses:
            # With a gap at the first.
            sampled = rng.sample(range(self.candidates - 1), count)
            return [rank + (rank >= first) for rank in sampled]
        chosen = [first]
        while len(chosen) <= count:
            if (rank := self.draw(rng)) not in chosen:
                chosen.append(rank)
        return chosen[1:]


class QueryCandidates(NamedTuple):
    """The tags that users subscribe to, most popular first, and how their ranks are drawn."""

    tags: tuple[Tag, ...]
    ranks: RankDraw


def choose_candidates(
    popularity: Mapping[Tag, int],
    reading: QueryTags = QueryTags.DISTINCT,
    share: float = CANDIDATE_SHARE,
) -> QueryCandidates:
    """The candidates among tags with so many posts each, ties by name."""
    ranks = choose_ranks(count_uses(popularity.values()), reading, share)
    ranked = sorted(popularity, key=lambda tag: (-popularity[tag], tag))
    return QueryCandidates(tuple(ranked[: ranks.candidates]), ranks)


def choose_ranks(uses: Sequence[TagUses], reading: QueryTags, share: float) -> RankDraw:
    """The candidates among all tags, and how likely each is."""
    tags = sum(each.tags for each in uses)
    if reading is QueryTags.COMMON:
        return RankDraw(_tags_with_uses(uses, share))
    candidates = share_of(tags, share)
    if reading is QueryTags.DISTINCT or not candidates:
        return RankDraw(candidates)
    return RankDraw(candidates, list(_first_tags(uses, candidates)))


def _tags_with_uses(uses: Sequence[TagUses], share: float) -> int:
    """The least number of most popular tags that have this share of all uses."""
    left = share_of(sum(each.uses * each.tags for each in uses), share)
    tags = 0
    for each in uses:
        needed = -(-left // each.uses)
        if needed <= each.tags:
            return tags + needed
        tags, left = tags + each.tags, left - each.uses * each.tags
    return tags


def _first_tags(uses: Sequence[TagUses], count: int) -> Iterator[TagUses]:
    """The uses of so many most popular tags."""
    for each in uses:
        if count <= 0:
            return
        yield TagUses(each.uses, min(each.tags, count))
        count -= each.tags
