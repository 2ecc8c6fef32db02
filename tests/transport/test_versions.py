"""Wire versions: nodes agree on one, a world is upgraded node by node, unknown ones are named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transport.pipe import ALICE, BOB, CAROL, WORLD, Pipe
from thyme.model.errors import DecodeError
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.replies import ObjectData
from thyme.transport.datagrams import Hello, decode, digest_world, encode, read_newer_sender
from thyme.transport.link_config import LinkConfig
from thyme.transport.versions import VersionRange, agree_version
from thyme.wire import codec

OLD, BOTH, NEW = VersionRange(1, 1), VersionRange(1, 2), VersionRange(2, 2)
NAMES = (ALICE, BOB, CAROL)
ranges = st.tuples(st.integers(1, 255), st.integers(1, 255)).map(
    lambda pair: VersionRange(min(pair), max(pair))
)


def config(versions: VersionRange) -> LinkConfig:
    return LinkConfig(versions=versions)


def message(number: int) -> ObjectData:
    return ObjectData(number, Key(ObjectId("o"), ALICE), b"data")


def exchange(pipe: Pipe) -> list[tuple[NodeId, NodeId, Message]]:
    """Every node broadcasts and sends a message to each of the others; returns what arrives."""
    pipe.came.clear()
    for number, sender in enumerate(NAMES):
        pipe.links[sender].broadcast(message(100 + number), pipe.now_us)
        for other in NAMES:
            if other != sender:
                pipe.links[sender].send(other, message(number), pipe.now_us)
    pipe.run(3.0)
    return pipe.came


@given(ranges, ranges)
def test_two_nodes_agree_on_the_newest_version_that_both_read(
    one: VersionRange, other: VersionRange
) -> None:
    both = set(range(one.oldest, one.newest + 1)) & set(range(other.oldest, other.newest + 1))

    assert agree_version(one, other) == agree_version(other, one) == max(both, default=None)


def test_a_running_world_is_upgraded_node_by_node() -> None:
    """M25: in each step one node restarts with a later range, and all messages still arrive."""
    pipe = Pipe()
    steps = [
        (OLD, OLD, OLD),
        (BOTH, OLD, OLD),
        (BOTH, BOTH, OLD),
        (BOTH, BOTH, BOTH),
        (NEW, BOTH, BOTH),
        (NEW, NEW, NEW),
    ]
    running: tuple[VersionRange | None, ...] = (None, None, None)
    for step in steps:
        for name, before, after in zip(NAMES, running, step, strict=True):
            if before != after:
                pipe.add(name, config=config(after))
        running = step
        pipe.run(3.0)

        assert len(exchange(pipe)) == 12
        assert all(not link.hellos.unknown_versions for link in pipe.links.values())

    used = {
        state.version for link in pipe.links.values() for _, state in link.describe_neighbours()
    }
    assert used == {2}


def test_neighbours_use_the_newest_common_version_and_broadcasts_the_oldest_needed() -> None:
    pipe = Pipe()
    for name, versions in zip(NAMES, (BOTH, BOTH, OLD), strict=True):
        pipe.add(name, config=config(versions))
    pipe.run(3.0)

    versions = {name: state.version for name, state in pipe.links[ALICE].describe_neighbours()}

    assert versions == {BOB: 2, CAROL: 1}
    assert pipe.links[ALICE]._broadcast_version == 1


def test_a_node_without_a_common_version_is_no_neighbour_and_is_named() -> None:
    pipe = Pipe()
    for name, versions in zip(NAMES, (OLD, OLD, NEW), strict=True):
        pipe.add(name, config=config(versions))
    pipe.run(3.0)

    assert pipe.links[ALICE].neighbours == [BOB]
    (unknown,) = pipe.links[ALICE].hellos.unknown_versions.values()
    assert list(pipe.links[ALICE].hellos.unknown_versions) == [CAROL]
    assert (str(unknown.versions), unknown.advice(OLD)) == ("2", "upgrade this node")
    (unknown,) = [pipe.links[CAROL].hellos.unknown_versions[ALICE]]
    assert unknown.advice(NEW) == "upgrade the other node"

    pipe.add(CAROL, config=config(BOTH))
    pipe.run(7.0)
    assert set(pipe.links[ALICE].neighbours) == {BOB, CAROL}
    assert pipe.links[ALICE].hellos.unknown_versions == {}


def test_a_node_whose_datagrams_are_newer_is_named_by_their_header() -> None:
    pipe = Pipe(ALICE)
    datagram = bytearray(encode(digest_world(WORLD), bytes(8), BOB, Hello(WORLD)))
    datagram[2] = 9

    pipe.links[ALICE].receive_datagram(bytes(datagram), ("127.0.0.1", 9), 0)

    assert pipe.links[ALICE].hellos.unknown_versions[BOB].versions is None
    assert pipe.links[ALICE].dropped == {"version": 1}
    assert pipe.links[ALICE].neighbours == []


@given(st.binary(max_size=60).map(lambda tail: b"Th\x02" + tail))
def test_headers_of_newer_datagrams_are_read_or_refused(datagram: bytes) -> None:
    found = read_newer_sender(datagram)

    assert found is None or (len(found[0]) == 8 and 1 <= len(found[1]) <= 32)


def test_a_hello_without_versions_is_of_version_one() -> None:
    """Nodes from before the agreement say nothing about versions."""
    with_versions = encode(digest_world(WORLD), bytes(8), BOB, Hello(WORLD))
    assert with_versions.endswith(b"\x92\x01\x01\xc0")
    at = with_versions.index(b"\x96\x01")
    without = with_versions[:at] + b"\x94\x01" + with_versions[at + 2 : -4]

    assert decode(without).content == Hello(WORLD)


def test_a_packet_of_an_unknown_version_is_refused() -> None:
    assert codec.decode_all(codec.encode(message(1), 2), version_max=2) == [message(1)]
    with pytest.raises(DecodeError, match="expected version 1, got 2"):
        codec.decode(codec.encode(message(1), 2))


@pytest.mark.parametrize("versions", [OLD, BOTH])
def test_messages_that_are_sent_together_share_packets_if_the_neighbour_reads_them(
    versions: VersionRange,
) -> None:
    pipe = Pipe()
    pipe.add(ALICE, config=config(BOTH))
    pipe.add(BOB, config=config(versions))
    pipe.run(3.0)
    sent = [message(number) for number in range(100)]

    for each in sent:
        pipe.links[ALICE].send(BOB, each, pipe.now_us)
    pipe.run(3.0)

    assert [each for _, _, each in pipe.came] == sent
    [(_, bob)] = pipe.links[ALICE].describe_neighbours()
    packets = bob.send_window.next_number
    assert packets == (100 if versions == OLD else 2), "64 messages are the maximum of a packet"


def test_messages_that_share_a_packet_fail_one_by_one() -> None:
    pipe = Pipe(ALICE, BOB)
    pipe.run(3.0)
    del pipe.links[BOB]
    lost = [message(number) for number in range(70)]

    for each in lost[:69]:
        pipe.links[ALICE].send(BOB, each, pipe.now_us)
    pipe.run(2.0)
    pipe.links[ALICE].send(BOB, lost[69], pipe.now_us)  # not in a packet when its receiver is gone
    pipe.run(10.0)

    assert sorted(each.request_id for _, _, each in pipe.given_up) == list(range(70))
    assert not pipe.links[ALICE].has_pending
