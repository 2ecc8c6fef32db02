"""Link configuration: the settings of a link, its events and the datagrams it sends.

A module of its own, since mypyc cannot compile modules that define msgspec records.
Clauses: M25, D4, D10, B5.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message
from thyme.transport.versions import OWN_VERSIONS, VersionRange

Address = tuple[str, int]
SECOND_US = 1_000_000


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum number of datagrams and bytes: per second on average, and in one burst."""

    datagrams_per_second: float = 20_000.0
    datagrams_burst: float = 10_000.0
    bytes_per_second: float = 25e6
    bytes_burst: float = 12.5e6


class ReassemblyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of incomplete messages."""

    bytes_max: int = 16 * 2**20
    """Maximum of the bytes of all neighbours together; a message that is longer is accepted if it
    is the only one."""
    message_bytes_max: int = 256 * 2**20
    messages_max: int = 1_000
    """Maximum number of messages of one neighbour."""
    idle_us: int = 15 * SECOND_US


class LinkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a link."""

    hello_every_us: int = SECOND_US
    versions: VersionRange = OWN_VERSIONS
    """Packet versions that the node reads and writes."""
    reassembly: ReassemblyLimits = ReassemblyLimits()
    rate_limit: RateLimit = RateLimit()
    """Limit of the datagrams from one address."""
    admission_rate_limit: RateLimit = RateLimit(datagrams_per_second=50, datagrams_burst=200)
    """Limit of the identity proofs that are verified, of all addresses together; of the challenges
    to strangers, and of the responses to theirs."""


class SendDatagram(msgspec.Struct, frozen=True, gc=False):
    """Send a datagram to one address, or to all devices in range if `to` is None."""

    to: Address | None
    datagram: bytes


class MessageReceived(msgspec.Struct, frozen=True, gc=False):
    """A message from a neighbour was received."""

    sender: NodeId
    message: Message
    size: int = 0
    """Bytes of the message."""
    is_broadcast: bool = False


class MessageUndelivered(msgspec.Struct, frozen=True):
    """A message was not acknowledged by its receiver, or could not be sent."""

    to: NodeId
    message: Message


LinkEvent = MessageReceived | MessageUndelivered


class HostLink(Protocol):
    """The link of a host: a `Link`, or the links of a station."""

    @property
    def has_pending(self) -> bool:
        """Whether a message to a neighbour is not acknowledged yet."""
        ...

    def send(self, to: NodeId, message: Message, now_us: int) -> None:
        """Queues a message for a neighbour."""
        ...

    def broadcast(self, message: Message, now_us: int) -> None:
        """Queues a message for all nodes in range."""
        ...

    def receive_datagram(self, datagram: bytes, address: Address, now_us: int) -> bool:
        """Processes a received datagram; returns False if it was dropped and leaves nothing to
        drain."""
        ...

    def tick(self, now_us: int) -> None:
        """Does what is due at an instant."""
        ...

    def next_tick_us(self) -> int:
        """The time at which `tick` must be called next."""
        ...

    def drain_events(self) -> list[LinkEvent]:
        """Returns and clears the received and undelivered messages, in order."""
        ...

    def drain_datagrams(self) -> list[SendDatagram]:
        """Returns and clears the datagrams to send."""
        ...
