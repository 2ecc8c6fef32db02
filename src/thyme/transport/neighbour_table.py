"""Neighbour table: the nodes in range of a link, and who is accepted as one.

Entry point: `NeighbourTable`. A node becomes a neighbour with its first datagram; where nodes prove
their identity, with its first proven hello; in an open world the hello must also respond to a
challenge, since a recorded one proves nothing about now. A silent neighbour is removed, and its
pending messages fail. What neighbours send is up to `link`.
Clauses: M25, D4, B5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from thyme.model.errors import DecodeError
from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message
from thyme.transport.datagrams import (
    FRAGMENT_BYTES_MAX,
    Content,
    Envelope,
    Fragment,
    FragmentAck,
    Hello,
    IdentityProof,
)
from thyme.transport.link_config import SECOND_US, Address, LinkConfig, RateLimit
from thyme.transport.peer_shares import PeerShares
from thyme.transport.rate_limit import TokenBucket
from thyme.transport.reassembly import Reassembler
from thyme.transport.send_window import SendWindow

if TYPE_CHECKING:  # without keys, the link needs no cryptography at run time
    from thyme.transport.peer_auth import PeerAuthenticator

NEIGHBOUR_TIMEOUT_US: Final = 5 * SECOND_US
"""A neighbour is removed after this time without a datagram from it."""
_NEIGHBOURS_MAX: Final = 1_000
_NAMES_PER_ADDRESS_MAX: Final = 8
"""Maximum number of neighbours at one address: a device has one, and a few after restarts."""
_ROUTING_LIMIT: Final = RateLimit(datagrams_per_second=100, datagrams_burst=500)
"""Limit of the beacons and route updates of one neighbour: it sends about one per second, and those
of some minutes come at once when a device has slept."""
_ADDRESS_SILENT_US: Final = 2 * SECOND_US
"""A neighbour is looked for at another address after the old one was silent for so long."""


class NeighbourState:
    """State of the link to one node in range."""

    def __init__(
        self, address: Address, incarnation: bytes, config: LinkConfig, first_number: int = 0
    ) -> None:
        """`first_number` is that of the first packet to the neighbour."""
        self.address = address
        self.incarnation = incarnation
        self.started_us = 0
        self.last_seen_us = 0
        """When a datagram of this neighbour last came from its address."""
        self.version = config.versions.oldest
        """The packet version that was agreed with it."""
        self.clock_ahead_us: int | None = None
        """How far its clock is ahead of this node's; None before it sent its time."""
        self.send_window = SendWindow(first_number)
        self.reassembler = Reassembler(config.reassembly)
        self.routing = TokenBucket(_ROUTING_LIMIT, 0)
        """What it may still send about routes."""


