"""Chunk store: the storage interface for chunks of large objects, and its in-memory implementation.

The chunks of an object are stored by the object's digest: equal content is stored once, and chunks
that arrived before a crash or for another object need not be fetched again. An object may be stored
in part. The caller verifies chunks before it writes them. The store on disk is `chunk_files`.
Clause: M37.
"""

from __future__ import annotations

from typing import Protocol

from thyme.model.errors import NotFoundError, RejectedError
from thyme.model.object_chunks import (
    CHUNK_BYTES,
    ChunkList,
    ChunkListBuilder,
    chunk_size,
)


class HeldChunks:
    """Which chunks of one object are stored."""

    __slots__ = ("count", "flags")

    def __init__(self, flags: bytearray) -> None:
        self.flags = flags
        """One byte per chunk: 1 if it is stored, else 0."""
        self.count = sum(flags)

    @property
    def is_complete(self) -> bool:
        """Whether all chunks are stored."""
        return self.count == len(self.flags)

    def has(self, index: int) -> bool:
        """Whether one chunk is stored."""
        return bool(self.flags[index])

    def set(self, index: int, stored: bool) -> None:
        """Records that a chunk is stored, or is not."""
        self.count += stored - self.flags[index]
        self.flags[index] = stored


class ChunkStore(Protocol):
    """The interface of every chunk store; objects are named by their digests."""

    def open_object(self, digest: bytes, chunk_list: ChunkList) -> None:
        """Prepares to store chunks of an object; no effect if the object is known."""
        ...

    def chunk_list(self, digest: bytes) -> ChunkList | None:
        """The chunk list of an object; None if the object is unknown."""
        ...

    def held(self, digest: bytes) -> HeldChunks | None:
        """The stored chunks of an object; None if the object is unknown."""
        ...

    def write(self, digest: bytes, index: int, chunk: bytes) -> None:
        """Stores a chunk of a known object; raises `DiskFullError` if there is no space."""
        ...

    def read(self, digest: bytes, index: int) -> bytes | None:
        """Returns a chunk, unverified; None if it is not stored."""
        ...

    def discard(self, digest: bytes, index: int) -> None:
        """Forgets a chunk whose bytes are damaged."""
        ...

    def make_durable(self, digest: bytes) -> None:
        """Waits until all chunks of an object survive a power failure."""
        ...

    def remove(self, digest: bytes) -> None:
        """Removes an object; no effect if it is unknown."""
        ...

    def stored_bytes(self) -> dict[bytes, int]:
        """The bytes stored of each object; the one unused for the longest time is first."""
        ...

    def has_space(self, size_bytes: int) -> bool:
        """Whether so many bytes may be written."""
        ...

    def append_upload(self, upload: str, chunk: bytes) -> int:
        """Adds the next chunk of an object whose digest is not known yet; returns its size so
        far."""
        ...

    def finish_upload(self, upload: str) -> bytes:
        """Makes an upload a complete, durable object; returns its digest."""
        ...

    def discard_upload(self, upload: str) -> None:
        """Removes an unfinished upload; no effect if it is unknown."""
        ...

    def close(self) -> None:
        """Closes the store."""
        ...


class MemoryChunkStore:
    """A chunk store in memory, for simulations and tests."""

    def __init__(self) -> None:
        self._lists: dict[bytes, ChunkList] = {}
        self._held: dict[bytes, HeldChunks] = {}
        self._chunks: dict[bytes, dict[int, bytes]] = {}
        self._uploads: dict[str, tuple[ChunkListBuilder, list[bytes]]] = {}

    def open_object(self, digest: bytes, chunk_list: ChunkList) -> None:
        if digest not in self._lists:
            self._lists[digest] = chunk_list
            self._held[digest] = HeldChunks(bytearray(len(chunk_list)))
            self._chunks[digest] = {}

    def chunk_list(self, digest: bytes) -> ChunkList | None:
        return self._lists.get(digest)

    def held(self, digest: bytes) -> HeldChunks | None:
        return self._held.get(digest)

    def write(self, digest: bytes, index: int, chunk: bytes) -> None:
        self._chunks[digest][index] = chunk
        self._held[digest].set(index, True)

    def read(self, digest: bytes, index: int) -> bytes | None:
        if digest not in self._chunks:
            return None
        self._chunks[digest] = self._chunks.pop(digest)  # the most recently used is last
        return self._chunks[digest].get(index)

    def discard(self, digest: bytes, index: int) -> None:
        self._chunks[digest].pop(index, None)
        self._held[digest].set(index, False)

    def make_durable(self, digest: bytes) -> None:
        """No effect: memory is never durable."""

    def remove(self, digest: bytes) -> None:
        for table in (self._lists, self._held, self._chunks):
            table.pop(digest, None)

    def stored_bytes(self) -> dict[bytes, int]:
        return {digest: sum(map(len, chunks.values())) for digest, chunks in self._chunks.items()}

    def has_space(self, size_bytes: int) -> bool:
        return True

    def append_upload(self, upload: str, chunk: bytes) -> int:
        builder, chunks = self._uploads.setdefault(upload, (ChunkListBuilder(), []))
        add_to_upload(builder, upload, chunk)
        chunks.append(chunk)
        return builder.size

    def finish_upload(self, upload: str) -> bytes:
        if upload not in self._uploads:
            raise unknown_upload_error(upload)
        builder, chunks = self._uploads.pop(upload)
        chunk_list = builder.build()
        digest = chunk_list.root()
        self.open_object(digest, chunk_list)
        for index, chunk in enumerate(chunks):
            self.write(digest, index, chunk)
        return digest

    def discard_upload(self, upload: str) -> None:
        self._uploads.pop(upload, None)

    def close(self) -> None:
        """No effect: a simulated node that restarts with its memory uses the store again."""


def add_to_upload(builder: ChunkListBuilder, upload: str, chunk: bytes) -> None:
    """Adds a chunk to the chunk list of an upload; raises `RejectedError` if it cannot follow."""
    if not builder.can_add(chunk):
        raise RejectedError(
            f"a chunk of {len(chunk)} bytes cannot follow {builder.size} bytes of the upload "
            f"{upload}: all chunks but the last have {CHUNK_BYTES} bytes"
        )
    builder.add(chunk)


def unknown_upload_error(upload: str) -> NotFoundError:
    """The error for an upload that never began, was finished, or was dropped."""
    return NotFoundError(f"there is no upload {upload}, or it was dropped: upload again")


def held_bytes(chunk_list_size: int, held: HeldChunks) -> int:
    """The number of bytes of the stored chunks; the last chunk may be short."""
    if not held.count:
        return 0
    last = len(held.flags) - 1
    full = held.count - held.has(last)
    return full * CHUNK_BYTES + (chunk_size(chunk_list_size, last) if held.has(last) else 0)
