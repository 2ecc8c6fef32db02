"""Hostile bytes: `decode` gives a valid message or a `DecodeError`, and nothing else (M25)."""

from __future__ import annotations

import struct
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import conjunctions, frame, photo, subscribe
from tests.wire.strategies import any_message
from tests.wire.test_schema import GOLDEN
from thyme.model.errors import DecodeError
from thyme.model.time_frames import INSTANT_MAX_US
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.replies import Done, Notify
from thyme.protocol.messages.requests import FetchPage, InsertObject, StartSubscription
from thyme.wire.codec import MESSAGES_MAX, PACKET_BYTES_MAX, decode, decode_all, encode

VERSION_1 = b"\x01"
GOLDEN_FRAMES = [bytes.fromhex(golden) for _, golden in GOLDEN]
HUGE = [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff"]


def reason_of(frame: bytes) -> str:
    """Why a frame was refused; "" for one that holds a message, which must then be sound."""
    try:
        message = decode(frame)
    except DecodeError as error:
        return error.reason
    assert decode(encode(message)) == message
    return ""


def of_array(*array: object) -> bytes:
    return VERSION_1 + msgspec.msgpack.encode(array)


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_m25_random_bytes_are_refused_or_a_message(noise: bytes) -> None:
    assert reason_of(noise) in {"", "empty", "version", "malformed", "invalid"}
    assert reason_of(VERSION_1 + noise) in {"", "malformed", "invalid"}


@given(any_message, st.randoms(use_true_random=False))
def test_m25_a_message_that_was_damaged_is_refused_or_another_message(
    message: Message, rng: Random
) -> None:
    for _ in range(10):
        reason_of(damaged(encode(message), rng))


@pytest.mark.parametrize("whole", GOLDEN_FRAMES, ids=[type(m).__name__ for m, _ in GOLDEN])
def test_m25_golden_messages_damaged_in_a_thousand_ways_raise_one_error_only(whole: bytes) -> None:
    rng = Random(whole)

    reasons = {reason_of(damaged(whole, rng)) for _ in range(1000)}

    assert {"malformed", "invalid"} <= reasons <= {"", "empty", "version", "malformed", "invalid"}


def damaged(whole: bytes, rng: Random) -> bytes:
    """A frame with a bit flipped, bytes changed, cut, repeated, or spliced with another."""
    start, end = sorted(rng.randrange(len(whole) + 1) for _ in range(2))
    at = 1 + rng.randrange(len(whole) - 1)
    other = rng.choice(GOLDEN_FRAMES)
    match rng.randrange(7):
        case 0:
            return whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :]
        case 1:
            return whole[:at] + rng.randbytes(1) + whole[at + 1 :]
        case 2:
            return whole[:end]
        case 3:
            return whole[:start] + whole[end:]
        case 4:
            return whole[:end] + whole[start:]
        case 5:
            return whole[:start] + other[min(start, len(other)) :]
        case _:
            return whole[:at] + rng.randbytes(4) + whole[at:]


@pytest.mark.parametrize("whole", GOLDEN_FRAMES, ids=[type(m).__name__ for m, _ in GOLDEN])
def test_m25_a_message_cut_short_anywhere_is_refused(whole: bytes) -> None:
    assert all(reason_of(whole[:size]) != "" for size in range(len(whole)))


@pytest.mark.parametrize("whole", GOLDEN_FRAMES, ids=[type(m).__name__ for m, _ in GOLDEN])
@pytest.mark.parametrize("rest", [b"\x00", b"\xc0", VERSION_1, b"\x92\x10\x01"])
def test_m25_bytes_after_a_message_are_refused(whole: bytes, rest: bytes) -> None:
    assert reason_of(whole + rest) == "malformed"


def test_m25_no_bytes_are_no_message() -> None:
    assert reason_of(b"") == "empty"


def test_m25_a_frame_over_the_limit_is_refused_before_it_is_read() -> None:
    assert reason_of(bytes(PACKET_BYTES_MAX + 1)) == "oversized"


