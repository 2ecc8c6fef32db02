"""Dissemination: the interface of the ways in which events spread, and what they share.

Entry points: `Dissemination`, which `mobuser`, `mfps` and `rapid` implement, and `NodeServices`,
what the node offers to them. `ReplyLimit` bounds the replies to other devices.
Clauses: U1, U7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

import msgspec

from thyme.model.ids import NodeId
from thyme.model.metadata import Limits
from thyme.model.positions import Position
from thyme.model.tags import Tag
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.common import Message
from thyme.protocol.node import Timer
from thyme.protocol.outbox import Outbox
from thyme.substrates.encounters.event_memory import EventMemory
from thyme.substrates.encounters.events import CarriedEvent

REPLY_WINDOW_US = 60 * SECOND_US


class DiscoveryTimer(msgspec.Struct, frozen=True):
    """Timer of the recurring task that discovers neighbours (U1)."""


class GossipTimer(msgspec.Struct, frozen=True):
    """Timer of RAPID at which the replies of all neighbours have arrived."""


class ReplyGossipTimer(msgspec.Struct, frozen=True):
    """Timer of RAPID at which a device gossips because a neighbour discovered it."""


class ForwardTimer(msgspec.Struct, frozen=True):
    """Timer of RAPID at which new events are forwarded."""


@dataclass(frozen=True, slots=True)
class NodeServices:
    """What a node offers to its dissemination."""

    node_id: NodeId
    outbox: Outbox
    rng: Random
    limits: Limits
    dropped: Counter[str]
    """Counts of refused messages and events, by reason."""
    on_new_event: Callable[[CarriedEvent, int], None]
    """Called with an event that is new in the memory and in a topic of the user, and the time."""


class Dissemination(Protocol):
    """A way in which events spread from device to device."""

    user_topics: frozenset[Tag]
    """The topics that the user subscribes to."""
    exchanges: int
    """The exchanges in which this device received something from a neighbour."""

    @property
    def memory(self) -> EventMemory:
        """The events of the device."""
        ...

    @property
    def discovery_us(self) -> int:
        """The time to the next discovery."""
        ...

    def discover(self, now_us: int) -> None:
        """Looks for neighbours (U1)."""
        ...

    def on_message(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Handles a message; returns False if this protocol has no such message."""
        ...

    def on_timer(self, timer: Timer, now_us: int) -> None:
        """Handles a timer of its own."""
        ...

    def on_send_failed(self, to: NodeId) -> None:
        """A message to a neighbour did not arrive: the encounter broke off."""
        ...

    def on_position(self, position: Position, now_us: int) -> None:
        """The device has a new position."""
        ...

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        ...


class ReplyLimit:
    """Bounds how many profiles of other devices a device answers per minute."""

    def __init__(self, replies_max: int) -> None:
        self._replies_max = replies_max
        self._window_us = 0
        self._replies = 0

    def allows_reply(self, now_us: int) -> bool:
        """Whether another reply is within the limit; counts it if so."""
        if now_us - self._window_us >= REPLY_WINDOW_US:
            self._window_us, self._replies = now_us, 0
        if self._replies >= self._replies_max:
            return False
        self._replies += 1
        return True


def is_acceptable(event: CarriedEvent, limits: Limits, now_us: int) -> bool:
    """Whether a received event is within the size limits and has not expired."""
    metadata = event.metadata
    return (
        metadata.size <= limits.data_bytes_max
        and len(metadata.summary) <= limits.summary_bytes_max
        and not metadata.has_expired(now_us)
    )
