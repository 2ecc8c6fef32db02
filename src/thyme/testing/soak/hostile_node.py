"""Hostile node: a member that serves its world, and besides forges and replays what it has seen.

Entry point: `HostileNode`. It keeps messages that it sent and received, and sends them again later,
in the name of their origin or of another node; it deletes, ends and publishes in the name of
others, with proofs of its own. What it does depends on the seed alone.
Clauses: B5, B12, M25.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from thyme.model.ids import NodeId
from thyme.model.metadata import PROOF_BYTES, Metadata
from thyme.model.subscriptions import SubscriptionRecord
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.common import Message, ReliableAck
from thyme.protocol.messages.replies import Done
from thyme.protocol.messages.requests import (
    DeleteObject,
    SignedDelete,
    SignedStop,
    StopSubscription,
)
from thyme.protocol.node import (
    Action,
    Broadcast,
    Input,
    Node,
    Received,
    Send,
    SetTimer,
    Started,
    TimerFired,
)
from thyme.testing.soak.checked_node import CheckedNode

_REMEMBERED_MAX = 300
_INTERVAL_US = 3 * SECOND_US
"""The time between two hostile messages: they are to deceive, not to flood."""


class HostileTimer(msgspec.Struct, frozen=True):
    """Timer of the next hostile message."""


class HostileNode(CheckedNode):
    """Wraps a node as `CheckedNode` does, and adds hostile messages until an instant."""

    def __init__(
        self,
        inner: Node,
        rng: Random,
        until_us: int,
        sleep: tuple[int, int] | None,
        on_hostile: Callable[[], None] = lambda: None,
        interval_us: int = _INTERVAL_US,
    ) -> None:
        """`on_hostile` is called for each hostile message, of which there is one per interval."""
        super().__init__(inner, sleep)
        self._on_hostile = on_hostile
        self._interval_us = interval_us
        self._rng = rng
        self._until_us = until_us
        self._seen: deque[Message] = deque(maxlen=_REMEMBERED_MAX)
        self._peers: dict[NodeId, None] = {}

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Passes an input to the node; adds a hostile message now and then."""
        if isinstance(event, TimerFired) and isinstance(event.timer, HostileTimer):
            again = SetTimer(HostileTimer(), now_us + self._interval_us)
            if now_us >= self._until_us:
                return []
            return [*self._attack(), again] if self._seen and self._peers else [again]
        actions = super().handle(event, now_us)
        if isinstance(event, Started):
            actions = [*actions, SetTimer(HostileTimer(), now_us + self._interval_us)]
        if isinstance(event, Received):
            self.overhear(event.sender, event.message)
        for action in actions:
            if isinstance(action, Send):
                self.overhear(action.to, action.message)
        return actions

    def overhear(self, peer: NodeId, message: Message) -> None:
        """Remembers a message, and a node that sent or received it."""
        self._seen.append(message)
        self._peers[peer] = None

    def _attack(self) -> list[Action]:
        rng = self._rng
        seen = rng.choice(self._seen)
        if rng.random() < 0.5:
            seen = self._change(seen)
        self._on_hostile()
        if rng.random() < 0.3:
            return [Broadcast(seen)]
        return [Send(rng.choice(list(self._peers)), seen)]

    def _change(self, message: Message) -> Message:
        """Another message in the same carriers, or the same one in another's name."""
        inner: Any = getattr(message, "message", None)
        if inner is not None:
            changes: dict[str, object] = {"message": self._change(inner)}
            if hasattr(message, "number"):
                changes["number"] = self._rng.getrandbits(47)
            if hasattr(message, "origin"):
                changes["origin"] = self._rng.choice(list(self._peers))
            try:
                return msgspec.structs.replace(message, **changes)
            except ValueError:
                return message  # a carrier that must not contain the other
        return self._forge(message)

    def _forge(self, message: Message) -> Message:
        rng = self._rng
        proof = rng.randbytes(PROOF_BYTES)
        forgeries: list[Message] = [Done(getattr(message, "request_id", 0)), ReliableAck(0)]
        for value in _values(message):
            if isinstance(value, Metadata):
                forgeries += [DeleteObject(1, value.key), SignedDelete(1, value.key, proof)]
            elif isinstance(value, SubscriptionRecord):
                forgeries += [StopSubscription(1, value.key), SignedStop(1, value.key, proof)]
        return rng.choice(forgeries)


def _values(message: Message) -> list[object]:
    """The records in the fields of a message, also inside other records."""
    found: list[object] = []
    waiting: list[object] = [getattr(message, name) for name in message.__struct_fields__]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Metadata | SubscriptionRecord):
            found.append(value)
        elif isinstance(value, tuple):
            waiting += value
        elif isinstance(value, msgspec.Struct):
            waiting += [getattr(value, name) for name in value.__struct_fields__]
    return found
