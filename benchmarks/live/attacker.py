"""A hostile member of an open world: speaks the wire format, and does one harmful thing.

Run by bench_attack as `python -m live.attacker JSON`; reports how many datagrams it sent.
Entry points: `ATTACKS`, `main`.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count, cycle
from random import Random
from typing import Any

from msgspec.structs import replace

from thyme.live.keys.identity import Identity
from thyme.live.keys.peer_authenticator import Ed25519PeerAuthenticator
from thyme.live.keys.record_signer import Ed25519RecordSigner
from thyme.live.keys.signatures import SIGNATURE_BYTES
from thyme.live.sockets import NetworkConfig, SocketPair
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata, make_metadata
from thyme.model.signed_records import sign_metadata
from thyme.model.time_frames import ALWAYS
from thyme.model.worlds import WorldInfo
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId, CellTarget
from thyme.protocol.messages.cells import CellBeacon
from thyme.query.query import Query
from thyme.transport.datagrams import (
    FRAGMENT_BYTES_MAX,
    BroadcastBody,
    Content,
    Fragment,
    Hello,
    HelloChallenge,
    decode,
    digest_world,
    encode,
)
from thyme.transport.link import Link
from thyme.transport.link_config import Address, LinkConfig
from thyme.wire import codec

INTRODUCTION_S = 0.2
LISTEN_S = 3.0
INTRODUCTION_S = 0.2
ATTEND_S = 0.02
"""How long the attacker listens in each second, to respond to challenges as every member does."""
BATCH = 64
"""Datagrams between two looks at the clock."""
PREPARED = 2_000
"""Datagrams that are made before the attack, and sent again and again."""
RECORDS_MANY = 100_000
VALID_MANY = 20_000
"""Genuine records that fit into one message."""
IDENTITIES_MANY = 3_000
Target = Address | None
Datagrams = Iterator[tuple[bytes, Target]]


class Attacker:
    """A member that has introduced itself to the nodes in range."""

    def __init__(self, port: int, substrate: str, seed: int = 1) -> None:
        config = NetworkConfig(group_port=port)
        self.pair = SocketPair("127.0.0.1", config)
        self.substrate = substrate
        self.rng = Random(seed)
        self.identity = Identity(os.urandom(32))
        self.world = WorldInfo("attack", "attack")
        self.incarnation = os.urandom(8)
        self.nodes: dict[NodeId, Address] = {}
        self.keys: dict[NodeId, bytes] = {}
        """Public keys of the nodes, from their hellos."""
        self._listen()
        self.digest = digest_world(self.world)
        self.others: list[tuple[NodeId, bytes, Link]] = []
        """Members besides, with their incarnations and links."""
        self.link = self.make_link(self.identity, self.incarnation)
        self.run_link(self.link, LISTEN_S)

    def introduce_others(self, count: int) -> None:
        """Introduces more members, one after the other: challenges do not say to whom they are."""
        for _ in range(count):
            identity, incarnation = Identity(os.urandom(32)), os.urandom(8)
            link = self.make_link(identity, incarnation)
            self.run_link(link, INTRODUCTION_S)
            self.others.append((identity.node_id, incarnation, link))

    def wait_for_start(self) -> None:
        """Behaves as a neighbour until a line arrives."""
        while not select.select([sys.stdin], [], [], 0)[0]:
            for link in (self.link, *(link for _, _, link in self.others)):
                self.run_link(link, ATTEND_S)
        sys.stdin.readline()

    def _listen(self) -> None:
        """Learns the world and the nodes from their hellos."""
        assert self.pair.multicast is not None
        until_s = time.monotonic() + LISTEN_S
        while (left_s := until_s - time.monotonic()) > 0:
            if not select.select([self.pair.multicast], [], [], left_s)[0]:
                continue
            datagram, address = self.pair.multicast.recvfrom(2_000)
            envelope = decode(datagram)
            if isinstance(envelope.content, Hello) and envelope.content.identity_proof:
                self.world = envelope.content.world
                self.keys[envelope.sender] = envelope.content.identity_proof.public_key
                self.nodes[envelope.sender] = address

    def make_link(self, identity: Identity, incarnation: bytes) -> Link:
        """The link of a member, which introduces itself and responds to challenges."""
        proof = Ed25519PeerAuthenticator(identity, self.digest, incarnation, _now_us())
        config = LinkConfig()
        return Link(identity.node_id, self.world, incarnation, config, authenticator=proof)

    def run_link(self, link: Link, seconds: float) -> None:
        """Behaves as a neighbour for some time."""
        assert self.pair.multicast is not None
        sockets = [self.pair.unicast, self.pair.multicast]
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            for ready in select.select(sockets, [], [], min(left_s, 0.005))[0]:
                datagram, address = ready.recvfrom(2_000)
                if address != self.pair.address:
                    link.receive_datagram(datagram, address, _now_us())
            link.tick(_now_us())
            link.drain_events()
            for outgoing in link.drain_datagrams():
                self.pair.unicast.sendto(outgoing.datagram, outgoing.to or self.pair.group)

    def make(self, content: Content) -> bytes:
        """A datagram of this member."""
        return encode(self.digest, self.incarnation, self.identity.node_id, content)

    def fragment(self, message: wire.Message, number: int) -> bytes:
        return self.make(Fragment(number, 0, 1, codec.encode(message)))

    def carried(self, to: NodeId, number: int, message: wire.Message) -> wire.Message:
        """A message as it travels in the substrate."""
        own = self.identity.node_id
        if self.substrate == "dcs":
            cell = CellId(0)
            return wire.CellPacket(own, cell, number, 0, (CellTarget(cell, to),), message)
        return wire.Packet(own, to, 0, message)

    def false_metadata(self, number: int) -> Metadata:
        """A record in another's name, with its public key, and a signature of nobody."""
        owner = next(iter(self.nodes))
        made = make_metadata(Key(ObjectId(f"lie-{number}"), owner), b"lie", ["goal"], _now_us())
        proof = self.keys[owner] + self.rng.randbytes(SIGNATURE_BYTES)
        return replace(made, digest_and_proof=made.digest + proof)


