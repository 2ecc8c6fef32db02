"""Objects: insert, retrieve, delete and expiry."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

import pytest

from tests.conformance.environment import Environment
from tests.conformance.environments import EsEnvironment, SoloEnvironment
from thyme.model.errors import (
    CorruptError,
    MetadataError,
    NotFoundError,
    NotOwnerError,
    OperationTimeoutError,
    OptionError,
    RejectedError,
    UnsupportedError,
)
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.substrates.common.catalogue import Retention

MIB = 2**20


@pytest.mark.parametrize("size", [0, 1, 1_000_000])
def test_m1_an_object_is_any_bytes_and_comes_back_as_it_went_in(
    env: Environment, size: int
) -> None:
    data = bytes(range(256)) * (size // 256) + b"\x00" * (size % 256)
    alice, bob = env.person("alice"), env.person("bob")
    alice.insert("film", data=data)

    found = bob.search("film")

    assert bob.retrieve(found.notifications[0]) == data


def test_m37_a_large_object_reaches_several_readers(crowd_without_radio: Environment) -> None:
    crowd = crowd_without_radio
    data = b"".join(bytes([number]) * (MIB // 4) for number in range(18)) + b"the end"
    alice, bob, carol = crowd.person("alice"), crowd.person("bob"), crowd.person("carol")
    alice.insert("film", data=data)
    for reader in (bob, carol):
        found = reader.search("film").notifications[0]
        assert reader.retrieve(found) == data
    assert bob.retrieve(bob.search("film").notifications[0]) == data  # now from his own node


def test_m1_an_object_of_64_mib_is_no_trouble() -> None:
    env = SoloEnvironment()
    alice = env.person("alice")
    data = b"\x07" * (64 * MIB)
    alice.insert("film", data=data)
    assert alice.retrieve(alice.search("film").notifications[0]) == data


def test_m2_metadata_says_all_there_is_to_say_of_an_object(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    before_us = alice.now_us()
    key = alice.insert("goal", "eder", data=b"pixels", description=b"thumbnail", oid="photo-7")
    after_us = alice.now_us()

    metadata = bob.search("goal").notifications[0].metadata

    assert metadata.key == key == Key(ObjectId("photo-7"), alice.node_id)
    assert (metadata.oid, metadata.owner) == ("photo-7", alice.node_id)
    assert metadata.tags == ("eder", "goal")
    assert metadata.summary == b"thumbnail"
    error_us = env.clock_error_us
    assert before_us - error_us <= metadata.published_us <= after_us + error_us
    assert (metadata.size, metadata.digest) == (6, sha256(b"pixels").digest())


def test_m2_a_summary_over_the_limit_is_refused_and_one_at_the_limit_is_not(
    env: Environment,
) -> None:
    alice = env.person("alice")
    alice.insert("goal", description=b"s" * 65_536, oid="fits")
    with pytest.raises(MetadataError, match="at most 65536 bytes"):
        alice.insert("goal", description=b"s" * 65_537, oid="does-not")
    assert [note.key.oid for note in alice.search("goal")] == ["fits"]


def test_m3_two_owners_may_use_the_same_object_identifier(crowd: Environment) -> None:
    alice, bob = crowd.person("alice"), crowd.person("bob")
    alice.insert("goal", data=b"hers", oid="photo-1")
    bob.insert("goal", data=b"his", oid="photo-1")

    found = alice.search("goal")

    assert found.total == 2
    assert {alice.retrieve(note) for note in found} == {b"hers", b"his"}


def test_m3_an_owner_cannot_use_an_identifier_twice(env: Environment) -> None:
    alice = env.person("alice")
    alice.insert("goal", data=b"first", oid="photo-1")
    with pytest.raises(RejectedError, match="never changes"):
        alice.insert("goal", data=b"second", oid="photo-1")
    assert alice.retrieve(alice.search("goal").notifications[0]) == b"first"


def test_m4_tags_are_the_same_however_they_are_written(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    alice.insert("GOAL", "Éder", "E\u0301der", oid="photo")
    assert [note.metadata.tags for note in bob.search("goal & \u00e9der")] == [("goal", "éder")]


def test_m4_the_owner_s_id_can_be_a_tag(crowd: Environment) -> None:
    alice, bob = crowd.person("alice"), crowd.person("bob")
    alice.insert("goal", alice.node_id.hex(), oid="hers")
    bob.insert("goal", bob.node_id.hex(), oid="his")
    assert [note.key.oid for note in bob.search(alice.node_id.hex())] == ["hers"]


def test_m13_an_insert_gives_the_key_and_tells_whom_it_concerns(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    news = bob.subscribe("goal")
    key = alice.insert("goal", oid="photo")
    env.elapse(2)
    assert key == Key(ObjectId("photo"), alice.node_id)
    env.hears(news, ["photo"])


def test_m13_keys_that_nobody_chose_are_all_different(env: Environment) -> None:
    alice = env.person("alice")
    assert len({alice.insert("goal", data=b"same") for _ in range(5)}) == 5


def test_m14_what_is_deleted_is_invisible_also_to_a_frame_that_covers_its_time(
    env: Environment,
) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    start_us = alice.now_us()
    env.elapse(1)
    key = alice.insert("goal", oid="photo")
    found = bob.search("goal")
    env.elapse(1)
    end_us = alice.now_us()
    alice.delete(key)

    later = bob.subscribe("goal", start_us, end_us)

    assert (later.total, later.heard) == (0, [])
    with pytest.raises(NotFoundError, match="deleted"):
        bob.retrieve(found.notifications[0])


def test_m14_only_the_owner_may_delete(crowd: Environment) -> None:
    alice, bob = crowd.person("alice"), crowd.person("bob")
    key = alice.insert("goal", oid="photo")
    with pytest.raises(NotOwnerError, match="only its owner"):
        bob.delete(key)
    assert bob.search("goal").total == 1


def test_m14_a_stranger_s_object_cannot_be_deleted(env: Environment) -> None:
    stranger = Key(ObjectId("photo"), NodeId(b"somebody else"))
    with pytest.raises(NotOwnerError):
        env.person("alice").delete(stranger)


def test_m14_deleted_stays_deleted_whoever_asks_again(env: Environment) -> None:
    alice = env.person("alice")
    key = alice.insert("goal", oid="photo")
    alice.delete(key)
    alice.delete(key)
    with pytest.raises(RejectedError, match="deleted"):
        alice.insert("goal", oid="photo")
    assert alice.search("goal").total == 0


def test_m14_deleting_what_never_was_is_an_error(env: Environment) -> None:
    alice = env.person("alice")
    with pytest.raises(NotFoundError):
        alice.delete(Key(ObjectId("nothing"), alice.node_id))


def test_m19_only_what_was_notified_can_be_retrieved(env: Environment) -> None:
    alice = env.person("alice")
    key = alice.insert("goal", data=b"pixels")
    with pytest.raises(NotFoundError, match="not notified"):
        alice.retrieve(key)
    found = alice.search("goal")
    assert alice.retrieve(key) == alice.retrieve(found.notifications[0].metadata) == b"pixels"


def test_m19_content_is_verified_before_it_is_handed_over(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    key = alice.insert("goal", data=b"pixels" * 4_000)
    found = bob.search("goal")
    env.tamper(key, b"pixelz" * 4_000)
    with pytest.raises(CorruptError, match="digest differs"):
        bob.retrieve(found.notifications[0])


def test_m24_what_was_acknowledged_is_there_after_a_restart(env: Environment) -> None:
    alice = env.person("alice")
    kept = alice.insert("goal", data=b"pixels", oid="kept")
    gone = alice.insert("goal", oid="gone")
    alice.delete(gone)

    alice = env.restart("alice")

    found = alice.search("goal")
    assert [note.key for note in found] == [kept]
    assert alice.retrieve(found.notifications[0]) == b"pixels"
    with pytest.raises(RejectedError, match="deleted"):
        alice.insert("goal", oid="gone")


def test_m24_the_server_s_disk_is_what_counts_in_es() -> None:
    env = EsEnvironment()
    alice, bob = env.person("alice"), env.person("bob")
    alice.insert("goal", data=b"pixels", oid="before")
    news = bob.subscribe("goal")

    env.restart_server()

    assert bob.retrieve(bob.search("goal").notifications[0]) == b"pixels"
    alice.insert("goal", oid="after")
    env.elapse(1)
    env.hears(news, ["before", "after"])


def test_m24_l6_what_becomes_of_an_object_whose_owner_is_gone(crowd: Environment) -> None:
    alice, bob = crowd.person("alice"), crowd.person("bob")
    alice.insert("goal", data=b"pixels", oid="photo")
    found = bob.search("goal")

    crowd.crash("alice")

    assert bob.search("goal").total == int(crowd.outlives_owner)
    if crowd.outlives_owner:
        assert bob.retrieve(found.notifications[0]) == b"pixels"
    else:
        with pytest.raises(OperationTimeoutError):
            bob.retrieve(found.notifications[0])


def test_m28_the_publisher_s_stamp_counts_and_the_arrival_is_kept_apart(
    env: Environment,
) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    alice.insert("goal", oid="photo")
    env.elapse(5)

    news = bob.subscribe("goal")

    note = news.notes[0]
    assert note.from_history
    assert note.arrived_us - note.metadata.published_us >= env.us(5)


def test_m29_an_object_leaves_when_its_life_span_ends_with_nobody_looking(
    env: Environment,
) -> None:
    alice = env.person("alice")
    life = timedelta(microseconds=env.us(10))
    key = alice.insert("goal", oid="short", ttl=life)
    alice.insert("goal", oid="long")
    news = alice.subscribe("goal")
    assert alice.search("goal").total == 2

    env.elapse(11)

    assert [note.key.oid for note in alice.search("goal")] == ["long"]
    assert alice.explain(key, news).state == "expired"
    with pytest.raises(NotFoundError):
        alice.retrieve(key)


def test_m29_a_limit_of_bytes_evicts_the_oldest_and_counts_it() -> None:
    env = SoloEnvironment(retention=Retention(bytes_max=100))
    alice = env.person("alice")
    for number in range(4):
        env.elapse(1)
        alice.insert("goal", data=b"x" * 40, oid=f"photo-{number}")

    assert [note.key.oid for note in alice.search("goal")] == ["photo-3", "photo-2"]
    assert env.left() == {"evicted": 2}
    with pytest.raises(RejectedError, match="never fits"):
        alice.insert("goal", data=b"x" * 101)


def test_m29_a_limit_of_age_lets_objects_go_by_timer() -> None:
    env = SoloEnvironment(retention=Retention(age_us_max=10_000_000))
    alice = env.person("alice")
    alice.insert("goal", oid="old")
    env.elapse(5)
    alice.insert("goal", oid="new")
    env.elapse(6)
    assert env.left() == {"expired": 1}
    assert [note.key.oid for note in alice.search("goal")] == ["new"]


def test_m30_a_guarantee_that_cannot_be_given_is_refused_not_ignored(
    env: Environment,
) -> None:
    alice = env.person("alice")
    with pytest.raises(UnsupportedError, match="99 copies"):
        alice.insert("goal", copies=99)
    if env.durable:
        alice.insert("goal", durable=True, oid="safe")
    else:
        with pytest.raises(UnsupportedError, match="memory"):
            alice.insert("goal", durable=True)
    with pytest.raises(OptionError, match="copies"):
        alice.insert("goal", copies=0)
    assert alice.search("goal").total == int(env.durable)
