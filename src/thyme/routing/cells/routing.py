"""What a node of Thyme-DCS asks of its routing, be its cells geographic or logical.

Messages go to a cell, to a node in a cell, to many of both, or to the own cell. What arrives is
told to a listener, the layer above. Who is where, and how messages find their way, stays behind
this.
Clauses: D3, D7, D8, D9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.cells import CellId
from thyme.protocol.messages import Message
from thyme.protocol.node import Timer


class BeaconDue(msgspec.Struct, frozen=True):
    """The timer of the next beacon."""


@dataclass(slots=True)
class CellTraffic:
    """What a node did for others and for itself, in messages."""

    beacons: int = 0
    sent: int = 0
    """Copies of own messages that left."""
    forwarded: int = 0
    """Copies of the messages of others that were passed on."""
    rerouted: int = 0
    """Targets given to another neighbour, since the first did not answer."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Targets that were not reached, by cause."""


class To(msgspec.Struct, frozen=True):
    """A cell; or a node in it."""

    cell: CellId
    node: NodeId | None = None


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A message came for this node or its cell."""

    origin: NodeId
    origin_cell: CellId
    number: int
    """What the origin calls it; origin, number and cell are the same for all who are told."""
    cell: CellId
    """Where it was addressed to; not the own cell, if this is the proxy of an empty one (D6)."""
    personal: bool
    """Whether it is for this node alone."""
    first: bool
    """Whether this node is the one that got it on behalf of its cell; others heard of it (D7)."""
    hops: int
    """The links it has crossed."""
    message: Message


class NotThere(msgspec.Struct, frozen=True, kw_only=True):
    """A node to which this one sent a message was not in its cell (D8)."""

    number: int
    """What `send` returned."""
    node: NodeId
    cell: CellId


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """A beacon was heard (D4)."""

    node: NodeId
    cell: CellId
    serving: bool
    payload: bytes


class Listener(Protocol):
    """The layer above."""

    def arrived(self, arrival: Arrival, now_us: int) -> None:
        """A message came. It is told once per node and cell addressed."""
        ...

    def not_there(self, failure: NotThere, now_us: int) -> None:
        """A message to a node did not find it."""
        ...

    def sighted(self, sighting: Sighting, now_us: int) -> None:
        """A neighbour said something new of where it is; of the own cell, each time."""
        ...

    def cares_for(self, payload: bytes) -> bool:
        """Whether what a beacon carries is news, though it says nothing else that is."""
        ...

    def knows(self, origin: NodeId, origin_cell: CellId, message: Message) -> bool:
        """Whether a message says nothing that this node does not know."""
        ...

    def payload(self, now_us: int) -> bytes:
        """What the next beacon should carry."""
        ...


class CellRouting(Protocol):
    """How messages find cells."""

    @property
    def cell(self) -> CellId:
        """Where this node is."""
        ...

    @property
    def serving(self) -> bool:
        """Whether it forwards, and works for its cell (D20)."""
        ...

    def start(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """The node came up in a cell."""
        ...

    def set_cell(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """The node is in another cell now, or began or ceased to serve; neighbours learn of it."""
        ...

    def cell_of_key(self, key: str) -> CellId:
        """The cell that looks after a key (D3)."""
        ...

    def distance(self, one: CellId, other: CellId) -> float:
        """How far apart two cells are, to compare."""
        ...

    def nodes_in(self, cell: CellId) -> list[NodeId]:
        """The serving nodes of a cell that this node hears; not itself."""
        ...

    def populated(self) -> tuple[CellId, ...]:
        """The other cells in which this node knows somebody to serve, in their order."""
        ...

    def keeper(self, cell: CellId, *, without_own: bool = False) -> CellId | None:
        """The populated cell closest to one, as far as this node knows: who looks after it (D6).
        The own cell counts where this node serves it, unless it is left out."""
        ...

    def surely_keeps(self, cell: CellId) -> bool:
        """Whether the own cell is that, and no other that is out of sight can be closer."""
        ...

    def send(self, targets: Sequence[To], message: Message, now_us: int) -> int:
        """Sends one message to all these; returns its number. Those who are here are told at once,
        from within."""
        ...

    def spread(self, message: Message, now_us: int) -> int:
        """Broadcasts a message to the other nodes of the own cell; returns its number."""
        ...

    def when_heard(self, arrival: Arrival, then: Callable[[int], None], now_us: int) -> None:
        """Calls a function when all nodes of the cell have heard what came for it; at once, where
        nobody says so (B2)."""
        ...

    def on_received(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """A message came; returns whether it was one of routing."""
        ...

    def on_timer(self, timer: Timer, now_us: int) -> bool:
        """A timer fired; returns whether it was one of routing."""
        ...

    def on_send_failed(self, to: NodeId, message: Message, now_us: int) -> bool:
        """A neighbour did not acknowledge a message; returns whether it was one of routing."""
        ...

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        ...
