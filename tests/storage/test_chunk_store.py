"""The chunk stores: in memory and on disk, after a crash, and on a full disk (M37)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from thyme.model.errors import DiskFullError, NotFoundError, RejectedError
from thyme.model.object_chunks import CHUNK_BYTES, ChunkList, content_digest
from thyme.storage.chunk_files import ChunkFiles
from thyme.storage.chunk_store import ChunkStore, MemoryChunkStore
from thyme.storage.sqlite.store import SqliteStore

DATA = bytes(range(256)) * (17 * CHUNK_BYTES // 256) + b"the end"
CHUNKS = [DATA[start : start + CHUNK_BYTES] for start in range(0, len(DATA), CHUNK_BYTES)]
DIGEST = content_digest(DATA)


def upload(store: ChunkStore, name: str = "one") -> bytes:
    for chunk in CHUNKS:
        store.append_upload(name, chunk)
    return store.finish_upload(name)


def chunk_list(tmp_path: Path) -> ChunkList:
    other = ChunkFiles(tmp_path / "other")
    found = other.chunk_list(upload(other))
    other.close()
    assert found is not None
    return found


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ChunkStore:
    make: dict[str, Callable[[], ChunkStore]] = {
        "memory": MemoryChunkStore,
        "files": lambda: ChunkFiles(tmp_path / "chunks"),
    }
    return make[request.param]()


def test_m37_an_upload_becomes_an_object_under_its_digest(store: ChunkStore) -> None:
    assert upload(store) == DIGEST
    held = store.held(DIGEST)
    assert held is not None
    assert held.is_complete
    assert [store.read(DIGEST, index) for index in range(len(CHUNKS))] == CHUNKS
    assert store.stored_bytes() == {DIGEST: len(DATA)}


def test_m37_equal_content_is_stored_once(store: ChunkStore) -> None:
    assert upload(store, "one") == upload(store, "two")
    assert store.stored_bytes() == {DIGEST: len(DATA)}


def test_m37_a_part_of_an_object_can_be_stored(store: ChunkStore, tmp_path: Path) -> None:
    store.open_object(DIGEST, chunk_list(tmp_path))
    store.write(DIGEST, 3, CHUNKS[3])
    store.write(DIGEST, len(CHUNKS) - 1, CHUNKS[-1])

    held = store.held(DIGEST)
    assert held is not None
    assert (held.count, held.is_complete) == (2, False)
    assert store.read(DIGEST, 3) == CHUNKS[3]
    assert store.read(DIGEST, 4) is None
    assert store.stored_bytes() == {DIGEST: CHUNK_BYTES + len(CHUNKS[-1])}
    store.discard(DIGEST, 3)
    assert store.read(DIGEST, 3) is None
    store.remove(DIGEST)
    assert store.held(DIGEST) is None
    assert store.chunk_list(DIGEST) is None


def test_m25_only_the_last_chunk_of_an_upload_may_be_short(store: ChunkStore) -> None:
    store.append_upload("one", b"short")
    with pytest.raises(RejectedError, match="cannot follow 5 bytes"):
        store.append_upload("one", b"more")
    with pytest.raises(RejectedError):
        store.append_upload("two", b"x" * (CHUNK_BYTES + 1))
    with pytest.raises(NotFoundError, match="upload again"):
        store.finish_upload("three")


def test_m37_the_object_used_last_is_listed_last(store: ChunkStore, tmp_path: Path) -> None:
    upload(store)
    store.append_upload("small", b"x")
    small = store.finish_upload("small")
    store.read(DIGEST, 0)
    assert list(store.stored_bytes()) == [small, DIGEST]


def test_m37_what_was_written_is_there_after_a_crash(tmp_path: Path) -> None:
    killed = ChunkFiles(tmp_path / "chunks")
    killed.open_object(DIGEST, chunk_list(tmp_path))
    for index in (0, 5, 6):
        killed.write(DIGEST, index, CHUNKS[index])
    killed.append_upload("unfinished", CHUNKS[0])
    # no close: the process is gone

    again = ChunkFiles(tmp_path / "chunks")
    held = again.held(DIGEST)
    assert held is not None
    assert [index for index in range(len(CHUNKS)) if held.has(index)] == [0, 5, 6]
    assert again.read(DIGEST, 5) == CHUNKS[5]
    assert again.chunk_list(DIGEST) == killed.chunk_list(DIGEST)
    assert not list((tmp_path / "chunks").glob("*.upload"))


def test_m37_files_of_an_object_without_a_list_are_removed(tmp_path: Path) -> None:
    store = ChunkFiles(tmp_path / "chunks")
    upload(store)
    store.close()
    (tmp_path / "chunks" / f"{DIGEST.hex()}.list").unlink()

    again = ChunkFiles(tmp_path / "chunks")
    assert again.stored_bytes() == {}
    assert not list((tmp_path / "chunks").iterdir())


def test_m25_a_full_disk_fails_the_operation_and_not_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ChunkFiles(tmp_path / "chunks")
    upload(store)
    monkeypatch.setattr("thyme.storage.chunk_files.RESERVE_BYTES", 2**62)
    with pytest.raises(DiskFullError):
        store.append_upload("two", CHUNKS[0])
    with pytest.raises(DiskFullError):
        store.write(DIGEST, 0, CHUNKS[0])
    assert store.read(DIGEST, 0) == CHUNKS[0]


def test_m37_a_store_keeps_chunks_beside_its_file_and_makes_no_directory_without(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "lisbon.thyme")
    assert not (tmp_path / "lisbon.chunks").exists()
    digest = upload(store.chunks)
    store.close()
    again = SqliteStore(tmp_path / "lisbon.thyme")
    assert again.chunks.read(digest, 2) == CHUNKS[2]
    again.close()
