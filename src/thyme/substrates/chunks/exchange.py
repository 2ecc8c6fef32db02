"""Chunk exchange: the parts of a node of Thyme-ES or Thyme-LS that handle chunks of large objects.

Entry point: `ChunkExchange`: it combines cache, service, fetcher and inserts of one node, and
dispatches their messages and timers.
Clause: M37.
"""

from __future__ import annotations

from collections.abc import Callable

from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Limits
from thyme.protocol.messages import chunks as chunk_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.node import Timer
from thyme.protocol.outbox import Outbox
from thyme.protocol.request_tracker import RequestTracker
from thyme.storage.store import Store
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.chunks.fetcher import ChunkFetcher, ChunkTransferTimer
from thyme.substrates.chunks.large_objects import LargeInserts, LargeInsertTimer, LargeObjects
from thyme.substrates.chunks.service import ChunkService


class ChunkExchange:
    """Serves, fetches and inserts chunks for one node."""

    def __init__(
        self,
        node_id: NodeId,
        store: Store,
        outbox: Outbox,
        request_tracker: RequestTracker,
        holder_of: Callable[[Key], NodeId],
        limits: Limits,
    ) -> None:
        """`holder_of` names the node that stores an object."""
        self._outbox = outbox
        self.cache = ChunkCache(store)
        self.service = ChunkService(self.cache)
        self.fetcher = ChunkFetcher(
            node_id,
            self.cache,
            outbox,
            request_tracker.next_id,
            lambda holder, message, _: outbox.send(holder.node, message),
        )
        self._inserts = LargeInserts(holder_of, outbox, request_tracker)
        self.objects = LargeObjects(self.cache, self.fetcher, self._inserts, limits)
        self.cache.is_in_use = self._is_in_use

    def on_message(self, sender: NodeId, message: wire.Message, now_us: int) -> bool:
        """Handles requests and replies about chunks; returns whether the message was one."""
        match message:
            case chunk_wire.FetchChunkList() | chunk_wire.FetchChunk():
                reply = self.service.answer(chunk_wire.ChunkHolder(sender), message, now_us)
                self._outbox.send(sender, reply)
                return True
            case chunk_wire.StoredChunks() | chunk_wire.ChunkData():
                self.fetcher.on_reply(sender, message, now_us)
                return True
            case wire.Refused():
                return self.fetcher.on_reply(sender, message, now_us)
        return False

    def on_timer(self, timer: Timer, now_us: int) -> None:
        """Handles the timers of transfers and inserts."""
        match timer:
            case ChunkTransferTimer():
                self.fetcher.on_timer(timer, now_us)
            case LargeInsertTimer():
                self._inserts.on_timer(timer, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self.fetcher.check()

    def _is_in_use(self, digest: bytes) -> bool:
        return self.fetcher.is_active(digest) or self._inserts.is_active(digest)
