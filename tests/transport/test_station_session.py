"""Sessions between stations: both ends are proven, and no frame can be changed (B5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.live.keys.identity import Identity
from thyme.live.station.wires import StationKey
from thyme.model.errors import DecodeError
from thyme.protocol.messages.stations import WorldProbe
from thyme.transport.station_session import (
    Handshake,
    StationFacts,
    StationSession,
    decode_message,
    encode_message,
)

NORTH, SOUTH, MALLORY = (Identity(bytes([number]) * 32) for number in (1, 2, 3))


def facts(name: str) -> StationFacts:
    return StationFacts(name, 1_000, 60_000_000, b"both")


def a_handshake(identity: Identity, number: int = 7, *, is_initiator: bool = False) -> Handshake:
    key = StationKey(identity)
    return Handshake(
        key, bytes([number]) * 32, facts(key.public_key.hex()), is_initiator=is_initiator
    )


def connect() -> tuple[StationSession, StationSession]:
    """The sessions of north, which connected, and of south."""
    north, south = a_handshake(NORTH, 8, is_initiator=True), a_handshake(SOUTH, 9)
    assert south.read_hello(north.hello) == NORTH.node_id
    assert north.read_hello(south.hello) == SOUTH.node_id
    north_proof, south_proof = north.make_proof(), south.make_proof()
    return north.finish(south_proof)[0], south.finish(north_proof)[0]


def test_b5_both_sides_know_each_other_and_exchange_messages() -> None:
    north, south = connect()

    assert (north.peer, south.peer) == (SOUTH.node_id, NORTH.node_id)
    for sender, receiver in ((north, south), (south, north), (north, south)):
        frame = sender.seal(encode_message(WorldProbe(3)))
        assert b"WorldProbe" not in frame
        assert decode_message(receiver.open(frame)) == WorldProbe(3)
    assert south.open(north.seal(b"")) == b"", "a sign of life"


def test_b5_the_facts_of_a_station_arrive_with_its_proof() -> None:
    north, south = a_handshake(NORTH, 8, is_initiator=True), a_handshake(SOUTH, 9)
    south.read_hello(north.hello)
    north.read_hello(south.hello)
    north.make_proof()

    assert north.finish(south.make_proof())[1] == facts(SOUTH.public_key.hex())


def test_b5_a_frame_that_is_changed_repeated_lost_or_sent_back_is_refused() -> None:
    north, south = connect()
    first, second = north.seal(b"one"), north.seal(b"two")

    with pytest.raises(DecodeError, match="lost"):
        south.open(second)
    with pytest.raises(DecodeError):
        south.open(first[:-1] + bytes([first[-1] ^ 1]))
    with pytest.raises(DecodeError):
        north.open(first)
    assert south.open(first) == b"one"
    with pytest.raises(DecodeError):
        south.open(first)
    assert south.open(second) == b"two"


def test_b5_whoever_repeats_the_hello_of_another_cannot_prove_to_be_it() -> None:
    """Mallory sends north's hello, recorded before: without the keys there is no proof."""
    old = a_handshake(NORTH, 8, is_initiator=True)
    south, mallory = a_handshake(SOUTH, 9), a_handshake(MALLORY, 4, is_initiator=True)
    assert south.read_hello(old.hello) == NORTH.node_id, "claimed"
    mallory.read_hello(south.hello)
    with pytest.raises(DecodeError):
        south.finish(mallory.make_proof())


def test_b5_mallory_cannot_pass_a_proof_on_between_two_sessions() -> None:
    """A proof is for one pair of hellos and one role."""
    north = a_handshake(NORTH, 8, is_initiator=True)
    to_north, to_south = a_handshake(MALLORY, 4), a_handshake(MALLORY, 5, is_initiator=True)
    south = a_handshake(SOUTH, 9)
    assert north.read_hello(to_north.hello) == MALLORY.node_id, "north sees who it is"
    to_north.read_hello(north.hello)
    south.read_hello(to_south.hello)
    with pytest.raises(DecodeError):
        south.finish(north.make_proof())
    echo = a_handshake(SOUTH, 6, is_initiator=True)
    echo.read_hello(echo.hello)
    with pytest.raises(DecodeError):
        echo.finish(echo.make_proof())


def test_b5_a_weak_key_and_another_version_are_refused() -> None:
    north = a_handshake(NORTH, 8, is_initiator=True)
    weak = north.hello[:-32] + bytes(32)
    with pytest.raises(DecodeError, match="Diffie-Hellman"):
        a_handshake(SOUTH).read_hello(weak)
    newer = bytearray(north.hello)
    newer[1] = 9
    with pytest.raises(DecodeError, match="version 9"):
        a_handshake(SOUTH).read_hello(bytes(newer))


@given(st.binary(max_size=200))
def test_b5_any_bytes_are_refused_with_a_decode_error(garbage: bytes) -> None:
    south = a_handshake(SOUTH)
    with pytest.raises(DecodeError):
        south.read_hello(garbage)
    south.read_hello(a_handshake(NORTH, 8, is_initiator=True).hello)
    with pytest.raises(DecodeError):
        south.finish(garbage)
