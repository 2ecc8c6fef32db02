"""Outbox: collects the actions of the layers of one node.

Entry point: `Outbox`. This module is compiled; it is separate from `node` because mypyc cannot
compile the records defined there.
"""

from __future__ import annotations

from thyme.model.ids import NodeId
from thyme.protocol.app_interface import AppEvent
from thyme.protocol.messages.common import Message
from thyme.protocol.node import Action, Broadcast, CancelTimer, Emit, Send, SetTimer, Timer


class Outbox:
    """The actions of one node since its last input."""

    def __init__(self) -> None:
        self._actions: list[Action] = []

    def send(self, to: NodeId, message: Message) -> None:
        self._actions.append(Send(to, message))

    def broadcast(self, message: Message) -> None:
        self._actions.append(Broadcast(message))

    def set_timer(self, timer: Timer, at_us: int) -> None:
        self._actions.append(SetTimer(timer, at_us))

    def cancel_timer(self, timer: Timer) -> None:
        self._actions.append(CancelTimer(timer))

    def emit(self, event: AppEvent) -> None:
        self._actions.append(Emit(event))

    def drain_actions(self) -> list[Action]:
        """Removes and returns all actions, in order."""
        actions = self._actions
        if actions:
            self._actions = []
            return actions
        return []
