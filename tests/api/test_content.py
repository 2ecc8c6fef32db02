"""Content: new objects are read chunk by chunk; large ones go to the node in chunks."""

from __future__ import annotations

import asyncio
import io
from typing import cast

import pytest

from thyme.api.content import Uploaded, take_content
from thyme.api.session import NodeSession
from thyme.model.errors import MetadataError, UnsupportedError
from thyme.model.object_chunks import CHUNK_BYTES, WHOLE_BYTES_MAX
from thyme.protocol.app_interface import UploadChunk


class NodeInChunks:
    """A session whose node stores the chunks that it is sent, or refuses them."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.chunks: list[bytes] = []
        self._refuses = refuses

    def next_id(self) -> int:
        return len(self.chunks)

    async def await_reply(self, request: UploadChunk) -> None:
        if self._refuses:
            raise UnsupportedError("objects are sent as a whole here")
        self.chunks.append(request.data)


def content(size: int) -> bytes:
    return bytes(number % 251 for number in range(size % 1_000)) + bytes(size - size % 1_000)


def take(node: NodeInChunks, data: bytes) -> bytes | Uploaded:
    source = io.BytesIO(data)

    async def read(count: int) -> bytes:
        assert count <= CHUNK_BYTES
        return source.read(count)

    return asyncio.run(take_content(cast(NodeSession, node), read))


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, WHOLE_BYTES_MAX])
def test_few_bytes_are_returned(size: int) -> None:
    node = NodeInChunks()
    assert take(node, content(size)) == content(size)
    assert node.chunks == []


@pytest.mark.parametrize("size", [WHOLE_BYTES_MAX + 1, WHOLE_BYTES_MAX + 3 * CHUNK_BYTES])
def test_many_bytes_are_uploaded_in_chunks(size: int) -> None:
    node = NodeInChunks()
    taken = take(node, content(size))
    assert isinstance(taken, Uploaded)
    assert taken.size == size
    assert b"".join(node.chunks) == content(size)
    assert {len(chunk) for chunk in node.chunks[:-1]} == {CHUNK_BYTES}


def test_a_node_that_takes_no_chunks_gets_the_object_as_a_whole() -> None:
    data = content(WHOLE_BYTES_MAX + CHUNK_BYTES + 7)
    assert take(NodeInChunks(refuses=True), data) == data


def test_m2_an_object_beyond_the_limit_of_whole_objects_is_refused_with_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = WHOLE_BYTES_MAX + CHUNK_BYTES
    monkeypatch.setattr("thyme.api.content._WHOLE_LIMIT", limit)

    assert take(NodeInChunks(refuses=True), content(limit)) == content(limit)
    with pytest.raises(MetadataError, match=f"at most {limit} bytes"):
        take(NodeInChunks(refuses=True), content(limit + 1))
