"""Messages of large objects: inserts without bytes, lists of chunks, and chunks.

Whoever needs chunks asks for them: a node that retrieves an object, and a broker that stores a new
one.
Clauses: M37.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from thyme.model.ids import NodeId, RequestId, as_node_id
from thyme.model.metadata import Metadata
from thyme.protocol.messages.cell_records import CellId, as_cell_id
from thyme.protocol.messages.list_limits import Items
from thyme.protocol.messages.traits import BaseMessage, RecordKind


class InsertLargeObject(BaseMessage, frozen=True, array_like=True, tag=12):
    """Store this object, whose chunks you fetch from me, and notify its subscribers (M37).
    Answered by `ChunksMissing` until all chunks are there, then by `Done`; or by `Refused`."""

    label = "InsertLargeObject"
    operation = "insert"
    introduces = True
    records = (("metadata", RecordKind.METADATA),)

    request_id: RequestId
    metadata: Metadata


class FetchChunkList(BaseMessage, frozen=True, array_like=True, tag=13):
    """Return which chunks of a large object you store (M37). Answered by `StoredChunks` or
    `Refused`."""

    label = "FetchChunkList"
    operation = "retrieve"
    reads_only = True

    request_id: RequestId
    digest: bytes
    """The digest of the object, from its metadata."""
    with_digests: bool
    """Whether the receiver needs the digests of the chunks."""


class FetchChunk(BaseMessage, frozen=True, array_like=True, tag=14):
    """Return one chunk of a large object (M37). Answered by `ChunkData` or `Refused`."""

    label = "FetchChunk"
    operation = "retrieve"
    reads_only = True

    request_id: RequestId
    digest: bytes
    index: int


class ChunksMissing(BaseMessage, frozen=True, array_like=True, tag=22):
    """The insert is accepted, but so many chunks of the object were not fetched yet (M37)."""

    label = "ChunksMissing"
    operation = "acknowledgement"
    authenticated = True

    request_id: RequestId
    count: int


class ChunkHolder(msgspec.Struct, frozen=True, array_like=True):
    """A node that stores chunks of an object, with its cell in Thyme-DCS."""

    node: NodeId
    cell: CellId | None = None

    def __post_init__(self) -> None:
        as_node_id(self.node)
        if self.cell is not None:
            as_cell_id(self.cell)


class StoredChunks(BaseMessage, frozen=True, array_like=True, tag=23):
    """The chunks of a large object that the sender stores, and other nodes that may store some
    (M37)."""

    label = "StoredChunks"
    operation = "retrieve"

    request_id: RequestId
    digests: bytes
    """The digests of all chunks, if they were asked for."""
    held: bytes
    """One bit per chunk, the first in the lowest bit of the first byte; empty: all are stored."""
    others: Items[ChunkHolder]

    def cells_referenced(self) -> Iterable[CellId]:
        return [other.cell for other in self.others if other.cell is not None]


class ChunkData(BaseMessage, frozen=True, array_like=True, tag=24):
    """One chunk of a large object (M37)."""

    label = "ChunkData"
    operation = "retrieve"

    request_id: RequestId
    data: bytes


ChunkRequest = FetchChunkList | FetchChunk
"""Requests that every node answers that stores chunks of a large object (M37)."""
ChunkReply = StoredChunks | ChunkData
