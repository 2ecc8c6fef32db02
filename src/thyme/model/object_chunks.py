"""Object chunks: the parts of a large object, each of which is verified by itself.

An object of up to `WHOLE_BYTES_MAX` bytes is sent and stored as a whole; its digest is the SHA-256
of its bytes. A larger object is divided into chunks of `CHUNK_BYTES`; its digest is the root of a
Merkle tree over the digests of the chunks. Whoever has these, the *chunk list*, can verify the list
by the digest in the metadata, and each chunk by the list.
Entry points: `content_digest`, `ChunkList`, `ChunkListBuilder`.
Clause: M37. Decision: docs/decisions/0025-large-objects.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

CHUNK_BYTES = 256 * 2**10
WHOLE_BYTES_MAX = 4 * 2**20
"""Maximum size of an object that is sent as a whole, and whose digest is its SHA-256."""
LARGE_BYTES_MAX = 4 * 2**30
"""Maximum size of an object in substrates that send chunks."""
CHUNK_DIGEST_BYTES = 32
_LEAF, _INNER = b"\0", b"\1"
"""A leaf cannot be taken for an inner node of the tree, as in RFC 9162."""


def is_large(size: int) -> bool:
    """Whether an object of this size is divided into chunks."""
    return size > WHOLE_BYTES_MAX


def chunk_count(size: int) -> int:
    """The number of chunks of an object."""
    return -(-size // CHUNK_BYTES)


def chunk_size(size: int, index: int) -> int:
    """The number of bytes of one chunk of an object; only the last one is shorter."""
    return min(CHUNK_BYTES, size - index * CHUNK_BYTES)


def chunk_digest(chunk: bytes | memoryview) -> bytes:
    """The digest of one chunk: a leaf of the tree."""
    leaf = sha256(_LEAF)
    leaf.update(chunk)
    return leaf.digest()


def tree_digest(digests: Sequence[bytes]) -> bytes:
    """The root of the Merkle tree over at least one leaf; an odd node moves up a level."""
    level = list(digests)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [sha256(_INNER + left + right).digest() for left, right in pairs]
        level = above if len(level) % 2 == 0 else [*above, level[-1]]
    return level[0]


def content_digest(data: bytes) -> bytes:
    """The digest of an object's bytes, as in its metadata."""
    if not is_large(len(data)):
        return sha256(data).digest()
    view = memoryview(data)
    return tree_digest(
        [
            chunk_digest(view[start : start + CHUNK_BYTES])
            for start in range(0, len(data), CHUNK_BYTES)
        ]
    )


class ChunkList(msgspec.Struct, frozen=True, array_like=True):
    """The size of a large object and the digests of its chunks, one after the other."""

    size: int
    digests: bytes

    @property
    def is_complete(self) -> bool:
        """Whether there is one digest for each chunk of a large object."""
        return is_large(self.size) and len(self.digests) == CHUNK_DIGEST_BYTES * len(self)

    def __len__(self) -> int:
        return chunk_count(self.size)

    def root(self) -> bytes:
        """The digest of the object."""
        step = CHUNK_DIGEST_BYTES
        return tree_digest(
            [self.digests[start : start + step] for start in range(0, len(self.digests), step)]
        )

    def matches_chunk(self, index: int, chunk: bytes) -> bool:
        """Whether these bytes are the chunk with this index."""
        start = index * CHUNK_DIGEST_BYTES
        expected = self.digests[start : start + CHUNK_DIGEST_BYTES]
        return len(chunk) == chunk_size(self.size, index) and chunk_digest(chunk) == expected


class ChunkListBuilder:
    """Makes the chunk list of an object whose chunks arrive one after the other."""

    def __init__(self) -> None:
        self.size = 0
        self._digests = bytearray()

    @property
    def count(self) -> int:
        """The number of chunks so far."""
        return len(self._digests) // CHUNK_DIGEST_BYTES

    def can_add(self, chunk: bytes) -> bool:
        """Whether these bytes may be the next chunk: all chunks but the last are full."""
        return 0 < len(chunk) <= CHUNK_BYTES and self.size % CHUNK_BYTES == 0

    def add(self, chunk: bytes) -> None:
        """Adds the next chunk."""
        self.size += len(chunk)
        self._digests += chunk_digest(chunk)

    def build(self) -> ChunkList:
        """The chunk list of all chunks so far."""
        return ChunkList(self.size, bytes(self._digests))
