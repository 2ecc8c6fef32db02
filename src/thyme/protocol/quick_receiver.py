"""Quick receiver: a short way for received messages that cause no action.

Entry point: `QuickReceiver`, the base class of a layer that recognises them. Most of what a
simulated node receives are beacons that repeat the sender's last one, and broadcasts inside other
cells. A driver offers a message here before it delivers it as an input; the result is the same,
with less work. This module is compiled, so that such a call costs little.
"""

from __future__ import annotations

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message


class QuickReceiver:
    """A layer of a node that recognises messages which cause no action."""

    def receive_quickly(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Handles a message if it surely causes no action; otherwise changes nothing and returns
        False."""
        return False
