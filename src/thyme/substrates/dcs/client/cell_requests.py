"""Cell requests: operations sent to several cells or nodes, and retried until each has replied.

Entry points: `CellRequests.next_id` and `send_requests`. `thyme.protocol.request_tracker` does the
same for one receiver. One request id stands for the whole operation, and only receivers without a
reply are sent the request again. Any node of a cell may reply, so a reply names the cell that was
addressed.
Clauses: D11, D19, D28, B5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.errors import NotFoundError, OperationTimeoutError, RejectedError
from thyme.model.ids import NodeId, RequestId
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.messages.cell_records import CellId, as_cell_id
from thyme.protocol.messages.cells import CellMaintenanceRequest
from thyme.protocol.messages.common import CellReply, CellRequest
from thyme.protocol.messages.replies import MissedPage, Refused
from thyme.protocol.messages.requests import FetchMissed
from thyme.protocol.outbox import Outbox
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.protocol.retry import RetryPolicy, RetryState
from thyme.protocol.round_trip import RoundTripTimes
from thyme.routing.cells import CellRouting, Delivery, DeliveryFailure, Destination
from thyme.substrates.common.client_interfaces import MissedSource
from thyme.substrates.common.gap_reader import FetchMissedPage

Requests = Mapping[Destination, CellRequest | CellMaintenanceRequest]
"""The messages of an operation by destination, all with the same request id. Destinations with the
same message object share one packet (D9)."""
Replies = dict[Destination, CellReply]
_REPEATED_MAX = 1_000
"""How many answers to repeated requests are remembered, since a second answer may follow."""


class CellRequestTimer(msgspec.Struct, frozen=True, gc=False):
    """The timer at which a request is sent again."""

    request_id: RequestId


@dataclass(slots=True)
class _PendingCellRequest:
    unanswered: dict[Destination, CellRequest | CellMaintenanceRequest]
    on_result: OnResult[Replies]
    retries: RetryState
    round_trips: RoundTripTimes | None
    """What the replies of this operation are measured for."""
    tries_us: list[int] = field(default_factory=list)
    """When the request was sent."""
    replies: Replies = field(default_factory=dict)
    packet_numbers: list[int] = field(default_factory=list)
    """The numbers that routing assigned to the messages."""


@dataclass(slots=True)
class _RepeatedExchange:
    """A repeated request to one destination and its replies: which try the first one answers is
    not known before further ones come."""

    round_trips: RoundTripTimes
    tries_us: tuple[int, ...]
    replied_us: int
    """When the first reply came."""
    replies: int = 1


class CellRequests:
    """The pending operations of one node."""

    def __init__(
        self,
        routing: CellRouting,
        outbox: Outbox,
        policy: RetryPolicy,
        rng: Random,
        authenticator: MessageAuthenticator | None = None,
        round_trips: RoundTripTimes | None = None,
        page_round_trips: RoundTripTimes | None = None,
    ) -> None:
        """`round_trips`, `page_round_trips`: what the wait for replies and for pages depends on;
        None for the policy alone (D28)."""
        self.authenticator = authenticator
        self._round_trips = {False: round_trips, True: page_round_trips}
        """By whether the reply is long."""
        self._routing = routing
        self._outbox = outbox
        self._policy = policy
        self._next_request_id = rng.getrandbits(32)
        self._pending: dict[RequestId, _PendingCellRequest] = {}
        self._request_by_packet: dict[int, RequestId] = {}
        self._repeated: BoundedDict[tuple[RequestId, NodeId | CellId], _RepeatedExchange] = (
            BoundedDict(_REPEATED_MAX)
        )
        self.retransmissions = 0
        self.unmatched_replies = 0

    def __len__(self) -> int:
        return len(self._pending)

    def next_id(self) -> RequestId:
        """A new request id, for the next operation."""
        request_id = self._next_request_id
        self._next_request_id += 1
        return request_id

    def send_requests(
        self,
        requests: Requests,
        now_us: int,
        on_result: OnResult[Replies],
        *,
        data_bytes: int = 0,
        tries_max: int | None = None,
        wait_factor: float = 1.0,
    ) -> None:
        """Sends the requests; `on_result` is called once, with all replies or with a failure. The
        first refusal fails the operation."""
        if len(self._pending) >= self._policy.pending_max:
            detail = "too many operations under way; wait for some to end"
            on_result(Failure(RejectedError.code, detail), now_us)
            return
        if not requests:
            on_result(Ok({}), now_us)
            return
        [request_id] = {request.request_id for request in requests.values()}
        messages = self._sign(requests, now_us)
        usual_us = self._policy.first_wait_us(data_bytes)
        round_trips = self._round_trips[any(each.long_reply for each in requests.values())]
        if round_trips is not None:
            usual_us = round_trips.wait_us(usual_us)
        wait_us = int(usual_us * wait_factor)
        retries = RetryState(tries_max or self._policy.tries_max, wait_us, self._policy.backoff)
        self._pending[request_id] = _PendingCellRequest(messages, on_result, retries, round_trips)
        self._send_unanswered(request_id, now_us)

    def _sign(
        self, messages: Requests, now_us: int
    ) -> dict[Destination, CellRequest | CellMaintenanceRequest]:
        """The messages signed by this node; destinations that share a message still share it."""
        if self.authenticator is None:
            return dict(messages)
        signed = {
            id(message): self.authenticator.sign_message(message, now_us, self._routing.cell)
            for message in messages.values()
        }
        return {to: signed[id(message)] for to, message in messages.items()}

    def on_cell_reply(self, cell: CellId, reply: CellReply, now_us: int) -> None:
        """Handles a reply on behalf of a cell."""
        self._accept_reply(Destination(cell), reply, now_us)

    def on_node_reply(self, delivery: Delivery, reply: CellReply, now_us: int) -> None:
        """Handles a delivered reply of a single node."""
        self.on_reply(delivery.origin, reply, now_us)

    def on_reply(self, sender: NodeId, reply: CellReply, now_us: int) -> None:
        """Handles a reply of a single node."""
        pending = self._pending.get(reply.request_id)
        unanswered = () if pending is None else pending.unanswered
        target = next((to for to in unanswered if to.node == sender), None)
        if target is None:
            self.unmatched_replies += 1
            self._measure_further_reply(reply.request_id, sender)
        else:
            self._accept_reply(target, reply, now_us)

    def on_delivery_failure(self, failure: DeliveryFailure, now_us: int) -> bool:
        """Fails the operation whose addressed node is not in its cell; returns whether the message
        was a pending request (D8)."""
        request_id = self._request_by_packet.get(failure.number)
        if request_id is None:
            return False
        if Destination(failure.cell, failure.node) in self._pending[request_id].unanswered:
            pending = self._finish(request_id)
            detail = f"node {failure.node.hex()} is not in cell {failure.cell}"
            pending.on_result(Failure(NotFoundError.code, detail), now_us)
        return True

    def on_timer(self, timer: CellRequestTimer, now_us: int) -> None:
        """Sends the request again to the destinations that did not reply, with a longer timeout, or
        fails the operation."""
        pending = self._pending.get(timer.request_id)
        if pending is None:
            return
        if pending.retries.is_exhausted:
            self._finish(timer.request_id)
            cells = ", ".join(str(to.cell) for to in pending.unanswered)
            detail = f"no answer from cell {cells} after {pending.retries.tries} tries"
            pending.on_result(Failure(OperationTimeoutError.code, detail), now_us)
            return
        self.retransmissions += 1
        self._send_unanswered(timer.request_id, now_us)

    def _send_unanswered(self, request_id: RequestId, now_us: int) -> None:
        pending = self._pending[request_id]
        pending.tries_us.append(now_us)
        self._outbox.set_timer(CellRequestTimer(request_id), pending.retries.count_try(now_us))
        targets_by_message: dict[int, list[Destination]] = {}
        for to, message in pending.unanswered.items():
            targets_by_message.setdefault(id(message), []).append(to)
        for targets in list(targets_by_message.values()):
            packet_number = self._routing.send(targets, pending.unanswered[targets[0]], now_us)
            pending.packet_numbers.append(packet_number)
            self._request_by_packet[packet_number] = request_id

    def _accept_reply(self, destination: Destination, reply: CellReply, now_us: int) -> None:
        pending = self._pending.get(reply.request_id)
        if pending is None or pending.unanswered.pop(destination, None) is None:
            self.unmatched_replies += 1
            self._measure_further_reply(reply.request_id, destination.node or destination.cell)
            return
        pending.replies[destination] = reply
        self._measure_reply(pending, reply.request_id, destination, now_us)
        if isinstance(reply, Refused):
            self._finish(reply.request_id)
            pending.on_result(Failure(reply.code, reply.detail), now_us)
        elif not pending.unanswered:
            self._finish(reply.request_id)
            pending.on_result(Ok(pending.replies), now_us)

    def _measure_reply(
        self,
        pending: _PendingCellRequest,
        request_id: RequestId,
        destination: Destination,
        now_us: int,
    ) -> None:
        """Measures how long the reply took, unless the request was repeated: then the reply may
        answer a later try, and the first may have been lost (as RFC 6298 does, section 3)."""
        if pending.round_trips is None:
            return
        if len(pending.tries_us) == 1:
            pending.round_trips.add(now_us - pending.tries_us[0])
            return
        self._repeated[request_id, destination.node or destination.cell] = _RepeatedExchange(
            pending.round_trips, tuple(pending.tries_us), now_us
        )

    def _measure_further_reply(self, request_id: RequestId, sender: NodeId | CellId) -> None:
        """Measures how long the first reply to a repeated request took at least: as many tries as
        there are replies were not lost but answered late, so the channel is busy."""
        exchange = self._repeated.get((request_id, sender))
        if exchange is None or exchange.replies == len(exchange.tries_us):
            return
        exchange.replies += 1
        answered_us = exchange.tries_us[-exchange.replies]
        exchange.round_trips.add(exchange.replied_us - answered_us)

    def _finish(self, request_id: RequestId) -> _PendingCellRequest:
        pending = self._pending.pop(request_id)
        for packet_number in pending.packet_numbers:
            del self._request_by_packet[packet_number]
        self._outbox.cancel_timer(CellRequestTimer(request_id))
        return pending

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._pending) <= self._policy.pending_max
        assert all(request_id in self._pending for request_id in self._request_by_packet.values())


def missed_pages_from_cells(requests: CellRequests) -> FetchMissedPage:
    """Reads missed objects from cells, or from single nodes of them (M34)."""

    def fetch(
        source: MissedSource, request: FetchMissed, now_us: int, on_result: OnResult[MissedPage]
    ) -> None:
        def on_replies(result: Result[Replies], now_us: int) -> None:
            if isinstance(result, Failure):
                on_result(result, now_us)
                return
            [reply] = result.value.values()
            unexpected = Failure("failed", f"unexpected reply type: {reply.label}")
            on_result(Ok(reply) if isinstance(reply, MissedPage) else unexpected, now_us)

        if isinstance(source, tuple):
            target = Destination(*source)
        else:
            assert isinstance(source, int), "in Thyme-DCS a broker is a cell"
            target = Destination(as_cell_id(source))
        requests.send_requests({target: request}, now_us, on_replies)

    return fetch
