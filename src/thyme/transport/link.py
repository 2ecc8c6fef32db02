"""Link: sends and receives messages over one hop, on datagrams that may be lost.

Unicast messages are retransmitted until they are acknowledged or fail, as in a radio's MAC layer;
broadcast messages are sent once. A neighbour is a node from which datagrams arrive. Pure: the host
passes in datagrams and the time, and drains the link's events and datagrams.
Entry point: `Link`. Fragments are up to `send_window` and `reassembly`, encryption to `encryption`.
Clauses: M21, M25, M36, D4, D10.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from thyme.model.errors import DecodeError
from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo
from thyme.protocol.messages.common import Message
from thyme.transport.datagrams import (
    ANONYMOUS,
    ENCRYPTED_MAGIC,
    FRAGMENT_BYTES_MAX,
    INCARNATION_BYTES,
    BroadcastBody,
    Bundle,
    ClockReading,
    Content,
    Envelope,
    Fragment,
    FragmentAck,
    Hello,
    IdentityProof,
    bundle,
    decode,
    digest_world,
    encode,
    read_header,
    read_newer_sender,
)
from thyme.transport.link_config import (
    SECOND_US,
    Address,
    LinkConfig,
    LinkEvent,
    MessageReceived,
    MessageUndelivered,
    SendDatagram,
)
from thyme.transport.peer_shares import PeerShares
from thyme.transport.rate_limit import TokenBucket
from thyme.transport.reassembly import Reassembler
from thyme.transport.send_window import SendWindow
from thyme.transport.versions import UnknownVersion, VersionRange, agree_version
from thyme.wire import codec

if TYPE_CHECKING:  # without keys and secrets, the link needs no cryptography at run time
    from thyme.transport.encryption import DatagramCipher
    from thyme.transport.peer_auth import PeerAuthenticator

_NEIGHBOUR_TIMEOUT_US: Final = 5 * SECOND_US
"""A neighbour is removed after this time without a datagram from it."""
_NEIGHBOURS_MAX: Final = 1_000
_NAMES_PER_ADDRESS_MAX: Final = 8
"""Maximum number of neighbours at one address: a device has one, and a few after restarts."""
_ADDRESS_SILENT_US: Final = 2 * SECOND_US
"""A neighbour is looked for at another address after the old one was silent for so long."""
_WORLDS_MAX: Final = 1_000
"""Maximum number of open worlds, and of closed worlds, that are remembered from hellos."""


class NeighbourState:
    """State of the link to one node in range."""

    def __init__(self, address: Address, incarnation: bytes, config: LinkConfig) -> None:
        self.address = address
        self.incarnation = incarnation
        self.started_us = 0
        self.last_seen_us = 0
        """When a datagram of this neighbour last came from its address."""
        self.version = config.versions.oldest
        """The packet version that was agreed with it."""
        self.clock_ahead_us: int | None = None
        """How far its clock is ahead of this node's; None before it sent its time."""
        self.send_window = SendWindow()
        self.reassembler = Reassembler(config.reassembly)


