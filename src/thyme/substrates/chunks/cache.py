"""Chunk cache: decides which large objects a node keeps in its chunk store.

Chunks of objects that the node stores are kept until the last of these objects is removed. Other
chunks, of retrieved objects and of objects that are being inserted, are kept while there is space:
they make it possible to continue after a break, and other nodes may fetch them. Entry point:
`ChunkCache`.
Clauses: M29, M37.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thyme.model.errors import CorruptError, DiskFullError, NotFoundError, RejectedError
from thyme.model.ids import Key
from thyme.model.metadata import Content, Metadata
from thyme.model.object_chunks import CHUNK_BYTES, ChunkList, chunk_count, is_large
from thyme.storage.store import RecordTable, Store

CACHE_BYTES_MAX = 8 * 2**30
"""Maximum bytes of chunks of objects that the node does not store."""
UPLOADS_MAX = 16


class StoredContent(msgspec.Struct, frozen=True, array_like=True):
    """A large object that this node stores, and the digest of its content."""

    key: Key
    digest: bytes


STORED_CONTENTS = RecordTable("object in chunks", StoredContent)


class ChunkCache:
    """The chunks of large objects on one node."""

    def __init__(self, store: Store, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._store = store
        self._chunks = store.chunks
        self._bytes_max = bytes_max
        self._stored: dict[bytes, dict[Key, None]] = {}
        """The stored objects, by the digest of their content."""
        for _, content in store.load(STORED_CONTENTS):
            self._stored.setdefault(content.digest, {})[content.key] = None
        self.is_in_use: Callable[[bytes], bool] = lambda digest: False
        """Whether chunks of a digest are being fetched."""
        self._uploads: dict[str, None] = {}
        self.corrupt = 0
        """The number of damaged chunks found in the store."""

    # Objects that this node stores

    def is_complete(self, digest: bytes) -> bool:
        """Whether all chunks of an object are here."""
        held = self._chunks.held(digest)
        return held is not None and held.is_complete

    def add_object(self, metadata: Metadata) -> None:
        """Keeps the chunks of an object that is stored here from now on; all are here."""
        if not self.is_complete(metadata.digest):
            raise RejectedError(f"chunks of {metadata.key} are missing")
        self._chunks.make_durable(metadata.digest)
        self._stored.setdefault(metadata.digest, {})[metadata.key] = None
        self._store.put(
            STORED_CONTENTS, str(metadata.key), StoredContent(metadata.key, metadata.digest)
        )

    def remove_object(self, metadata: Metadata) -> None:
        """Removes the chunks of an object that is no longer stored here, unless another object
        has the same content."""
        keys = self._stored.get(metadata.digest, {})
        if keys.pop(metadata.key, metadata) is metadata:
            return
        self._store.remove(STORED_CONTENTS, str(metadata.key))
        if not keys:
            del self._stored[metadata.digest]
            self._chunks.remove(metadata.digest)

    # Uploads of the application

    def append_upload(self, upload: str, chunk: bytes, bytes_max: int) -> int:
        """Stores the next chunk of an upload; the oldest of too many uploads is dropped."""
        self._uploads[upload] = None
        if len(self._uploads) > UPLOADS_MAX:
            self.drop_upload(next(iter(self._uploads)))
        try:
            self._make_space(len(chunk))
            size = self._chunks.append_upload(upload, chunk)
            if size > bytes_max:
                raise RejectedError(f"an object has at most {bytes_max} bytes here")
        except (DiskFullError, RejectedError):
            self.drop_upload(upload)
            raise
        return size

    def finish_upload(self, upload: str) -> Content:
        """Makes an upload a complete object; returns its size and digest."""
        self._uploads.pop(upload, None)
        digest = self._chunks.finish_upload(upload)
        chunk_list = self._chunks.chunk_list(digest)
        assert chunk_list is not None
        if not is_large(chunk_list.size):
            self.discard_unused(digest)
            raise RejectedError(f"an object of {chunk_list.size} bytes is not uploaded in chunks")
        return Content(chunk_list.size, digest)

    def add_whole(self, upload: str, data: bytes, bytes_max: int) -> Content:
        """Stores the chunks of an object that is in memory."""
        for start in range(0, len(data), CHUNK_BYTES):
            self.append_upload(upload, data[start : start + CHUNK_BYTES], bytes_max)
        return self.finish_upload(upload)

    def drop_upload(self, upload: str) -> None:
        """Removes an unfinished upload."""
        self._uploads.pop(upload, None)
        self._chunks.discard_upload(upload)

    # Chunks

    def chunk_list(self, digest: bytes) -> ChunkList | None:
        """The chunk list of an object; None if it is unknown."""
        return self._chunks.chunk_list(digest)

    def held_flags(self, digest: bytes) -> bytearray | None:
        """One byte per chunk, 1 if it is here; None if the chunk list is unknown."""
        held = self._chunks.held(digest)
        return None if held is None else held.flags

    def missing_count(self, metadata: Metadata) -> int:
        """The number of chunks of an object that are not here."""
        held = self._chunks.held(metadata.digest)
        return chunk_count(metadata.size) - (0 if held is None else held.count)

    def missing_indexes(self, metadata: Metadata) -> list[int]:
        """The chunks of an object that are not here."""
        held = self._chunks.held(metadata.digest)
        indexes = range(chunk_count(metadata.size))
        return [index for index in indexes if held is None or not held.has(index)]

    def has_chunk(self, digest: bytes, index: int) -> bool:
        """Whether a chunk is here."""
        held = self._chunks.held(digest)
        return held is not None and held.has(index)

    def open_object(self, digest: bytes, chunk_list: ChunkList) -> None:
        """Prepares to store chunks of an object."""
        self._chunks.open_object(digest, chunk_list)

    def write(self, digest: bytes, index: int, chunk: bytes) -> None:
        """Stores a verified chunk; other objects that are not stored here may be dropped for it."""
        self._make_space(len(chunk))
        self._chunks.write(digest, index, chunk)

    def read(self, digest: bytes, index: int) -> bytes:
        """Reads a chunk without verifying it."""
        chunk = None
        if 0 <= index < len(self._chunks.chunk_list(digest) or ()):
            chunk = self._chunks.read(digest, index)
        if chunk is None:
            raise NotFoundError(f"chunk {index} of this object is not here")
        return chunk

    def read_verified(self, digest: bytes, index: int) -> bytes:
        """Reads a chunk; a damaged one is discarded, and `CorruptError` raised."""
        chunk = self.read(digest, index)
        chunk_list = self._chunks.chunk_list(digest)
        assert chunk_list is not None
        if not chunk_list.matches_chunk(index, chunk):
            self._chunks.discard(digest, index)
            self.corrupt += 1
            raise CorruptError(f"chunk {index} of this object is damaged in the store")
        return chunk

    def discard_unused(self, digest: bytes) -> None:
        """Removes chunks that belong to no stored object."""
        if digest not in self._stored:
            self._chunks.remove(digest)

    def _make_space(self, size: int) -> None:
        """Removes objects that are neither stored nor being fetched, the least recently used first,
        until there is space."""
        if self._chunks.has_space(size):
            return
        for digest in self._droppable():
            self._chunks.remove(digest)
            if self._chunks.has_space(size):
                return

    def trim(self) -> None:
        """Removes objects that are neither stored nor being fetched beyond the cache's size."""
        stored_bytes = self._chunks.stored_bytes()
        unused = {digest: stored_bytes[digest] for digest in self._droppable()}
        excess = sum(unused.values()) - self._bytes_max
        for digest, size in unused.items():
            if excess <= 0:
                return
            self._chunks.remove(digest)
            excess -= size

    def _droppable(self) -> list[bytes]:
        return [
            digest
            for digest in self._chunks.stored_bytes()
            if digest not in self._stored and not self.is_in_use(digest)
        ]
