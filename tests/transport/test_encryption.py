"""Closed worlds: a node without the secret can neither read nor send (B5)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transport.pipe import ALICE, BOB, CAROL, WORLD, Pipe
from tests.transport.test_link import object_data
from thyme.model.errors import DecodeError, OptionError
from thyme.model.ids import NodeId
from thyme.model.worlds import Area, WorldInfo
from thyme.transport import encryption as seals
from thyme.transport.datagrams import BroadcastBody, Hello, decode, digest_world, encode
from thyme.transport.encryption import (
    REPLAY_WINDOW,
    DatagramCipher,
    Decrypted,
    ReplayWindow,
    check_secret,
    derive_world_key,
)
from thyme.transport.link import Link
from thyme.transport.link_config import LinkConfig

KEY = derive_world_key("correct horse", WORLD)
OTHER_KEY = derive_world_key("wrong horse", WORLD)
HELLO = encode(digest_world(WORLD), b"12345678", ALICE, Hello(WORLD))


def a_seal(seed: int, key: bytes = KEY) -> DatagramCipher:
    return DatagramCipher(key, WORLD, Random(seed).randbytes)


def acquainted() -> tuple[DatagramCipher, DatagramCipher]:
    """Two ciphers that have answered each other's challenges."""
    one, other = a_seal(1), a_seal(2)
    reply = other.decrypt(one.encrypt(b"hello")).reply
    while reply is not None:
        one, other = other, one
        reply = other.decrypt(reply).reply
    return one, other


def answer(asked: DatagramCipher, challenge: Decrypted) -> bytes:
    """What a cipher replies to a challenge."""
    assert challenge.reply is not None
    response = asked.decrypt(challenge.reply).reply
    assert response is not None
    return response


def closed_pipe(**keys: bytes) -> Pipe:
    """Links of a closed world, by name, each with a key."""
    pipe = Pipe()
    for name, key in keys.items():
        node_id = NodeId(name.encode())
        seal = a_seal(sum(node_id), key)
        pipe.links[node_id] = Link(node_id, WORLD, node_id.ljust(8), LinkConfig(), cipher=seal)
    return pipe


def test_who_has_the_secret_is_understood() -> None:
    one, other = acquainted()

    assert other.decrypt(one.encrypt(b"x" * 1_250)) == Decrypted((b"x" * 1_250,))
    assert one.decrypt(other.encrypt(b"")) == Decrypted((b"",))


def test_a_hello_from_before_the_proof_is_not_lost() -> None:
    one, other = a_seal(1), a_seal(2)
    asked = other.decrypt(one.encrypt(HELLO))
    other.decrypt(one.encrypt(b"the time of the sender"))
    assert asked.datagrams == ()

    assert other.decrypt(answer(one, asked)).datagrams == (HELLO,)


def test_a_datagram_is_heard_once() -> None:
    one, other = acquainted()
    sealed = [one.encrypt(bytes([number])) for number in range(10)]
    for frame in reversed(sealed):
        assert other.decrypt(frame).datagrams != ()
    for frame in sealed:
        with pytest.raises(DecodeError, match="replayed"):
            other.decrypt(frame)


def test_a_recording_from_before_our_life_comes_to_nothing() -> None:
    """A whole recorded conversation, replayed to a node that restarted."""
    alice, bob = a_seal(1), a_seal(2)
    recorded = [alice.encrypt(HELLO)]
    recorded.append(answer(alice, bob.decrypt(recorded[0])))

    bob_again = a_seal(3)
    assert [bob_again.decrypt(frame).datagrams for frame in recorded] == [(), ()]


def test_what_an_earlier_life_received_is_not_believed_after_the_proof_of_a_living_sender() -> None:
    alice, bob = acquainted()
    recorded = [alice.encrypt(b"delete it"), alice.encrypt(b"and this")]
    assert [bob.decrypt(frame).datagrams for frame in recorded] == [(b"delete it",), (b"and this",)]

    bob_again = a_seal(3)
    asked = bob_again.decrypt(recorded[0])
    assert bob_again.decrypt(answer(alice, asked)).datagrams == ()
    for frame in recorded:
        with pytest.raises(DecodeError, match="replayed"):
            bob_again.decrypt(frame)
    assert bob_again.decrypt(alice.encrypt(b"once more")).datagrams == (b"once more",)


def test_what_was_sent_after_the_proof_may_overtake_it() -> None:
    alice, bob = a_seal(1), a_seal(2)
    proof = answer(alice, bob.decrypt(alice.encrypt(HELLO)))
    first, second = alice.encrypt(b"first"), alice.encrypt(b"second")
    bob.decrypt(second)
    assert bob.decrypt(proof).datagrams == (HELLO,)

    assert bob.decrypt(first).datagrams == (b"first",)
    with pytest.raises(DecodeError, match="replayed"):
        bob.decrypt(second)


def test_a_forgotten_stream_must_prove_itself_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "STREAMS_MAX", 1)
    alice, bob, carol = a_seal(1), a_seal(2), a_seal(3)
    recorded = [alice.encrypt(HELLO)]
    recorded.append(answer(alice, bob.decrypt(recorded[0])))
    assert bob.decrypt(recorded[1]).datagrams == (HELLO,)
    bob.decrypt(carol.encrypt(b"I am new"))

    assert [bob.decrypt(frame).datagrams for frame in recorded] == [(), ()]


def test_another_secret_is_refused_and_the_user_is_told() -> None:
    ours, stranger = a_seal(1), a_seal(2, OTHER_KEY)
    assert ours.decryption_warning is None
    for _ in range(3):
        with pytest.raises(DecodeError, match="wrong secret"):
            ours.decrypt(stranger.encrypt(b"hello"))

    assert ours.decryption_warning is not None
    assert "secret" in ours.decryption_warning
    ours.decrypt(a_seal(3).encrypt(b"hello"))
    assert ours.decryption_warning is None


