"""Damaged datagrams for a node of each substrate, through its link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from tests.transport.pipe import ALICE, BOB
from tests.wire.test_schema import GOLDEN
from thyme.live.keys.identity import Identity
from thyme.live.keys.peer_authenticator import Ed25519PeerAuthenticator
from thyme.live.node_factory import make_node
from thyme.model.ids import NodeId
from thyme.model.metadata import PROOF_BYTES
from thyme.model.signed_records import Record
from thyme.model.worlds import Area, WorldInfo
from thyme.protocol.messages.common import Authenticated
from thyme.protocol.node import Input, Received, SendFailed, Started, TimerFired
from thyme.storage.store import MemoryStore
from thyme.transport.datagrams import (
    BroadcastBody,
    Bundle,
    Content,
    Fragment,
    FragmentAck,
    Hello,
    digest_world,
    encode,
)
from thyme.transport.encryption import DatagramCipher
from thyme.transport.link import Link
from thyme.transport.link_config import LinkConfig, MessageReceived, MessageUndelivered
from thyme.wire import codec

WORLDS = {
    "dcs": WorldInfo("lisbon", "w1", Area(120, 80), 40, substrate="dcs"),
    "ls": WorldInfo("lisbon", "w1", substrate="ls"),
    "es": WorldInfo("lisbon", "w1", substrate="es", server=ALICE),
}
PACKETS = [bytes.fromhex(golden) for _, golden in GOLDEN]
PACKETS += [codec.encode(Authenticated(b"", b"8 bytes.", packet[1:])) for packet in PACKETS]
SENDERS = [BOB, NodeId(b"carol"), NodeId(b"\x00"), NodeId(b"x" * 32)]
LIFE = b"12345678"
CHECK_EVERY = 500


def damaged(whole: bytes, other: bytes, rng: Random) -> bytes:
    """Bytes with a bit flipped, bytes changed, cut, repeated or inserted, or spliced with
    others."""
    start, end = sorted(rng.randrange(len(whole) + 1) for _ in range(2))
    at = rng.randrange(len(whole))
    match rng.randrange(6):
        case 0:
            return whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :]
        case 1:
            return whole[:at] + rng.randbytes(1) + whole[at + 1 :]
        case 2:
            return whole[:end]
        case 3:
            return whole[:start] + whole[end:]
        case 4:
            return whole[:start] + other[min(start, len(other)) :]
        case _:
            return whole[:at] + rng.randbytes(1 + rng.randrange(4)) + whole[at:]


class RandomSigner:
    """A signer that accepts records at random, so that damaged messages get further."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def sign(self, record: Record) -> bytes:
        return self._rng.randbytes(PROOF_BYTES)

    def sign_all(self, records: Sequence[Record]) -> list[bytes]:
        return [self.sign(record) for record in records]

    def verify(self, record: Record, proof: bytes) -> bool:
        return self._rng.random() < 0.8


class RandomPairKeys:
    """Keys that accept answers at random."""

    public_key = bytes(32)

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def learn(self, node: NodeId, public_key: bytes) -> bool:
        return self._rng.random() < 0.8

    def compute_code(self, peer: NodeId, content: bytes, *, from_peer: bool) -> bytes | None:
        return self._rng.randbytes(8) if self._rng.random() < 0.8 else None

    def is_code(self, peer: NodeId, content: bytes, code: bytes) -> bool:
        return self._rng.random() < 0.8


