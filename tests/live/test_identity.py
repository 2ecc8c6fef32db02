"""Identity: no node can use the identity of another (B5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.transport.pipe import WORLD, Pipe
from tests.transport.test_link import object_data
from thyme.live.keys.identity import Identity, load_or_create_identity
from thyme.live.keys.peer_authenticator import Ed25519PeerAuthenticator
from thyme.live.keys.record_signer import Ed25519RecordSigner
from thyme.live.keys.signatures import derive_node_id
from thyme.model.errors import StoreError
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import make_metadata
from thyme.model.signed_records import (
    BATCH_RECORDS_MAX,
    DeleteRecord,
    LocationRecord,
    Record,
    SubscribeRecord,
    UnsubscribeRecord,
)
from thyme.model.subscriptions import SubscriptionKey
from thyme.model.time_frames import ALWAYS
from thyme.transport.datagrams import (
    BroadcastBody,
    Content,
    Hello,
    HelloChallenge,
    decode,
    digest_world,
    encode,
)
from thyme.transport.link import Link
from thyme.transport.link_config import LinkConfig, RateLimit, SendDatagram

ALICE, BOB, MALLORY = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
TAG = digest_world(WORLD)
LIFE = b"life one"
A_KEY = Key(ObjectId("o1"), ALICE.node_id)
A_SUBSCRIPTION = SubscriptionKey(SubscriptionId("s1"), ALICE.node_id)
RECORDS: list[Record] = [
    make_metadata(A_KEY, b"data", ["goal"], 1_000_000),
    DeleteRecord(A_KEY),
    SubscribeRecord(A_SUBSCRIPTION, ALWAYS, b"marks"),
    UnsubscribeRecord(A_SUBSCRIPTION),
    LocationRecord(ALICE.node_id, 7, 1_000_000),
]


def a_pipe(
    *identities: Identity, config: LinkConfig | None = None, pipe: Pipe | None = None
) -> Pipe:
    pipe = pipe or Pipe()
    for identity in identities:
        authenticator = Ed25519PeerAuthenticator(identity, TAG, identity.node_id[:8], started_us=5)
        pipe.links[identity.node_id] = Link(
            identity.node_id,
            WORLD,
            identity.node_id[:8],
            config or LinkConfig(),
            authenticator=authenticator,
        )
    return pipe


def said_by(sender: NodeId, content: Content, life: bytes = LIFE) -> bytes:
    return encode(TAG, life, sender, content)


def hello(identity: Identity, *, life: bytes = LIFE, born_us: int = 10) -> Hello:
    proof = Ed25519PeerAuthenticator(identity, TAG, life, born_us).own_proof
    return Hello(WORLD, identity_proof=proof)


def signer(identity: Identity, wid: str = "w1", remembered_max: int = 100) -> Ed25519RecordSigner:
    return Ed25519RecordSigner(identity, wid, remembered_max)


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_is_believed_if_its_author_signed_it(record: Record) -> None:
    proof = signer(ALICE).sign(record)
    theirs, elsewhere = signer(BOB), signer(BOB, "w2")

    assert theirs.verify(record, proof)
    assert theirs.verify(record, proof), "and once more"
    assert not elsewhere.verify(record, proof), "another world"
    assert not theirs.verify(record, MALLORY.public_key + proof[32:]), "another key"
    assert not theirs.verify(record, proof[:-1] + bytes([proof[-1] ^ 1]))
    assert not theirs.verify(record, proof + b"\x00")
    assert not theirs.verify(record, b"")


@pytest.mark.parametrize("record", RECORDS)
def test_nobody_signs_for_another(record: Record) -> None:
    with pytest.raises(ValueError, match="only"):
        signer(MALLORY).sign(record)


def test_a_signature_is_good_for_one_record() -> None:
    changed = make_metadata(A_KEY, b"DATA", ["goal"], 1_000_000)
    theirs = signer(BOB)

    assert not theirs.verify(changed, signer(ALICE).sign(RECORDS[0]))
    for record in RECORDS:
        for other in RECORDS:
            good = theirs.verify(other, signer(ALICE).sign(record))
            assert good == (record is other)


def test_what_was_looked_at_is_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []

    def is_by(author: NodeId, proof: bytes, text: bytes | None) -> bool:
        if text is not None:
            looked_at.append(proof)
        return True

    monkeypatch.setattr("thyme.live.keys.record_signer.verify_signature", is_by)
    theirs = signer(BOB, remembered_max=2)
    one, two, three = (bytes([number]) * 96 for number in range(3))
    for proof in (one, one, two, two, one, three, one):
        assert theirs.verify(RECORDS[0], proof)

    assert looked_at == [one, two, three, one]


@given(st.integers(1, 40), st.data())
def test_records_that_share_a_signature_are_believed_one_by_one(
    count: int, data: st.DataObject
) -> None:
    records = [DeleteRecord(Key(ObjectId(f"o{number}"), ALICE.node_id)) for number in range(count)]
    proofs = signer(ALICE).sign_all(records)
    theirs, at = signer(BOB), data.draw(st.integers(0, count - 1))

    assert all(map(theirs.verify, records, proofs))
    assert len({proof[:96] for proof in proofs}) == -(-count // BATCH_RECORDS_MAX)
    whose = [theirs.verify(records[at], proof) for proof in proofs]
    assert [number for number, good in enumerate(whose) if good] == [at]
    where = data.draw(st.integers(0, len(proofs[at]) - 1))
    change = data.draw(st.integers(1, 255))
    wrong = bytearray(proofs[at])
    wrong[where] ^= change
    assert not theirs.verify(records[at], bytes(wrong)), "there is one proof, not two"
    assert not theirs.verify(records[at], proofs[at][:-1])
    assert not theirs.verify(records[at], proofs[at] + b"\x00")


def test_the_id_derives_from_the_key() -> None:
    assert ALICE.node_id == derive_node_id(ALICE.public_key)
    assert len(ALICE.node_id) == 16
    assert ALICE.node_id != BOB.node_id


def test_a_node_stays_who_it_is(tmp_path: Path) -> None:
    first = load_or_create_identity(tmp_path / "data")

    assert load_or_create_identity(tmp_path / "data").node_id == first.node_id
    assert load_or_create_identity(tmp_path / "other").node_id != first.node_id
    assert (tmp_path / "data" / "node.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["node.key"]


def test_a_key_that_others_can_read_or_that_is_damaged_is_refused(tmp_path: Path) -> None:
    load_or_create_identity(tmp_path)
    path = tmp_path / "node.key"
    path.chmod(0o644)
    with pytest.raises(StoreError, match="chmod 600"):
        load_or_create_identity(tmp_path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(StoreError, match="damaged"):
        load_or_create_identity(tmp_path)


def test_neighbours_introduce_themselves_and_talk() -> None:
    pipe = a_pipe(ALICE, BOB)
    pipe.run(0.1)
    pipe.send(ALICE.node_id, BOB.node_id, object_data(1, 5_000))
    pipe.run(1)

    assert pipe.came == [(BOB.node_id, ALICE.node_id, object_data(1, 5_000))]


def test_who_has_not_said_who_it_is_is_not_heard() -> None:
    pipe = a_pipe(ALICE)
    pipe.inject(ALICE.node_id, said_by(BOB.node_id, BroadcastBody(b"")))
    pipe.inject(ALICE.node_id, said_by(BOB.node_id, Hello(WORLD)))

    assert pipe.links[ALICE.node_id].dropped == {"not introduced": 2}


def greet(
    link: Link, identity: Identity, *, name: NodeId | None = None, life: bytes = LIFE, born_us: int
) -> None:
    """A node introduces itself and responds to the challenge, if there is one."""
    own = Ed25519PeerAuthenticator(identity, TAG, life, born_us)
    sender, plain = name or identity.node_id, Hello(WORLD, identity_proof=own.own_proof)
    link.receive_datagram(encode(TAG, life, sender, plain), ("ff", 1), 0)
    for challenge in challenges_of(link):
        answer = HelloChallenge(response=own.respond(challenge))
        hello = Hello(WORLD, identity_proof=own.own_proof, challenge=answer)
        link.receive_datagram(encode(TAG, life, sender, hello), ("ff", 1), 0)


def challenges_of(link: Link) -> list[bytes]:
    contents = [decode(sent.datagram).content for sent in link.drain_datagrams()]
    found = [each.challenge for each in contents if isinstance(each, Hello)]
    return [each.challenge for each in found if each is not None and each.challenge]


def test_nobody_takes_anothers_name() -> None:
    """Neither with its own key, nor with the other's key and a signature of its own."""
    pipe = a_pipe(ALICE)
    link = pipe.links[ALICE.node_id]
    greet(link, MALLORY, name=BOB.node_id, born_us=10)
    stolen = hello(BOB).identity_proof
    answer = HelloChallenge(response=bytes(64))
    forged = Hello(WORLD, identity_proof=stolen, challenge=answer)
    pipe.inject(ALICE.node_id, said_by(BOB.node_id, forged))

    assert link.dropped == {"forged": 2}
    assert link.neighbours == []


