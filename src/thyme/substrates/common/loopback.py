"""Loopback: delivers messages that a node sends to itself, without the network.

Entry point: `deliver_to_self`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message
from thyme.protocol.node import Action, Send
from thyme.protocol.outbox import Outbox


def deliver_to_self(
    outbox: Outbox, node_id: NodeId, deliver: Callable[[Message], None]
) -> list[Action]:
    """Delivers messages to the node itself; returns the remaining actions for the driver."""
    drained = outbox.drain_actions()
    if not drained:  # most inputs cause no action
        return drained
    actions: list[Action] = []
    pending = deque(drained)
    while pending:
        action = pending.popleft()
        if isinstance(action, Send) and action.to == node_id:
            deliver(action.message)
            pending.extend(outbox.drain_actions())
        else:
            actions.append(action)
    return actions
