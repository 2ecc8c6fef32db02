"""Messages in transit: the state of each message while the radio sends it, in fragments.

Entry point: `MessageInTransit`. A message longer than one frame is fragmented. The fragments are
sent one after the other; a node that has all of them has the message. `WirelessNetwork` does the
sending.
Clauses: S1, S8.
"""

from __future__ import annotations

from thyme.model.ids import NodeId
from thyme.protocol.messages import Message
from thyme.sim.measure import Counts

PAYLOAD_BYTES_MAX = 2_268
"""The payload of one frame: the MTU of 2,296 bytes minus the headers of IPv4 and UDP."""


class Parcel:
    """A message that is being sent, and its fragments so far."""

    __slots__ = (
        "arrived", "begun_us", "bytes_left", "counts", "everywhere", "length", "message", "number",
        "sender", "sent", "serial", "size", "source", "taken", "to", "tries",
    )  # fmt: skip

    def __init__(
        self,
        serial: int,
        sender: NodeId,
        source: int,
        to: NodeId | None,
        number: int,
        message: Message,
        size: int,
        counts: Counts,
        begun_us: int,
    ) -> None:
        self.serial = serial
        self.sender = sender
        self.source = source
        """The sender's number in the radio."""
        self.to = to
        self.number = number
        """The receiver's number in the radio, or `BROADCAST`."""
        self.message = message
        self.size = size
        self.counts = counts
        self.begun_us = begun_us
        self.bytes_left = size
        self.length = 0
        """Bytes of the last fragment sent."""
        self.sent = 0
        """The number of fragments sent; also the number of the last one."""
        self.arrived = 0
        self.everywhere = -1
        """The nodes that have received every fragment so far, as a bit set."""
        self.taken = False
        """Whether a fault kept the last fragment from its receiver."""
        self.tries = 0
        """How often a fault kept the last fragment from its receiver."""

    def cut(self) -> int:
        """Takes the next fragment; returns its number."""
        self.length = min(PAYLOAD_BYTES_MAX, self.bytes_left)
        self.bytes_left -= self.length
        self.sent += 1
        self.tries = 0
        return self.sent
