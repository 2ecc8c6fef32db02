"""Seeded history: objects of Zipf tags over thirty days, and queries into them.

Tag n is the nth most popular of 5,000 (Zipf, exponent 1). An object has 1 to 5 tags; a query is
`a & (b | c) & !d` with four such tags and a frame of a tenth of the span.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random
from typing import NamedTuple

from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.metadata import DIGEST_BYTES, Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import TimeFrame

DAY_US = 86_400_000_000
START_US = 1_700_000_000_000_000
SPAN_US = 30 * DAY_US
TAGS = tuple(Tag(f"tag{rank:04}") for rank in range(5_000))
TAGS_PER_OBJECT_MOST = 5
OWNERS = 1_000
FRAME_SHARE = 0.10
_POPULARITY = tuple(accumulate(1 / (rank + 1) for rank in range(len(TAGS))))


class PastQuery(NamedTuple):
    """`a & (b | c) & !d` inside a frame; `conjunctions` is its disjunctive normal form."""

    a: Tag
    b: Tag
    c: Tag
    d: Tag
    frame: TimeFrame
    conjunctions: tuple[Conjunction, ...]


def objects(count: int, seed: int = 1) -> list[Metadata]:
    """Metadata in order of publication, no two of one instant."""
    rng = Random(seed)
    owners = [NodeId(rng.randbytes(16)) for _ in range(OWNERS)]
    digest = bytes(DIGEST_BYTES)
    return [
        Metadata(
            Key(ObjectId(f"{rng.getrandbits(64):016x}"), rng.choice(owners)),
            tuple(sorted(_distinct(rng, TAGS_PER_OBJECT_MOST)[: rng.randint(1, 5)])),
            b"",
            START_US + at_us,
            300,
            digest,
        )
        for at_us in sorted(rng.sample(range(SPAN_US), count))
    ]


def queries(count: int, seed: int = 3) -> list[PastQuery]:
    """Queries whose frames lie anywhere in the span."""
    rng = Random(seed)
    return [_query(rng) for _ in range(count)]


def _query(rng: Random) -> PastQuery:
    a, b, c, d = _distinct(rng, 4)
    start_us = START_US + int(rng.random() * SPAN_US * (1 - FRAME_SHARE))
    frame = TimeFrame(start_us, start_us + int(SPAN_US * FRAME_SHARE))
    conjunctions = tuple(Conjunction(tuple(sorted((a, other))), (d,)) for other in (b, c))
    return PastQuery(a, b, c, d, frame, conjunctions)


def _distinct(rng: Random, count: int) -> list[Tag]:
    """Distinct tags; a draw with a repetition is drawn again as a whole."""
    while True:
        tags = rng.choices(TAGS, cum_weights=_POPULARITY, k=count)
        if len(set(tags)) == count:
            return tags
