"""The link: a message to a neighbour arrives once, or the sender gets a failure."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transport.pipe import ALICE, BOB, CAROL, WORLD, Pipe
from thyme.model.errors import DecodeError
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.worlds import WorldInfo
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.replies import ObjectData
from thyme.transport.datagrams import (
    DATAGRAM_BYTES_MAX,
    FRAGMENT_BYTES_MAX,
    BroadcastBody,
    Content,
    Fragment,
    FragmentAck,
    decode,
    digest_world,
    encode,
)
from thyme.transport.link_config import LinkConfig, RateLimit, ReassemblyLimits
from thyme.transport.send_window import MESSAGES_MAX

SETTLE_S = 3.0


KEY = Key(ObjectId("o"), ALICE)


def object_data(number: int, size: int = 10) -> ObjectData:
    """A message of about this size."""
    return ObjectData(number, KEY, bytes([number % 251]) * size)


def numbers(messages: list[tuple[NodeId, NodeId, Message]]) -> list[int]:
    return sorted(
        message.request_id for _, _, message in messages if isinstance(message, ObjectData)
    )


def met(*, seed: int = 1, loss: float = 0.0, doubled: float = 0.0, late_us: int = 0) -> Pipe:
    """Two neighbours that know each other."""
    pipe = Pipe(ALICE, BOB, seed=seed, loss=loss, doubled=doubled, late_us=late_us)
    pipe.run(SETTLE_S)
    return pipe


def test_neighbours_know_of_each_other_once_they_have_said_hello() -> None:
    """D4."""
    pipe = Pipe(ALICE, BOB, CAROL)
    pipe.run(0.1)

    assert set(pipe.links[ALICE].neighbours) == {BOB, CAROL}
    assert pipe.links[ALICE].hellos.worlds == {"w1": WORLD}


def test_who_is_silent_is_out_of_reach() -> None:
    """D4."""
    pipe = met()
    del pipe.links[BOB]
    pipe.run(10)

    assert pipe.links[ALICE].neighbours == []


@pytest.mark.parametrize(
    "size", [0, 1, FRAGMENT_BYTES_MAX, FRAGMENT_BYTES_MAX + 1, 100_000, 2_000_000]
)
def test_a_message_of_any_size_arrives(size: int) -> None:
    pipe = met()
    pipe.send(ALICE, BOB, object_data(1, size))
    pipe.run(5)

    assert pipe.came == [(BOB, ALICE, object_data(1, size))]
    assert pipe.given_up == []


def test_a_large_message_takes_little_more_than_its_parts() -> None:
    pipe = met()
    before = pipe.datagrams
    pipe.send(ALICE, BOB, object_data(1, 1_200_000))
    pipe.run(5)

    parts = 1_200_000 / FRAGMENT_BYTES_MAX
    assert len(pipe.came) == 1
    assert pipe.datagrams - before < 1.4 * parts  # the fragments, and an ack for every fourth


def seconds_until_all_came(pipe: Pipe, count: int) -> float:
    started_us = pipe.now_us
    while len(pipe.came) < count and pipe.now_us < started_us + 120_000_000:
        pipe.run(0.01)
    assert pipe.given_up == []
    return (pipe.now_us - started_us) / 1e6


def test_d10_a_lost_fragment_is_sent_again_and_not_those_that_arrived() -> None:
    """At 5 % loss on a link of 100 Mbit/s, with many messages in a row, hardly more is sent than
    must be; an ack of the first transmission of a fragment says nothing about later fragments."""
    bytes_per_s = 12_500_000
    pipe = Pipe(ALICE, BOB, loss=0.05, bytes_per_s=bytes_per_s, queue_bytes=bytes_per_s // 20)
    pipe.run(1.5)
    before = pipe.datagrams
    for number in range(12):
        pipe.send(ALICE, BOB, object_data(number, 256 * 2**10))
    taken_s = seconds_until_all_came(pipe, 12)

    fragments = 12 * 256 * 2**10 / FRAGMENT_BYTES_MAX
    # The fragments, one in twenty again, acks for every fourth and for those behind a gap.
    assert pipe.datagrams - before < 2.3 * fragments
    assert taken_s < 2 * 12 * 256 * 2**10 / bytes_per_s


def test_d10_what_is_lost_by_chance_does_not_slow_a_large_message_down() -> None:
    """One fragment in twenty is lost, and the round trip is 2 ms: 1,000 fragments take 32 round
    trips with 32 in transit, and 200 if halving for each loss leaves 5."""
    pipe = Pipe(ALICE, BOB, loss=0.05, delay_us=1_000)
    pipe.run(1.5)
    pipe.send(ALICE, BOB, object_data(1, 1_200_000))

    assert seconds_until_all_came(pipe, 1) < 0.15


@pytest.mark.parametrize("kbit_s", [500, 2_000, 10_000])
def test_d10_on_a_slow_link_senders_hold_back_and_share_it(kbit_s: int) -> None:
    """Two nodes send at once over a channel whose queue holds 30 fragments. With a fixed window of
    32, every fragment would be sent three times, and the messages given up."""
    bytes_per_s, size = kbit_s * 125, kbit_s * 500
    pipe = Pipe(ALICE, BOB, CAROL, bytes_per_s=bytes_per_s, queue_bytes=30 * FRAGMENT_BYTES_MAX)
    pipe.run(1.5)
    before = pipe.datagrams
    pipe.send(ALICE, BOB, object_data(1, size))
    pipe.send(CAROL, BOB, object_data(2, size))
    first_s = seconds_until_all_came(pipe, 1)
    both_s = first_s + seconds_until_all_came(pipe, 2)

    ideal_s = 2 * size / bytes_per_s
    assert both_s < 1.5 * ideal_s
    assert first_s > 0.6 * both_s
    assert pipe.datagrams - before < 2.0 * 2 * size / FRAGMENT_BYTES_MAX  # with their acks


@settings(max_examples=60)
@given(
    sizes=st.lists(st.sampled_from([5, 1_000, 5_000, 30_000]), min_size=1, max_size=12),
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    doubled=st.sampled_from([0.0, 0.3]),
    late_us=st.sampled_from([0, 500, 30_000]),
    seed=st.integers(0, 10**6),
)
def test_each_message_arrives_once_or_is_given_up(
    sizes: list[int], loss: float, doubled: float, late_us: int, seed: int
) -> None:
    """M25: whatever is lost, duplicated or late. A message may both arrive and be given up, when
    its last ack was lost; it cannot do neither."""
    pipe = met(loss=loss, doubled=doubled, late_us=late_us, seed=seed)
    known = BOB in pipe.links[ALICE].neighbours
    messages = [object_data(number, size) for number, size in enumerate(sizes)]
    for message in messages:
        pipe.send(ALICE, BOB, message)
    pipe.run(60)

    arrived = [message for _, _, message in pipe.came]
    given_up = [message for _, _, message in pipe.given_up]
    for message in messages:
        assert arrived.count(message) <= 1
        assert arrived.count(message) + given_up.count(message) >= 1
    if known and loss < 0.3:
        assert len(arrived) == len(messages)


def test_a_message_to_somebody_unknown_is_given_up_at_once() -> None:
    pipe = Pipe(ALICE)
    pipe.send(ALICE, BOB, object_data(1))

    assert pipe.given_up == [(ALICE, BOB, object_data(1))]


def test_what_was_on_its_way_to_one_that_vanished_is_given_up_once() -> None:
    pipe = met()
    del pipe.links[BOB]
    for number in range(5):
        pipe.send(ALICE, BOB, object_data(number, 50_000))
    pipe.run(20)

    assert numbers(pipe.given_up) == [0, 1, 2, 3, 4]


def test_one_that_comes_up_again_begins_anew() -> None:
    """Its message numbers start again, and are not taken for old ones."""
    pipe = met()
    pipe.send(ALICE, BOB, object_data(1))
    pipe.run(1)
    pipe.add(ALICE)
    pipe.run(2)
    pipe.send(ALICE, BOB, object_data(2))
    pipe.run(1)

    assert [message for _, _, message in pipe.came] == [object_data(1), object_data(2)]


@pytest.mark.parametrize("tick_first", [False, True])
def test_m34_a_node_that_slept_receives_what_is_sent_to_it_afterwards(tick_first: bool) -> None:
    """Its neighbour has removed it and counts messages anew. If the sleeper reads its socket before
    it looks at the time, it has not removed the neighbour, and knows the numbers of before."""
    pipe = met()
    before, meanwhile, after = range(5), range(5, 10), range(10, 30)
    for number in before:
        pipe.send(ALICE, BOB, object_data(number))
        pipe.run(0.1)
    pipe.stop(BOB)
    for number in meanwhile:
        pipe.send(ALICE, BOB, object_data(number))
    pipe.run(40)
    assert pipe.links[ALICE].neighbours == []
    pipe.go_on(BOB, tick_first=tick_first)
    pipe.run(2)
    for number in after:
        pipe.send(ALICE, BOB, object_data(number))
        pipe.run(0.1)

    came = numbers(pipe.came)
    assert [number for number in came if number in after] == list(after)
    assert len(came) == len(set(came))


def test_a_short_broadcast_is_one_datagram_and_a_long_one_goes_to_each() -> None:
    pipe = Pipe(ALICE, BOB, CAROL)
    pipe.run(0.1)
    before = pipe.datagrams
    pipe.broadcast(ALICE, object_data(1))
    assert pipe.datagrams == before + 1
    pipe.broadcast(ALICE, object_data(2, 40_000))
    pipe.run(0.5)

    assert {(to, message) for to, _, message in pipe.came} == {
        (to, message) for to in (BOB, CAROL) for message in (object_data(1), object_data(2, 40_000))
    }


def test_worlds_are_told_apart() -> None:
    """M21, D26: of neighbours of another world, only their hellos are used."""
    pipe = Pipe(ALICE)
    other = WorldInfo("porto", "w2")
    pipe.add(BOB, other)
    pipe.run(2)
    pipe.broadcast(BOB, object_data(1))
    pipe.run(1)

    assert pipe.links[ALICE].neighbours == []
    assert pipe.links[ALICE].hellos.worlds == {"w2": other}
    assert pipe.came == []
    assert pipe.links[ALICE].dropped["another world"] > 0


@given(st.binary(max_size=1_500))
def test_garbage_is_counted_and_dropped(datagram: bytes) -> None:
    """M25."""
    pipe = Pipe(ALICE)
    pipe.inject(ALICE, datagram)

    assert pipe.came == []
    assert pipe.links[ALICE].dropped.total() == 1


@pytest.mark.parametrize("over", [1, 100_000])
def test_what_is_larger_than_a_datagram_may_be_is_counted_and_dropped(over: int) -> None:
    """M25: the datagram is valid otherwise."""
    pipe = met()
    fits = encode(digest_world(WORLD), b"12345678", CAROL, BroadcastBody(b""))
    large = encode(
        digest_world(WORLD), b"12345678", CAROL, BroadcastBody(bytes(DATAGRAM_BYTES_MAX + over))
    )
    before = pipe.links[ALICE].dropped.copy()
    pipe.inject(ALICE, large)

    assert (pipe.links[ALICE].dropped - before).total() == 1
    with pytest.raises(DecodeError):
        decode(large)
    decode(fits)


@settings(max_examples=200)
@given(st.data())
def test_changed_datagrams_do_no_harm(data: st.DataObject) -> None:
    """M25: bits flipped, bytes cut off or inserted."""
    contents: list[Content] = [
        BroadcastBody(b"\x01\x91\x01"),
        Fragment(3, 0, 2, b"x" * 20),
        Fragment(0, 0, 1, b""),
        FragmentAck(0, 1, 5),
    ]
    content = data.draw(st.sampled_from(contents))
    datagram = bytearray(encode(digest_world(WORLD), b"12345678", BOB, content))
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(datagram) - 1))
        match data.draw(st.sampled_from(["turn", "cut", "put"])):
            case "turn":
                datagram[place] ^= 1 << data.draw(st.integers(0, 7))
            case "cut" if len(datagram) > 1:
                del datagram[place]
            case _:
                datagram.insert(place, data.draw(st.integers(0, 255)))
    pipe = Pipe(ALICE)
    pipe.inject(ALICE, bytes(datagram))
    pipe.run(1)


def test_who_sends_too_much_is_not_heard_and_others_are() -> None:
    """B5."""
    config = LinkConfig(rate_limit=RateLimit(datagrams_per_second=100, datagrams_burst=50))
    pipe = Pipe(ALICE, BOB, config=config)
    pipe.run(2)
    flood = encode(digest_world(WORLD), b"12345678", CAROL, BroadcastBody(b"nonsense"))
    for _ in range(1_000):
        pipe.inject(ALICE, flood, ("fe", 1))
    assert pipe.links[ALICE].dropped["too much"] == 950

    pipe.send(BOB, ALICE, object_data(1))
    pipe.run(1)
    assert (ALICE, BOB, object_data(1)) in pipe.came


def test_what_is_begun_and_never_finished_is_bounded_and_forgotten() -> None:
    bounds = ReassemblyLimits(
        bytes_max=100 * FRAGMENT_BYTES_MAX, messages_max=10, idle_us=1_000_000
    )
    pipe = Pipe(ALICE, config=LinkConfig(reassembly=bounds))
    for number in range(50):
        part = Fragment(number, 0, 5, b"x" * FRAGMENT_BYTES_MAX)
        pipe.inject(ALICE, encode(digest_world(WORLD), b"12345678", BOB, part))
    assert pipe.links[ALICE]._neighbours.states[BOB].reassembler.refused == 40

    pipe.run(4)
    part = Fragment(99, 0, 5, b"x" * FRAGMENT_BYTES_MAX)
    pipe.inject(ALICE, encode(digest_world(WORLD), b"12345678", BOB, part))
    assert pipe.links[ALICE]._neighbours.states[BOB].reassembler.refused == 40


def test_somebody_with_our_name_is_not_us() -> None:
    pipe = Pipe(ALICE)
    pipe.inject(ALICE, encode(digest_world(WORLD), b"87654321", ALICE, BroadcastBody(b"")))

    assert pipe.links[ALICE].dropped == {"our name": 1}


def test_too_many_that_wait_are_given_up() -> None:
    pipe = Pipe(ALICE, BOB)
    pipe.run(1)
    for number in range(MESSAGES_MAX + 2):
        pipe.send(ALICE, BOB, object_data(number, 500))

    assert numbers(pipe.given_up) == [MESSAGES_MAX, MESSAGES_MAX + 1]
