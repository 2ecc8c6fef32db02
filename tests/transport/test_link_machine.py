"""Two links of a closed world and a stranger between them, in any order of steps (M25, B5).

The stranger reads, drops, repeats, delays and damages every datagram. Whatever it does, a message
arrives as it was sent or not at all, and nothing grows without bounds. No datagram is believed
twice, by whatever life of its receiver. A message arrives once, unless its receiver forgot the
sender meanwhile, by a restart or a silence, and the sender repeats it itself.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.live.fuzzing import damaged
from thyme.live.keys.identity import SEED_BYTES, Identity
from thyme.live.keys.peer_authenticator import Ed25519PeerAuthenticator
from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.replies import Done, Refused
from thyme.transport.datagrams import digest_world
from thyme.transport.encryption import DatagramCipher, Decrypted
from thyme.transport.link import Link
from thyme.transport.link_config import Address, LinkConfig, MessageReceived
from thyme.transport.neighbour_table import NeighbourState

WORLD = WorldInfo("lisbon", "w1", closed=True)
IDENTITIES = [Identity(bytes([side]) * SEED_BYTES) for side in (0, 1)]
NAMES = [identity.node_id for identity in IDENTITIES]
ADDRESSES: dict[NodeId, Address] = {NAMES[0]: ("10.0.0.1", 1), NAMES[1]: ("10.0.0.2", 2)}
REMEMBERED_MAX = 400

sides = st.sampled_from([0, 1])
seeds = st.integers(0, 2**32)


class BelievingCipher(DatagramCipher):
    """Records the datagrams with which something passed. A hello that was held back passes with
    the response to the challenge."""

    def __init__(self, random_bytes: Callable[[int], bytes], believed: list[bytes]) -> None:
        super().__init__(bytes(32), WORLD, random_bytes)
        self._believed = believed

    def decrypt(self, encrypted: bytes) -> Decrypted:
        decrypted = super().decrypt(encrypted)
        if decrypted.datagrams:
            self._believed.append(encrypted)
        return decrypted


class LinkMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_us = 10**15
        self.links: list[Link] = []
        self.lives = 0
        self.sent: list[list[Message]] = [[], []]
        self.came: list[list[tuple[NeighbourState, Message]]] = [[], []]
        """The messages received by each side, and what it then knew of the sender."""
        self.believed: list[list[bytes]] = [[], []]
        """The datagrams of which each side took the content, in all its lives."""
        self.waiting: list[tuple[int, Address, bytes]] = []
        self.recorded: list[tuple[int, Address, bytes]] = []
        self.number = 0
        for side in (0, 1):
            self.links.append(self._make_link(side))
        for _ in range(12):
            self._carry_all()
            self.now_us += 300_000
            for link in self.links:
                link.tick(self.now_us)

    def _make_link(self, side: int) -> Link:
        self.lives += 1
        rng = Random(self.lives)
        cipher = BelievingCipher(rng.randbytes, self.believed[side])
        incarnation, started_us = rng.randbytes(8), self.now_us + self.lives
        proof = Ed25519PeerAuthenticator(
            IDENTITIES[side], digest_world(WORLD), incarnation, started_us
        )
        return Link(
            NAMES[side], WORLD, incarnation, LinkConfig(), cipher=cipher, authenticator=proof
        )

    def _collect(self, side: int) -> None:
        link, source = self.links[side], ADDRESSES[NAMES[side]]
        for event in link.drain_events():
            if isinstance(event, MessageReceived):
                known = dict(link.describe_neighbours())[event.sender]
                self.came[side].append((known, event.message))
        for datagram in link.drain_datagrams():
            entry = (1 - side, source, datagram.datagram)
            self.waiting.append(entry)
            self.recorded.append(entry)
        del self.recorded[:-REMEMBERED_MAX]

    def _deliver(self, side: int, source: Address, datagram: bytes) -> None:
        self.links[side].receive_datagram(datagram, source, self.now_us)
        self._collect(side)

    def _carry_all(self) -> None:
        for side in (0, 1):
            self._collect(side)
        for _ in range(500):
            if not self.waiting:
                break
            self._deliver(*self.waiting.pop(0))

    @rule(side=sides, long=st.booleans())
    def send(self, side: int, long: bool) -> None:
        self.number += 1
        message = Refused(self.number, "busy", "x" * 5_000) if long else Done(self.number)
        self.sent[side].append(message)
        self.links[side].send(NAMES[1 - side], message, self.now_us)
        self._collect(side)

    @rule()
    def carry(self) -> None:
        self._carry_all()

    @rule(seed=seeds)
    def lose(self, seed: int) -> None:
        rng = Random(seed)
        self.waiting = [entry for entry in self.waiting if rng.random() < 0.5]

    @rule(seed=seeds, count=st.integers(1, 20))
    def replay(self, seed: int, count: int) -> None:
        rng = Random(seed)
        for _ in range(count if self.recorded else 0):
            side, source, datagram = rng.choice(self.recorded)
            if rng.random() < 0.3:
                side, source = 1 - side, ("10.0.0.9", 9)
            self._deliver(side, source, datagram)

    @rule(seed=seeds, count=st.integers(1, 20))
    def damage(self, seed: int, count: int) -> None:
        rng = Random(seed)
        for _ in range(count if self.recorded else 0):
            side, source, datagram = rng.choice(self.recorded)
            other = rng.choice(self.recorded)[2]
            self._deliver(side, source, damaged(datagram, other, rng))

    @rule(ms=st.integers(1, 3_000))
    def wait(self, ms: int) -> None:
        self.now_us += 1_000 * ms
        for side, link in enumerate(self.links):
            link.tick(self.now_us)
            self._collect(side)

    @rule(side=sides)
    def restart(self, side: int) -> None:
        self.links[side] = self._make_link(side)
        self.links[side].tick(self.now_us)
        self._collect(side)

    @invariant()
    def no_datagram_is_believed_twice(self) -> None:
        for believed in self.believed:
            assert len(believed) == len(set(believed))

    @invariant()
    def what_came_was_sent_and_came_once(self) -> None:
        for side in (0, 1):
            sent = {message.request_id: message for message in self.sent[1 - side]}  # type: ignore[union-attr]
            numbers = [(id(known), message.request_id) for known, message in self.came[side]]  # type: ignore[union-attr]
            assert len(numbers) == len(set(numbers)), "twice"
            assert all(
                sent.get(message.request_id) == message  # type: ignore[union-attr]
                for _, message in self.came[side]
            )

    @invariant()
    def nothing_grows(self) -> None:
        for side, link in enumerate(self.links):
            assert set(link.neighbours) <= {NAMES[1 - side]}
            for _, state in link.describe_neighbours():
                assert state.reassembler.stored_bytes < 2**20


LinkMachine.TestCase.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
TestLinkMachine = LinkMachine.TestCase