@pytest.mark.parametrize(
    "nested",
    [
        VERSION_1 + b"\x91" * 100_000,
        VERSION_1 + b"\x93\x10\x01" + b"\x91" * 100_000 + b"\xc0",
        VERSION_1 + b"\x93\x10\x01" + b"\x81\x01" * 100_000 + b"\xc0",
        VERSION_1 + b"\x93\x10\x01" + b"\x81" * 100_000 + b"\xc0",
        VERSION_1 + b"\x93\x10\x01" + b"\xdd\x00\x00\x00\x01" * 1_000_000 + b"\xc0",
        VERSION_1 + b"\x95\x12\x01\x02" + b"\x91" * 100_000 + b"\xc3",
    ],
    ids=["message", "appended arrays", "appended maps", "map keys", "a million", "items"],
)
def test_m25_nesting_without_end_is_refused(nested: bytes) -> None:
    assert reason_of(nested) in {"malformed", "invalid"}


@pytest.mark.parametrize("length", HUGE, ids=bytes.hex)
@pytest.mark.parametrize(
    "start",
    [
        b"\xdd",  # the message itself
        b"\x95\x12\x01\x02\xdd",  # the items of a page
        b"\x96\x05\x01\xdd",  # the conjunctions of a page
        b"\x94\x13\x01\x92\xa1a\xc4\x01b\xc6",  # the bytes of an object
        b"\x94\x11\x01\xdb",  # the code of a refusal
        b"\x93\x10\x01\xdf",  # a map that is appended
        b"\x93\x10\x01\xc9",  # an extension that is appended
    ],
    ids=["message", "items", "conjunctions", "data", "text", "map", "extension"],
)
def test_m25_a_length_that_is_not_there_costs_nothing(start: bytes, length: bytes) -> None:
    assert reason_of(VERSION_1 + start + length) in {"malformed", "invalid"}


@pytest.mark.parametrize(
    "array",
    [
        [],
        [16],
        [16, None],
        [16, "1"],
        [16, 1.0],
        [16, True],
        [16, [1]],
        ["16", 1],
        [None, 1],
        [True, 1],
        [[16], 1],
        [17, 1, b"code", "detail"],
        [17, 1, None, "detail"],
        [18, 1, 1, {}, True],
        [18, 1, 1, [], 1],
        [18, 1, 1, [None], True],
        [19, 1, "key", b""],
        [19, 1, [], b""],
        [2, 1, ["photo", "bob"]],
        [2, 1, {"oid": "photo", "owner": b"bob"}],
    ],
    ids=str,
)
def test_m25_a_value_of_another_type_is_refused(array: list[object]) -> None:
    assert reason_of(of_array(*array)) == "invalid"


@pytest.mark.parametrize(
    "value", [b"\xc0", b"\x01", b"\xc3", b"\xa1a", b"\xc4\x01a", b"\x80", b"\x90", b"\x81\x10\x01"]
)
def test_m25_a_frame_that_is_not_an_array_is_refused(value: bytes) -> None:
    assert reason_of(VERSION_1 + value) == "invalid"


