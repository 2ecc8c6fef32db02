"""Match shapes: distributions of the synthetic match that are fitted to real matches.

In real matches most posts repeat one of some hundred lists of tags: a few very active accounts go
through the same lists, and others copy them. So a fitted match has a catalogue of tag lists, and a
post uses one of them. `Plateau` is the shape of most distributions found: the first few are used
about equally, the rest more and more rarely. docs/traces.md compares the fitted matches with the
real ones.
Clauses: P1, D28.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng


class Plateau(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of ranks: about equal up to `half`, then falling with a power, but not below
    `floor`."""

    half: float
    """The rank whose weight is half of the highest."""
    exponent: float
    floor: float = 0.0

    def __post_init__(self) -> None:
        if not (self.half > 0 and self.exponent > 0 and self.floor >= 0):
            raise InputError("a plateau needs half and exponent above 0, and a floor of 0 or more")

    def weights(self, count: int) -> list[float]:
        """The weights of the ranks 1 to `count`."""
        return [
            1.0 / (1.0 + (rank / self.half) ** self.exponent) + self.floor
            for rank in range(1, count + 1)
        ]


class TagLists(msgspec.Struct, frozen=True, kw_only=True):
    """A catalogue of tag lists, from which posts choose."""

    lists: int
    lengths: tuple[float, ...]
    """Shares of lists with one tag, two tags, and so on."""
    use: Plateau
    """How often the n-th list is used."""
    tags: Plateau
    """How often the n-th tag is part of a list."""
    habit: float = 0.0
    """Share of posts for which a user takes its own list, which does not change."""

    def __post_init__(self) -> None:
        if self.lists < 1 or not self.lengths:
            raise InputError("a catalogue needs at least one list with at least one tag")
        if not 0.0 <= self.habit <= 1.0:
            raise InputError(f"a habit is a share from 0 to 1, not {self.habit}")


def draw_tag_lists(seed: int, shape: TagLists, tags: int) -> list[tuple[int, ...]]:
    """The catalogue: lists of tag ranks from 0, without duplicates."""
    if len(shape.lengths) > tags:
        raise InputError(f"lists of {len(shape.lengths)} tags need as many tags, not {tags}")
    rng = derive_rng(seed, "match", "lists")
    ranks, weights = range(tags), shape.tags.weights(tags)
    lengths = range(1, len(shape.lengths) + 1)
    catalogue = []
    for _ in range(shape.lists):
        [length] = rng.choices(lengths, shape.lengths)
        chosen: set[int] = set()
        while len(chosen) < length:
            chosen.update(rng.choices(ranks, weights))
        catalogue.append(tuple(sorted(chosen)))
    return catalogue