def test_an_introduction_of_an_earlier_life_ends_no_later_one() -> None:
    link = a_pipe(ALICE).links[ALICE.node_id]
    for life, born_us in (b"life two", 20), (b"life one", 10), (b"life six", 60):
        greet(link, BOB, life=life, born_us=born_us)

    assert link.dropped == {"old life": 1}
    assert link._neighbours.states[BOB.node_id].incarnation == b"life six"


class Recorder(Pipe):
    """A pipe with somebody who records the datagrams to one node."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[tuple[NodeId, bytes]] = []

    def _transmit(self, sender: NodeId, effect: SendDatagram) -> None:
        self.recorded.append((sender, effect.datagram))
        super()._transmit(sender, effect)


@pytest.mark.parametrize("left_s", [0, 3, 60])
def test_b5_recorded_datagrams_do_not_make_a_node_a_neighbour_that_is_gone(left_s: float) -> None:
    """Neither do they keep it one, from another address."""
    pipe = a_pipe(ALICE, BOB, pipe=Recorder())
    assert isinstance(pipe, Recorder)
    pipe.run(20)
    link = pipe.links[ALICE.node_id]
    assert link.neighbours == [BOB.node_id]
    recorded = [datagram for sender, datagram in pipe.recorded if sender == BOB.node_id]
    del pipe.links[BOB.node_id]
    pipe.run(left_s)

    for _ in range(80):
        for datagram in recorded:
            pipe.inject(ALICE.node_id, datagram, ("fe", 1))
        pipe.run(0.25)

    assert link.neighbours == []


def test_b5_a_neighbour_that_was_silent_is_one_again_after_one_exchange() -> None:
    pipe = a_pipe(ALICE, BOB)
    pipe.run(2)
    pipe.stop(BOB.node_id)
    pipe.run(20)
    assert pipe.links[ALICE.node_id].neighbours == []

    pipe.go_on(BOB.node_id, tick_first=True)
    pipe.run(1.1)

    assert pipe.links[ALICE.node_id].neighbours == [BOB.node_id]
    assert pipe.links[BOB.node_id].neighbours == [ALICE.node_id]


def test_b5_a_neighbour_that_moves_to_another_address_is_followed() -> None:
    pipe = a_pipe(ALICE, BOB)
    pipe.run(2)
    link = pipe.links[ALICE.node_id]
    bob = pipe.links.pop(BOB.node_id)
    pipe.run(3)
    there = ("fe", 9)
    for _ in range(3):
        bob.tick(pipe.now_us)
        for sent in bob.drain_datagrams():
            link.receive_datagram(sent.datagram, there, pipe.now_us)
        for sent in link.drain_datagrams():
            if sent.to in (None, there):
                bob.receive_datagram(sent.datagram, ("aa", 1), pipe.now_us)
        pipe.run(0.6)

    assert link._neighbours.states[BOB.node_id].address == there


def test_b5_a_node_signs_few_responses_for_strangers() -> None:
    config = LinkConfig(admission_rate_limit=RateLimit(datagrams_per_second=1, datagrams_burst=3))
    link = a_pipe(ALICE, config=config).links[ALICE.node_id]
    asked = replace(hello(BOB), challenge=HelloChallenge(challenge=bytes(16)))
    for _ in range(10):
        link.receive_datagram(said_by(BOB.node_id, asked), ("ff", 1), 0)
    contents = [decode(sent.datagram).content for sent in link.drain_datagrams()]
    answers = [each.challenge for each in contents if isinstance(each, Hello) and each.challenge]
    assert sum(bool(each.response) for each in answers) == 3
    assert len(answers) == 3, "nor does it ask more of them"


@pytest.mark.parametrize(
    ("by", "born_us", "is_copy"), [("alice", 60, True), ("alice", 1, False), ("mallory", 60, False)]
)
def test_b5_a_node_notices_a_later_copy_of_itself(by: str, born_us: int, is_copy: bool) -> None:
    pipe = a_pipe(ALICE)
    identity = ALICE if by == "alice" else MALLORY
    life = b"life two"
    pipe.inject(
        ALICE.node_id, said_by(ALICE.node_id, hello(identity, life=life, born_us=born_us), life)
    )

    link = pipe.links[ALICE.node_id]
    assert (link.has_copy, link.dropped["our name"]) == (is_copy, 1)


def test_a_flood_of_introductions_is_not_looked_at() -> None:
    config = LinkConfig(admission_rate_limit=RateLimit(datagrams_per_second=1, datagrams_burst=3))
    pipe = a_pipe(ALICE, config=config)
    answered = replace(hello(MALLORY), challenge=HelloChallenge(response=bytes(64)))
    for number in range(10):
        life = number.to_bytes(8)
        pipe.inject(ALICE.node_id, said_by(BOB.node_id, answered, life), ("fe", 1))

    assert pipe.links[ALICE.node_id].dropped == {"forged": 3, "too much": 7}
