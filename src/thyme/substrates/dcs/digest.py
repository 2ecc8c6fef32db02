"""Cell digest: a summary of a node's records of its cell, for comparison with other nodes.

Each record has a name, and a hash of that name. A digest is the sum of record hashes: it does not
depend on their order, and changes with every record. One number shows whether two nodes differ;
digests by bucket show roughly where; record hashes show exactly. Entry point: `SetDigest`;
`anti_entropy` compares the digests.
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
    """The truncated hash of a record's name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=MARK_BYTES).digest(), "big")


def bucket_of(mark: Mark) -> int:
    """The bucket of a record hash."""
    return mark >> _BUCKET_SHIFT


def object_name(key: Key) -> str:
    """The name of an indexed object."""
    return f"object {key}"


def held_name(key: Key) -> str:
    """The name of an object that all nodes of the cell store."""
    return f"held {key}"


def gone_name(written_key: str) -> str:
    """The name of a deleted object's tombstone."""
    return f"gone {written_key}"


def over_name(written_key: str) -> str:
    """The name of a cancelled subscription's tombstone."""
    return f"over {written_key}"


def interest_names(key: SubscriptionKey, conjunctions: Iterable[Conjunction]) -> tuple[str, ...]:
    """The names of a subscription's conjunctions, one each: two nodes may store different
    conjunctions of it."""
    return tuple(f"subscription {key} {_written(conjunction)}" for conjunction in conjunctions)


def _written(conjunction: Conjunction) -> str:
    return "&".join([*conjunction.positive, *(f"!{tag}" for tag in conjunction.negative)])


class Sum:
    """An incremental digest of a changing set of names."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._marks: dict[str, Mark] = {}
        self.total = 0
        for name in names:
            self.add(name)

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, name: str) -> None:
        """Adds a name, if it is not in the set yet."""
        if name not in self._marks:
            record_hash = self._marks[name] = mark_of(name)
            self.total = (self.total + record_hash) % _WHOLE

    def remove(self, name: str) -> None:
        """Removes a name, if it is in the set."""
        record_hash = self._marks.pop(name, None)
        if record_hash is not None:
            self.total = (self.total - record_hash) % _WHOLE

    def marks(self) -> Iterator[Mark]:
        """The record hashes, in the order in which their names were added."""
        return iter(self._marks.values())

    def keep(self, names: Iterable[str]) -> None:
        """Removes all names except these."""
        kept = frozenset(names)
        for name in [name for name in self._marks if name not in kept]:
            self.remove(name)


def total_of(sums: Iterable[Sum]) -> bytes:
    """The combined digest of several sets, as a beacon carries it."""
    return (sum(digest.total for digest in sums) % _PART).to_bytes(SUM_BYTES, "big")


def sums_of(marks: Iterable[Mark]) -> bytes:
    """The digests of all buckets."""
    digests = [0] * BUCKETS
    for record_hash in marks:
        bucket = bucket_of(record_hash)
        digests[bucket] = (digests[bucket] + record_hash) % _PART
    return b"".join(digest.to_bytes(SUM_BYTES, "big") for digest in digests)


def differing(ours: bytes, theirs: bytes) -> list[int]:
    """The buckets whose digests differ."""
    offsets = range(0, BUCKETS * SUM_BYTES, SUM_BYTES)
    pairs = ((ours[i : i + SUM_BYTES], theirs[i : i + SUM_BYTES]) for i in offsets)
    return [bucket for bucket, (our, their) in enumerate(pairs) if our != their]


def packed(marks: Iterable[Mark]) -> bytes:
    """Encodes record hashes for a message."""
    return b"".join(record_hash.to_bytes(MARK_BYTES, "big") for record_hash in marks)


def unpacked(data: bytes) -> set[Mark]:
    """Decodes record hashes from a message; an incomplete hash at the end is ignored."""
    ends = range(MARK_BYTES, len(data) + 1, MARK_BYTES)
    return {int.from_bytes(data[end - MARK_BYTES : end], "big") for end in ends}
