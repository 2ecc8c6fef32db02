"""Interface between a node of Thyme-DCS and its cell routing.

Entry points: `CellRouting`, and `CellRoutingUser` for the layer above. A message is sent to a cell,
to a node in a cell, to several of both, or broadcast in the own cell. Received messages are
delivered to the user. The interface does not depend on how cells are laid out: `geographic`
implements it for cells of a grid, `logical` for cells that are hashes of node ids.
Clauses: D3, D7, D8, D9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import Message
from thyme.protocol.node import Timer


class BeaconTimer(msgspec.Struct, frozen=True):
    """Timer of the next beacon."""


@dataclass(slots=True)
class CellTraffic:
    """Message counts of one node."""

    beacons: int = 0
    sent: int = 0
    """Copies of own messages that were sent."""
    forwarded: int = 0
    """Copies of messages of other nodes that were forwarded."""
    rerouted: int = 0
    """Targets sent to another neighbour because the first did not acknowledge."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Dropped targets by cause."""


class Destination(msgspec.Struct, frozen=True, gc=False):
    """A cell, or one node in a cell."""

    cell: CellId
    node: NodeId | None = None


class Delivery(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A message delivered to this node or its cell."""

    origin: NodeId
    origin_cell: CellId
    number: int
    """Number assigned by the origin; origin, number and cell are the same for all receivers."""
    cell: CellId
    """The cell addressed; differs from the own cell if that is the proxy of an empty cell (D6)."""
    is_unicast: bool
    """Whether the message is for this node only."""
    is_first: bool
    """Whether this node is the first receiver in its cell; the others get a broadcast (D7)."""
    hops: int
    """Number of links crossed."""
    message: Message
    ack_delay_us: int = 0
    """How long the acknowledgement of notifications may wait; 0 for as long as usual (D28)."""


class DeliveryFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was not delivered because its target node was not in its cell (D8)."""

    number: int
    """The number that `CellRouting.send` returned."""
    node: NodeId
    cell: CellId


class BeaconReceived(msgspec.Struct, frozen=True, kw_only=True):
    """A beacon received from a neighbour (D4)."""

    node: NodeId
    cell: CellId
    serving: bool
    payload: bytes


class CellRoutingUser(Protocol):
    """The layer above cell routing."""

    def on_delivery(self, delivery: Delivery, now_us: int) -> None:
        """Handles a delivered message; called once for each node or cell addressed."""
        ...

    def on_delivery_failure(self, failure: DeliveryFailure, now_us: int) -> None:
        """Handles a message that did not reach its target node."""
        ...

    def on_beacon(self, beacon: BeaconReceived, now_us: int) -> None:
        """Handles a beacon that changed something, or any beacon from the own cell."""
        ...

    def on_payload(self, node: NodeId, cell: CellId, payload: bytes) -> None:
        """Takes from the payload of any beacon what causes no action."""
        ...

    def is_new_payload(self, payload: bytes) -> bool:
        """Whether the payload of an otherwise unchanged beacon is new."""
        ...

    def may_become_new(self, payload: bytes) -> bool:
        """Whether a payload that is not new now may be so later."""
        ...

    def is_redundant(self, origin: NodeId, origin_cell: CellId, message: Message) -> bool:
        """Whether a message would change nothing on this node."""
        ...

    def beacon_payload(self, now_us: int) -> bytes:
        """The payload of the next beacon."""
        ...


class CellRouting(Protocol):
    """Routing of messages to cells on one node."""

    @property
    def cell(self) -> CellId:
        """The cell of this node."""
        ...

    @property
    def serving(self) -> bool:
        """Whether this node forwards messages and serves its cell (D20)."""
        ...

    def start(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """Starts in a cell."""
        ...

    def set_cell(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """Changes the cell or the serving state, and informs the neighbours."""
        ...

    def cell_of_key(self, key: str) -> CellId:
        """The key cell of a key (D3)."""
        ...

    def distance(self, one: CellId, other: CellId) -> float:
        """Distance between two cells, for comparison only."""
        ...

    def nodes_in(self, cell: CellId) -> list[NodeId]:
        """The serving neighbours in a cell."""
        ...

    def populated_cells(self) -> tuple[CellId, ...]:
        """The other cells that are known to have serving nodes, in a fixed order."""
        ...

    def proxy_of(self, cell: CellId, *, exclude_own: bool = False) -> CellId | None:
        """The known populated cell closest to a cell, which is its proxy if it is empty (D6).

        The own cell counts if this node serves it, unless `exclude_own` is set.
        """
        ...

    def is_certain_proxy_of(self, cell: CellId) -> bool:
        """Whether the own cell is the proxy of a cell, and no unknown cell can be closer."""
        ...

    def send(self, targets: Sequence[Destination], message: Message, now_us: int) -> int:
        """Sends one message to several destinations; returns its number.

        Local deliveries call the `CellRoutingUser` before this method returns.
        """
        ...

    def broadcast_in_cell(self, message: Message, now_us: int) -> int:
        """Broadcasts a message to the other nodes of the own cell; returns its number."""
        ...

    def when_acknowledged(
        self, delivery: Delivery, callback: Callable[[int], None], now_us: int
    ) -> None:
        """Calls a function once all nodes of the cell acknowledged a delivered message; at once if
        there are no acknowledgements (B2)."""
        ...

    def when_broadcast_acknowledged(
        self, number: int, cell: CellId, callback: Callable[[int], None], now_us: int
    ) -> None:
        """Calls a function once enough nodes of the cell acknowledged a message that this node
        broadcast in it; at once if there are no acknowledgements (B2)."""
        ...

    def on_received(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Handles a received message; returns False if it is not a routing message."""
        ...

    def on_timer(self, timer: Timer, now_us: int) -> bool:
        """Handles a timer; returns False if it is not a timer of routing."""
        ...

    def on_send_failed(self, to: NodeId, message: Message, now_us: int) -> bool:
        """Handles a message that a neighbour did not acknowledge; returns False if it is not a
        routing message."""
        ...

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        ...
