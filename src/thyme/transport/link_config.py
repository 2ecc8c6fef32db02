"""Link configuration: the settings of a link, its events and the datagrams it sends.

A module of its own, since mypyc cannot compile modules that define msgspec records.
Clauses: M25, D4, D10, B5.
"""

from __future__ import annotations

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message

Address = tuple[str, int]
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


class LinkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a link."""

    hello_every_us: int = SECOND_US
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