@pytest.mark.parametrize("text", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_m25_text_that_is_not_utf_8_is_refused(text: bytes) -> None:
    code = bytes([0xA0 + len(text)]) + text

    assert reason_of(VERSION_1 + b"\x94\x11\x01" + code + b"\xa1a") == "malformed"


def test_m25_a_nan_where_an_instant_belongs_is_refused() -> None:
    nan = b"\xcb" + struct.pack(">d", float("nan"))
    page = encode(FetchPage(5, conjunctions("goal"), frame(7, None), 20))

    assert reason_of(page.replace(b"\x92\x07\xc0", b"\x92" + nan + b"\xc0")) == "invalid"


def fields_of(message: Message) -> Any:
    return msgspec.msgpack.decode(encode(message)[1:])


def insert(**change: Any) -> list[Any]:
    """An insert whose metadata has some of its fields changed."""
    names = ["key", "tags", "summary", "published_us", "size", "digest_and_proof", "expires_us"]
    array: list[Any] = fields_of(InsertObject(1, photo(tags=["a", "b"]), b""))
    for name, value in change.items():
        array[2][names.index(name)] = value
    return array


def start(**change: Any) -> list[Any]:
    """A subscription with some of its fields changed."""
    names = ["key", "conjunctions", "frame"]
    array: list[Any] = fields_of(StartSubscription(3, subscribe(1, "a"), 20))
    for name, value in change.items():
        array[2][names.index(name)] = value
    return array


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (insert(tags=["b", "a"]), "sorted"),
        (insert(tags=["a", "a"]), "distinct"),
        (insert(tags=["A"]), "normalised"),
        (insert(tags=["e\u0301"]), "normalised"),
        (insert(tags=[]), "at least one tag"),
        (insert(tags=["a b"]), "white space"),
        (insert(tags=["a&b"]), "query operator"),
        (insert(tags=["not"]), "query operator"),
        (insert(tags=[""]), "empty"),
        (insert(tags=["a\x00"]), "control character"),
        (insert(tags=["x" * 129]), "128 bytes"),
        (insert(tags=sorted(f"t{number}" for number in range(65))), "at most 64 tags"),
        (insert(key=["", b"bob"]), "an object id"),
        (insert(key=["a b", b"bob"]), "an object id"),
        (insert(key=["x" * 65, b"bob"]), "an object id"),
        (insert(key=["photo", b""]), "a node id"),
        (insert(key=["photo", b"x" * 33]), "a node id"),
        (insert(size=-1), "not negative"),
        (insert(digest_and_proof=b""), "a digest has 32 bytes"),
        (insert(digest_and_proof=b"x" * 33), "a digest has 32 bytes"),
        (insert(published_us=INSTANT_MAX_US + 1), "out of range"),
        (insert(expires_us=-INSTANT_MAX_US - 1), "out of range"),
        (start(conjunctions=[]), "at least one conjunction"),
        (start(conjunctions=[[[], ["a"]]]), "needs a tag without '!'"),
        (start(conjunctions=[[[], []]]), "needs a tag without '!'"),
        (start(conjunctions=[[["a"], ["a"]]]), "contradicts itself"),
        (start(conjunctions=[[["b", "a"], []]]), "sorted"),
        (start(conjunctions=[[["a"], ["A"]]]), "normalised"),
        (start(conjunctions=[[["a"], [""]]]), "empty"),
        (start(frame=[2, 1]), "starts"),
        (start(frame=[INSTANT_MAX_US + 1, None]), "out of range"),
        (start(key=["", b"alice"]), "a subscription id"),
        (start(key=["sub1", b""]), "a node id"),
    ],
)
def test_m25_a_value_that_could_not_have_been_made_here_is_refused_with_its_reason(
    array: list[Any], words: str
) -> None:
    with pytest.raises(DecodeError, match=f"^invalid: .*{words}"):
        decode(of_array(*array))


def test_a_message_changed_by_nothing_is_accepted() -> None:
    """The builders of the table above are sound: only what a row names is wrong in it."""
    assert reason_of(of_array(*insert())) == ""
    assert reason_of(of_array(*start())) == ""


@pytest.mark.parametrize("sid", ["", "a b", "a@b", "x" * 65, "a\nb"])
def test_m25_a_notification_for_what_cannot_be_a_subscription_is_refused(sid: str) -> None:
    array: list[Any] = fields_of(Notify(photo(), ()))
    array[2] = [sid]

    assert reason_of(of_array(*array)) == "invalid"


def test_m25_a_page_is_asked_for_with_at_least_one_conjunction() -> None:
    array: list[Any] = fields_of(FetchPage(5, conjunctions("goal"), frame(), 20))
    array[2] = []

    assert reason_of(of_array(*array)) == "invalid"


def test_m25_a_cursor_stands_at_an_instant() -> None:
    array: list[Any] = fields_of(FetchPage(5, conjunctions("goal"), frame(), 20))
    array[5] = [2**63, ["photo", b"bob"]]

    assert reason_of(of_array(*array)) == "invalid"


@pytest.mark.parametrize(
    "array",
    [
        insert(tags=["b" * 100 + str(number) for number in range(60, 0, -1)]),
        insert(key=["x" * 1_000_000, b"bob"]),
        insert(key=["photo", b"x" * 1_000_000]),
        start(conjunctions=[[[f"t{number}" for number in range(10_000, 0, -1)], []]]),
        [17, 1, 1, "x" * 1_000_000],
    ],
    ids=["tags", "object id", "node id", "conjunction", "type"],
)
def test_m25_what_is_said_of_hostile_bytes_is_short_enough_for_a_log(array: list[Any]) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(of_array(*array))

    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("count", [0, MESSAGES_MAX + 1, 2**32 - 1])
def test_a_packet_of_no_messages_or_of_too_many_is_refused_before_they_are_read(count: int) -> None:
    one = encode(Done(1))[1:]
    with pytest.raises(DecodeError) as refused:
        decode_all(b"\x02\xdd" + count.to_bytes(4) + one * min(count, MESSAGES_MAX + 1))
    assert refused.value.reason == "invalid"


@given(st.binary(max_size=200))
def test_noise_in_a_packet_of_several_messages_is_refused(noise: bytes) -> None:
    with suppress(DecodeError):
        decode_all(b"\x02" + noise)