class NeighbourTable:
    """The nodes in range of one link."""

    def __init__(
        self,
        config: LinkConfig,
        shares: PeerShares,
        authenticator: PeerAuthenticator | None,
        report_undelivered: Callable[[NodeId, Message], None],
        *,
        challenges: bool = False,
    ) -> None:
        """With an authenticator, only nodes with a valid identity proof are accepted, and with
        `challenges` only those that respond to a challenge (B5)."""
        self._challenges = challenges and authenticator is not None
        self._config = config
        self._shares = shares
        self._authenticator = authenticator
        self._report_undelivered = report_undelivered
        self._admissions: dict[str, TokenBucket] = {}
        self.incomplete_bytes = 0
        """The bytes of all messages that are not complete yet."""
        self._first_number = 0
        """The first packet to a new neighbour has this number, which none to a removed one has
        reached: such a neighbour may not have noticed, takes packets with earlier numbers for
        repeated ones, and acknowledges them without a look."""
        self.states: dict[NodeId, NeighbourState] = {}
        """The neighbours, oldest first."""
        self.has_copy = False
        """Whether another device runs with the identity of this node, and started later."""

    def check_introduced(self, sender: NodeId, incarnation: bytes) -> None:
        """Raises an error if a sender must prove its identity and has not done so."""
        if self._authenticator is not None:
            known = self.states.get(sender)
            if known is None or known.incarnation != incarnation:
                raise DecodeError("not introduced", "no identity proof yet; the next hello has one")

    def admit(self, envelope: Envelope, address: Address, now_us: int) -> NeighbourState:
        """Adds a new node, or a new incarnation of one."""
        sender, started_us = envelope.sender, 0
        known = self.states.get(sender)
        if self._authenticator is not None:
            started_us = self._authenticate(self._authenticator, envelope, known, address, now_us)
        if known is not None:
            self._remove(sender, known)
        elif len(self.states) >= _NEIGHBOURS_MAX:
            raise DecodeError("too many neighbours", f"{len(self.states)} is the maximum")
        if not self._shares.add_name(address, _NAMES_PER_ADDRESS_MAX):
            raise DecodeError("too many names", "many nodes at one address")
        neighbour = NeighbourState(address, envelope.incarnation, self._config, self._first_number)
        neighbour.started_us = started_us
        self.states[sender] = neighbour
        return neighbour

    def move(self, envelope: Envelope, address: Address, now_us: int) -> None:
        """Follows a neighbour to another address, unless it still sends from the old one: in an
        open world, others can send in its name."""
        neighbour = self.states[envelope.sender]
        if now_us - neighbour.last_seen_us < _ADDRESS_SILENT_US:
            raise DecodeError("two addresses", "the neighbour sends from another address")
        if self._challenges and self._authenticator is not None:
            self._authenticate(self._authenticator, envelope, None, address, now_us)
        self._shares.remove_name(neighbour.address)
        if not self._shares.add_name(address, _NAMES_PER_ADDRESS_MAX):
            raise DecodeError("too many names", "many nodes at one address")
        neighbour.address = address

    def make_challenge(self, envelope: Envelope, address: Address, now_us: int) -> bytes | None:
        """The challenge for a node that is no neighbour yet, or one at another address; None if its
        hello responds to one, or needs not."""
        own, content = self._authenticator, envelope.content
        if own is None or not self._challenges or _response(content):
            return None
        neighbour = self.states.get(envelope.sender)
        if neighbour is None or neighbour.incarnation != envelope.incarnation:
            proof = _identity_proof(content)
            if proof is None or (neighbour and proof.started_us <= neighbour.started_us):
                return None  # it will not be admitted
        elif neighbour.address == address or now_us - neighbour.last_seen_us < _ADDRESS_SILENT_US:
            return None
        if not self._may("challenge", now_us):
            raise DecodeError("too much", "rate limit of challenges exceeded")
        return own.make_challenge(envelope.sender, envelope.incarnation, now_us)

    def respond(self, challenge: bytes, now_us: int) -> bytes:
        """The response to a challenge; empty if there were too many."""
        if self._authenticator is None or not self._may("respond", now_us):
            return b""
        return self._authenticator.respond(challenge)

    def detect_copy(self, envelope: Envelope, now_us: int) -> None:
        """Notices a later incarnation of this node, which another device proves: somebody started
        a copy of its data directory."""
        proof = _identity_proof(envelope.content)
        own = self._authenticator
        if self.has_copy or own is None or proof is None:
            return
        if proof.started_us > own.own_proof.started_us and self._may("verify", now_us):
            self.has_copy = own.verify(envelope.sender, envelope.incarnation, proof)

    def store_fragment(
        self, neighbour: NeighbourState, fragment: Fragment, now_us: int
    ) -> tuple[bytes | None, FragmentAck | None]:
        """The message that a fragment completes, and the acknowledgement to send."""
        reassembler = neighbour.reassembler
        before = reassembler.stored_bytes
        result = reassembler.on_fragment(fragment, now_us)
        self.incomplete_bytes += reassembler.stored_bytes - before
        return result

    def free_reassembly(self, now_us: int) -> bool:
        """If incomplete messages take too much memory, drops those of the neighbour that stores
        most for what it completed; those of the only one stay, since its message may be as long as
        that."""
        if self.incomplete_bytes <= self._config.reassembly.bytes_max:
            return False
        storing = [each for each in self.states.values() if each.reassembler.stored_bytes]
        if len(storing) < 2:
            return False
        worst = max(
            storing,
            key=lambda each: each.reassembler.stored_bytes / (1 + each.reassembler.completed_count),
        )
        self.incomplete_bytes -= worst.reassembler.stored_bytes
        fragments = worst.reassembler.stored_bytes // FRAGMENT_BYTES_MAX
        worst.reassembler.drop_all()
        self._shares.charge(worst.address, "reassembly full", now_us, fragments)
        return True

    def report_failures(self, node_id: NodeId, neighbour: NeighbourState) -> None:
        """Reports the messages to a neighbour that are given up."""
        for token in neighbour.send_window.drain_failures():
            if token is not None:
                assert isinstance(token, Message)
                self._report_undelivered(node_id, token)

    def expire(self, now_us: int) -> None:
        """Removes silent neighbours, and incomplete messages that do not go on."""
        for node_id, neighbour in list(self.states.items()):
            self.incomplete_bytes -= neighbour.reassembler.stored_bytes
            neighbour.reassembler.drop_idle(now_us)
            self.incomplete_bytes += neighbour.reassembler.stored_bytes
            if neighbour.last_seen_us + NEIGHBOUR_TIMEOUT_US < now_us:
                self._remove(node_id, neighbour)

    def _remove(self, node_id: NodeId, neighbour: NeighbourState) -> None:
        """Removes a neighbour that is gone or has restarted; its pending messages fail."""
        del self.states[node_id]
        self._shares.remove_name(neighbour.address)
        self.incomplete_bytes -= neighbour.reassembler.stored_bytes
        self._first_number = max(self._first_number, neighbour.send_window.next_number)
        neighbour.send_window.fail_all()
        self.report_failures(node_id, neighbour)

    def _authenticate(
        self,
        authenticator: PeerAuthenticator,
        envelope: Envelope,
        known: NeighbourState | None,
        address: Address,
        now_us: int,
    ) -> int:
        """Verifies the identity proof of a sender; returns the start time of its incarnation."""
        proof = _identity_proof(envelope.content)
        if proof is None:
            raise DecodeError("not introduced", "no identity proof yet; the next hello has one")
        if known is not None and proof.started_us <= known.started_us:
            raise DecodeError("old life", "a later incarnation is known")
        if known is None and self._has_too_many_names(address):
            raise DecodeError("too many names", "many nodes at one address")
        if not self._may("verify", now_us):
            raise DecodeError("too much", "rate limit of identity proofs exceeded")
        sender, incarnation = envelope.sender, envelope.incarnation
        if self._challenges:
            response = _response(envelope.content)
            valid = authenticator.verify_response(sender, incarnation, proof, response, now_us)
        else:
            valid = authenticator.verify(sender, incarnation, proof)
        if not valid:
            raise DecodeError("forged", "wrong key, invalid signature, or no recent one")
        return proof.started_us

    def _may(self, action: str, now_us: int) -> bool:
        """Whether one more of some costly action is allowed, for all strangers together."""
        bucket = self._admissions.get(action)
        if bucket is None:
            bucket = TokenBucket(self._config.admission_rate_limit, now_us)
            self._admissions[action] = bucket
        return bucket.consume(0, now_us)

    def _has_too_many_names(self, address: Address) -> bool:
        account = self._shares.find(address)
        return account is not None and account.names >= _NAMES_PER_ADDRESS_MAX


def _identity_proof(content: Content) -> IdentityProof | None:
    return content.identity_proof if isinstance(content, Hello) else None


def _response(content: Content) -> bytes:
    challenge = content.challenge if isinstance(content, Hello) else None
    return b"" if challenge is None else challenge.response
