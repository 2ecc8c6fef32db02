"""Datagrams: several short ones travel as one, and nothing is lost or changed by it (M21, M25)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.pipe import ALICE, BOB, WORLD, Pipe
from tests.live.test_link import numbers, parcel
from thyme.live.datagrams import (
    BODY_BYTES_MAX,
    DATAGRAM_BYTES_MAX,
    LIFE_BYTES,
    PARTS_MAX,
    SHEAF_MAX,
    Cast,
    Content,
    Got,
    Hello,
    Part,
    Sheaf,
    bound,
    decode,
    encode,
    tag_of,
)
from thyme.live.seal import Seal, world_key
from thyme.live.terms import LinkConfig, Rate
from thyme.model.errors import DecodeError
from thyme.model.ids import NODE_ID_BYTES_MAX, NodeId

LONGEST_NAME = NodeId(b"n" * NODE_ID_BYTES_MAX)
LIFE = b"l" * LIFE_BYTES

counts = st.integers(0, 2**63)
bodies = st.one_of(st.binary(max_size=60), st.just(b"x" * BODY_BYTES_MAX))
contents: st.SearchStrategy[Content] = st.one_of(
    st.builds(Cast, bodies),
    st.builds(Part, counts, st.integers(0, 9), st.integers(10, PARTS_MAX), bodies),
    st.builds(Got, counts, counts, st.integers(0, 2**64 - 1)),
    st.just(Hello(WORLD)),
)


def loose(content: Content) -> list[Content]:
    return list(content.items) if isinstance(content, Sheaf) else [content]


@given(st.lists(contents, max_size=40))
def test_what_travels_as_one_is_what_was_to_be_sent(some: list[Content]) -> None:
    seal = Seal(world_key("correct horse", WORLD), WORLD, Random(1).randbytes)
    came: list[Content] = []
    for content in bound(some):
        datagram = encode(tag_of(WORLD), LIFE, LONGEST_NAME, content)
        assert len(seal.close(datagram)) <= DATAGRAM_BYTES_MAX
        came += loose(decode(datagram).content)

    greetings = [content for content in some if isinstance(content, Hello)]
    assert [content for content in came if isinstance(content, Hello)] == greetings
    rest = [content for content in some if not isinstance(content, Hello)]
    assert [content for content in came if not isinstance(content, Hello)] == rest


def test_many_short_ones_are_few_datagrams() -> None:
    assert len(list(bound([Got(number, 1) for number in range(SHEAF_MAX)]))) <= 2
    assert list(bound([Got(1, 1)])) == [Got(1, 1)]
    whole = Part(1, 0, 1, b"x" * BODY_BYTES_MAX)
    assert list(bound([whole, Got(1, 1)])) == [Sheaf((whole, Got(1, 1)))]
    assert list(bound([whole, whole])) == [whole, whole]


def test_messages_sent_at_one_moment_travel_together() -> None:
    pipe = Pipe(ALICE, BOB)
    pipe.run(3)
    before = pipe.datagrams
    link = pipe.links[ALICE]
    for number in range(12):
        link.send(BOB, parcel(number), pipe.now_us)
    pipe.run(0.01)

    assert numbers(pipe.came) == list(range(12))
    assert pipe.datagrams - before == 2  # the messages, and word that they came


def test_word_of_a_message_is_said_once_however_many_parts_came() -> None:
    pipe = Pipe(ALICE, BOB)
    pipe.run(3)
    link = pipe.links[BOB]
    for index in (3, 1):
        part = Part(0, index, 5, b"part")
        link.hear(encode(tag_of(WORLD), LIFE, ALICE, part), (ALICE.hex(), 0), pipe.now_us)

    answers = [loose(decode(transmit.datagram).content) for transmit in link.transmits()]
    words = [item for items in answers for item in items if isinstance(item, Got)]
    assert words == [Got(0, 0, 0b1010)]


def test_who_sends_too_much_in_few_datagrams_is_not_heard_either() -> None:
    """B5."""
    rate = Rate(per_second=1, burst=50, bytes_per_second=1e9, bytes_burst=1e9)
    pipe = Pipe(ALICE, config=LinkConfig(rate=rate))
    crowd = Sheaf(tuple(Part(number, 0, 2, b"") for number in range(SHEAF_MAX)))
    for _ in range(3):
        pipe.inject(ALICE, encode(tag_of(WORLD), LIFE, BOB, crowd), ("bb", 1))

    assert pipe.links[ALICE].dropped["too much"] == 3


def test_a_sheaf_of_more_than_it_may_hold_is_refused() -> None:
    crowd = Sheaf(tuple(Got(number, 0) for number in range(SHEAF_MAX)))
    datagram = encode(tag_of(WORLD), LIFE, BOB, crowd)
    assert decode(datagram).content == crowd

    grown = datagram.replace(b"\xdc\x00\x40", b"\xdc\x00\x41") + b"\x94\x04\x01\x01\x00"
    with pytest.raises(DecodeError, match="too many contents"):
        decode(grown)
