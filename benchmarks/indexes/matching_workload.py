"""Seeded workloads for the matching benchmark: objects and standing subscriptions.

`spec` is the workload of the targets: formulas of 1 to 3 conjunctions, each of 1 to 3 positive and
0 or 1 negative tags, drawn from 5,000 tags by Zipf's law, and objects of 1 to 5 such tags. `sparse`
holds the number of matches while subscriptions grow: conjunctions have 2 or 3 positive tags, and
tags are drawn evenly, from 5,000 for a million subscriptions and from as many for fewer as leave
the chance that an object matches the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np
import numpy.typing as npt

from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag

SPEC_TAGS = 5_000
OBJECT_TAGS_MAX = 5
CONJUNCTIONS_MAX = 3
POSITIVE_MAX = 3
NEGATIVE_SHARE = 0.5
NONE = -1

Numbers = npt.NDArray[np.int32]
Chances = npt.NDArray[np.float64]
Subscribed = tuple[int, tuple[Conjunction, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conjunctions:
    """Many conjunctions as arrays, in the order of the subscriptions that own them.

    Tags are numbers, 0 the most popular; `words` spells them; NONE fills where there is none.
    """

    words: tuple[Tag, ...]
    subscription_count: int
    owner: Numbers
    positive: Numbers
    negative: Numbers

    def each(self, chunk: int = 10_000) -> Iterator[tuple[int, list[int], int]]:
        """Owner, positive tags and negative tag of one after the other, by numbers."""
        for low in range(0, len(self.owner), chunk):
            part = slice(low, low + chunk)
            columns = (self.owner, self.positive, self.negative)
            for owner, positive, negative in zip(
                *(column[part].tolist() for column in columns), strict=True
            ):
                yield owner, [tag for tag in positive if tag != NONE], negative

    def subscriptions(self) -> Iterator[Subscribed]:
        """Owners with their conjunctions, made on the way: none is kept here."""
        words, last = self.words, 0
        mine: list[Conjunction] = []
        for owner, positive, negative in self.each():
            if owner != last:
                yield last, tuple(mine)
                mine, last = [], owner
            unwanted = () if negative == NONE else (words[negative],)
            mine.append(Conjunction(tuple(sorted([words[tag] for tag in positive])), unwanted))
        yield last, tuple(mine)


def spec_objects(count: int, seed: int) -> list[tuple[Tag, ...]]:
    """The tags of new objects, sorted as metadata has them."""
    return _objects(count, _zipf(SPEC_TAGS), np.random.default_rng((seed, 1)))


def spec_conjunctions(subscription_count: int, seed: int) -> Conjunctions:
    """What stands in the workload `spec`."""
    rng = np.random.default_rng((seed, 2))
    return _conjunctions(subscription_count, 1, _zipf(SPEC_TAGS), rng)


def sparse_objects(count: int, subscription_count: int, seed: int) -> list[tuple[Tag, ...]]:
    """Objects for as many standing subscriptions."""
    chances = _even(_sparse_tags(subscription_count))
    return _objects(count, chances, np.random.default_rng((seed, 3)))


def sparse_conjunctions(subscription_count: int, seed: int) -> Conjunctions:
    """What stands in the workload `sparse`."""
    chances = _even(_sparse_tags(subscription_count))
    return _conjunctions(subscription_count, 2, chances, np.random.default_rng((seed, 4)))


def _sparse_tags(subscription_count: int) -> int:
    """Two tags come together with a chance that falls with the square of their number."""
    return 5 * isqrt(subscription_count)


def _objects(count: int, chances: Chances, rng: np.random.Generator) -> list[tuple[Tag, ...]]:
    words = _words(len(chances))
    rows = _distinct(rng, chances, count, OBJECT_TAGS_MAX).tolist()
    sizes = rng.integers(1, OBJECT_TAGS_MAX + 1, count).tolist()
    return [
        tuple(sorted(words[tag] for tag in row[:size]))
        for row, size in zip(rows, sizes, strict=True)
    ]


def _conjunctions(
    subscription_count: int, positive_min: int, chances: Chances, rng: np.random.Generator
) -> Conjunctions:
    owned = rng.integers(1, CONJUNCTIONS_MAX + 1, subscription_count)
    owner = np.repeat(np.arange(subscription_count, dtype=np.int32), owned)
    positive = _distinct(rng, chances, len(owner), POSITIVE_MAX)
    negative = _draw(rng, chances, len(owner))
    while (clash := (negative[:, None] == positive).any(axis=1)).any():
        negative[clash] = _draw(rng, chances, int(clash.sum()))
    negative[rng.random(len(owner)) >= NEGATIVE_SHARE] = NONE
    sizes = rng.integers(positive_min, POSITIVE_MAX + 1, len(owner))
    positive[np.arange(POSITIVE_MAX) >= sizes[:, None]] = NONE
    return Conjunctions(
        words=_words(len(chances)),
        subscription_count=subscription_count,
        owner=owner,
        positive=positive,
        negative=negative,
    )


def _words(count: int) -> tuple[Tag, ...]:
    """Spellings in no relation to popularity."""
    return tuple(Tag(f"t{number * 7_919 % 1_000_003:06}") for number in range(count))


def _zipf(count: int) -> Chances:
    weights: Chances = 1 / np.arange(1, count + 1)
    total: np.float64 = weights.sum()
    return weights / total


def _even(count: int) -> Chances:
    return np.full(count, 1 / count)


def _draw(rng: np.random.Generator, chances: Chances, shape: int | tuple[int, int]) -> Numbers:
    drawn = np.searchsorted(np.cumsum(chances), rng.random(shape))
    return np.minimum(drawn, len(chances) - 1).astype(np.int32)


def _distinct(rng: np.random.Generator, chances: Chances, count: int, width: int) -> Numbers:
    """Rows of different tags: a row that repeats one is drawn again."""
    rows = _draw(rng, chances, (count, width))
    while True:
        ordered = np.sort(rows, axis=1)
        repeats = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if not repeats.any():
            return rows
        rows[repeats] = _draw(rng, chances, (int(repeats.sum()), width))
