"""Chunk fetcher: fetches chunks of large objects from all nodes that have them, in parallel.

A transfer is the fetching of one object. Its holders are first asked which chunks they have, and
which other nodes may have some; then each is asked for as many chunks at a time as its window
allows. A window grows with each chunk that arrives and halves after a timeout. Every chunk is
verified when it arrives; a holder that sent other bytes is not asked again. If no chunk arrives for
a while, holders are located again; after a minute, or as soon as no holder is left, the transfer
fails. Chunks that arrived stay.
Entry point: `ChunkFetcher.fetch`. The other side is `service`.
Clauses: M19, M37.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from thyme.model.errors import CorruptError, NotFoundError, OperationError, OperationTimeoutError
from thyme.model.ids import NodeId, RequestId
from thyme.model.metadata import Metadata
from thyme.model.object_chunks import ChunkList, chunk_count
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages import chunks as chunk_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.outbox import Outbox
from thyme.protocol.results import Failure, Ok, OnResult
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.chunks.service import unpack_flags

_TICK_US = SECOND_US // 2
_WAIT_US = 2 * SECOND_US
_WAIT_US_PER_CHUNK = SECOND_US
"""A holder may take this long for its first reply: a chunk takes a second at 2 Mbit/s, as do those
before it."""
_WAIT_US_MIN = SECOND_US
_WAIT_REPLY_TIMES = 4
"""Later it may take so many times the usual time, and at least this long."""
_OVERTAKEN_MAX = 8
"""A chunk is lost if chunks arrive that were requested this much later than the window."""
_WINDOW_INITIAL = 4.0
_WINDOW_MAX = 12.0
"""Number of chunks on the way from one holder: up to 3 MiB."""
_IN_FLIGHT_MAX = 32
"""Number of chunks of one object on the way from all holders: up to 8 MiB."""
_WAIT_FACTOR_MAX = 16
_TIMEOUTS_MAX = 3
_REST_US = 5 * SECOND_US
"""After several timeouts in a row, a holder is not asked for this long."""
_LIST_AGAIN_US = 3 * SECOND_US
"""How often holders are asked again which chunks they have: those that are still fetching have
more."""
_LOCATE_AGAIN_US = 8 * SECOND_US
"""How long no chunk arrives before holders are located again: they may have moved or failed."""
_IDLE_US_MAX = 60 * SECOND_US
_TRANSFERS_MAX = 64
_HOLDERS_MAX = 16
_LOOK_AHEAD = 256
"""Number of waiting chunks among which one is searched that a free holder has."""

SendToHolder = Callable[[chunk_wire.ChunkHolder, chunk_wire.ChunkRequest, int], None]


class ChunkTransferTimer(msgspec.Struct, frozen=True):
    """The timer of an active transfer."""

    digest: bytes


@dataclass(slots=True)
class _Holder:
    """What is known about one holder."""

    flags: bytearray | None = None
    """One byte per chunk; None until the holder has answered."""
    window: float = _WINDOW_INITIAL
    in_flight: int = 0
    timeouts: int = 0
    reply_us: float | None = None
    """How long a chunk usually takes."""
    wait_factor: int = 1
    """Doubles with each timeout: the path may be slower than assumed."""
    rests_until_us: int = 0
    asked_us: int | None = None
    """When the holder was last asked which chunks it has."""


@dataclass(slots=True)
class _Transfer:
    """The fetching of one object."""

    metadata: Metadata
    holders: dict[chunk_wire.ChunkHolder, _Holder] = field(default_factory=dict)
    wanted: dict[int, list[OnResult[None]]] = field(default_factory=dict)
    """The callbacks of each chunk that has not arrived."""
    waiting: deque[int] = field(default_factory=deque)
    """The wanted chunks that are not on the way."""
    requests: dict[RequestId, _Request] = field(default_factory=dict)
    progress_us: int = 0
    located_us: int = 0
    """When holders were last located."""
    excluded: set[NodeId] = field(default_factory=set)
    """Nodes that sent wrong bytes."""
    refusal: Failure | None = None
    """Why the last holder was removed."""

    @property
    def digest(self) -> bytes:
        return self.metadata.digest


@dataclass(slots=True)
class _Request:
    """A request without a reply; `index` is None if it asks for the stored chunks."""

    holder: chunk_wire.ChunkHolder
    index: int | None
    sent_us: int
    due_us: int
    order: int
    """Serial number of the request, over all transfers."""


class ChunkFetcher:
    """The transfers of one node."""

    def __init__(
        self,
        node_id: NodeId,
        cache: ChunkCache,
        outbox: Outbox,
        next_id: Callable[[], RequestId],
        send: SendToHolder,
    ) -> None:
        self._node_id = node_id
        self._cache = cache
        self._outbox = outbox
        self._next_id = next_id
        self._send = send
        self._order = 0
        self._transfers: dict[bytes, _Transfer] = {}
        self._transfer_of: dict[RequestId, _Transfer] = {}
        self.counts: Counter[str] = Counter()
        """Chunks received, requests without a reply in time or overtaken by others, wrong bytes."""
        self.on_complete: Callable[[Metadata, int], None] = lambda metadata, now_us: None
        """Called when the last chunk of an object has arrived."""
        self.locate_again: Callable[[Metadata, int], None] = lambda metadata, now_us: None
        """Called when no chunk arrives; results in `add_holders`."""

    def is_active(self, digest: bytes) -> bool:
        """Whether chunks of an object are being fetched."""
        transfer = self._transfers.get(digest)
        return transfer is not None and bool(transfer.wanted)

    def fetch(
        self,
        metadata: Metadata,
        indexes: Iterable[int],
        holders: Iterable[chunk_wire.ChunkHolder],
        now_us: int,
        on_result: OnResult[None] | None = None,
    ) -> None:
        """Fetches chunks that are not here; `on_result` is called once for each of them."""
        transfer = self._transfers.get(metadata.digest)
        if transfer is None:
            self._drop_idle()
            self._cache.trim()
            transfer = self._transfers[metadata.digest] = _Transfer(metadata)
        if not transfer.wanted:
            transfer.progress_us = transfer.located_us = now_us
            self._outbox.set_timer(ChunkTransferTimer(transfer.digest), now_us + _TICK_US)
        for holder in holders:
            self._add_holder(transfer, holder)
        for index in indexes:
            if index not in transfer.wanted:
                transfer.wanted[index] = []
                transfer.waiting.append(index)
            if on_result is not None:
                transfer.wanted[index].append(on_result)
        self._continue(transfer, now_us)

    def add_holders(
        self, digest: bytes, holders: Iterable[chunk_wire.ChunkHolder], now_us: int
    ) -> None:
        """Adds holders to an active transfer."""
        if (transfer := self._transfers.get(digest)) is not None:
            for holder in holders:
                self._add_holder(transfer, holder)
            self._continue(transfer, now_us)

    def on_reply(
        self, sender: NodeId, reply: chunk_wire.ChunkReply | wire.Refused, now_us: int
    ) -> bool:
        """Handles a reply; returns whether it answers a request of this node."""
        transfer = self._transfer_of.get(reply.request_id)
        request = None if transfer is None else transfer.requests[reply.request_id]
        if transfer is None or request is None or request.holder.node != sender:
            return False
        self._end_request(transfer, reply.request_id)
        match reply:
            case chunk_wire.StoredChunks():
                self._on_stored_chunks(transfer, request, reply)
            case chunk_wire.ChunkData():
                self._on_chunk(transfer, request, reply.data, now_us)
            case wire.Refused():
                self._on_refused(transfer, request, Failure(reply.code, reply.detail))
        self._continue(transfer, now_us)
        return True

    def on_timer(self, timer: ChunkTransferTimer, now_us: int) -> None:
        """Ends requests without a reply in time, and asks again which chunks holders have."""
        transfer = self._transfers.get(timer.digest)
        if transfer is None or not transfer.wanted:
            return
        for request_id, request in list(transfer.requests.items()):
            if request.due_us <= now_us:
                self._end_request(transfer, request_id)
                self._on_timeout(transfer, request, now_us)
        if now_us - transfer.progress_us > _IDLE_US_MAX:
            detail = (
                f"no chunk of {transfer.metadata.key} arrived for {_IDLE_US_MAX // SECOND_US} s"
            )
            self._fail(transfer, Failure(OperationTimeoutError.code, detail), now_us)
            return
        self._outbox.set_timer(timer, now_us + _TICK_US)
        if now_us - max(transfer.progress_us, transfer.located_us) > _LOCATE_AGAIN_US:
            transfer.located_us = now_us
            self.locate_again(transfer.metadata, now_us)
        self._continue(transfer, now_us)

    # Requests

    def _continue(self, transfer: _Transfer, now_us: int) -> None:
        """Asks holders for stored chunks and for as many chunks as their windows allow."""
        if not transfer.wanted:
            return
        if not transfer.holders:
            detail = f"no node is known that has chunks of {transfer.metadata.key}"
            self._fail(transfer, transfer.refusal or Failure(NotFoundError.code, detail), now_us)
            return
        for holder, state in transfer.holders.items():
            due = state.asked_us is None or now_us - state.asked_us >= _LIST_AGAIN_US
            if due and now_us >= state.rests_until_us:
                state.asked_us = now_us
                with_digests = self._cache.chunk_list(transfer.digest) is None
                request_id = self._next_id()
                message = chunk_wire.FetchChunkList(request_id, transfer.digest, with_digests)
                self._send_request(transfer, holder, None, message, now_us)
        if self._cache.chunk_list(transfer.digest) is None:
            return
        while (choice := self._choose(transfer, now_us)) is not None:
            holder, index = choice
            transfer.waiting.remove(index)
            transfer.holders[holder].in_flight += 1
            message_chunk = chunk_wire.FetchChunk(self._next_id(), transfer.digest, index)
            self._send_request(transfer, holder, index, message_chunk, now_us)

    def _choose(
        self, transfer: _Transfer, now_us: int
    ) -> tuple[chunk_wire.ChunkHolder, int] | None:
        """The next chunk to ask for, and the holder that has it: one without timeouts first, then
        the one with the most unused window."""
        if sum(state.in_flight for state in transfer.holders.values()) >= _IN_FLIGHT_MAX:
            return None
        free = [
            (holder, state)
            for holder, state in transfer.holders.items()
            if state.flags is not None
            and state.in_flight < int(state.window)
            and now_us >= state.rests_until_us
        ]
        free.sort(key=lambda entry: (entry[1].timeouts, entry[1].in_flight / entry[1].window))
        if not free:
            return None
        for position, index in enumerate(transfer.waiting):
            if position >= _LOOK_AHEAD:
                return None
            for holder, state in free:
                if state.flags is not None and state.flags[index]:
                    return holder, index
        return None

    def _send_request(
        self,
        transfer: _Transfer,
        holder: chunk_wire.ChunkHolder,
        index: int | None,
        message: chunk_wire.ChunkRequest,
        now_us: int,
    ) -> None:
        state = transfer.holders[holder]
        if state.reply_us is None:
            wait_us = _WAIT_US + _WAIT_US_PER_CHUNK * state.in_flight
        else:
            wait_us = _WAIT_US_MIN + int(_WAIT_REPLY_TIMES * state.reply_us)
        due_us = now_us + state.wait_factor * wait_us
        self._order += 1
        transfer.requests[message.request_id] = _Request(holder, index, now_us, due_us, self._order)
        self._transfer_of[message.request_id] = transfer
        self._send(holder, message, now_us)

    def _end_request(self, transfer: _Transfer, request_id: RequestId) -> None:
        request = transfer.requests.pop(request_id)
        del self._transfer_of[request_id]
        state = transfer.holders.get(request.holder)
        if request.index is not None and state is not None:
            state.in_flight -= 1

    # Replies

    def _on_stored_chunks(
        self, transfer: _Transfer, request: _Request, reply: chunk_wire.StoredChunks
    ) -> None:
        state = transfer.holders.get(request.holder)
        if state is None:
            return
        if self._cache.chunk_list(transfer.digest) is None and reply.digests:
            chunk_list = ChunkList(transfer.metadata.size, reply.digests)
            if not chunk_list.is_complete or chunk_list.root() != transfer.digest:
                self._exclude(transfer, request.holder)
                return
            self._cache.open_object(transfer.digest, chunk_list)
        state.timeouts = 0
        state.flags = unpack_flags(reply.held, chunk_count(transfer.metadata.size))
        for other in reply.others:
            self._add_holder(transfer, other)

    def _on_chunk(self, transfer: _Transfer, request: _Request, data: bytes, now_us: int) -> None:
        index, chunk_list = request.index, self._cache.chunk_list(transfer.digest)
        if index is None or index not in transfer.wanted or chunk_list is None:
            return
        if not chunk_list.matches_chunk(index, data):
            transfer.waiting.appendleft(index)
            self._exclude(transfer, request.holder)
            return
        try:
            self._cache.write(transfer.digest, index, data)
        except OperationError as error:
            self._fail(transfer, Failure.from_error(error), now_us)
            return
        self.counts["chunks received"] += 1
        transfer.progress_us = now_us
        if (state := transfer.holders.get(request.holder)) is not None:
            state.timeouts = 0
            state.wait_factor = max(1, state.wait_factor // 2)
            took_us = now_us - request.sent_us
            state.reply_us = (
                took_us if state.reply_us is None else (7 * state.reply_us + took_us) / 8
            )
            self._request_overtaken(transfer, request, state)
            state.window = min(state.window + 1 / state.window, _WINDOW_MAX)
        callbacks = transfer.wanted.pop(index)
        if not transfer.wanted:
            self._outbox.cancel_timer(ChunkTransferTimer(transfer.digest))
        for on_result in callbacks:
            on_result(Ok(None), now_us)
        if self._cache.is_complete(transfer.digest):
            self.on_complete(transfer.metadata, now_us)

    def _request_overtaken(self, transfer: _Transfer, arrived: _Request, state: _Holder) -> None:
        """Asks again for chunks that were overtaken by many that were requested later."""
        before = arrived.order - int(state.window) - _OVERTAKEN_MAX
        for request_id, request in list(transfer.requests.items()):
            if request.order >= before:
                return
            if request.holder == arrived.holder and request.index is not None:
                self.counts["overtaken"] += 1
                self._end_request(transfer, request_id)
                if request.index in transfer.wanted:
                    transfer.waiting.appendleft(request.index)

    def _on_refused(self, transfer: _Transfer, request: _Request, refusal: Failure) -> None:
        """Handles a holder that has no chunks at all, or not the one asked for."""
        state = transfer.holders.get(request.holder)
        if request.index is None:
            transfer.refusal = refusal
            transfer.holders.pop(request.holder, None)
            return
        if request.index in transfer.wanted:
            transfer.waiting.appendleft(request.index)
        if state is not None and state.flags is not None:
            state.flags[request.index] = 0

    def _on_timeout(self, transfer: _Transfer, request: _Request, now_us: int) -> None:
        self.counts["timeouts"] += 1
        if request.index is not None and request.index in transfer.wanted:
            transfer.waiting.appendleft(request.index)
        state = transfer.holders.get(request.holder)
        if state is None:
            return
        state.window = max(1.0, state.window / 2)
        state.wait_factor = min(2 * state.wait_factor, _WAIT_FACTOR_MAX)
        state.timeouts += 1
        if state.timeouts >= _TIMEOUTS_MAX:
            state.timeouts, state.asked_us = 0, None
            state.rests_until_us = now_us + _REST_US

    def _exclude(self, transfer: _Transfer, holder: chunk_wire.ChunkHolder) -> None:
        """Does not ask a node again that sent wrong bytes."""
        self.counts["wrong bytes"] += 1
        detail = f"a node sent bytes that are not those of {transfer.metadata.key}"
        transfer.refusal = Failure(CorruptError.code, detail)
        transfer.excluded.add(holder.node)
        transfer.holders.pop(holder, None)

    # Transfers

    def _add_holder(self, transfer: _Transfer, holder: chunk_wire.ChunkHolder) -> None:
        known = next((other for other in transfer.holders if other.node == holder.node), None)
        if known is not None and known != holder and transfer.holders[known].wait_factor > 1:
            del transfer.holders[known]  # it did not answer in the cell where it was
            known = None
        unwanted = known is not None or holder.node in (self._node_id, *transfer.excluded)
        if not unwanted and len(transfer.holders) < _HOLDERS_MAX:
            transfer.holders[holder] = _Holder()

    def _fail(self, transfer: _Transfer, failure: Failure, now_us: int) -> None:
        """Fails all wanted chunks and forgets the transfer."""
        for request_id in list(transfer.requests):
            self._end_request(transfer, request_id)
        self._transfers.pop(transfer.digest, None)
        self._outbox.cancel_timer(ChunkTransferTimer(transfer.digest))
        wanted, transfer.wanted = transfer.wanted, {}
        transfer.waiting.clear()
        for callbacks in wanted.values():
            for on_result in callbacks:
                on_result(failure, now_us)

    def _drop_idle(self) -> None:
        """Forgets the oldest transfers without wanted chunks if there are many."""
        idle = [transfer for transfer in self._transfers.values() if not transfer.wanted]
        for transfer in idle[: max(0, len(self._transfers) - _TRANSFERS_MAX + 1)]:
            for request_id in list(transfer.requests):
                self._end_request(transfer, request_id)
            del self._transfers[transfer.digest]

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        for transfer in self._transfers.values():
            on_the_way = {request.index for request in transfer.requests.values()}
            assert transfer.wanted.keys() <= on_the_way | set(transfer.waiting)
