"""Messages in transit: the state of each message while the radio sends it, in fragments.

Entry point: `MessageInTransit`. A message longer than one frame is fragmented. The fragments are
sent one after the other; a node that has all of them has the message. `WirelessNetwork` does the
sending.
Clauses: S1, S8.
"""

from __future__ import annotations

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message
from thyme.sim.measurement.measurements import TypeCounts
from thyme.sim.radio.phy import PAYLOAD_BYTES_MAX


class MessageInTransit:
    """A message that is being sent, and its fragments so far."""

    __slots__ = (
        "bytes_left",
        "counts",
        "fault_losses",
        "fragment_bytes",
        "fragments_received",
        "fragments_sent",
        "lost_to_fault",
        "message",
        "received_all",
        "receiver_number",
        "sender",
        "sender_number",
        "serial",
        "size",
        "started_us",
        "to",
    )  # fmt: skip

    def __init__(
        self,
        serial: int,
        sender: NodeId,
        sender_number: int,
        to: NodeId | None,
        receiver_number: int,
        message: Message,
        size: int,
        counts: TypeCounts,
        started_us: int,
    ) -> None:
        self.serial = serial
        self.sender = sender
        self.sender_number = sender_number
        """The sender's number in the radio."""
        self.to = to
        self.receiver_number = receiver_number
        """The receiver's number in the radio, or `BROADCAST`."""
        self.message = message
        self.size = size
        self.counts = counts
        self.started_us = started_us
        self.bytes_left = size
        self.fragment_bytes = 0
        """Bytes of the last fragment sent."""
        self.fragments_sent = 0
        """The number of fragments sent; also the number of the last one."""
        self.fragments_received = 0
        self.received_all = -1
        """The nodes that have received every fragment so far, as a bit set."""
        self.lost_to_fault = False
        """Whether a fault kept the last fragment from its receiver."""
        self.fault_losses = 0
        """How often a fault kept the last fragment from its receiver."""

    def next_fragment(self) -> int:
        """Takes the next fragment; returns its number."""
        self.fragment_bytes = min(PAYLOAD_BYTES_MAX, self.bytes_left)
        self.bytes_left -= self.fragment_bytes
        self.fragments_sent += 1
        self.fault_losses = 0
        return self.fragments_sent
