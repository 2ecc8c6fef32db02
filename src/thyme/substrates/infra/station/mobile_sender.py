"""Mobile sender: how a station reaches a mobile node, or all nodes of a cell.

Entry points: `MobileSender.request_from`, `send_to_cell` and `send_to_each_in_cell`. A node whose
address is not known is reached through the stable node of its cell. A message to a cell goes to its
stable node, else to the known nodes of the cell in turn. If the station knows none, the cell may be
empty: then a node of another cell passes the message on to the proxy of the cell.
Without any, the message is parked until the cell has a stable node.
Clauses: I8, I25, I26, I27.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from thyme.model.bounded import BoundedDict
from thyme.model.errors import NotFoundError, OperationTimeoutError
from thyme.model.ids import NodeId, RequestId
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.protocol.messages.common import Message, RouteToCell, RouteToNode
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.substrates.infra.requests import StationRequests
from thyme.substrates.infra.station.addresses import CellName, MobileAddresses

_PARKED_PER_CELL_MAX = 100
"""How many messages to a cell wait for a stable node; the oldest is dropped."""
_NODES_TRIED_MAX = 4
"""How many nodes of a cell are tried."""

MakeRequest = Callable[[RequestId], Message]
"""Makes a request with an id."""


@dataclass(slots=True)
class _ToCell:
    message: Message
    nodes: list[NodeId]


class MobileSender:
    """Messages of one station to mobile nodes."""

    def __init__(
        self, node_id: NodeId, addresses: MobileAddresses, requests: StationRequests
    ) -> None:
        self._node_id = node_id
        self._addresses = addresses
        self._requests = requests
        self._parked: dict[CellName, BoundedDict[int, Message]] = {}
        self._next_parked = 0
        self.counts: Counter[str] = Counter()
        """Messages by how they were sent: `direct`, `routed`, `to_cell`, `parked`, `dropped`."""

    # One node

    def request_from(
        self,
        world: int,
        replica: Replica,
        make: MakeRequest,
        now_us: int,
        on_result: OnResult[Message],
        data_bytes: int = 0,
    ) -> None:
        """Sends a request to a node, or to any node of a cell (I25)."""
        request_id = self._requests.next_id()
        message = make(request_id)
        via = self._addresses.stable_node(world, replica.cell, now_us)
        node = replica.node
        if node is None:  # any node of the cell
            node = via or next(iter(self._addresses.nodes_in(world, replica.cell, now_us)), None)
        if node is not None and (node == via or self._addresses.knows(node, now_us)):
            self.counts["direct"] += 1
            self._send(node, request_id, message, now_us, on_result, data_bytes)
        elif node is not None and via is not None:
            self.counts["routed"] += 1
            routed = RouteToNode(self._node_id, node, message)
            self._requests.send(
                via,
                request_id,
                routed,
                now_us,
                on_result,
                answered_by=node,
                data_bytes=data_bytes,
            )
        else:
            detail = f"no way to a node of cell {replica.cell}"
            on_result(Failure(NotFoundError.code, detail), now_us)

    def _send(
        self,
        node: NodeId,
        request_id: RequestId,
        message: Message,
        now_us: int,
        on_result: OnResult[Message],
        data_bytes: int,
    ) -> None:
        def on_reply(result: Result[Message], now_us: int) -> None:
            if isinstance(result, Failure) and result.code == OperationTimeoutError.code:
                self._addresses.forget(node)
            on_result(result, now_us)

        self._requests.send(node, request_id, message, now_us, on_reply, data_bytes=data_bytes)

    # All nodes of a cell

    def send_to_cell(self, world: int, cell: CellId, message: Message, now_us: int) -> None:
        """Has a message delivered to all nodes of a cell (I26). An empty cell has a proxy, which
        any node of the world can reach."""
        nodes = self._nodes_of(world, cell, now_us)
        nodes = nodes or self._addresses.nodes_of(world, now_us)
        self._try_cell((world, cell), _ToCell(message, nodes[:_NODES_TRIED_MAX]), now_us)

    def send_to_each_in_cell(self, world: int, cell: CellId, message: Message, now_us: int) -> None:
        """Has each known node of a cell deliver a message, which also tells the others: for what no
        node may miss. The broadcast in a cell is not acknowledged in the profile `paper`."""
        nodes = self._nodes_of(world, cell, now_us)
        if len(nodes) <= 1:
            self.send_to_cell(world, cell, message, now_us)
            return
        waiting = dict.fromkeys(nodes)
        reached = False

        def on_reply(node: NodeId, result: Result[Message], now_us: int) -> None:
            nonlocal reached
            del waiting[node]
            reached = reached or isinstance(result, Ok)
            if not isinstance(result, Ok):
                self._addresses.forget(node)
            if not waiting and not reached:
                self.send_to_cell(world, cell, message, now_us)

        for node in nodes:
            self._route_by(node, cell, message, now_us, partial(on_reply, node))

    def _nodes_of(self, world: int, cell: CellId, now_us: int) -> list[NodeId]:
        """The known nodes of a cell, the stable node first."""
        stable = self._addresses.stable_node(world, cell, now_us)
        known = self._addresses.nodes_in(world, cell, now_us)
        return list(dict.fromkeys(([stable] if stable is not None else []) + known))

    def _route_by(
        self,
        node: NodeId,
        cell: CellId,
        message: Message,
        now_us: int,
        on_result: OnResult[Message],
    ) -> None:
        request_id = self._requests.next_id()
        self.counts["to_cell"] += 1
        request = RouteToCell(request_id, cell, message)
        self._requests.send(node, request_id, request, now_us, on_result)

    def _try_cell(self, name: CellName, to_cell: _ToCell, now_us: int) -> None:
        if not to_cell.nodes:
            self._park(name, to_cell.message)
            return
        node = to_cell.nodes.pop(0)

        def on_reply(result: Result[Message], now_us: int) -> None:
            if not isinstance(result, Ok):
                self._addresses.forget(node)
                self._try_cell(name, to_cell, now_us)

        self._route_by(node, name[1], to_cell.message, now_us, on_reply)

    def _park(self, name: CellName, message: Message) -> None:
        parked = self._parked.setdefault(name, BoundedDict(_PARKED_PER_CELL_MAX))
        self._next_parked += 1
        self.counts["parked"] += 1
        if parked.put(self._next_parked, message) is not None:
            self.counts["dropped"] += 1

    def on_stable_node(self, world: int, cell: CellId, now_us: int) -> None:
        """Sends the messages that waited for a stable node of a cell (I26)."""
        for message in self._parked.pop((world, cell), {}).values():
            self.send_to_cell(world, cell, message, now_us)

    @property
    def parked(self) -> int:
        """The number of parked messages."""
        return sum(map(len, self._parked.values()))
