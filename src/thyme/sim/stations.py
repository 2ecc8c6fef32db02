"""Stations: what each node's MAC has to keep, and the frames in its queue.

How stations take turns on the medium is `thyme.sim.mac`.
Clauses: S1, S4.
"""

from __future__ import annotations

from collections import deque

from thyme.sim.phy import OVERHEAD_BYTES

BROADCAST = -1


class Frame:
    """Something to be sent, and what became of it."""

    __slots__ = ("bytes", "queued_us", "station", "to", "token", "transmissions")

    def __init__(
        self, station: Station, to: int, payload_bytes: int, queued_us: int, token: object
    ) -> None:
        self.station = station
        """The MAC that has it in its queue."""
        self.to = to
        self.bytes = payload_bytes + OVERHEAD_BYTES
        self.queued_us = queued_us
        self.token = token
        """Whatever the layer above wants to find again."""
        self.transmissions = 0


class Station:
    """One node's MAC."""

    __slots__ = (
        "asks_at_us", "bit", "count_from_us", "failures", "number", "off", "queue", "sending",
        "slots", "turn", "window",
    )  # fmt: skip

    def __init__(self, number: int, window: int) -> None:
        self.number = number
        self.bit = 1 << number
        self.queue: deque[Frame] = deque()
        self.window = window
        self.failures = 0
        """How often the window has widened since it was at its narrowest."""
        self.slots = 0
        self.count_from_us: int | None = None
        """Since when the slots are counted down; None while the medium is busy."""
        self.asks_at_us: int | None = None
        """When the count ends and the frame is sent, if nothing happens before."""
        self.turn = 0
        """Tells the valid turn from those that something came before."""
        self.off = False
        """Whether the node was switched off meanwhile; then a new station has taken its place."""
        self.sending = False
        """From the start of a frame to its end, or to its acknowledgement's."""
