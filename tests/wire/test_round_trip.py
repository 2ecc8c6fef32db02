"""Messages survive the way into bytes and back, whatever they hold (M25, I24)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import photo
from tests.wire.strategies import any_message, messages
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.requests import InsertObject
from thyme.wire.codec import decode, encode, size_of


@pytest.mark.parametrize("kind", messages, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])
def test_a_message_is_read_back_from_its_bytes(kind: type[Message], data: st.DataObject) -> None:
    message = data.draw(messages[kind])
    arrived = decode(encode(message))

    assert arrived == message
    assert type(arrived) is kind
    assert encode(arrived) == encode(message)


@given(any_message)
def test_the_size_of_a_message_is_that_of_its_bytes(message: Message) -> None:
    assert size_of(message) == len(encode(message))


@given(any_message, any_message)
def test_different_messages_have_different_bytes(one: Message, other: Message) -> None:
    same = type(one) is type(other) and one == other

    assert (encode(one) == encode(other)) is same


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536, 5 * 2**20])
def test_m1_an_object_of_any_size_is_carried_unchanged(size: int) -> None:
    pixels = bytes(range(256)) * (size // 256) + b"\x00" * (size % 256)
    arrived = decode(encode(InsertObject(1, photo(data=pixels), pixels)))

    assert isinstance(arrived, InsertObject)
    assert arrived.metadata.matches_content(arrived.data)


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_what_arrives_may_be_any_kind_of_bytes(view: type) -> None:
    message = InsertObject(1, photo(data=b"pixels"), b"pixels")
    arrived = decode(view(encode(message)))

    assert arrived == message
    assert isinstance(arrived, InsertObject)
    assert type(arrived.data) is bytes
