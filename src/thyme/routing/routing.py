"""What a relay asks of a routing, whatever it is: distance vectors, cells, or something else.

A routing puts its actions into the outbox it shares with its relay. It has control messages of its
own, timers of its own types, and takes packets: those that start here and those that pass through.
Clauses: R1, R2.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages import Message, Packet
from thyme.protocol.node import Timer


@dataclass(slots=True)
class Traffic:
    """What a node did for others and for itself. Bytes are counted where a relay can tell them."""

    control: int = 0
    """Control messages sent (R2)."""
    control_bytes: int = 0
    sent: int = 0
    """Packets that started here and left."""
    sent_bytes: int = 0
    forwarded: int = 0
    """Packets of others that were passed on."""
    forwarded_bytes: int = 0
    delivered: int = 0
    """Packets that ended here."""
    hops: int = 0
    """The links that those crossed, in sum."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Packets that went no further, by cause."""


class InnerStarts(msgspec.Struct, frozen=True):
    """The timer at which a relay's inner node comes up."""


class Routing(Protocol):
    """How packets find their way."""

    @property
    def control(self) -> type[Message]:
        """The kind of its control messages."""
        ...

    @property
    def timers(self) -> tuple[type, ...]:
        """The types of its timers; nobody else in the node may use them."""
        ...

    @property
    def traffic(self) -> Traffic:
        """What was sent, passed on and dropped."""
        ...

    def start(self, now_us: int) -> None:
        """The node came up."""
        ...

    def hear(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """A control message came; returns whether there may be something to do about it."""
        ...

    def send(self, packet: Packet, now_us: int) -> None:
        """Sends a packet of this node on its way; it may have to wait for one."""
        ...

    def forward(self, packet: Packet, now_us: int) -> None:
        """Passes on a packet of another node."""
        ...

    def on_timer(self, timer: Timer, now_us: int) -> None:
        """A timer of its own fired."""
        ...

    def on_send_failed(self, to: NodeId, packet: Packet, now_us: int) -> None:
        """A neighbour did not acknowledge a packet."""
        ...

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        ...
