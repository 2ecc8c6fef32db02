"""Peer reads: asks the other nodes of the cell for an object that this node should have.

In the profile `robust` the first node of a cell answers a read alone. If it lacks the object, since
it lost its memory or missed the broadcast, it asks its cell peers one after the other, and the cell
refuses only after all of them have. Requests for one object that come meanwhile wait for the same
answer. Entry point: `PeerReads.on_request`.
Clauses: D7, D14, D18.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from thyme.model.errors import OperationError
from thyme.model.ids import Key, NodeId
from thyme.protocol.messages.common import CellReply, FetchObject, ObjectData, Refused
from thyme.protocol.results import Failure, Ok, Result
from thyme.routing.cells import CellRouting, Delivery, Destination
from thyme.substrates.common.catalogue import DELETED
from thyme.substrates.dcs.client.cell_requests import CellRequests, Replies
from thyme.substrates.dcs.state.replica_store import ReplicaStore

_PEERS_MAX = 8
"""How many cell peers are asked for an object."""
_KEYS_MAX = 16
"""For how many objects cell peers are asked at a time; requests for others are refused at once."""
_WAITING_MAX = 16
"""How many requests for one object wait for the answer of a cell peer."""
_DATA_BYTES = 64 * 1024
"""How long an object is for which a cell peer is waited for; its size is not known."""

SendReply = Callable[[Delivery, CellReply, int], None]


class PeerReads:
    """The objects for which one node asks its cell peers."""

    def __init__(
        self,
        routing: CellRouting,
        requests: CellRequests,
        replicas: ReplicaStore,
        send_reply: SendReply,
    ) -> None:
        self._routing = routing
        self._requests = requests
        self._replicas = replicas
        self._send_reply = send_reply
        self._waiting: dict[Key, list[tuple[Delivery, FetchObject]]] = {}
        self.passed_on = 0
        """How many requests were answered by a cell peer."""

    def on_request(
        self, delivery: Delivery, request: FetchObject, error: OperationError, now_us: int
    ) -> bool:
        """Has cell peers answer a request to the cell for an object that is not here (`error`).
        Returns False if the cell is to refuse it at once."""
        key = request.key
        if delivery.is_unicast or not delivery.is_first or not self._may_be_stored(key):
            return False
        if (waiting := self._waiting.get(key)) is not None:
            if len(waiting) < _WAITING_MAX:
                waiting.append((delivery, request))
            return True
        peers = self._routing.nodes_in(self._routing.cell)[:_PEERS_MAX]
        peers = [peer for peer in peers if peer != delivery.origin]
        if not peers or len(self._waiting) >= _KEYS_MAX:
            return False
        self._waiting[key] = [(delivery, request)]
        self._ask_next(key, peers, Failure(error.code, str(error)), now_us)
        return True

    def _may_be_stored(self, key: Key) -> bool:
        return self._replicas.removal_reason(key) != DELETED

    def _ask_next(self, key: Key, peers: list[NodeId], refusal: Failure, now_us: int) -> None:
        if not peers:
            self._finish(key, refusal, now_us)
            return
        target = Destination(self._routing.cell, peers[0])
        self._requests.send_requests(
            {target: FetchObject(self._requests.next_id(), key)},
            now_us,
            partial(self._on_replies, key, peers[1:], refusal),
            data_bytes=_DATA_BYTES,
            tries_max=1,
        )

    def _on_replies(
        self, key: Key, peers: list[NodeId], refusal: Failure, result: Result[Replies], now_us: int
    ) -> None:
        if isinstance(result, Ok):
            [reply] = result.value.values()
            if isinstance(reply, ObjectData) and self._may_be_stored(key):
                self._finish(key, reply, now_us)
                return
        self._ask_next(key, peers, refusal, now_us)

    def _finish(self, key: Key, answer: ObjectData | Failure, now_us: int) -> None:
        for delivery, request in self._waiting.pop(key):
            if isinstance(answer, ObjectData):
                self.passed_on += 1
                self._send_reply(delivery, ObjectData(request.request_id, key, answer.data), now_us)
            else:
                refused = Refused(request.request_id, answer.code, answer.detail)
                self._send_reply(delivery, refused, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._waiting) <= _KEYS_MAX
        assert all(0 < len(each) <= _WAITING_MAX for each in self._waiting.values())
