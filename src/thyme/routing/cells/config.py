"""The settings of routing by cells, with defaults that work."""

from __future__ import annotations

import msgspec

from thyme.model.frames import SECOND_US


class CellsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How often nodes speak, and how long they remember and try."""

    world: int | None = None
    """Which world this is, where several share a place: others are not heard (D26)."""
    beacon_us: int = SECOND_US
    """The mean time between two beacons (D4)."""
    beacon_jitter: float = 0.5
    """How far a single one may be off, as a part of the mean: neighbours must not keep in step."""
    beacon_first_us_max: int = SECOND_US // 10
    """A node that comes up says so within this time."""
    neighbour_us: int = 4 * SECOND_US + SECOND_US // 2
    """A neighbour that was not heard for so long is gone."""
    neighbours_max: int = 1_000
    failures_max: int = 3
    """So is one that did not acknowledge so many messages, until it is heard again."""
    grudge_us: int = 4 * SECOND_US
    """For how long a message that a neighbour did not acknowledge counts against it. A question is
    asked again within this time; if a link carries beacons and nothing else, it must find another
    way before it is given up."""
    payload_bytes_max: int = 128
    """How much the layer above may put into a beacon."""
    hops_max: int = 255
    """A message that has gone this far is dropped. Enough for open places; labyrinths need more."""
    reroute: bool = True
    """Whether a message that a neighbour did not acknowledge is given to another one.

    The document leaves recovery to the layers above (F4.3), but routes as GPSR does, and that
    gives messages which the MAC could not place to another neighbour. Nobody is sent the same
    message twice. Without this, it is dropped (D10).
    """
    loop_always: bool = True
    """Whether a message for an empty cell makes the whole loop even where the proxy knows, without
    it, that nobody can be closer. The proxy is the same; the document's cost is with it (D6)."""
    spread_questions: bool = True
    """Whether a question to a cell is told to all of its nodes (D7), though only the first that
    gets it answers."""
    spread_known: bool = True
    """Whether nodes of the own cell are told what the one that got it knows already (D7), such as
    what is asked again because the answer was slow."""
    spread_tries_max: int = 1
    """How often nodes of the own cell are told what concerns all, until they say that they heard.
    Once is a broadcast that nobody answers (D7); with more, a message for the cell is answered
    when all have heard it (B2), or after some tries."""
    spread_wait_us: int = SECOND_US // 20
    """How long to wait for them at first; twice as long each time."""
    spread_hold_tries: int = 2
    """After how many tries an insert is answered, though some may not have heard of it: where the
    air is full, who waits for an answer asks again, and makes it fuller. Whoever gets the insert
    must know all subscriptions: these are answered when all have heard them."""
    spreads_max: int = 1_000
    memory_us: int = 60 * SECOND_US
    """How long a node remembers what it was told, so as not to be told twice."""
    memory_max: int = 10_000

    def __post_init__(self) -> None:
        if not 0 <= self.beacon_jitter < 1:
            raise ValueError("beacons come earlier or later by a part of their time")
        if not self.beacon_us * (1 + self.beacon_jitter) < self.neighbour_us:
            raise ValueError("neighbours must not expire between two beacons")