class Victim:
    """A node that receives damaged datagrams, and counts the results."""

    def __init__(
        self, substrate: str, seed: int, *, closed: bool = False, keys: bool = False
    ) -> None:
        self._rng = Random(seed)
        self._world = WORLDS[substrate]
        self._store = MemoryStore()
        self._node = make_node(
            self._world,
            ALICE,
            self._store,
            self._rng,
            (60.0, 40.0),
            signer=RandomSigner(self._rng) if keys else None,
            pair_keys=RandomPairKeys(self._rng) if keys else None,
        )
        seals = [DatagramCipher(bytes(32), self._world, Random(n).randbytes) for n in (1, 2)]
        self._stranger = seals[1] if closed else None
        self.link = Link(
            ALICE, self._world, b"aliceist", LinkConfig(), cipher=seals[0] if closed else None
        )
        self._now_us = 10**15
        self._timers: dict[object, int] = {}
        self._number = 0
        self.heard = 0
        self.delivered: Counter[str] = Counter()
        """Messages that reached the node, by type."""
        self._handle(Started())
        if closed:
            self._befriend(seals)

    def hear(self, count: int) -> None:
        """Receives a number of damaged datagrams."""
        for _ in range(count):
            self.heard += 1
            self._now_us += 20_000  # slow enough not to be banned
            self.link.receive_datagram(self._datagram(), ("10.0.0.1", 7), self._now_us)
            self._carry_out()
            if self.heard % CHECK_EVERY == 0:
                self._pass_time()

    def _datagram(self) -> bytes:
        rng = self._rng
        packet, other = rng.choice(PACKETS), rng.choice(PACKETS)
        inside = rng.random() < 0.6
        if inside:
            packet = damaged(packet, other, rng)
        sender = BOB if rng.random() < 0.9 else rng.choice(SENDERS)
        whole = encode(digest_world(self._world), LIFE, sender, self._content(packet))
        if not inside:
            whole = damaged(
                whole, encode(digest_world(self._world), LIFE, BOB, BroadcastBody(other)), rng
            )
        if self._stranger is not None:
            whole = self._stranger.encrypt(whole)
            if rng.random() < 0.3:
                whole = damaged(whole, whole, rng)
        return whole

    def _content(self, packet: bytes) -> Content:
        rng = self._rng
        match rng.randrange(6):
            case 0:
                introduction = Ed25519PeerAuthenticator(IDENTITY, b"12345678", LIFE, 1).own_proof
                return Hello(
                    self._world, identity_proof=introduction if rng.random() < 0.5 else None
                )
            case 1:
                return Bundle(tuple(self._item(packet) for _ in range(rng.randrange(4))))
            case _:
                return self._item(packet)

    def _item(self, packet: bytes) -> BroadcastBody | Fragment | FragmentAck:
        rng = self._rng
        self._number += 1
        match rng.randrange(4):
            case 0:
                return BroadcastBody(packet)
            case 1:
                return FragmentAck(rng.randrange(50), rng.randrange(5), rng.getrandbits(20))
            case _:
                return Fragment(
                    self._number, 0, 1 if rng.random() < 0.9 else rng.randrange(1, 9), packet
                )

    def _carry_out(self) -> None:
        for effect in self.link.drain_events():
            match effect:
                case MessageReceived():
                    self.delivered[type(effect.message).__name__] += 1
                    self._handle(Received(effect.sender, effect.message))
                case MessageUndelivered():
                    self._handle(SendFailed(effect.to, effect.message))
        self.link.drain_datagrams()

    def _handle(self, event: Input) -> None:
        for action in self._node.handle(event, self._now_us):
            match type(action).__name__:
                case "SetTimer":
                    self._timers[action.timer] = action.at_us  # type: ignore[union-attr]
                case "CancelTimer":
                    self._timers.pop(action.timer, None)  # type: ignore[union-attr]
                case "Send":
                    self.link.send(action.to, action.message, self._now_us)  # type: ignore[union-attr]
                case "Broadcast":
                    self.link.broadcast(action.message, self._now_us)  # type: ignore[union-attr]

    def _pass_time(self) -> None:
        """Lets timers fire that the damaged messages have set, and checks the node."""
        for timer in [timer for timer, at_us in self._timers.items() if at_us <= self._now_us]:
            if self._timers.pop(timer, None) is not None:
                self._handle(TimerFired(timer))
        self.link.tick(self._now_us)
        self._carry_out()
        self._store.commit()
        self._node.check()

    def _befriend(self, seals: list[DatagramCipher]) -> None:
        """Authenticates the sender as a live neighbour, as a member of the world with a fault would
        be."""
        ours, theirs = seals
        reply = ours.decrypt(theirs.encrypt(b"")).reply
        while reply is not None:
            ours, theirs = theirs, ours
            reply = ours.decrypt(reply).reply


IDENTITY = Identity(bytes(32))
