"""Loopback: delivers messages that a node sends to itself, without the network.

Entry point: `deliver_to_self`.
"""

from __future__ import annotations

from collections.abc import Callable

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message
from thyme.protocol.node import Action, Send
from thyme.protocol.outbox import Outbox


def deliver_to_self(
    outbox: Outbox, node_id: NodeId, deliver: Callable[[Message], None]
) -> list[Action]:
    """Delivers messages to the node itself; returns the remaining actions for the driver."""
    pending = outbox.drain_actions()
    if not pending:  # most inputs cause no action
        return pending
    actions: list[Action] = []
    for action in pending:  # grows meanwhile
        if isinstance(action, Send) and action.to == node_id:
            deliver(action.message)
            pending += outbox.drain_actions()
        else:
            actions.append(action)
    return actions
