"""Link configuration: the settings of a link, its events and the datagrams it sends.

A module of its own, since mypyc cannot compile modules that define msgspec records.
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
    """Maximum number of datagrams and bytes: per second on average, and in one burst."""

    per_second: float = 20_000.0
    burst: float = 10_000.0
    bytes_per_second: float = 25e6
    bytes_burst: float = 12.5e6


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the incomplete messages from one neighbour."""

    bytes_max: int = 256 * 2**20
    messages_max: int = 1_000
    idle_us: int = 30 * SECOND_US
    remembered_max: int = 4_096
    """Number of completed messages remembered, so that none is delivered twice."""
    word_every: int = 4
    """Send an ack for every n-th fragment, for any fragment out of order, and for the last one."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a send window: number of fragments in flight and retransmission timeouts."""

    window_first: int = 32
    window_min: int = 4
    window_max: int = 512
    """Number of fragments in flight; the minimum applies while the link is queueing."""
    queueing_us: int = 10 * MS_US
    """The link is queueing if a round trip takes this much longer than the shortest one; sending
    the initial window takes about this long at 30 Mbit/s."""
    wait_first_us: int = 100 * MS_US
    wait_min_us: int = 20 * MS_US
    wait_max_us: int = 1_000 * MS_US
    """Retransmission timeout, computed from measured round trips within these limits."""
    tries_max: int = 8
    skipped_max: int = 3
    """A fragment is lost once a fragment sent more than this many later was acknowledged."""
    waiting_max: int = 1_000
    """Maximum number of unacknowledged messages to one neighbour."""


class LinkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a link."""

    hello_every_us: int = SECOND_US
    silent_us_max: int = 5 * SECOND_US
    """A neighbour is removed after this time without a datagram from it."""
    neighbours_max: int = 1_000
    worlds_max: int = 1_000
    pace: Pace = Pace()
    bounds: Bounds = Bounds()
    rate: Rate = Rate()
    """Limit of the datagrams from one address."""
    introductions: Rate = Rate(per_second=20, burst=100)
    """Limit of the identity proofs from one address that are verified."""


class Transmit(msgspec.Struct, frozen=True):
    """Send a datagram to one address, or to all devices in range if `to` is None."""

    to: Address | None
    datagram: bytes


class Came(msgspec.Struct, frozen=True):
    """A message from a neighbour was received."""

    sender: NodeId
    message: Message


class GaveUp(msgspec.Struct, frozen=True):
    """A message was not acknowledged by its receiver, or could not be sent."""

    to: NodeId
    message: Message


Effect = Came | GaveUp
