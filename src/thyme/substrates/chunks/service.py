"""Chunk service: answers requests for chunks of large objects.

Every node answers for the chunks that it has, whether it stores the object or is still fetching it.
Nodes that ask for an object are likely to have chunks of it soon: they are named to the next ones
that ask, so that these can fetch from several nodes at once. Entry point: `ChunkService.answer`.
Clause: M37.
"""

from __future__ import annotations

from typing import assert_never

from thyme.model.bounded import BoundedDict, drop_before
from thyme.model.errors import NotFoundError, OperationError
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages import chunks as chunk_wire
from thyme.protocol.messages import common as wire
from thyme.substrates.chunks.cache import ChunkCache

_OTHERS_MAX = 8
_RECENT_US = 60 * SECOND_US
"""How long a node that asked for an object is named to others."""
_OBJECTS_MAX = 256


class ChunkService:
    """Serves the chunks of one node."""

    def __init__(self, cache: ChunkCache) -> None:
        self._cache = cache
        self._askers: BoundedDict[bytes, dict[chunk_wire.ChunkHolder, int]] = BoundedDict(
            _OBJECTS_MAX
        )
        """When nodes last asked for an object, by the object's digest; the latest is last."""
        self.chunks_sent = 0

    def answer(
        self, asker: chunk_wire.ChunkHolder, request: chunk_wire.ChunkRequest, now_us: int
    ) -> chunk_wire.ChunkReply | wire.Refused:
        """The reply to a request for chunks."""
        try:
            match request:
                case chunk_wire.FetchChunkList():
                    return self._stored_chunks(asker, request, now_us)
                case chunk_wire.FetchChunk():
                    data = self._cache.read(request.digest, request.index)
                    self.chunks_sent += 1
                    return chunk_wire.ChunkData(request.request_id, data)
                case _:
                    assert_never(request)
        except OperationError as error:
            return wire.Refused(request.request_id, error.code, str(error))

    def _stored_chunks(
        self, asker: chunk_wire.ChunkHolder, request: chunk_wire.FetchChunkList, now_us: int
    ) -> chunk_wire.StoredChunks:
        chunk_list = self._cache.chunk_list(request.digest)
        flags = self._cache.held_flags(request.digest)
        if chunk_list is None or flags is None:
            raise NotFoundError("no chunk of this object is here")
        return chunk_wire.StoredChunks(
            request.request_id,
            chunk_list.digests if request.with_digests else b"",
            b"" if all(flags) else pack_flags(flags),
            self._record_asker(asker, request.digest, now_us),
        )

    def _record_asker(
        self, asker: chunk_wire.ChunkHolder, digest: bytes, now_us: int
    ) -> tuple[chunk_wire.ChunkHolder, ...]:
        """Remembers who asked; returns the others that asked recently, the latest first."""
        askers = self._askers.get(digest, {})
        drop_before(askers, now_us - _RECENT_US)
        others = [other for other in reversed(askers) if other.node != asker.node]
        for earlier in [known for known in askers if known.node == asker.node]:
            del askers[earlier]
        askers[asker] = now_us
        while len(askers) > _OTHERS_MAX:
            del askers[next(iter(askers))]
        self._askers.refresh(digest, askers)
        return tuple(others)


def pack_flags(flags: bytes | bytearray) -> bytes:
    """Packs one byte per chunk to one bit per chunk."""
    bits = 0
    for index, flag in enumerate(flags):
        bits |= flag << index
    return bits.to_bytes(-(-len(flags) // 8), "little")


def unpack_flags(packed: bytes, count: int) -> bytearray:
    """Unpacks one bit per chunk to one byte per chunk; missing bits are 0, empty stands for all."""
    if not packed:
        return bytearray(b"\1" * count)
    bits = int.from_bytes(packed, "little")
    return bytearray(bits >> index & 1 for index in range(count))
