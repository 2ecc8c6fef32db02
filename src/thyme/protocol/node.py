"""The one door of a node: inputs are facts in the past tense, actions are requests to the driver.

Nothing behind this door knows sockets, clocks, files or chance; a driver (the simulator, the live
host, an ether) brings the inputs and carries out the actions in the order they were returned.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages import Message
from thyme.protocol.requests import Request, Together, Told

Timer = Hashable
"""A timer's name: a small frozen record of the layer that set it."""


class Started(msgspec.Struct, frozen=True):
    """The node came up; its store may hold what an earlier life left."""


class Asked(msgspec.Struct, frozen=True):
    """The application wants something."""

    request: Request | Together


class Received(msgspec.Struct, frozen=True):
    """A message came in."""

    sender: NodeId
    message: Message


class TimerFired(msgspec.Struct, frozen=True):
    """The instant asked for by `SetTimer` is here."""

    timer: Timer


class SendFailed(msgspec.Struct, frozen=True):
    """The link gave up on a message: the neighbour did not acknowledge it."""

    to: NodeId
    message: Message


class Leaving(msgspec.Struct, frozen=True):
    """The node is about to go for a while or for good: now it can say goodbye (S7).

    It stays up for a moment, long enough for its last words and their answers. A node with nothing
    to say ignores this.
    """


class Moved(msgspec.Struct, frozen=True):
    """The device is at another place than before, in metres; told now and then while it moves, and
    no more once it stands (D20). A node to which places mean nothing ignores this."""

    place: tuple[float, float]


Input = Started | Asked | Received | TimerFired | SendFailed | Leaving | Moved


class Send(msgspec.Struct, frozen=True):
    """Asks for a message to be carried to one node in reach."""

    to: NodeId
    message: Message


class Broadcast(msgspec.Struct, frozen=True):
    """Asks for a message to be carried to every node in reach."""

    message: Message


class SetTimer(msgspec.Struct, frozen=True):
    """Asks for `TimerFired(timer)` at `at_us`. An equal timer already set moves there."""

    timer: Timer
    at_us: int


class CancelTimer(msgspec.Struct, frozen=True):
    """Asks that a timer not fire; one that is not set is no error."""

    timer: Timer


class Tell(msgspec.Struct, frozen=True):
    """Asks that the application be told something."""

    told: Told


Action = Send | Broadcast | SetTimer | CancelTimer | Tell


class Node(Protocol):
    """What a driver drives."""

    @property
    def node_id(self) -> NodeId:
        """Who this node is."""
        ...

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Takes one input at its instant; returns the actions to carry out, in order."""
        ...

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        ...
