"""Digest: what a node knows for its cell, summed up so that others can compare.

Each thing known has a mark, a hash of its name; a sum over marks is the same in whatever order they
came, and changes with each. One number tells whether two nodes differ; sums by bucket tell roughly
in what; marks tell exactly.
Clauses: B2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from thyme.model.ids import Key
from thyme.model.subscriptions import Conjunction, SubscriptionKey

Mark = int
MARK_BYTES = 8
SUM_BYTES = 4
BUCKETS = 32
_BUCKET_SHIFT = 8 * MARK_BYTES - 5
_WHOLE = 1 << 8 * MARK_BYTES
_PART = 1 << 8 * SUM_BYTES


def mark_of(name: str) -> Mark:
    """The mark of a thing."""
    return int.from_bytes(blake2b(name.encode(), digest_size=MARK_BYTES).digest(), "big")


def bucket_of(mark: Mark) -> int:
    """Where a mark is counted."""
    return mark >> _BUCKET_SHIFT


def object_name(key: Key) -> str:
    """An object that is indexed."""
    return f"object {key}"


def held_name(key: Key) -> str:
    """An object that all nodes of the cell have."""
    return f"held {key}"


def gone_name(written_key: str) -> str:
    """An object that was deleted."""
    return f"gone {written_key}"


def over_name(written_key: str) -> str:
    """A subscription that was cancelled."""
    return f"over {written_key}"


def interest_names(key: SubscriptionKey, conjunctions: Iterable[Conjunction]) -> tuple[str, ...]:
    """The conjunctions of a subscription, one by one: those of two nodes may be put together."""
    return tuple(f"subscription {key} {_written(one)}" for one in conjunctions)


def _written(conjunction: Conjunction) -> str:
    return "&".join([*conjunction.positive, *(f"!{tag}" for tag in conjunction.negative)])


class Sum:
    """The marks of things that come and go, and their sum."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._marks: dict[str, Mark] = {}
        self.total = 0
        for name in names:
            self.add(name)

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, name: str) -> None:
        """A thing came; once is enough."""
        if name not in self._marks:
            mark = self._marks[name] = mark_of(name)
            self.total = (self.total + mark) % _WHOLE

    def remove(self, name: str) -> None:
        """A thing left, if it was there."""
        mark = self._marks.pop(name, None)
        if mark is not None:
            self.total = (self.total - mark) % _WHOLE

    def marks(self) -> Iterator[Mark]:
        """All marks, in the order in which they came."""
        return iter(self._marks.values())

    def keep(self, names: Iterable[str]) -> None:
        """Removes all but these."""
        kept = frozenset(names)
        for name in [name for name in self._marks if name not in kept]:
            self.remove(name)


def total_of(sums: Iterable[Sum]) -> bytes:
    """The sum over all, as a beacon carries it."""
    return (sum(part.total for part in sums) % _PART).to_bytes(SUM_BYTES, "big")


def sums_of(marks: Iterable[Mark]) -> bytes:
    """The sums of all buckets."""
    sums = [0] * BUCKETS
    for mark in marks:
        bucket = bucket_of(mark)
        sums[bucket] = (sums[bucket] + mark) % _PART
    return b"".join(part.to_bytes(SUM_BYTES, "big") for part in sums)


def differing(ours: bytes, theirs: bytes) -> list[int]:
    """The buckets whose sums are not the same."""
    at = range(0, BUCKETS * SUM_BYTES, SUM_BYTES)
    pairs = ((ours[i : i + SUM_BYTES], theirs[i : i + SUM_BYTES]) for i in at)
    return [bucket for bucket, (our, their) in enumerate(pairs) if our != their]


def packed(marks: Iterable[Mark]) -> bytes:
    """Marks in a message."""
    return b"".join(mark.to_bytes(MARK_BYTES, "big") for mark in marks)


def unpacked(data: bytes) -> set[Mark]:
    """Marks out of a message; a part of one at the end is passed over."""
    ends = range(MARK_BYTES, len(data) + 1, MARK_BYTES)
    return {int.from_bytes(data[end - MARK_BYTES : end], "big") for end in ends}
