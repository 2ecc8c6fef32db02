"""Repeated messages: a short way for messages that tell a node nothing new.

Entry point: `RepeatedMessages`, the base class of a layer that recognises them. Most of what a
simulated node receives are beacons that repeat the sender's last one. A driver offers a message
here before it delivers it as an input; the result is the same, with less work. This module is
compiled, so that such a call costs little.
"""

from __future__ import annotations

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message


class RepeatedMessages:
    """A layer of a node that recognises repeated messages."""

    def absorb(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Handles a message if it repeats an earlier one and causes no action; otherwise changes
        nothing and returns False."""
        return False