class Link:
    """Exchanges messages between one node and its neighbours in one world."""

    def __init__(
        self,
        node_id: NodeId,
        world: WorldInfo,
        incarnation: bytes,
        config: LinkConfig,
        *,
        cipher: DatagramCipher | None = None,
        authenticator: PeerAuthenticator | None = None,
    ) -> None:
        """`incarnation` is a new random id for each start of the node. A closed world needs a
        cipher; with an authenticator, only neighbours with a valid identity proof are accepted
        (B5)."""
        self._node_id = node_id
        self._cipher = cipher
        self._authenticator = authenticator
        self._world = world
        self._world_digest = digest_world(world)
        self._incarnation = incarnation
        self._config = config
        self._neighbours: dict[NodeId, NeighbourState] = {}
        self.shares = PeerShares(config.rate_limit)
        self._admissions: TokenBucket | None = None
        self.full_senders: set[NodeId] = set()
        """Senders with too many messages that the node has not handled; owned by the host."""
        self._reassembly_bytes = 0
        self._events: list[LinkEvent] = []
        self._ready_datagrams: list[SendDatagram] = []
        self._unsent_contents: dict[Address | None, list[Content]] = {}
        self._next_hello_us = 0
        self.worlds: dict[str, WorldInfo] = {}
        """Open worlds from received hellos, by world id."""
        self.closed_worlds: dict[str, WorldInfo] = {}
        """Closed worlds from received hellos, by world id; only their names are known."""
        self.received_hellos: dict[NodeId, tuple[WorldInfo, int]] = {}
        """Nodes of any open world in range: the world of the last hello, and its time (B7)."""
        self.unknown_versions: dict[NodeId, UnknownVersion] = {}
        """Nodes of this world in range whose versions this node does not read."""
        self.has_copy = False
        """Whether another device runs with the identity of this node, and started later."""
        self.dropped: Counter[str] = Counter()
        """Number of dropped datagrams and messages, by reason."""

    @property
    def neighbours(self) -> list[NodeId]:
        """The nodes in range, oldest neighbour first."""
        return list(self._neighbours)

    @property
    def neighbour_count(self) -> int:
        """Number of nodes in range."""
        return len(self._neighbours)

    @property
    def versions(self) -> VersionRange:
        """The packet versions that this node reads and writes."""
        return self._config.versions

    @property
    def decryption_warning(self) -> str | None:
        """Advice for the user if no datagram of this world can be decrypted (B5)."""
        return None if self._cipher is None else self._cipher.decryption_warning

    def describe_neighbours(self) -> list[tuple[NodeId, NeighbourState]]:
        """Node id and state of each neighbour."""
        return [(name, neighbour) for name, neighbour in self._neighbours.items()]

    @property
    def has_pending(self) -> bool:
        """Whether a message to a neighbour is not acknowledged yet."""
        return any(neighbour.send_window.has_pending for neighbour in self._neighbours.values())

    def drain_events(self) -> list[LinkEvent]:
        """Returns and clears the received and undelivered messages, in order."""
        events, self._events = self._events, []
        return events

    def drain_datagrams(self) -> list[SendDatagram]:
        """Returns and clears the datagrams to send; contents queued together share datagrams."""
        ready, self._ready_datagrams = self._ready_datagrams, []
        unsent, self._unsent_contents = self._unsent_contents, {}
        for to, contents in unsent.items():
            ready += [
                SendDatagram(to, self._make_datagram(content)) for content in bundle(contents)
            ]
        return ready

    def send(self, to: NodeId, message: Message, now_us: int) -> None:
        """Queues a message for a neighbour."""
        neighbour = self._neighbours.get(to)
        if neighbour is None or not neighbour.send_window.enqueue(
            codec.encode(message, neighbour.version), message
        ):
            self._events.append(MessageUndelivered(to, message))
        else:
            self._transmit_due(to, neighbour, now_us)

    def broadcast(self, message: Message, now_us: int) -> None:
        """Queues a message for all nodes in range; a long one goes to each neighbour by unicast."""
        body = codec.encode(message, self._broadcast_version)
        if len(body) <= FRAGMENT_BYTES_MAX:
            self._queue_content(None, BroadcastBody(body))
            return
        for node_id, neighbour in list(self._neighbours.items()):
            if neighbour.send_window.enqueue(body, None):
                self._transmit_due(node_id, neighbour, now_us)
            else:
                self.dropped["no room"] += 1

    @property
    def _broadcast_version(self) -> int:
        """The newest version that all neighbours read."""
        versions = [neighbour.version for neighbour in self._neighbours.values()]
        return min(versions, default=self._config.versions.newest)

    def receive_datagram(self, datagram: bytes, address: Address, now_us: int) -> None:
        """Processes a received datagram."""
        if not self.shares.admit(address, len(datagram), now_us):
            self.dropped["too much"] += 1
            return
        try:
            self._receive(datagram, address, now_us)
        except DecodeError as error:
            self._drop(address, error.reason, now_us)
            if error.reason == "version":
                self._record_newer(datagram, address, now_us)

    def charge(self, sender: NodeId, reason: str, now_us: int, count: int) -> None:
        """Counts something useless that a neighbour sent, such as records with false proofs."""
        neighbour = self._neighbours.get(sender)
        if neighbour is not None:
            self.shares.charge(neighbour.address, reason, now_us, count)

    def _drop(self, address: Address, reason: str, now_us: int) -> None:
        self.dropped[reason] += 1
        self.shares.charge(address, reason, now_us)

    def _record_newer(self, datagram: bytes, address: Address, now_us: int) -> None:
        """Remembers the sender of a datagram of a newer version, if it is of this world."""
        header = read_newer_sender(datagram)
        if header is not None and header[0] == self._world_digest:
            self._record_unknown(header[1], UnknownVersion(address, None, now_us))

    def _record_unknown(self, sender: NodeId, unknown: UnknownVersion) -> None:
        if sender in self.unknown_versions or len(self.unknown_versions) < _NEIGHBOURS_MAX:
            self.unknown_versions[sender] = unknown

    def tick(self, now_us: int) -> None:
        """Sends the periodic hello, retransmits, and removes silent neighbours."""
        if now_us >= self._next_hello_us:
            self._next_hello_us = now_us + self._config.hello_every_us
            self._send_hello(None, now_us)
            self._expire(now_us)
        for node_id, neighbour in list(self._neighbours.items()):
            self._transmit_due(node_id, neighbour, now_us)

    def next_tick_us(self) -> int:
        """The time at which `tick` must be called next."""
        due_times_us = [
            neighbour.send_window.next_due_us() for neighbour in self._neighbours.values()
        ]
        return min([self._next_hello_us, *(at_us for at_us in due_times_us if at_us is not None)])

    def _receive(self, datagram: bytes, address: Address, now_us: int) -> None:
        """Decrypts a datagram, if it is encrypted, and dispatches it."""
        if not datagram.startswith(ENCRYPTED_MAGIC):
            self._receive_plain(datagram, address, now_us, encrypted=False)
        elif self._cipher is None:
            raise DecodeError("another world", "encrypted datagram of a closed world")
        else:
            decrypted = self._cipher.decrypt(datagram)
            if decrypted.reply is not None:
                self._ready_datagrams.append(SendDatagram(address, decrypted.reply))
            for plain in decrypted.datagrams:
                self._receive_plain(plain, address, now_us, encrypted=True)

    def _receive_plain(
        self, datagram: bytes, address: Address, now_us: int, *, encrypted: bool
    ) -> None:
        """Dispatches a datagram. What only a neighbour may send is not decoded for others."""
        world_digest, incarnation, sender, is_hello = read_header(datagram)
        if not is_hello:
            if world_digest != self._world_digest:
                raise DecodeError("another world", "world digest differs")
            known = self._neighbours.get(sender)
            is_introduced = known is not None and known.incarnation == incarnation
            if not is_introduced and self._authenticator is not None and sender != self._node_id:
                raise DecodeError("not introduced", "no identity proof yet; the next hello has one")
        self._dispatch(decode(datagram), address, now_us, encrypted=encrypted)

    def _dispatch(
        self, envelope: Envelope, address: Address, now_us: int, *, encrypted: bool
    ) -> None:
        sender, content = envelope.sender, envelope.content
        if sender == self._node_id:
            if envelope.incarnation != self._incarnation:
                self._detect_copy(envelope, now_us)
                raise DecodeError("our name", "another node uses our node id")
            return
        ours = envelope.world_digest == self._world_digest
        if isinstance(content, Hello) and (
            sender in self.received_hellos or len(self.received_hellos) < _NEIGHBOURS_MAX
        ):
            self.received_hellos[sender] = content.world, now_us
        if isinstance(content, Hello) and (content.closed or not ours):
            self._record_world(content)
            if content.closed:
                return
        if not ours:
            raise DecodeError("another world", "world digest differs")
        if encrypted != (self._cipher is not None):
            raise DecodeError("not sealed", "a closed world accepts only encrypted datagrams")
        version = 0
        if isinstance(content, Hello):
            version = self._agree_version(sender, content, address, now_us)
        neighbour = self._neighbours.get(sender)
        if neighbour is None or neighbour.incarnation != envelope.incarnation:
            if version == 0 and sender in self.unknown_versions:
                raise DecodeError("other version", "no version was agreed with the node")
            neighbour = self._add_neighbour(envelope, neighbour, address, now_us)
        if neighbour.address != address:
            self._move_neighbour(neighbour, address, now_us)
        neighbour.last_seen_us = now_us
        neighbour.version = version or neighbour.version
        if not isinstance(content, Bundle):
            self._handle_content(sender, neighbour, content, now_us)
            return
        for item in content.items:
            if not self.shares.consume(address, now_us):
                raise DecodeError("too much", "rate limit exceeded within a bundle")
            self._handle_content(sender, neighbour, item, now_us)

    def _detect_copy(self, envelope: Envelope, now_us: int) -> None:
        """Notices a later incarnation of this node, which another device proves: somebody started
        a copy of its data directory."""
        proof = _identity_proof(envelope.content)
        own = self._authenticator
        if self.has_copy or own is None or proof is None:
            return
        if proof.started_us > own.own_proof.started_us and self._may_verify(now_us):
            self.has_copy = own.verify(envelope.sender, envelope.incarnation, proof)

    def _may_verify(self, now_us: int) -> bool:
        if self._admissions is None:
            self._admissions = TokenBucket(self._config.admission_rate_limit, now_us)
        return self._admissions.consume(0, now_us)

    def _move_neighbour(self, neighbour: NeighbourState, address: Address, now_us: int) -> None:
        """Follows a neighbour to another address, unless it still sends from the old one: in an
        open world, others can send in its name."""
        if now_us - neighbour.last_seen_us < _ADDRESS_SILENT_US:
            raise DecodeError("two addresses", "the neighbour sends from another address")
        self.shares.remove_name(neighbour.address)
        if not self.shares.add_name(address, _NAMES_PER_ADDRESS_MAX):
            raise DecodeError("too many names", "many nodes at one address")
        neighbour.address = address

    def _agree_version(self, sender: NodeId, hello: Hello, address: Address, now_us: int) -> int:
        """The version to use with the sender of a hello."""
        version = agree_version(self._config.versions, hello.versions)
        if version is None:
            self._record_unknown(sender, UnknownVersion(address, hello.versions, now_us))
            raise DecodeError("other version", f"the node has versions {hello.versions}")
        self.unknown_versions.pop(sender, None)
        return version

    def _handle_content(
        self,
        sender: NodeId,
        neighbour: NeighbourState,
        content: Hello | BroadcastBody | Fragment | FragmentAck | ClockReading,
        now_us: int,
    ) -> None:
        match content:
            case Hello():
                self._record_world(content)
            case ClockReading():
                neighbour.clock_ahead_us = content.now_us - now_us
            case BroadcastBody():
                if sender in self.full_senders:
                    self._drop(neighbour.address, "inbox full", now_us)
                else:
                    self._deliver_message(sender, neighbour, content.body, now_us)
            case Fragment():
                if sender in self.full_senders:
                    self._drop(neighbour.address, "inbox full", now_us)
                else:
                    self._on_fragment(sender, neighbour, content, now_us)
            case FragmentAck():
                neighbour.send_window.on_ack(content, now_us)
                self._transmit_due(sender, neighbour, now_us)

    def _on_fragment(
        self, sender: NodeId, neighbour: NeighbourState, fragment: Fragment, now_us: int
    ) -> None:
        reassembler = neighbour.reassembler
        before, refused = reassembler.stored_bytes, reassembler.refused
        body, ack = reassembler.on_fragment(fragment, now_us)
        self._reassembly_bytes += reassembler.stored_bytes - before
        if reassembler.refused != refused:
            self._drop(neighbour.address, "reassembly full", now_us)
        if self._reassembly_bytes > self._config.reassembly.bytes_max:
            self._free_reassembly(now_us)
        if ack is not None:
            self._queue_content(neighbour.address, ack)
        if body is not None:
            self._deliver_message(sender, neighbour, body, now_us)

    def _free_reassembly(self, now_us: int) -> None:
        """Drops the incomplete messages of the neighbour that stores most for what it completed;
        those of the only one stay, since its message may be as long as that."""
        storing = [each for each in self._neighbours.values() if each.reassembler.stored_bytes]
        if len(storing) < 2:
            return
        worst = max(
            storing,
            key=lambda each: each.reassembler.stored_bytes / (1 + each.reassembler.completed_count),
        )
        self._reassembly_bytes -= worst.reassembler.stored_bytes
        fragments = worst.reassembler.stored_bytes // FRAGMENT_BYTES_MAX
        worst.reassembler.drop_all()
        self.dropped["reassembly full"] += 1
        self.shares.charge(worst.address, "reassembly full", now_us, fragments)

    def _deliver_message(
        self, sender: NodeId, neighbour: NeighbourState, body: bytes, now_us: int
    ) -> None:
        try:
            message = codec.decode(body, self._config.versions.newest)
        except DecodeError as error:
            self._drop(neighbour.address, error.reason, now_us)
            return
        self._events.append(MessageReceived(sender, message, len(body)))

    def _transmit_due(self, node_id: NodeId, neighbour: NeighbourState, now_us: int) -> None:
        for fragment in neighbour.send_window.due_fragments(now_us):
            self._queue_content(neighbour.address, fragment)
        for token in neighbour.send_window.drain_failures():
            if token is not None:
                assert isinstance(token, Message)
                self._events.append(MessageUndelivered(node_id, token))

    def _queue_content(self, to: Address | None, content: Content) -> None:
        unsent = self._unsent_contents.setdefault(to, [])
        if isinstance(content, FragmentAck) and unsent:
            earlier = unsent[-1]
            if (
                isinstance(earlier, FragmentAck)
                and earlier.message_number == content.message_number
            ):
                unsent.pop()  # the later ack covers the earlier one
        unsent.append(content)

    def _make_datagram(self, content: Content) -> bytes:
        datagram = encode(self._world_digest, self._incarnation, self._node_id, content)
        return datagram if self._cipher is None else self._cipher.encrypt(datagram)

    def _send_hello(self, to: Address | None, now_us: int) -> None:
        """Queues a hello. A broadcast hello of a closed world is preceded by an unencrypted one
        with the world's name, so that a node with the secret can decrypt the second."""
        if self._cipher is not None and to is None:
            notice = Hello(WorldInfo(self._world.name, self._world.world_id), closed=True)
            datagram = encode(self._world_digest, bytes(INCARNATION_BYTES), ANONYMOUS, notice)
            self._ready_datagrams.append(SendDatagram(None, datagram))
        proof = None if self._authenticator is None else self._authenticator.own_proof
        versions = self._config.versions
        self._queue_content(to, Hello(self._world, identity_proof=proof, versions=versions))
        self._queue_content(to, ClockReading(now_us))

    def _add_neighbour(
        self, envelope: Envelope, known: NeighbourState | None, address: Address, now_us: int
    ) -> NeighbourState:
        """Adds a new node, or a new incarnation of one, and sends it a hello at once."""
        sender, started_us = envelope.sender, 0
        if self._authenticator is not None:
            started_us = self._authenticate(envelope, known, address, now_us)
        if known is not None:
            self._remove_neighbour(sender, known)
        elif len(self._neighbours) >= _NEIGHBOURS_MAX:
            raise DecodeError("too many neighbours", f"{len(self._neighbours)} is the maximum")
        if not self.shares.add_name(address, _NAMES_PER_ADDRESS_MAX):
            raise DecodeError("too many names", "many nodes at one address")
        neighbour = self._neighbours[sender] = NeighbourState(
            address, envelope.incarnation, self._config
        )
        neighbour.started_us = started_us
        self._send_hello(address, now_us)
        return neighbour

    def _authenticate(
        self, envelope: Envelope, known: NeighbourState | None, address: Address, now_us: int
    ) -> int:
        """Verifies the identity proof of a sender; returns the start time of its incarnation."""
        assert self._authenticator is not None
        proof = _identity_proof(envelope.content)
        if proof is None:
            raise DecodeError("not introduced", "no identity proof yet; the next hello has one")
        if known is not None and proof.started_us <= known.started_us:
            raise DecodeError("old life", "a later incarnation is known")
        if known is None and self._has_too_many_names(address):
            raise DecodeError("too many names", "many nodes at one address")
        if not self._may_verify(now_us):
            raise DecodeError("too much", "rate limit of identity proofs exceeded")
        if not self._authenticator.verify(envelope.sender, envelope.incarnation, proof):
            raise DecodeError("forged", "wrong key or invalid signature")
        return proof.started_us

    def _has_too_many_names(self, address: Address) -> bool:
        account = self.shares.find(address)
        return account is not None and account.names >= _NAMES_PER_ADDRESS_MAX

    def _remove_neighbour(self, node_id: NodeId, neighbour: NeighbourState) -> None:
        """Removes a neighbour that is gone or has restarted; its pending messages fail."""
        del self._neighbours[node_id]
        self.shares.remove_name(neighbour.address)
        self._reassembly_bytes -= neighbour.reassembler.stored_bytes
        neighbour.send_window.fail_all()
        for token in neighbour.send_window.drain_failures():
            if token is not None:
                assert isinstance(token, Message)
                self._events.append(MessageUndelivered(node_id, token))

    def _expire(self, now_us: int) -> None:
        for node_id, neighbour in list(self._neighbours.items()):
            self._reassembly_bytes -= neighbour.reassembler.stored_bytes
            neighbour.reassembler.drop_idle(now_us)
            self._reassembly_bytes += neighbour.reassembler.stored_bytes
            if neighbour.last_seen_us + _NEIGHBOUR_TIMEOUT_US < now_us:
                self._remove_neighbour(node_id, neighbour)
        for node_id, (_, at_us) in list(self.received_hellos.items()):
            if at_us + _NEIGHBOUR_TIMEOUT_US < now_us:
                del self.received_hellos[node_id]
        for node_id, unknown in list(self.unknown_versions.items()):
            if unknown.last_seen_us + _NEIGHBOUR_TIMEOUT_US < now_us:
                del self.unknown_versions[node_id]
        self.shares.expire(now_us)

    def _record_world(self, hello: Hello) -> None:
        worlds, world = self.closed_worlds if hello.closed else self.worlds, hello.world
        if world.world_id in worlds or len(worlds) < _WORLDS_MAX:
            worlds[world.world_id] = world


def _identity_proof(content: Content) -> IdentityProof | None:
    return content.identity_proof if isinstance(content, Hello) else None
