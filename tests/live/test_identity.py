"""Identity: no node can use the identity of another (B5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from thyme.transport.datagrams import BroadcastBody, Content, Hello, digest_world, encode
from thyme.transport.link import Link
from thyme.transport.link_config import LinkConfig, RateLimit

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


def a_pipe(*identities: Identity, config: LinkConfig | None = None) -> Pipe:
    pipe = Pipe()
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


def test_nobody_takes_anothers_name() -> None:
    """Neither with its own key, nor with the other's key and no signature, nor in another
    incarnation."""
    pipe = a_pipe(ALICE)
    unsigned = Hello(WORLD, identity_proof=hello(BOB).identity_proof)
    pipe.inject(ALICE.node_id, said_by(BOB.node_id, hello(MALLORY)))
    pipe.inject(ALICE.node_id, said_by(BOB.node_id, unsigned, life=b"life two"))

    assert pipe.links[ALICE.node_id].dropped == {"forged": 2}
    assert pipe.links[ALICE.node_id].neighbours == []


def test_an_introduction_of_an_earlier_life_ends_no_later_one() -> None:
    pipe = a_pipe(ALICE)
    link = pipe.links[ALICE.node_id]
    for life, born_us in (b"life two", 20), (b"life one", 10), (b"life six", 60):
        said = said_by(BOB.node_id, hello(BOB, life=life, born_us=born_us), life)
        pipe.inject(ALICE.node_id, said)

    assert link.dropped == {"old life": 1}
    assert link._neighbours.states[BOB.node_id].incarnation == b"life six"


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
    for number in range(10):
        life = number.to_bytes(8)
        pipe.inject(ALICE.node_id, said_by(BOB.node_id, hello(MALLORY), life), ("fe", 1))

    assert pipe.links[ALICE.node_id].dropped == {"forged": 3, "too much": 7}
