"""Loopback: what a node says to itself is delivered on the spot and never leaves it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from thyme.model.ids import NodeId
from thyme.protocol.messages import Message
from thyme.protocol.node import Action, Send
from thyme.protocol.outbox import Outbox


def looped_back(
    outbox: Outbox, node_id: NodeId, deliver: Callable[[Message], None]
) -> list[Action]:
    """The actions for the driver, after those messages have been delivered."""
    taken = outbox.take()
    if not taken:  # most inputs ask for nothing
        return taken
    actions: list[Action] = []
    waiting = deque(taken)
    while waiting:
        action = waiting.popleft()
        if isinstance(action, Send) and action.to == node_id:
            deliver(action.message)
            waiting.extend(outbox.take())
        else:
            actions.append(action)
    return actions