def test_the_same_secret_makes_another_key_in_another_world() -> None:
    assert derive_world_key("correct horse", WorldInfo("lisbon", "w2")) != KEY


def test_a_secret_that_is_guessed_at_once_is_refused() -> None:
    with pytest.raises(OptionError, match="8 characters"):
        check_secret("short")


def test_no_nonce_is_used_twice_and_nothing_shows() -> None:
    seal = a_seal(1)
    frames = [seal.encrypt(b"the same text, which nobody can read") for _ in range(500)]

    assert len({frame[: seals._HEADER_BYTES] for frame in frames}) == 500
    assert not any(b"same" in frame for frame in frames)


@given(st.data())
def test_any_change_is_noticed(data: st.DataObject) -> None:
    one, other = acquainted()
    frame = bytearray(one.encrypt(b"a datagram"))
    place = data.draw(st.integers(0, len(frame) - 1))
    match data.draw(st.sampled_from(["turn", "cut", "end"])):
        case "turn":
            frame[place] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del frame[place]
        case _:
            del frame[place:]
    with pytest.raises(DecodeError):
        other.decrypt(bytes(frame))


@given(st.lists(st.integers(0, 3 * REPLAY_WINDOW), max_size=60))
def test_the_window_takes_each_number_once_unless_it_is_too_old(numbers: list[int]) -> None:
    window, seen = ReplayWindow(), set[int]()
    for number in numbers:
        too_old = bool(seen) and number <= max(seen) - REPLAY_WINDOW
        assert window.accept(number) == (number not in seen and not too_old)
        seen.add(number)


@given(st.lists(st.integers(0, 2 * REPLAY_WINDOW), min_size=1, max_size=60), st.data())
def test_the_window_takes_nothing_from_before_the_proof(
    numbers: list[int], data: st.DataObject
) -> None:
    window = ReplayWindow()
    accepted = {number for number in numbers if window.accept(number)}
    proof = data.draw(st.sampled_from(sorted(accepted)))
    window.close_below(proof)

    for number in data.draw(st.lists(st.integers(0, 3 * REPLAY_WINDOW), max_size=60)):
        too_old = number <= max(accepted) - REPLAY_WINDOW
        fresh = number > proof and number not in accepted and not too_old
        assert window.accept(number) == fresh
        accepted.add(number)


def test_links_of_a_closed_world_talk() -> None:
    pipe = closed_pipe(alice=KEY, bob=KEY)
    pipe.run(0.1)
    assert pipe.links[ALICE].neighbours == [BOB]
    pipe.send(ALICE, BOB, object_data(1, 100_000))
    pipe.broadcast(BOB, object_data(2))
    pipe.run(2)

    assert (BOB, ALICE, object_data(1, 100_000)) in pipe.came
    assert (ALICE, BOB, object_data(2)) in pipe.came


def test_a_link_with_another_secret_neither_hears_nor_is_heard() -> None:
    pipe = closed_pipe(alice=KEY, bob=OTHER_KEY)
    pipe.run(3)
    pipe.broadcast(ALICE, object_data(1))
    pipe.broadcast(BOB, object_data(2))
    pipe.run(1)

    assert pipe.links[ALICE].neighbours == pipe.links[BOB].neighbours == []
    assert pipe.came == []
    assert pipe.links[ALICE].dropped["wrong secret"] >= 3
    assert pipe.links[BOB].dropped["wrong secret"] >= 3
    assert "is the secret the right one?" in str(pipe.links[ALICE].decryption_warning)


def test_outsiders_learn_the_name_and_nothing_else() -> None:
    pipe = closed_pipe(alice=KEY)
    wide = WorldInfo(WORLD.name, WORLD.world_id, Area(80, 40), 40)
    pipe.links[ALICE] = Link(ALICE, wide, b"a" * 8, LinkConfig(), cipher=a_seal(1))
    outside = WorldInfo("porto", "w2")
    pipe.add(CAROL, outside)
    pipe.run(2)

    carol = pipe.links[CAROL]
    assert carol.hellos.closed_worlds == {WORLD.world_id: WorldInfo(WORLD.name, WORLD.world_id)}
    assert carol.hellos.worlds == {}
    assert carol.neighbours == []


def test_members_learn_all_of_a_closed_world() -> None:
    pipe = closed_pipe(bob=KEY)
    wide = WorldInfo(WORLD.name, WORLD.world_id, Area(80, 40), 40)
    pipe.links[ALICE] = Link(ALICE, wide, b"a" * 8, LinkConfig(), cipher=a_seal(1))
    pipe.run(2)

    assert pipe.links[BOB].hellos.worlds == {WORLD.world_id: wide}


def test_in_a_closed_world_nothing_is_taken_that_is_not_sealed() -> None:
    pipe = closed_pipe(alice=KEY)
    pipe.inject(ALICE, encode(digest_world(WORLD), b"12345678", BOB, BroadcastBody(b"")))

    assert pipe.links[ALICE].neighbours == []
    assert pipe.links[ALICE].dropped == {"not sealed": 1}


def test_the_names_of_members_do_not_show() -> None:
    link = Link(ALICE, WORLD, b"a" * 8, LinkConfig(), cipher=a_seal(1))
    link.tick(0)
    notice, sealed, _ = (transmit.datagram for transmit in link.drain_datagrams())

    assert ALICE not in sealed
    assert ALICE not in notice
    assert decode(notice).sender == b"\x00"
