"""Station: the MAC state of each node, and the frames in its queue.

Entry points: `Station` and `QueuedFrame`. `mac` has the rules for access to the medium.
Clauses: S1, S4.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from thyme.sim.radio.phy import OVERHEAD_BYTES

BROADCAST = -1


class Frame(Protocol):
    """A frame, as the layer above the MAC sees it."""

    @property
    def to(self) -> int:
        """The destination, or `BROADCAST`."""
        ...

    @property
    def token(self) -> object:
        """The value that was given with the frame."""
        ...

    @property
    def queued_us(self) -> int:
        """The instant of the send."""
        ...

    @property
    def transmissions(self) -> int:
        """The number of transmissions so far."""
        ...


class QueuedFrame:
    """A frame to be sent, with the number of its transmissions so far."""

    __slots__ = ("bytes", "queued_us", "station", "to", "token", "transmissions")

    def __init__(
        self, station: Station, to: int, payload_bytes: int, queued_us: int, token: object
    ) -> None:
        self.station = station
        """The sending station."""
        self.to = to
        self.bytes = payload_bytes + OVERHEAD_BYTES
        self.queued_us = queued_us
        self.token = token
        """A value of the layer above, returned with the frame."""
        self.transmissions = 0


class Station:
    """The MAC state of one node."""

    __slots__ = (
        "backoff_slots",
        "bit",
        "countdown_from_us",
        "cw",
        "failures",
        "generation",
        "number",
        "off",
        "queue",
        "sending",
        "transmit_at_us",
    )  # fmt: skip

    def __init__(self, number: int, cw: int) -> None:
        self.number = number
        self.bit = 1 << number
        self.queue: deque[QueuedFrame] = deque()
        self.cw = cw
        self.failures = 0
        """How often the contention window has grown since it was at its minimum."""
        self.backoff_slots = 0
        """The back-off slots left."""
        self.countdown_from_us: int | None = None
        """The start of the back-off countdown; None while the medium is busy."""
        self.transmit_at_us: int | None = None
        """The end of the countdown, when the frame is sent unless the medium gets busy."""
        self.generation = 0
        """The number of the valid transmit event; events with another number are stale."""
        self.off = False
        """Whether the radio was switched off; then a new `Station` has replaced this one."""
        self.sending = False
        """True from the start of a frame to its end, or to the end of its acknowledgement."""
