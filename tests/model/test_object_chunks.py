"""Chunks of large objects and their tree hash (M37)."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.object_chunks import (
    CHUNK_BYTES,
    CHUNK_DIGEST_BYTES,
    WHOLE_BYTES_MAX,
    ChunkList,
    ChunkListBuilder,
    chunk_count,
    chunk_digest,
    chunk_size,
    content_digest,
    is_large,
    tree_digest,
)

SMALLEST_LARGE = WHOLE_BYTES_MAX + 1


def listed(data: bytes) -> ChunkList:
    builder = ChunkListBuilder()
    for start in range(0, len(data), CHUNK_BYTES):
        builder.add(data[start : start + CHUNK_BYTES])
    return builder.build()


def by_recursion(leaves: list[bytes]) -> bytes:
    """The tree of RFC 9162: the left half is the largest power of two below the number."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return sha256(b"\1" + by_recursion(leaves[:half]) + by_recursion(leaves[half:])).digest()


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=40))
def test_m37_the_tree_is_that_of_certificate_transparency(leaves: list[bytes]) -> None:
    assert tree_digest(leaves) == by_recursion(leaves)


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=2, max_size=40), st.data())
def test_m37_any_other_leaf_changes_the_root(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    other = data.draw(
        st.binary(min_size=32, max_size=32).filter(lambda leaf: leaf != leaves[index])
    )
    changed = [*leaves[:index], other, *leaves[index + 1 :]]
    assert tree_digest(changed) != tree_digest(leaves)


@given(st.integers(1, 2**33))
def test_m37_chunks_cover_an_object_exactly(size: int) -> None:
    last = chunk_count(size) - 1
    assert last * CHUNK_BYTES + chunk_size(size, last) == size
    assert 0 < chunk_size(size, last) <= CHUNK_BYTES
    assert last == 0 or chunk_size(size, 0) == CHUNK_BYTES


@pytest.mark.parametrize("size", [0, 1, WHOLE_BYTES_MAX])
def test_m37_the_digest_of_a_small_object_stays_its_sha256(size: int) -> None:
    assert not is_large(size)
    assert content_digest(b"x" * size) == sha256(b"x" * size).digest()


@pytest.mark.parametrize("size", [SMALLEST_LARGE, WHOLE_BYTES_MAX + CHUNK_BYTES])
def test_m37_each_chunk_of_a_large_object_verifies_by_itself(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    chunk_list = listed(data)

    assert chunk_list.is_complete
    assert chunk_list.root() == content_digest(data)
    last = len(chunk_list) - 1
    for index in (0, 1, last):
        chunk = data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        assert chunk_list.matches_chunk(index, chunk)
        assert not chunk_list.matches_chunk(index, chunk[:-1])
        assert not chunk_list.matches_chunk(index, bytes([chunk[0] ^ 1]) + chunk[1:])
    assert chunk_list.digests[:CHUNK_DIGEST_BYTES] == chunk_digest(data[:CHUNK_BYTES])


def test_m37_a_list_with_a_digest_too_few_is_not_complete() -> None:
    chunk_list = listed(b"x" * SMALLEST_LARGE)
    assert not ChunkList(chunk_list.size, chunk_list.digests[:-1]).is_complete
    assert not ChunkList(chunk_list.size + CHUNK_BYTES, chunk_list.digests).is_complete
