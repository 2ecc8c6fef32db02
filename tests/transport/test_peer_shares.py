"""Each address has its share, useless datagrams cost it, and others go on (B5)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.transport.pipe import ALICE, BOB, CAROL, WORLD, Pipe
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellBeacon
from thyme.protocol.messages.replies import Done
from thyme.transport.datagrams import (
    FRAGMENT_BYTES_MAX,
    BroadcastBody,
    Fragment,
    Hello,
    digest_world,
    encode,
)
from thyme.transport.link_config import LinkConfig, RateLimit, ReassemblyLimits
from thyme.transport.peer_shares import PeerShares
from thyme.wire import codec

SECOND_US = 1_000_000
HERE, THERE = ("10.0.0.1", 7), ("10.0.0.2", 7)
LIFE = b"12345678"
DIGEST = digest_world(WORLD)


def neighbours(shares: PeerShares, *addresses: tuple[str, int]) -> None:
    for address in addresses:
        shares.admit(address, 100, 0)
        assert shares.add_name(address, 8)


def offend(shares: PeerShares, at_us: int) -> None:
    for _ in range(1_000):
        shares.admit(HERE, 100, at_us)
        shares.charge(HERE, "malformed", at_us)


def test_b5_useless_datagrams_ban_their_address_and_no_other() -> None:
    shares = PeerShares(RateLimit())
    neighbours(shares, HERE, THERE)
    offend(shares, SECOND_US)

    assert shares.banned() == [HERE]
    assert not shares.admit(HERE, 100, SECOND_US + 1)
    assert shares.admit(THERE, 100, SECOND_US + 1)


def test_b5_a_ban_ends_and_is_longer_the_next_time_until_the_address_behaves() -> None:
    shares = PeerShares(RateLimit())
    neighbours(shares, HERE)
    lengths_s = []
    now_us = 0
    for pause_s in (1, 1, 1, 200):
        offend(shares, now_us)
        account = shares.find(HERE)
        assert account is not None
        lengths_s.append((account.banned_until_us - now_us) // SECOND_US)
        now_us = account.banned_until_us + pause_s * SECOND_US
        shares.expire(now_us)
        assert shares.admit(HERE, 100, now_us), "the ban is over"
    offend(shares, now_us)
    account = shares.find(HERE)
    assert account is not None
    lengths_s.append((account.banned_until_us - now_us) // SECOND_US)
    assert lengths_s == [1, 2, 4, 8, 1]


def test_b5_strangers_share_one_limit_however_many_they_are() -> None:
    shares = PeerShares(RateLimit())
    neighbours(shares, HERE)
    admitted = sum(shares.admit(("10.1.0.1", port), 100, 0) for port in range(10_000))

    assert admitted < 3_000
    assert shares.admit(HERE, 100, 0)
    shares.expire(SECOND_US)
    assert 0 < shares.stranger_share < 0.5, "the kernel should drop most of them"
    for second in range(2, 5):
        shares.expire(second * SECOND_US)
    assert shares.stranger_share == 1


@given(st.lists(st.tuples(st.sampled_from([HERE, THERE]), st.integers(0, 400)), max_size=200))
def test_b5_an_address_that_does_nothing_wrong_is_never_banned(
    steps: list[tuple[tuple[str, int], int]],
) -> None:
    shares = PeerShares(RateLimit())
    neighbours(shares, HERE, THERE)
    for index, (address, weight) in enumerate(steps):
        now_us = index * 10_000
        shares.admit(address, 100, now_us)
        if address == HERE:
            shares.charge(HERE, "forged", now_us, weight)
        if index % 50 == 0:
            shares.expire(now_us)
        assert THERE not in shares.banned()


def an_opening(name: NodeId, number: int, index: int = 0) -> bytes:
    fragment = Fragment(number, index, 900, bytes(FRAGMENT_BYTES_MAX))
    return encode(DIGEST, LIFE, name, fragment)


def test_b5_beginnings_that_never_complete_take_bounded_memory_and_nothing_from_others() -> None:
    limits = ReassemblyLimits(bytes_max=200_000)
    pipe = Pipe(ALICE, BOB, config=LinkConfig(reassembly=limits))
    pipe.run(2)
    for step in range(2_000):
        name = NodeId(b"mallory %d" % (step % 4))
        pipe.inject(ALICE, an_opening(name, step // 1_000, step // 4), (f"ff0{step % 4}", 1))
        assert pipe.links[ALICE].incomplete_bytes <= 202_000
    for number in range(50):
        pipe.send(BOB, ALICE, Done(number))
    pipe.run(1)

    assert [m for to, by, m in pipe.came if by == BOB] == [Done(n) for n in range(50)]
    pipe.run(30)
    assert pipe.links[ALICE].incomplete_bytes == 0


def test_b5_many_names_at_one_address_are_not_admitted() -> None:
    pipe = Pipe(ALICE)
    for number in range(100):
        hello = encode(DIGEST, LIFE, NodeId(b"sybil %d" % number), Hello(WORLD))
        pipe.inject(ALICE, hello, ("ff", 1))

    assert len(pipe.links[ALICE].neighbours) == 8


def test_b5_a_neighbour_is_not_moved_to_another_address_while_it_sends_from_its_own() -> None:
    pipe = Pipe(ALICE, BOB)
    pipe.run(3)
    bob = pipe.links[BOB]
    forged = encode(DIGEST, bob._incarnation, BOB, BroadcastBody(codec.encode(Done(1))))
    pipe.inject(ALICE, forged, ("ff", 1))
    pipe.send(ALICE, BOB, Done(2))
    pipe.run(1)

    assert (ALICE, BOB, Done(1)) not in pipe.came
    assert (BOB, ALICE, Done(2)) in pipe.came
    assert pipe.links[ALICE].dropped["two addresses"] == 1


def test_b5_a_sender_whose_inbox_is_full_is_not_acknowledged_and_others_are() -> None:
    pipe = Pipe(ALICE, BOB, CAROL)
    pipe.run(2)
    pipe.links[ALICE].full_senders.add(BOB)
    pipe.send(BOB, ALICE, Done(1))
    pipe.send(CAROL, ALICE, Done(2))
    pipe.run(0.1)
    assert pipe.came == [(ALICE, CAROL, Done(2))]

    pipe.links[ALICE].full_senders.clear()
    pipe.run(1)
    assert (ALICE, BOB, Done(1)) in pipe.came, "it was sent again"


def test_b5_a_neighbour_that_repeats_its_beacon_is_banned_and_one_after_a_pause_is_not() -> None:
    """Else a node that is fast enough goes on handling them, 20,000 a second."""
    pipe = Pipe(ALICE, BOB, CAROL)
    pipe.run(3)
    pipe.stop(ALICE)
    for _ in range(600):  # ten minutes
        pipe.broadcast(CAROL, CellBeacon(CellId(0), True, b"", b""))
    pipe.go_on(ALICE, tick_first=False)
    pipe.came.clear()
    for _ in range(2_000):
        pipe.broadcast(BOB, CellBeacon(CellId(0), True, b"", b""))
    pipe.run(0.1)

    alice = pipe.links[ALICE]
    assert alice.shares.banned() == [(BOB.hex(), 0)]
    assert 0 < len([to for to, by, _ in pipe.came if (to, by) == (ALICE, BOB)]) <= 520


def test_b5_a_broadcast_of_a_sender_with_too_many_waiting_is_dropped_undecoded() -> None:
    pipe = Pipe(ALICE, BOB)
    pipe.run(3)
    alice, bob = pipe.links[ALICE], pipe.links[BOB]
    alice.full_broadcasters.add(BOB)
    garbled = encode(DIGEST, bob._incarnation, BOB, BroadcastBody(b""))[:-1] + b"\xff\xff"

    assert not alice.receive_datagram(garbled, (BOB.hex(), 0), pipe.now_us)
    assert alice.dropped == {"too many broadcasts": 1}
    assert not alice.drain_events()
    assert not alice.drain_datagrams()
    pipe.send(BOB, ALICE, Done(1))
    pipe.run(1)
    assert pipe.came == [(ALICE, BOB, Done(1))], "what is for this node alone"
