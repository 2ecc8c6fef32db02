"""Interface between `RoutedNode` and a routing protocol such as DSDV.

Entry point: `Routing`. A routing puts its actions into the outbox that it shares with its
`RoutedNode`. It has its own control message type and timer types, and handles packets of this node
and packets to forward. Routing to cells has another interface: `thyme.routing.cells.interface`.
Clauses: R1, R2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message, Packet
from thyme.protocol.node import Timer


@dataclass(slots=True)
class RoutingTraffic:
    """Packet and byte counts of one node. Bytes are counted if `RoutedNode` got a `size_of`."""

    control: int = 0
    """Control messages sent (R2)."""
    control_bytes: int = 0
    sent: int = 0
    """Packets of this node that were sent."""
    sent_bytes: int = 0
    forwarded: int = 0
    """Packets of other nodes that were forwarded."""
    forwarded_bytes: int = 0
    delivered: int = 0
    """Packets whose destination is this node."""
    hops: int = 0
    """Sum of the hops of all delivered packets."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Dropped packets by cause."""


class InnerStartTimer(msgspec.Struct, frozen=True):
    """Timer at which the inner node of a `RoutedNode` starts."""


class Routing(Protocol):
    """A multi-hop routing protocol on one node."""

    @property
    def control_type(self) -> type[Message]:
        """Type of the routing's control messages."""
        ...

    @property
    def timer_types(self) -> tuple[type, ...]:
        """Types of the routing's timers; no other part of the node may use these types."""
        ...

    @property
    def traffic(self) -> RoutingTraffic:
        """Counts of sent, forwarded and dropped packets."""
        ...

    @property
    def destinations(self) -> Collection[NodeId]:
        """The nodes to which there is a route."""
        ...

    def start(self, now_us: int) -> None:
        """Starts the routing; called when the node starts."""
        ...

    def on_control_message(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Processes a control message; returns whether there may be new actions."""
        ...

    def send(self, packet: Packet, now_us: int) -> None:
        """Sends a packet of this node; without a route the packet may be buffered."""
        ...

    def forward(self, packet: Packet, now_us: int) -> None:
        """Forwards a packet of another node."""
        ...

    def on_timer(self, timer: Timer, now_us: int) -> None:
        """Handles a timer of the routing."""
        ...

    def on_send_failed(self, to: NodeId, packet: Packet, now_us: int) -> None:
        """Handles a packet that a neighbour did not acknowledge."""
        ...

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        ...
