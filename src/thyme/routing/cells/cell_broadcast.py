"""Cell broadcast: sends a message to all nodes of a cell, with or without acknowledgements.

Entry point: `CellBroadcaster`, used by `deliveries`. A broadcast reaches most nodes. If it is
acknowledged, each receiver sends a `CellBroadcastAck`, and the others get the message again by
unicast; if one acknowledgement is enough, all get it again until it arrives. The cell replies to a
request after all nodes have acknowledged it, so that the confirmed state is known to all of them. A
node out of range is not waited for, one in range that never acknowledges only the first time
(`answer_when_known`). Under load acknowledgements are late rather than lost; where they are
measured (`ack_wait_us_max`), the first wait follows them, since repeats would be more load.
Clauses: D7, B2, B8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellBroadcastAck
from thyme.protocol.messages.common import CellBroadcast, Message
from thyme.protocol.outbox import Outbox
from thyme.protocol.retry import RetryState
from thyme.protocol.round_trip import RoundTripTimes
from thyme.routing.cells.config import CellRoutingConfig

_BACKOFF = 2.0
_FIRST_WAIT_US = SECOND_US // 20
"""First wait for acknowledgements; doubled at each try."""
_WAIT_US_MAX = 4 * SECOND_US // 5
"""The longest wait for acknowledgements of a message without an object."""
_REPLICA_TRIES_MAX = 5
"""How often a new object is broadcast at most."""
_WAIT_US_PER_KIB = 4_000
"""Additional wait for an object in the message: its transfer time at 2 Mb/s."""
_CONFIRMED_BYTES_MAX = 64 * 1024
"""Larger objects are broadcast once: of so many frames one is often lost, each time."""
_ACK_TIMES = 2
"""A broadcast waits this many times as long as acknowledgements take: queues may still grow."""
_REPEATED_MAX = 1_000
"""How many acknowledgements of repeated broadcasts are remembered, since a second may follow."""


class CellBroadcastTimer(msgspec.Struct, frozen=True, gc=False):
    """Timer at which a broadcast is repeated to nodes that did not acknowledge it."""

    origin: NodeId
    number: int
    cell: CellId


@dataclass(slots=True)
class _PendingBroadcast:
    message: CellBroadcast
    unacknowledged: dict[NodeId, None]
    retries: RetryState
    sent_us: int
    callbacks: list[Callable[[int], None]] = field(default_factory=list)


_RequestKey = tuple[NodeId, int, CellId]
"""The origin of a request, its id, and the cell to which it was sent."""


class CellBroadcaster:
    """Broadcasts of one node in its cell."""

    def __init__(self, node_id: NodeId, outbox: Outbox, config: CellRoutingConfig) -> None:
        self._node_id = node_id
        self._outbox = outbox
        self.config = config
        self._pending: dict[CellBroadcastTimer, _PendingBroadcast] = {}
        self._by_request: dict[_RequestKey, CellBroadcastTimer] = {}
        """The pending broadcast of each request."""
        self._unresponsive: dict[NodeId, None] = {}
        """Nodes that did not acknowledge the last message, though they are in range."""
        wait_us_max = config.ack_wait_us_max
        self._ack_times: RoundTripTimes | None = None
        if wait_us_max is not None:
            self._ack_times = RoundTripTimes(wait_us_max // _ACK_TIMES)
        self._repeated: BoundedDict[tuple[CellBroadcastTimer, NodeId], int] = BoundedDict(
            _REPEATED_MAX
        )
        """How long the first acknowledgement of a repeated broadcast took."""
        self.retransmissions = 0
        self.unacknowledged = 0

    def __len__(self) -> int:
        return len(self._pending)

    def is_for_all(self, message: Message) -> bool:
        """Whether a message is for all nodes of a cell; one node is enough for a read request."""
        return self.config.broadcast_reads or not message.reads_only

    def is_acknowledged(self, message: Message) -> bool:
        """Whether nodes acknowledge a message."""
        if self.config.broadcast_tries_max <= 1 or message.reads_only:
            return False
        if message.one_ack_suffices:
            confirmed = self.config.confirm_replicas and message.data_bytes <= _CONFIRMED_BYTES_MAX
            if not confirmed:
                return False
        return message.broadcast_acknowledged

    def broadcast(self, broadcast: CellBroadcast, others: Iterable[NodeId], now_us: int) -> None:
        """Broadcasts a message, and waits for the acknowledgements of the other nodes if needed."""
        self._outbox.broadcast(broadcast)
        message = broadcast.message
        unacknowledged = dict.fromkeys(filter(message.is_acknowledged_by, others))
        full = len(self._pending) >= self.config.broadcasts_max
        if unacknowledged and not full and self.is_acknowledged(message):
            timer = CellBroadcastTimer(broadcast.origin, broadcast.number, broadcast.addressed_cell)
            retries = self._new_retries(message)
            self._pending[timer] = _PendingBroadcast(broadcast, unacknowledged, retries, now_us)
            if request := self._request_key(broadcast.origin, message, timer.cell):
                self._by_request[request] = timer
            self._outbox.set_timer(timer, retries.count_try(now_us))

    def _new_retries(self, message: Message) -> RetryState:
        tries_max = self.config.broadcast_tries_max
        transfer_us = _WAIT_US_PER_KIB * (message.data_bytes // 1024)
        if message.one_ack_suffices:
            tries_max = min(tries_max, _REPLICA_TRIES_MAX)
        first_us = _FIRST_WAIT_US
        if self._ack_times is not None:
            first_us = _ACK_TIMES * self._ack_times.wait_us(first_us // _ACK_TIMES)
        retries = RetryState(tries_max, first_us + transfer_us, _BACKOFF)
        if self.config.answer_when_known and not transfer_us:
            retries.wait_us_max = _WAIT_US_MAX
        return retries

    def is_waiting_for(self, origin: NodeId, message: Message, cell: CellId) -> bool:
        """Whether a request was broadcast here and some nodes have not acknowledged it yet."""
        return self._request_key(origin, message, cell) in self._by_request

    def _request_key(self, origin: NodeId, message: Message, cell: CellId) -> _RequestKey | None:
        request_id = getattr(message, "request_id", None)
        if request_id is None or not self.config.answer_when_known:
            return None
        return origin, request_id, cell

    def when_acknowledged(
        self,
        origin: NodeId,
        number: int,
        cell: CellId,
        callback: Callable[[int], None],
        now_us: int,
        message: Message | None = None,
    ) -> None:
        """Calls a function once enough nodes have acknowledged a message, or after the last
        try. `message`, if it repeats a request under another number, waits for that one."""
        timer = CellBroadcastTimer(origin, number, cell)
        if timer not in self._pending and message is not None:
            request = self._request_key(origin, message, cell)
            timer = timer if request is None else self._by_request.get(request, timer)
        pending = self._pending.get(timer)
        if pending is None:
            callback(now_us)
        else:
            pending.callbacks.append(callback)

    def on_broadcast(self, sender: NodeId, broadcast: CellBroadcast) -> None:
        """Acknowledges a received broadcast, also a repeated one."""
        message = broadcast.message
        if self.is_acknowledged(message) and message.is_acknowledged_by(self._node_id):
            ack = CellBroadcastAck(broadcast.origin, broadcast.number, broadcast.addressed_cell)
            self._outbox.send(sender, ack)

    def on_ack(self, sender: NodeId, ack: CellBroadcastAck, now_us: int) -> None:
        """Records the acknowledgement of one node."""
        self._unresponsive.pop(sender, None)
        timer = CellBroadcastTimer(ack.origin, ack.number, ack.cell)
        pending = self._pending.get(timer)
        if self._ack_times is not None:
            self._measure_ack(self._ack_times, timer, sender, pending, now_us)
        if pending is not None:
            self._stop_waiting(pending, timer, sender, now_us)

    def _stop_waiting(
        self, pending: _PendingBroadcast, timer: CellBroadcastTimer, node: NodeId, now_us: int
    ) -> None:
        was_waiting = pending.unacknowledged.pop(node, node) is None
        is_enough = was_waiting and pending.message.message.one_ack_suffices
        if is_enough or not pending.unacknowledged:
            self._finish(timer, now_us)

    def _measure_ack(
        self,
        ack_times: RoundTripTimes,
        timer: CellBroadcastTimer,
        sender: NodeId,
        pending: _PendingBroadcast | None,
        now_us: int,
    ) -> None:
        """Measures how long the first acknowledgement of a node took. After a repeat it counts once
        a second one shows that the first broadcast was not lost."""
        if pending is None or sender not in pending.unacknowledged:
            took_us = self._repeated.pop((timer, sender), None)
            if took_us is not None:
                ack_times.add(took_us)
        elif pending.retries.tries > 1:
            self._repeated[timer, sender] = now_us - pending.sent_us
        else:
            ack_times.add(now_us - pending.sent_us)

    def on_send_failed(self, to: NodeId, message: CellBroadcast, now_us: int) -> None:
        """Stops waiting for a node that is out of reach."""
        self._unresponsive.pop(to, None)
        timer = CellBroadcastTimer(message.origin, message.number, message.addressed_cell)
        if (pending := self._pending.get(timer)) is not None:
            self._stop_waiting(pending, timer, to, now_us)

    def on_timer(
        self,
        timer: CellBroadcastTimer,
        now_us: int,
        is_in_range: Callable[[NodeId], bool] = lambda node_id: True,
    ) -> list[NodeId]:
        """Repeats a broadcast to nodes in range that did not acknowledge it; after the last try,
        returns these nodes."""
        pending = self._pending.get(timer)
        if pending is None:
            return []
        for node_id in [each for each in pending.unacknowledged if not is_in_range(each)]:
            del pending.unacknowledged[node_id]
            self._unresponsive.pop(node_id, None)
        if pending.retries.is_exhausted or not pending.unacknowledged:
            self.unacknowledged += len(pending.unacknowledged)
            if self.config.answer_when_known and not pending.message.message.one_ack_suffices:
                self._unresponsive.update(pending.unacknowledged)
            self._finish(timer, now_us)
            return list(pending.unacknowledged)
        if pending.retries.tries >= self.config.insert_wait_tries and self._replies_early(pending):
            self._run_callbacks(pending, now_us)
        self._repeat(pending)
        self._outbox.set_timer(timer, pending.retries.count_try(now_us))
        return []

    def _replies_early(self, pending: _PendingBroadcast) -> bool:
        """Whether a request is answered before all nodes have acknowledged it."""
        if not self.config.answer_when_known:
            return pending.message.message.replies_early
        return all(node_id in self._unresponsive for node_id in pending.unacknowledged)

    def _repeat(self, pending: _PendingBroadcast) -> None:
        """Sends a message again: to the nodes that did not acknowledge it, or, if one of them is
        enough, to all at once."""
        if pending.message.message.one_ack_suffices:
            self.retransmissions += 1
            self._outbox.broadcast(pending.message)
            return
        self.retransmissions += len(pending.unacknowledged)
        for node in pending.unacknowledged:
            self._outbox.send(node, pending.message)

    def _finish(self, timer: CellBroadcastTimer, now_us: int) -> None:
        pending = self._pending.pop(timer)
        request = self._request_key(timer.origin, pending.message.message, timer.cell)
        if request is not None and self._by_request.get(request) == timer:
            del self._by_request[request]
        self._outbox.cancel_timer(timer)
        self._run_callbacks(pending, now_us)

    def _run_callbacks(self, pending: _PendingBroadcast, now_us: int) -> None:
        callbacks, pending.callbacks = pending.callbacks, []
        for callback in callbacks:
            callback(now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._pending) <= self.config.broadcasts_max
        assert all(pending.unacknowledged for pending in self._pending.values())
        assert set(self._by_request.values()) <= set(self._pending)
