"""Cell digest: a summary of a node's records of its cell, for comparison with other nodes.

Each record has a name, and a hash of that name. A digest is the sum of record hashes: it does not
depend on their order, and changes with every record. One number shows whether two nodes differ;
digests by bucket show roughly where; record hashes show exactly. Entry point: `SetDigest`;
`anti_entropy` compares the digests.
Clauses: B2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from thyme.model.ids import Key
from thyme.model.subscriptions import Conjunction, SubscriptionKey

RecordHash = int
RECORD_HASH_BYTES = 8
DIGEST_BYTES = 4
BUCKETS = 32
_BUCKET_SHIFT = 8 * RECORD_HASH_BYTES - 5
_HASH_MODULUS = 1 << 8 * RECORD_HASH_BYTES
_DIGEST_MODULUS = 1 << 8 * DIGEST_BYTES


def hash_record(name: str) -> RecordHash:
    """The truncated hash of a record's name."""
    return int.from_bytes(blake2b(name.encode(), digest_size=RECORD_HASH_BYTES).digest(), "big")


def bucket_of(record_hash: RecordHash) -> int:
    """The bucket of a record hash."""
    return record_hash >> _BUCKET_SHIFT


def object_name(key: Key) -> str:
    """The name of an indexed object."""
    return f"object {key}"


def replica_name(key: Key) -> str:
    """The name of an object that all nodes of the cell store."""
    return f"held {key}"


def deleted_name(written_key: str) -> str:
    """The name of a deleted object's tombstone."""
    return f"gone {written_key}"


def cancelled_name(written_key: str) -> str:
    """The name of a cancelled subscription's tombstone."""
    return f"over {written_key}"


def conjunction_names(key: SubscriptionKey, conjunctions: Iterable[Conjunction]) -> tuple[str, ...]:
    """The names of a subscription's conjunctions, one each: two nodes may store different
    conjunctions of it."""
    return tuple(
        f"subscription {key} {_format_conjunction(conjunction)}" for conjunction in conjunctions
    )


def _format_conjunction(conjunction: Conjunction) -> str:
    return "&".join([*conjunction.positive, *(f"!{tag}" for tag in conjunction.negative)])


class SetDigest:
    """An incremental digest of a changing set of names. Only their hashes are kept, by bucket, each
    with the key of the record that has the name."""

    def __init__(self, names: Iterable[tuple[str, object]] = ()) -> None:
        self._buckets: dict[int, dict[RecordHash, object]] = {}
        self._count = 0
        self.total = 0
        for name, key in names:
            self.add(name, key)

    def __len__(self) -> int:
        return self._count

    def add(self, name: str, key: object) -> None:
        """Adds a name, if it is not in the set yet, with the key of its record."""
        record_hash = hash_record(name)
        bucket = self._buckets.setdefault(bucket_of(record_hash), {})
        if record_hash not in bucket:
            bucket[record_hash] = key
            self._count += 1
            self.total = (self.total + record_hash) % _HASH_MODULUS

    def remove(self, name: str) -> None:
        """Removes a name, if it is in the set."""
        self._remove(hash_record(name))

    def _remove(self, record_hash: RecordHash) -> None:
        bucket = self._buckets.get(bucket_of(record_hash), {})
        if record_hash in bucket:
            del bucket[record_hash]
            self._count -= 1
            self.total = (self.total - record_hash) % _HASH_MODULUS

    def in_bucket(self, bucket: int) -> Mapping[RecordHash, object]:
        """The record hashes of a bucket, in the order in which their names were added, each with
        the key of its record."""
        return self._buckets.get(bucket, {})

    def retain(self, names: Iterable[str]) -> None:
        """Removes all names except these."""
        kept = frozenset(map(hash_record, names))
        for bucket in list(self._buckets.values()):
            for record_hash in [each for each in bucket if each not in kept]:
                self._remove(record_hash)


def combine_digests(digests: Iterable[SetDigest]) -> bytes:
    """The combined digest of several sets, as a beacon carries it."""
    return (sum(digest.total for digest in digests) % _DIGEST_MODULUS).to_bytes(DIGEST_BYTES, "big")


def bucket_digests(digests: Iterable[SetDigest]) -> bytes:
    """The combined digests of several sets, one for each bucket."""
    parts = tuple(digests)
    return b"".join(
        (sum(sum(part.in_bucket(bucket)) for part in parts) % _DIGEST_MODULUS).to_bytes(
            DIGEST_BYTES, "big"
        )
        for bucket in range(BUCKETS)
    )


def differing_buckets(own_digests: bytes, other_digests: bytes) -> list[int]:
    """The buckets whose digests differ."""
    offsets = range(0, BUCKETS * DIGEST_BYTES, DIGEST_BYTES)
    pairs = (
        (own_digests[i : i + DIGEST_BYTES], other_digests[i : i + DIGEST_BYTES]) for i in offsets
    )
    return [bucket for bucket, (our, their) in enumerate(pairs) if our != their]


def pack_hashes(hashes: Iterable[RecordHash]) -> bytes:
    """Encodes record hashes for a message."""
    return b"".join(record_hash.to_bytes(RECORD_HASH_BYTES, "big") for record_hash in hashes)


def unpack_hashes(data: bytes) -> set[RecordHash]:
    """Decodes record hashes from a message; an incomplete hash at the end is ignored."""
    ends = range(RECORD_HASH_BYTES, len(data) + 1, RECORD_HASH_BYTES)
    return {int.from_bytes(data[end - RECORD_HASH_BYTES : end], "big") for end in ends}
