"""Parcels: messages on their way through the radio, in one part or several.

A message longer than a frame may be is cut; the parts go one after the other, and whoever has all
of them has the message.
Clauses: S1, S8.
"""

from __future__ import annotations

from thyme.model.ids import NodeId
from thyme.protocol.messages import Message
from thyme.sim.measure import Counts

PAYLOAD_BYTES_MAX = 2_268
"""What fits into one frame: the network's unit of 2,296 bytes less its own headers."""


class Parcel:
    """A message on its way."""

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
        """The radio's number of the sender."""
        self.to = to
        self.number = number
        """The radio's number of the receiver, or `BROADCAST`."""
        self.message = message
        self.size = size
        self.counts = counts
        self.begun_us = begun_us
        self.bytes_left = size
        self.length = 0
        """Of the part that was sent last."""
        self.sent = 0
        """How many parts were sent; the last one has this number."""
        self.arrived = 0
        self.everywhere = -1
        """The nodes that have every part so far."""
        self.taken = False
        """Whether a fault kept that part from its receiver."""
        self.tries = 0
        """How often a fault has done so."""

    def cut(self) -> int:
        """Cuts the next part off; returns its number."""
        self.length = min(PAYLOAD_BYTES_MAX, self.bytes_left)
        self.bytes_left -= self.length
        self.sent += 1
        self.tries = 0
        return self.sent
