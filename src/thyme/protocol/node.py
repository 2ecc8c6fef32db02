"""Node interface: inputs are facts in the past tense, actions are requests to the driver.

Entry point: `Node.handle`. A node uses no sockets, clocks, files or global random numbers. A driver
(a simulated network in virtual time, the host in real time) supplies the inputs and carries out the
actions in the order in which they were returned.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.app_interface import AppEvent, AppRequest, InsertBatch
from thyme.protocol.messages.common import Message

Timer = Hashable
"""Identifies a timer: a small frozen record of the layer that set it."""


class Started(msgspec.Struct, frozen=True):
    """The node started; its store may contain the state of an earlier incarnation."""


class AppRequested(msgspec.Struct, frozen=True, gc=False):
    """The application made a request."""

    request: AppRequest | InsertBatch


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message arrived from a neighbour."""

    sender: NodeId
    message: Message


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """The instant given to `SetTimer` has come."""

    timer: Timer


class SendFailed(msgspec.Struct, frozen=True, gc=False):
    """The link stopped sending a message because the neighbour did not acknowledge it."""

    to: NodeId
    message: Message


class Leaving(msgspec.Struct, frozen=True):
    """The node is about to leave, temporarily or permanently (S7).

    The driver keeps the node running for a short time, so that the node can send its last messages
    and receive the replies. A node without last messages ignores this input.
    """


class PositionChanged(msgspec.Struct, frozen=True):
    """The device has a new position, in metres (D20).

    The driver repeats this input while the device moves. A node that does not use positions ignores
    it.
    """

    position: tuple[float, float]


class ClocksCompared(msgspec.Struct, frozen=True):
    """The clocks of most nodes in reach are ahead of this node's clock by `ahead_us`, or behind if
    it is negative (M36). The driver repeats this input when the difference changes."""

    ahead_us: int


Input = (
    Started
    | AppRequested
    | Received
    | TimerFired
    | SendFailed
    | Leaving
    | PositionChanged
    | ClocksCompared
)


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message to one neighbour."""

    to: NodeId
    message: Message


class Broadcast(msgspec.Struct, frozen=True, gc=False):
    """Send a message to all neighbours."""

    message: Message


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Deliver `TimerFired(timer)` at `at_us`; replaces an equal timer that is already set."""

    timer: Timer
    at_us: int


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    """Cancel a timer; no effect if the timer is not set."""

    timer: Timer


class Emit(msgspec.Struct, frozen=True, gc=False):
    """Pass an event to the application."""

    event: AppEvent


Action = Send | Broadcast | SetTimer | CancelTimer | Emit


class Node(Protocol):
    """A node, as its driver uses it."""

    @property
    def node_id(self) -> NodeId:
        """The identifier of this node."""
        ...

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Processes one input at its instant; returns the actions to carry out, in order."""
        ...

    def check(self) -> None:
        """Asserts the invariants that hold between two inputs."""
        ...
