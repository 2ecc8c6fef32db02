"""Link: sends and receives messages over one hop, on datagrams that may be lost.

Unicast messages are retransmitted until they are acknowledged or fail, as in a radio's MAC layer;
messages to one neighbour that are sent together share packets. Broadcast messages are sent once. A
neighbour is a node from which datagrams arrive. Pure: the host passes in datagrams and the time,
and drains the link's events and datagrams.
Entry point: `Link`. Neighbours are up to `neighbour_table`, fragments to `send_window` and
`reassembly`, encryption to `encryption`.
Clauses: M21, M25, M36, D4, D10.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from thyme.model.errors import DecodeError
from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo
from thyme.protocol.messages.common import Message
from thyme.transport.datagrams import (
    ANONYMOUS,
    BROADCAST_TAG,
    ENCRYPTED_MAGIC,
    FRAGMENT_BYTES_MAX,
    HELLO_TAG,
    INCARNATION_BYTES,
    BroadcastBody,
    Bundle,
    ClockReading,
    Content,
    Envelope,
    Fragment,
    FragmentAck,
    Hello,
    HelloChallenge,
    bundle,
    decode_content,
    digest_world,
    encode,
    read_header,
    read_newer_sender,
)
from thyme.transport.hello_records import HelloRecords
from thyme.transport.link_config import (
    Address,
    LinkConfig,
    LinkEvent,
    MessageReceived,
    MessageUndelivered,
    SendDatagram,
)
from thyme.transport.neighbour_table import NEIGHBOUR_TIMEOUT_US, NeighbourState, NeighbourTable
from thyme.transport.peer_shares import PeerShares
from thyme.transport.versions import UnknownVersion, VersionRange, agree_version
from thyme.wire import codec

if TYPE_CHECKING:  # without keys and secrets, the link needs no cryptography at run time
    from thyme.transport.encryption import DatagramCipher
    from thyme.transport.peer_auth import PeerAuthenticator


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
        self.shares = PeerShares(config.rate_limit)
        self.hellos = HelloRecords()
        self._neighbours = NeighbourTable(
            config,
            self.shares,
            authenticator,
            self._report_undelivered,
            challenges=cipher is None,  # in a closed world the streams of datagrams are challenged
        )
        self.full_senders: set[NodeId] = set()
        """Senders with too many messages that the node has not handled; owned by the host."""
        self.full_broadcasters: set[NodeId] = set()
        """Senders with too many broadcasts that the node has not handled; owned by the host."""
        self._events: list[LinkEvent] = []
        self._ready_datagrams: list[SendDatagram] = []
        self._unsent_contents: dict[Address | None, list[Content]] = {}
        self._with_unsent: dict[NodeId, NeighbourState] = {}
        """Neighbours with messages that were queued since the last drain."""
        self._queued_us = 0
        self._next_hello_us = 0
        self.dropped: Counter[str] = Counter()
        """Number of dropped datagrams and messages, by reason."""

    @property
    def neighbours(self) -> list[NodeId]:
        """The nodes in range, oldest neighbour first."""
        return list(self._neighbours.states)

    @property
    def neighbour_count(self) -> int:
        """Number of nodes in range."""
        return len(self._neighbours.states)

    @property
    def incomplete_bytes(self) -> int:
        """The bytes of all messages that are not complete yet."""
        return self._neighbours.incomplete_bytes

    @property
    def has_copy(self) -> bool:
        """Whether another device runs with the identity of this node, and started later."""
        return self._neighbours.has_copy

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
        return [(name, neighbour) for name, neighbour in self._neighbours.states.items()]

    @property
    def has_pending(self) -> bool:
        """Whether a message to a neighbour is not acknowledged yet."""
        return any(each.send_window.has_pending for each in self._neighbours.states.values())

    def drain_events(self) -> list[LinkEvent]:
        """Returns and clears the received and undelivered messages, in order."""
        if self._with_unsent:
            self._transmit_queued()
        events, self._events = self._events, []
        return events

    def drain_datagrams(self) -> list[SendDatagram]:
        """Returns and clears the datagrams to send; contents queued together share datagrams."""
        if self._with_unsent:
            self._transmit_queued()
        ready, self._ready_datagrams = self._ready_datagrams, []
        unsent, self._unsent_contents = self._unsent_contents, {}
        for to, contents in unsent.items():
            ready += [
                SendDatagram(to, self._make_datagram(content)) for content in bundle(contents)
            ]
        return ready

    def send(self, to: NodeId, message: Message, now_us: int) -> None:
        """Queues a message for a neighbour, until the datagrams are drained."""
        neighbour = self._neighbours.states.get(to)
        if neighbour is None or not neighbour.send_window.enqueue(
            codec.encode_message(message), message
        ):
            self._events.append(MessageUndelivered(to, message))
        else:
            self._with_unsent[to] = neighbour
            self._queued_us = now_us

    def broadcast(self, message: Message, now_us: int) -> None:
        """Queues a message for all nodes in range; a long one goes to each neighbour by unicast."""
        packet = codec.encode(message, self._broadcast_version)
        if len(packet) <= FRAGMENT_BYTES_MAX:
            self._queue_content(None, BroadcastBody(packet))
            return
        body = codec.encode_message(message)
        for node_id, neighbour in self._neighbours.states.items():
            if neighbour.send_window.enqueue(body, None):
                self._with_unsent[node_id] = neighbour
                self._queued_us = now_us
            else:
                self.dropped["no room"] += 1

    def _transmit_queued(self) -> None:
        """Sends the messages that were queued since the last drain."""
        neighbours, self._with_unsent = self._with_unsent, {}
        for node_id, neighbour in neighbours.items():
            if self._neighbours.states.get(node_id) is neighbour:  # else they failed with it
                self._transmit_due(node_id, neighbour, self._queued_us)

    @property
    def _broadcast_version(self) -> int:
        """The newest version that all neighbours read."""
        versions = [neighbour.version for neighbour in self._neighbours.states.values()]
        return min(versions, default=self._config.versions.newest)

    def receive_datagram(self, datagram: bytes, address: Address, now_us: int) -> bool:
        """Processes a received datagram; returns False if it was dropped and leaves nothing to
        drain."""
        if not self.shares.admit(address, len(datagram), now_us):
            self.dropped["too much"] += 1
            return False
        try:
            self._receive(datagram, address, now_us)
        except DecodeError as error:
            self._drop(address, error.reason, now_us)
            if error.reason == "version":
                self._record_newer(datagram, address, now_us)
            return bool(self._events or self._ready_datagrams or self._unsent_contents)
        return True

    def charge(self, sender: NodeId, reason: str, now_us: int, count: int) -> None:
        """Counts something useless that a neighbour sent, such as records with false proofs."""
        neighbour = self._neighbours.states.get(sender)
        if neighbour is not None:
            self.shares.charge(neighbour.address, reason, now_us, count)

    def _drop(self, address: Address, reason: str, now_us: int) -> None:
        self.dropped[reason] += 1
        self.shares.charge(address, reason, now_us)

    def _record_newer(self, datagram: bytes, address: Address, now_us: int) -> None:
        """Remembers the sender of a datagram of a newer version, if it is of this world."""
        header = read_newer_sender(datagram)
        if header is not None and header[0] == self._world_digest:
            self.hellos.record_unknown(header[1], UnknownVersion(address, None, now_us))

    def tick(self, now_us: int) -> None:
        """Sends the periodic hello, retransmits, and removes silent neighbours."""
        if now_us >= self._next_hello_us:
            self._next_hello_us = now_us + self._config.hello_every_us
            self._send_hello(None, now_us)
            self._neighbours.expire(now_us)
            self.hellos.expire(now_us - NEIGHBOUR_TIMEOUT_US)
            self.shares.expire(now_us)
        for node_id, neighbour in list(self._neighbours.states.items()):
            self._transmit_due(node_id, neighbour, now_us)

    def next_tick_us(self) -> int:
        """The time at which `tick` must be called next."""
        if self._with_unsent:
            self._transmit_queued()
        due_times_us = [
            neighbour.send_window.next_due_us() for neighbour in self._neighbours.states.values()
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
        world_digest, incarnation, sender, tag = read_header(datagram)
        if tag != HELLO_TAG:
            if world_digest != self._world_digest:
                raise DecodeError("another world", "world digest differs")
            if sender != self._node_id:
                self._neighbours.check_introduced(sender, incarnation)
            if tag == BROADCAST_TAG and sender in self.full_broadcasters:
                raise DecodeError("too many broadcasts", "earlier ones were not handled yet")
        content = decode_content(datagram, sender)
        envelope = Envelope(world_digest, incarnation, sender, content)
        self._dispatch(envelope, address, now_us, encrypted=encrypted)

    def _dispatch(
        self, envelope: Envelope, address: Address, now_us: int, *, encrypted: bool
    ) -> None:
        sender, content = envelope.sender, envelope.content
        if sender == self._node_id:
            if envelope.incarnation != self._incarnation:
                self._neighbours.detect_copy(envelope, now_us)
                raise DecodeError("our name", "another node uses our node id")
            return
        ours = envelope.world_digest == self._world_digest
        if isinstance(content, Hello):
            self.hellos.record_sender(sender, content.world, now_us)
            if content.closed or not ours:
                self.hellos.record_world(content)
            if content.closed:
                return
        if not ours:
            raise DecodeError("another world", "world digest differs")
        if encrypted != (self._cipher is not None):
            raise DecodeError("not sealed", "a closed world accepts only encrypted datagrams")
        version = 0
        if isinstance(content, Hello):
            version = self._agree_version(sender, content, address, now_us)
        neighbour = self._neighbours.states.get(sender)
        is_new = neighbour is None or neighbour.incarnation != envelope.incarnation
        if is_new and version == 0 and sender in self.hellos.unknown_versions:
            raise DecodeError("other version", "no version was agreed with the node")
        challenge = self._neighbours.make_challenge(envelope, address, now_us)
        response = self._respond(content, now_us)
        if challenge is not None:
            self._send_hello(address, now_us, HelloChallenge(challenge, response))
            return
        if neighbour is None or is_new:
            neighbour = self._neighbours.admit(envelope, address, now_us)
        elif neighbour.address != address:
            self._neighbours.move(envelope, address, now_us)
        if is_new or response:
            self._send_hello(address, now_us, HelloChallenge(b"", response) if response else None)
        neighbour.last_seen_us = now_us
        neighbour.version = version or neighbour.version
        if not isinstance(content, Bundle):
            self._handle_content(sender, neighbour, content, now_us)
            return
        if not self.shares.consume(address, now_us, len(content.items)):
            raise DecodeError("too much", "rate limit exceeded within a bundle")
        for item in content.items:
            self._handle_content(sender, neighbour, item, now_us)

    def _respond(self, content: Content, now_us: int) -> bytes:
        """The response to the challenge in a hello; empty if it has none."""
        if not isinstance(content, Hello) or content.challenge is None:
            return b""
        challenge = content.challenge.challenge
        return self._neighbours.respond(challenge, now_us) if challenge else b""

    def _agree_version(self, sender: NodeId, hello: Hello, address: Address, now_us: int) -> int:
        """The version to use with the sender of a hello."""
        version = agree_version(self._config.versions, hello.versions)
        if version is None:
            self.hellos.record_unknown(sender, UnknownVersion(address, hello.versions, now_us))
            raise DecodeError("other version", f"the node has versions {hello.versions}")
        self.hellos.unknown_versions.pop(sender, None)
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
                self.hellos.record_world(content)
            case ClockReading():
                neighbour.clock_ahead_us = content.now_us - now_us
            case BroadcastBody():
                if sender in self.full_broadcasters:
                    self._drop(neighbour.address, "too many broadcasts", now_us)
                else:
                    self._deliver_packet(sender, neighbour, content.body, now_us, is_broadcast=True)
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
        refused = neighbour.reassembler.refused
        body, ack = self._neighbours.store_fragment(neighbour, fragment, now_us)
        if neighbour.reassembler.refused != refused:
            self._drop(neighbour.address, "reassembly full", now_us)
        if self._neighbours.free_reassembly(now_us):
            self.dropped["reassembly full"] += 1
        if ack is not None:
            self._queue_content(neighbour.address, ack)
        if body is not None:
            self._deliver_packet(sender, neighbour, body, now_us)

    def _deliver_packet(
        self,
        sender: NodeId,
        neighbour: NeighbourState,
        body: bytes,
        now_us: int,
        *,
        is_broadcast: bool = False,
    ) -> None:
        try:
            messages = codec.decode_all(body, self._config.versions.newest)
        except DecodeError as error:
            self._drop(neighbour.address, error.reason, now_us)
            return
        size = len(body) // len(messages)
        for message in messages:
            if (
                is_broadcast
                and message.routing_control
                and not neighbour.routing.consume(0, now_us)
            ):
                self._drop(neighbour.address, "too much routing", now_us)
            else:
                self._events.append(MessageReceived(sender, message, size, is_broadcast))

    def _transmit_due(self, node_id: NodeId, neighbour: NeighbourState, now_us: int) -> None:
        for fragment in neighbour.send_window.due_fragments(now_us, neighbour.version):
            self._queue_content(neighbour.address, fragment)
        self._neighbours.report_failures(node_id, neighbour)

    def _report_undelivered(self, to: NodeId, message: Message) -> None:
        self._events.append(MessageUndelivered(to, message))

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

    def _send_hello(
        self, to: Address | None, now_us: int, challenge: HelloChallenge | None = None
    ) -> None:
        """Queues a hello. A broadcast hello of a closed world is preceded by an unencrypted one
        with the world's name, so that a node with the secret can decrypt the second."""
        if self._cipher is not None and to is None:
            notice = Hello(WorldInfo(self._world.name, self._world.world_id), closed=True)
            datagram = encode(self._world_digest, bytes(INCARNATION_BYTES), ANONYMOUS, notice)
            self._ready_datagrams.append(SendDatagram(None, datagram))
        proof = None if self._authenticator is None else self._authenticator.own_proof
        versions = self._config.versions
        hello = Hello(self._world, identity_proof=proof, versions=versions, challenge=challenge)
        self._queue_content(to, hello)
        self._queue_content(to, ClockReading(now_us))