def false_records(attacker: Attacker) -> Datagrams:
    """Notifications with false signatures, to each node in turn."""
    numbers = count(1_000_000)
    bodies = [
        (to, address, wire.Notify(attacker.false_metadata(number), ()))
        for number in range(PREPARED // max(1, len(attacker.nodes)))
        for to, address in attacker.nodes.items()
    ]
    for to, address, message in cycle(bodies):
        number = next(numbers)
        yield attacker.fragment(attacker.carried(to, number, message), number), address


def broadcasts(attacker: Attacker) -> Datagrams:
    """Messages for all nodes, which every node of LS sends again."""
    for number in count(1):
        if attacker.substrate == "ls":
            page = wire.FetchPage(number, Query("goal").conjunctions, ALWAYS, 10)
            message: wire.Message = wire.Flooded(attacker.identity.node_id, number, 0, page)
        elif attacker.substrate == "dcs":
            message = CellBeacon(CellId(0), True, b"", b"")
        else:
            message = wire.RouteUpdate(((attacker.identity.node_id, 2 * number, 1),))
        yield attacker.make(BroadcastBody(codec.encode(message))), None


def requests(attacker: Attacker) -> Datagrams:
    """Requests for objects that do not exist."""
    for number in count(1_000_000):
        for to, address in attacker.nodes.items():
            key = Key(ObjectId(f"none-{number}"), to)
            message = attacker.carried(to, number, wire.FetchObject(number, key))
            yield attacker.fragment(message, number), address


def identities(attacker: Attacker) -> Datagrams:
    """Hellos of many new nodes; every other one seems to respond to a challenge."""
    hellos: list[bytes] = []
    for number in range(IDENTITIES_MANY):
        identity, incarnation = Identity(os.urandom(32)), os.urandom(8)
        proof = Ed25519PeerAuthenticator(identity, attacker.digest, incarnation, _now_us())
        response = HelloChallenge(response=os.urandom(SIGNATURE_BYTES)) if number % 2 else None
        hello = Hello(attacker.world, identity_proof=proof.own_proof, challenge=response)
        hellos.append(encode(attacker.digest, incarnation, identity.node_id, hello))
    for made in cycle(hellos):
        yield made, None


def beginnings(attacker: Attacker) -> Datagrams:
    """First fragments of long messages, in the names of eight members."""
    body = bytes(FRAGMENT_BYTES_MAX)
    for number in count():
        for index in range(100):
            for name, incarnation, _ in attacker.others:
                fragment = Fragment(number, index, 101, body)
                datagram = encode(attacker.digest, incarnation, name, fragment)
                for address in attacker.nodes.values():
                    yield datagram, address


def garbage(attacker: Attacker) -> Datagrams:
    """Random bytes that begin like a datagram of this world."""
    start = attacker.make(BroadcastBody(b""))[:20]
    made = [start + attacker.rng.randbytes(300) for _ in range(PREPARED)]
    yield from zip(cycle(made), cycle(attacker.nodes.values()), strict=False)


def routes(attacker: Attacker) -> Datagrams:
    """One update: this member is the best way to everybody."""
    entries = tuple((node, 2**62 - 2, 1) for node in attacker.nodes)
    update = wire.RouteUpdate(((attacker.identity.node_id, 2, 1), *entries))
    yield attacker.make(BroadcastBody(codec.encode(update))), None


def long_message(attacker: Attacker) -> Datagrams:
    """One long message of false records to the first node, sent as a neighbour sends it."""
    to = next(iter(attacker.nodes))
    items = tuple(attacker.false_metadata(number) for number in range(RECORDS_MANY))
    message = wire.PastMatches(SubscriptionId("sub"), len(items), items, has_more=False)
    attacker.link.send(to, attacker.carried(to, 1, message), _now_us())
    while attacker.link.has_pending:
        attacker.run_link(attacker.link, 0.05)
    yield from ()


def valid_message(attacker: Attacker) -> Datagrams:
    """One long message of genuine records of its own to the first node: all of them need to be
    verified."""
    to = next(iter(attacker.nodes))
    signer = Ed25519RecordSigner(attacker.identity, attacker.world.world_id)
    own = attacker.identity.node_id
    items: list[Metadata] = []
    for number in range(VALID_MANY):
        draft = make_metadata(Key(ObjectId(f"own-{number}"), own), b"", ["goal"], _now_us())
        items += sign_metadata([draft], signer)
    for many in (VALID_MANY, 256):
        message = wire.PastMatches(SubscriptionId("sub"), 0, tuple(items[:many]), has_more=False)
        attacker.link.send(to, attacker.carried(to, 1, message), _now_us())
    while attacker.link.has_pending:
        attacker.run_link(attacker.link, 0.05)
    yield from ()


def nobody(attacker: Attacker) -> Datagrams:
    """Datagrams to a socket that nobody reads: what the sender alone takes of the machine."""
    made = attacker.make(BroadcastBody(bytes(300)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unread:
        unread.bind(("127.0.0.1", 0))
        while True:
            yield made, unread.getsockname()


ATTACKS: dict[str, Callable[[Attacker], Datagrams]] = {
    "nobody": nobody,
    "garbage": garbage,
    "false-records": false_records,
    "broadcasts": broadcasts,
    "requests": requests,
    "identities": identities,
    "beginnings": beginnings,
    "routes": routes,
    "long-message": long_message,
    "valid-message": valid_message,
}


def attack(attacker: Attacker, kind: str, rate: float, seconds: float) -> int:
    """Sends hostile datagrams for some time; a rate of 0 is full speed. Returns their number."""
    source = ATTACKS[kind](attacker)
    sent, send, group = 0, attacker.pair.unicast.sendto, attacker.pair.group
    started_s = time.monotonic()
    next_hello_s = started_s
    while (now_s := time.monotonic()) < started_s + seconds:
        if now_s >= next_hello_s:
            attacker.run_link(attacker.link, ATTEND_S)
            next_hello_s = now_s + 1.0
        if rate and sent > (now_s - started_s) * rate:
            time.sleep(0.001)
            continue
        for _ in range(BATCH):
            following = next(source, None)
            if following is None:
                return sent
            datagram, to = following
            try:
                send(datagram, to or group)
            except (BlockingIOError, OSError):
                break
            sent += 1
    return sent


def _now_us() -> int:
    return time.time_ns() // 1_000


def main() -> None:
    """Attacks, and prints a report."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    attacker = Attacker(options["port"], options["substrate"])
    if options["kind"] == "beginnings":
        attacker.introduce_others(8)
    print(json.dumps({"ready": len(attacker.nodes)}), flush=True)
    attacker.wait_for_start()
    started_s, used_s = time.monotonic(), time.process_time()
    sent = attack(attacker, options["kind"], options["rate"], options["seconds"])
    seconds = time.monotonic() - started_s
    cores = (time.process_time() - used_s) / seconds
    print(json.dumps({"sent": sent, "seconds": seconds, "cores": cores}), flush=True)


if __name__ == "__main__":
    main()
