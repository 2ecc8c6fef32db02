"""Link configuration: the settings of a link, its events and the datagrams it sends.

A module of its own, since mypyc cannot compile modules that define msgspec records.
Clauses: M25, D4, D10, B5.
"""

from __future__ import annotations

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message

Address = tuple[str, int]
MS_US = 1_000
SECOND_US = 1_000_000


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum number of datagrams and bytes: per second on average, and in one burst."""

    datagrams_per_second: float = 20_000.0
    datagrams_burst: float = 10_000.0
    bytes_per_second: float = 25e6
    bytes_burst: float = 12.5e6


class ReassemblyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the incomplete messages from one neighbour."""

    bytes_max: int = 256 * 2**20
    messages_max: int = 1_000
    idle_us: int = 30 * SECOND_US
    completed_max: int = 4_096
    """Number of completed messages remembered, so that none is delivered twice."""
    ack_every: int = 4
    """Send an ack for every n-th fragment, for any fragment out of order, and for the last one."""


class SendWindowConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a send window: number of fragments in flight and retransmission timeouts."""

    window_initial: int = 32
    window_min: int = 4
    window_max: int = 512
    """Number of fragments in flight; the minimum applies while the link is queueing."""
    queueing_delay_us: int = 10 * MS_US
    """The link is queueing if a round trip takes this much longer than the shortest one; sending
    the initial window takes about this long at 30 Mbit/s."""
    rto_us_initial: int = 100 * MS_US
    rto_us_min: int = 20 * MS_US
    rto_us_max: int = 1_000 * MS_US
    """Retransmission timeout, computed from measured round trips within these limits."""
    tries_max: int = 8
    reorder_threshold: int = 3
    """A fragment is lost once a fragment sent more than this many later was acknowledged."""
    messages_max: int = 1_000
    """Maximum number of unacknowledged messages to one neighbour."""


class LinkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a link."""

    hello_every_us: int = SECOND_US
    neighbour_timeout_us: int = 5 * SECOND_US
    """A neighbour is removed after this time without a datagram from it."""
    neighbours_max: int = 1_000
    worlds_max: int = 1_000
    send_window: SendWindowConfig = SendWindowConfig()
    reassembly: ReassemblyLimits = ReassemblyLimits()
    rate_limit: RateLimit = RateLimit()
    """Limit of the datagrams from one address."""
    proof_rate_limit: RateLimit = RateLimit(datagrams_per_second=20, datagrams_burst=100)
    """Limit of the identity proofs from one address that are verified."""


class SendDatagram(msgspec.Struct, frozen=True):
    """Send a datagram to one address, or to all devices in range if `to` is None."""

    to: Address | None
    datagram: bytes


class MessageReceived(msgspec.Struct, frozen=True):
    """A message from a neighbour was received."""

    sender: NodeId
    message: Message


class MessageUndelivered(msgspec.Struct, frozen=True):
    """A message was not acknowledged by its receiver, or could not be sent."""

    to: NodeId
    message: Message


LinkEvent = MessageReceived | MessageUndelivered
