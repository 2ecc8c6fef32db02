"""Replicas that a node holds: roles, limits, tombstones, digest of the cell (B2, D15, M19, M29)."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.builders import ALICE, BOB, key, photo
from tests.substrates.dcs.components import CELL, a_replica_store
from thyme.model.errors import NotFoundError, RejectedError
from thyme.model.metadata import Metadata
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import MemoryStore
from thyme.substrates.common.catalogue import DELETED
from thyme.substrates.dcs.state.replica_store import COMPLETE_MAX, ReplicaRole, StoredReplica


def a_replica(number: int, role: ReplicaRole, data: bytes = b"12345") -> StoredReplica:
    return StoredReplica(photo(number, at_us=number, data=data), role)


def test_m29_passive_replicas_are_evicted_first_and_own_objects_never() -> None:
    replicas = a_replica_store(bytes_max=15)
    for number, role in enumerate((ReplicaRole.OWN, ReplicaRole.ACTIVE, ReplicaRole.PASSIVE)):
        replicas.add_replica(a_replica(number, role), b"12345", 10)

    replicas.add_replica(a_replica(3, ReplicaRole.OWN), b"12345", 10)
    assert [one.role for one in replicas.with_role(ReplicaRole.PASSIVE)] == []
    replicas.add_replica(a_replica(4, ReplicaRole.OWN), b"12345", 10)
    assert [one.role for one in replicas.with_role(ReplicaRole.ACTIVE)] == []
    with pytest.raises(RejectedError, match="no space"):
        replicas.add_replica(a_replica(5, ReplicaRole.OWN), b"12345", 10)
    assert replicas.removed == {"evicted": 2}
    replicas.check()


def test_m29_a_replica_is_removed_by_its_ttl_or_by_age() -> None:
    replicas = a_replica_store(age_us_max=100)
    short = StoredReplica(photo(1, at_us=0, data=b"x", expires_us=50), ReplicaRole.OWN)
    replicas.add_replica(short, b"x", 0)
    replicas.add_replica(a_replica(2, ReplicaRole.ACTIVE), b"12345", 2)
    assert replicas.next_expiry_us() == 50
    replicas.expire(50)
    assert replicas.get(key(1)) is None
    assert replicas.removal_reason(key(1)) == "expired"
    assert replicas.next_expiry_us() == 102
    replicas.expire(102)
    assert len(replicas) == 0


def test_m19_bytes_that_are_not_the_object_are_not_kept() -> None:
    replicas = a_replica_store()
    with pytest.raises(RejectedError, match="do not match its metadata"):
        replicas.add_replica(a_replica(1, ReplicaRole.ACTIVE), b"54321", 10)
    with pytest.raises(NotFoundError, match="unknown"):
        replicas.read_data(key(1))


def test_a_replica_has_its_strongest_role_and_is_found_by_the_next_incarnation() -> None:
    store = MemoryStore()
    replicas = a_replica_store(store)
    for role in (ReplicaRole.PASSIVE, ReplicaRole.ACTIVE, ReplicaRole.PASSIVE):
        replicas.add_replica(a_replica(1, role), b"12345", 10)
    again = a_replica_store(store)
    known = again.get(key(1))
    assert known is not None
    assert known.role is ReplicaRole.ACTIVE
    assert again.read_data(key(1)) == b"12345"
    assert again.stored_bytes == 5


def test_b2_the_digest_has_the_replicas_that_all_nodes_of_the_cell_should_have() -> None:
    replicas = a_replica_store()
    replicas.set_cell(CELL)
    here, elsewhere = (Replica(CELL),), (Replica(CellId(3)),)
    few = (Replica(CELL, ALICE), Replica(CELL, BOB))
    kinds = [
        (ReplicaRole.OWN, here, True),
        (ReplicaRole.OWN, elsewhere, False),
        (ReplicaRole.OWN, few, False),
        (ReplicaRole.ACTIVE, (), True),
        (ReplicaRole.ACTIVE, few, False),
        (ReplicaRole.PASSIVE, (), False),
    ]
    for number, (role, active, _) in enumerate(kinds):
        held = StoredReplica(photo(number, data=b"12345"), role, active)
        replicas.add_replica(held, b"12345", 10)

    shared = {metadata.key for metadata in replicas.cell_wide_objects()}
    assert shared == {key(number) for number, (_, _, counts) in enumerate(kinds) if counts}
    assert len(replicas.cell_wide_digest) == len(shared)
    assert {held.metadata.key for held in replicas.partially_replicated()} == {key(2), key(4)}
    replicas.set_cell(CellId(3))
    assert key(1) in {metadata.key for metadata in replicas.cell_wide_objects()}
    replicas.remove_with_tombstone(key(3), DELETED, 11)
    assert len(replicas.cell_wide_digest) == len(list(replicas.cell_wide_objects()))


def test_d15_a_replica_evicted_and_then_deleted_does_not_come_back() -> None:
    replicas = a_replica_store(objects_max=1)
    for number in range(2):
        replicas.add_replica(StoredReplica(photo(number, data=b"1"), ReplicaRole.ACTIVE), b"1", 10)
    assert replicas.removal_reason(key(0)) == "evicted"

    replicas.remove_with_tombstone(key(0), DELETED, 11)

    with pytest.raises(RejectedError, match="deleted"):
        replicas.add_replica(StoredReplica(photo(0, data=b"1"), ReplicaRole.ACTIVE), b"1", 12)


def test_m35_long_summaries_are_not_kept_in_memory(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "w.thyme")
    replicas = a_replica_store(store)
    metadata = [photo(number, at_us=number, data=b"x", summary=bytes(60_000)) for number in (1, 2)]
    tracemalloc.start()
    try:
        for number in range(3, 203):
            one = photo(number, at_us=number, data=b"x", summary=bytes(60_000))
            replicas.add_replica(StoredReplica(one, ReplicaRole.OWN), b"x", 10)
        store.commit()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 3_000_000, "of 12,000,000 bytes"

    for one in metadata:
        replicas.add_replica(StoredReplica(one, ReplicaRole.ACTIVE), b"x", 10)
    assert [each.metadata for each in replicas.with_role(ReplicaRole.ACTIVE)] == metadata
    replicas.set_holders(key(1), (Replica(CELL, BOB),))
    replicas.change_role(ReplicaRole.ACTIVE, ReplicaRole.PASSIVE)
    changed = replicas.get(key(1))
    assert changed is not None
    assert changed.metadata == metadata[0]
    other = photo(2, at_us=2, data=b"x", summary=bytes(59_999))
    with pytest.raises(RejectedError, match="an object never changes"):
        replicas.add_replica(StoredReplica(other, ReplicaRole.ACTIVE), b"x", 10)
    replicas.check()
    store.commit()
    store.close()
    again = a_replica_store(SqliteStore(tmp_path / "w.thyme")).get(key(2))
    assert again is not None
    assert again.metadata == metadata[1]


def test_m35_old_objects_are_kept_in_brief_and_read_from_the_file_as_a_whole(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "w.thyme")
    replicas = a_replica_store(store)
    count, old = COMPLETE_MAX + 500, 400
    proof = bytes(range(200))

    def an_object(number: int) -> Metadata:
        plain = photo(number, at_us=number, data=b"x", summary=b"a summary")
        return replace(plain, digest_and_proof=plain.digest + proof)

    for number in range(count):
        stored = StoredReplica(an_object(number), ReplicaRole.OWN, (Replica(CELL),))
        replicas.add_replica(stored, b"x", 10)
    store.commit()

    brief = list(replicas.brief_with_role(ReplicaRole.OWN))
    assert len(brief) == count
    assert [each.metadata.proof for each in brief[:old]] == [b""] * old
    assert [each.metadata.summary for each in brief[:old]] == [b""] * old
    assert all(each.active is brief[0].active for each in brief[:old])
    assert brief[-1].metadata == an_object(count - 1)
    assert [each.metadata for each in replicas.with_role(ReplicaRole.OWN)] == [
        an_object(number) for number in range(count)
    ]
    changed = replace(an_object(0), summary=b"another")
    with pytest.raises(RejectedError, match="an object never changes"):
        replicas.add_replica(StoredReplica(changed, ReplicaRole.OWN), b"x", 10)
    replicas.set_holders(key(0), (Replica(CELL, BOB),))
    replicas.remove_with_tombstone(key(1), DELETED, 11)
    replicas.check()
    store.commit()
    store.close()
    again = a_replica_store(SqliteStore(tmp_path / "w.thyme"))
    first = again.get(key(0))
    assert first == StoredReplica(an_object(0), ReplicaRole.OWN, (Replica(CELL, BOB),))
    assert again.get(key(1)) is None
    assert again.cell_wide_digest.total == replicas.cell_wide_digest.total
