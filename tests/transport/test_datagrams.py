"""Datagrams: short contents are bundled, and none is lost or changed (M21, M25)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transport.pipe import ALICE, BOB, WORLD, Pipe
from tests.transport.test_link import numbers, object_data
from thyme.model.errors import DecodeError
from thyme.model.ids import NODE_ID_BYTES_MAX, NodeId
from thyme.transport.datagrams import (
    BUNDLE_ITEMS_MAX,
    DATAGRAM_BYTES_MAX,
    FRAGMENT_BYTES_MAX,
    FRAGMENTS_MAX,
    INCARNATION_BYTES,
    BroadcastBody,
    Bundle,
    Content,
    Fragment,
    FragmentAck,
    Hello,
    bundle,
    decode,
    digest_world,
    encode,
)
from thyme.transport.encryption import DatagramCipher, derive_world_key
from thyme.transport.link_config import LinkConfig, RateLimit

LONGEST_NAME = NodeId(b"n" * NODE_ID_BYTES_MAX)
LIFE = b"l" * INCARNATION_BYTES

counts = st.integers(0, 2**63)
bodies = st.one_of(st.binary(max_size=60), st.just(b"x" * FRAGMENT_BYTES_MAX))
contents: st.SearchStrategy[Content] = st.one_of(
    st.builds(BroadcastBody, bodies),
    st.builds(Fragment, counts, st.integers(0, 9), st.integers(10, FRAGMENTS_MAX), bodies),
    st.builds(FragmentAck, counts, counts, st.integers(0, 2**64 - 1)),
    st.just(Hello(WORLD)),
)


def loose(content: Content) -> list[Content]:
    return list(content.items) if isinstance(content, Bundle) else [content]


@given(st.lists(contents, max_size=40))
def test_what_travels_as_one_is_what_was_to_be_sent(some: list[Content]) -> None:
    seal = DatagramCipher(derive_world_key("correct horse", WORLD), WORLD, Random(1).randbytes)
    came: list[Content] = []
    for content in bundle(some):
        datagram = encode(digest_world(WORLD), LIFE, LONGEST_NAME, content)
        assert len(seal.encrypt(datagram)) <= DATAGRAM_BYTES_MAX
        came += loose(decode(datagram).content)

    greetings = [content for content in some if isinstance(content, Hello)]
    assert [content for content in came if isinstance(content, Hello)] == greetings
    rest = [content for content in some if not isinstance(content, Hello)]
    assert [content for content in came if not isinstance(content, Hello)] == rest


def test_many_short_ones_are_few_datagrams() -> None:
    assert len(list(bundle([FragmentAck(number, 1) for number in range(BUNDLE_ITEMS_MAX)]))) <= 2
    assert list(bundle([FragmentAck(1, 1)])) == [FragmentAck(1, 1)]
    whole = Fragment(1, 0, 1, b"x" * FRAGMENT_BYTES_MAX)
    assert list(bundle([whole, FragmentAck(1, 1)])) == [Bundle((whole, FragmentAck(1, 1)))]
    assert list(bundle([whole, whole])) == [whole, whole]


def test_messages_sent_at_one_moment_travel_together() -> None:
    pipe = Pipe(ALICE, BOB)
    pipe.run(3)
    before = pipe.datagrams
    link = pipe.links[ALICE]
    for number in range(12):
        link.send(BOB, object_data(number), pipe.now_us)
    pipe.run(0.01)

    assert numbers(pipe.came) == list(range(12))
    assert pipe.datagrams - before == 2  # the messages and their acks


def test_word_of_a_message_is_said_once_however_many_parts_came() -> None:
    pipe = Pipe(ALICE, BOB)
    pipe.run(3)
    link = pipe.links[BOB]
    for index in (3, 1):
        part = Fragment(0, index, 5, b"part")
        link.receive_datagram(
            encode(digest_world(WORLD), LIFE, ALICE, part), (ALICE.hex(), 0), pipe.now_us
        )

    answers = [loose(decode(transmit.datagram).content) for transmit in link.drain_datagrams()]
    words = [item for items in answers for item in items if isinstance(item, FragmentAck)]
    assert words == [FragmentAck(0, 0, 0b1010)]


def test_who_sends_too_much_in_few_datagrams_is_not_heard_either() -> None:
    """B5."""
    rate = RateLimit(
        datagrams_per_second=1, datagrams_burst=50, bytes_per_second=1e9, bytes_burst=1e9
    )
    pipe = Pipe(ALICE, config=LinkConfig(rate_limit=rate))
    crowd = Bundle(tuple(Fragment(number, 0, 2, b"") for number in range(BUNDLE_ITEMS_MAX)))
    for _ in range(3):
        pipe.inject(ALICE, encode(digest_world(WORLD), LIFE, BOB, crowd), ("bb", 1))

    assert pipe.links[ALICE].dropped["too much"] == 3


def test_a_bundle_of_more_than_it_may_hold_is_refused() -> None:
    crowd = Bundle(tuple(FragmentAck(number, 0) for number in range(BUNDLE_ITEMS_MAX)))
    datagram = encode(digest_world(WORLD), LIFE, BOB, crowd)
    assert decode(datagram).content == crowd

    grown = datagram.replace(b"\xdc\x00\x40", b"\xdc\x00\x41") + b"\x94\x04\x01\x01\x00"
    with pytest.raises(DecodeError, match="too many contents"):
        decode(grown)
