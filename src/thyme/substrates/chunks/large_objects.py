"""Large objects: insert and retrieve of objects in chunks, for the application of a node.

The application uploads the chunks of an object to its node and inserts it; how the object becomes
known, and which nodes have its chunks, differs between substrates (`ChunkLocator`). Retrieved
chunks stay on the node while there is space, so a retrieve that broke off continues where it was.
Entry points: `LargeObjects`, `LargeInserts`.
Clauses: M13, M19, M37.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

import msgspec

from thyme.model.errors import (
    CorruptError,
    NotFoundError,
    OperationError,
    OperationTimeoutError,
    RejectedError,
)
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Content, Limits, Metadata
from thyme.model.object_chunks import chunk_count
from thyme.model.time_frames import SECOND_US
from thyme.protocol import app_interface as app
from thyme.protocol.messages.chunks import (
    ChunkHolder,
    ChunksMissing,
    InsertLargeObject,
)
from thyme.protocol.messages.replies import Done
from thyme.protocol.outbox import Outbox
from thyme.protocol.request_tracker import RequestTracker
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.chunks.fetcher import ChunkFetcher

IN_MEMORY_BYTES_MAX = 256 * 2**20
"""Maximum size of an object that is inserted or retrieved as a whole, in the memory of the node."""


class ChunkLocator(Protocol):
    """How a substrate inserts a large object, and finds nodes that have its chunks."""

    def insert(
        self,
        metadata: Metadata,
        now_us: int,
        on_result: OnResult[object],
        options: app.StorageOptions = app.AS_USUAL,
    ) -> None:
        """Inserts an object all of whose chunks are on this node."""
        ...

    def locate(
        self, metadata: Metadata, now_us: int, on_result: OnResult[tuple[ChunkHolder, ...]]
    ) -> None:
        """Finds nodes that may have chunks of an object."""
        ...


class LargeObjects:
    """The large objects that the application of one node inserts and retrieves."""

    def __init__(
        self, cache: ChunkCache, fetcher: ChunkFetcher, locator: ChunkLocator, limits: Limits
    ) -> None:
        self._cache = cache
        self._fetcher = fetcher
        self._locator = locator
        self._bytes_max = limits.data_bytes_max

    def upload_chunk(self, request: app.UploadChunk) -> int:
        """Stores the next chunk of an upload; returns the size so far."""
        return self._cache.append_upload(request.upload, request.data, self._bytes_max)

    def drop_upload(self, upload: str) -> None:
        """Removes the chunks of an upload that will not be inserted."""
        self._cache.drop_upload(upload)

    def take_content(self, request: app.Insert) -> Content:
        """The content of an insert: uploaded before, or in the request."""
        if isinstance(request, app.InsertUploaded):
            return self._cache.finish_upload(request.upload)
        if len(request.data) > min(IN_MEMORY_BYTES_MAX, self._bytes_max):
            raise RejectedError(
                f"an object of {len(request.data)} bytes cannot be inserted as a whole: insert a "
                f"file of it, up to {self._bytes_max} bytes"
            )
        return self._cache.add_whole(f"request {request.request_id}", request.data, self._bytes_max)

    def insert(
        self,
        metadata: Metadata,
        now_us: int,
        on_result: OnResult[object],
        options: app.StorageOptions,
    ) -> None:
        """Inserts an object whose content was taken."""
        self._locator.insert(metadata, now_us, on_result, options)

    def retrieve_chunk(
        self, metadata: Metadata, index: int, now_us: int, on_result: OnResult[bytes]
    ) -> None:
        """Returns one chunk, fetched if it is not here."""
        if not metadata.is_large or not 0 <= index < chunk_count(metadata.size):
            raise NotFoundError(f"{metadata.key} has no chunk {index}")

        def read(result: Result[None], now_us: int) -> None:
            if isinstance(result, Failure):
                on_result(result, now_us)
                return
            try:
                chunk = self._cache.read_verified(metadata.digest, index)
            except OperationError as error:
                on_result(Failure.from_error(error), now_us)
            else:
                on_result(Ok(chunk), now_us)

        if self._cache.has_chunk(metadata.digest, index):
            try:
                chunk = self._cache.read_verified(metadata.digest, index)
            except CorruptError:
                self._fetch(metadata, [index], now_us, read)
            else:
                on_result(Ok(chunk), now_us)
        else:
            self._fetch(metadata, [index], now_us, read)

    def retrieve(self, metadata: Metadata, now_us: int, on_result: OnResult[bytes]) -> None:
        """Returns an object as a whole; one too large for the memory is refused."""
        if metadata.size > IN_MEMORY_BYTES_MAX:
            raise RejectedError(
                f"{metadata.key} has {metadata.size} bytes, too many for the memory: retrieve it "
                "to a file, or a range of it"
            )
        count = chunk_count(metadata.size)
        chunks: dict[int, bytes] = {}
        failed: list[Failure] = []

        def collect(index: int) -> OnResult[bytes]:
            def on_chunk(result: Result[bytes], now_us: int) -> None:
                if isinstance(result, Failure):
                    failed.append(result)
                    if len(failed) == 1:
                        on_result(result, now_us)
                    return
                chunks[index] = result.value
                if len(chunks) == count and not failed:
                    on_result(Ok(b"".join(chunks[index] for index in range(count))), now_us)

            return on_chunk

        for index in range(count):
            self.retrieve_chunk(metadata, index, now_us, collect(index))

    def _fetch(
        self, metadata: Metadata, indexes: list[int], now_us: int, on_result: OnResult[None]
    ) -> None:
        if self._fetcher.is_active(metadata.digest):  # its holders are known
            self._fetcher.fetch(metadata, indexes, (), now_us, on_result)
            return

        def on_located(result: Result[tuple[ChunkHolder, ...]], now_us: int) -> None:
            if isinstance(result, Failure):
                on_result(result, now_us)
            else:
                self._fetcher.fetch(metadata, indexes, result.value, now_us, on_result)

        self._locator.locate(metadata, now_us, on_located)


# Thyme-ES and Thyme-LS: one node stores the object, and fetches the chunks from its owner

_POLL_US_MIN = SECOND_US // 5
_POLL_US_MAX = SECOND_US
_PROGRESS_US_MAX = 120 * SECOND_US
"""An insert fails if the storing node fetched no chunk for this long."""


class LargeInsertTimer(msgspec.Struct, frozen=True):
    """Time to ask whether all chunks of an object were fetched."""

    key: Key


@dataclass(slots=True)
class _PendingInsert:
    metadata: Metadata
    on_result: OnResult[object]
    poll_us: int = _POLL_US_MIN
    missing: int | None = None
    progress_us: int = 0


class LargeInserts:
    """Inserts large objects at the node that stores them; a `ChunkLocator`."""

    def __init__(
        self, holder_of: Callable[[Key], NodeId], outbox: Outbox, request_tracker: RequestTracker
    ) -> None:
        self._holder_of = holder_of
        self._outbox = outbox
        self._request_tracker = request_tracker
        self._pending: dict[Key, _PendingInsert] = {}

    def is_active(self, digest: bytes) -> bool:
        """Whether an object with this content is being inserted."""
        return any(pending.metadata.digest == digest for pending in self._pending.values())

    def insert(
        self,
        metadata: Metadata,
        now_us: int,
        on_result: OnResult[object],
        options: app.StorageOptions = app.AS_USUAL,
    ) -> None:
        if metadata.key in self._pending:
            detail = f"{metadata.key} is being inserted already"
            on_result(Failure(RejectedError.code, detail), now_us)
            return
        self._pending[metadata.key] = _PendingInsert(metadata, on_result, progress_us=now_us)
        self._ask(metadata.key, now_us)

    def locate(
        self, metadata: Metadata, now_us: int, on_result: OnResult[tuple[ChunkHolder, ...]]
    ) -> None:
        """The storing node, and the owner, which may still have the chunks."""
        nodes = dict.fromkeys((self._holder_of(metadata.key), metadata.owner))
        on_result(Ok(tuple(map(ChunkHolder, nodes))), now_us)

    def on_timer(self, timer: LargeInsertTimer, now_us: int) -> None:
        """Asks again whether the object is stored."""
        if timer.key in self._pending:
            self._ask(timer.key, now_us)

    def _ask(self, key: Key, now_us: int) -> None:
        pending = self._pending[key]

        def on_reply(result: Result[Done | ChunksMissing], now_us: int) -> None:
            if isinstance(result, Ok) and isinstance(result.value, ChunksMissing):
                self._on_missing(pending, result.value.count, now_us)
                return
            del self._pending[key]
            pending.on_result(result, now_us)

        self._request_tracker.send_request(
            self._holder_of(key),
            InsertLargeObject(self._request_tracker.next_id(), pending.metadata),
            cast("type[Done | ChunksMissing]", Done | ChunksMissing),
            now_us,
            on_reply,
        )

    def _on_missing(self, pending: _PendingInsert, missing: int, now_us: int) -> None:
        key = pending.metadata.key
        if pending.missing is None or missing < pending.missing:
            pending.missing, pending.progress_us = missing, now_us
        elif now_us - pending.progress_us > _PROGRESS_US_MAX:
            del self._pending[key]
            detail = f"{missing} chunks of {key} could not be transferred"
            pending.on_result(Failure(OperationTimeoutError.code, detail), now_us)
            return
        self._outbox.set_timer(LargeInsertTimer(key), now_us + pending.poll_us)
        pending.poll_us = min(2 * pending.poll_us, _POLL_US_MAX)
