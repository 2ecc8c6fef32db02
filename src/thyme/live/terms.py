"""Terms: the settings of a link, and what it tells its host.

A room of its own, since rooms that are compiled hold no records.
Clauses: M25, D4, D10, B5.
"""

from __future__ import annotations

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages import Message

Address = tuple[str, int]
MS_US = 1_000
SECOND_US = 1_000_000


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """So many datagrams and bytes in the long run, and in one burst."""

    per_second: float = 20_000.0
    burst: float = 10_000.0
    bytes_per_second: float = 25e6
    bytes_burst: float = 12.5e6


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one neighbour's is kept while it is not complete."""

    bytes_max: int = 256 * 2**20
    messages_max: int = 1_000
    idle_us: int = 30 * SECOND_US
    remembered_max: int = 4_096
    """How many complete messages are remembered, so that none comes twice."""
    word_every: int = 4
    """Word is given of every so manieth part, of what comes out of order, and of the last."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast parts are sent, and how long word of them is awaited."""

    window_first: int = 32
    window_min: int = 4
    window_max: int = 512
    """How many parts may be under way; the least where the link is crowded."""
    queueing_us: int = 10 * MS_US
    """A link is crowded when a round trip takes so much longer than the shortest: the first window
    of parts takes about this long at 30 Mbit/s."""
    wait_first_us: int = 100 * MS_US
    wait_min_us: int = 20 * MS_US
    wait_max_us: int = 1_000 * MS_US
    """How long until a part is sent again; the round trips seen tell, within these."""
    tries_max: int = 8
    skipped_max: int = 3
    """A part is lost when so many that were sent later have come."""
    waiting_max: int = 1_000
    """How many messages may wait for their turn."""


class LinkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a link."""

    hello_every_us: int = SECOND_US
    silent_us_max: int = 5 * SECOND_US
    """A neighbour that is silent for longer is out of reach."""
    neighbours_max: int = 1_000
    worlds_max: int = 1_000
    pace: Pace = Pace()
    bounds: Bounds = Bounds()
    rate: Rate = Rate()
    """What one neighbour may send."""
    introductions: Rate = Rate(per_second=20, burst=100)
    """How many introductions from one address are looked at."""


class Transmit(msgspec.Struct, frozen=True):
    """A datagram is to be sent, to an address or to everybody in reach."""

    to: Address | None
    datagram: bytes


class Came(msgspec.Struct, frozen=True):
    """A message came from a neighbour."""

    sender: NodeId
    message: Message


class GaveUp(msgspec.Struct, frozen=True):
    """A message did not reach a neighbour."""

    to: NodeId
    message: Message


Effect = Came | GaveUp
