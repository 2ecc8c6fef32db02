"""Compact messages of Thyme-DCS: pages and notifications that name what objects share once.

Many objects of one message have the same owner, the same tags and the same replicas. A compact
message has a table of each, and its objects refer to the tables. A small object may be sent with
its metadata, instead of its digest, which the receiver calculates. Nodes send compact messages and
handle the full ones: `BaseMessage.expanded` converts them.
Entry points: `compact_page`, `compact_batch`.
Clauses: D9, D17, D28, B3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from thyme.model.ids import Key, NodeId, ObjectId, RequestId, SubscriptionId, as_subscription_id
from thyme.model.metadata import Metadata
from thyme.model.object_chunks import content_digest
from thyme.model.tags import Tag
from thyme.protocol.messages.cell_records import (
    CellId,
    IndexedMetadata,
    MatchedObject,
    Replica,
    as_cell_id,
)
from thyme.protocol.messages.cells import CellNotifyBatch, CellPage
from thyme.protocol.messages.list_limits import Items, Records
from thyme.protocol.messages.traits import BaseMessage, Expanded, SmallObject

SmallObjectOf = Callable[[Metadata], bytes | None]
"""Returns the bytes of a small object that are to be sent with its metadata; None for none."""
V = TypeVar("V")


class CompactReplica(msgspec.Struct, frozen=True, array_like=True):
    """A `Replica` whose node is a position in the table of nodes."""

    cell: CellId
    node: int | None

    def __post_init__(self) -> None:
        as_cell_id(self.cell)


class CompactObject(msgspec.Struct, frozen=True, array_like=True):
    """One object; numbers are positions in the tables of its `CompactObjects`."""

    oid: ObjectId
    owner: int
    tags: int
    replicas: int
    before_us: int
    """How long before the newest object of the message it was published."""
    content: int | bytes
    """The size of the object, or its bytes."""
    digest_and_proof: bytes
    """As in `Metadata`, but without the digest if `content` is the object's bytes."""
    summary: bytes
    life_us: int | None
    """How long after its publication it expires."""


class CompactObjects(msgspec.Struct, frozen=True, array_like=True):
    """Objects and the tables of what they share."""

    newest_us: int
    nodes: Items[NodeId]
    tags: Items[Tag]
    tag_lists: Items[Items[int]]
    """Lists of positions in `tags`."""
    replication_lists: Items[tuple[Records[CompactReplica], Records[CompactReplica]]]
    """Active and passive replicas."""
    objects: Records[CompactObject]

    def __post_init__(self) -> None:
        _check_positions((tag for tags in self.tag_lists for tag in tags), self.tags)
        replicas = [
            replica for lists in self.replication_lists for each in lists for replica in each
        ]
        _check_positions(
            (replica.node for replica in replicas if replica.node is not None), self.nodes
        )
        _check_positions((each.owner for each in self.objects), self.nodes)
        _check_positions((each.tags for each in self.objects), self.tag_lists)
        _check_positions((each.replicas for each in self.objects), self.replication_lists)

    def expand(self) -> tuple[list[IndexedMetadata], tuple[SmallObject, ...]]:
        """The objects with all their fields, and those that were sent with their bytes; raises
        `InputError` for objects that are not valid."""
        tag_lists = [tuple(self.tags[tag] for tag in tags) for tags in self.tag_lists]
        lists = [
            (self._expand_replicas(active), self._expand_replicas(passive))
            for active, passive in self.replication_lists
        ]
        expanded: list[IndexedMetadata] = []
        small: list[SmallObject] = []
        for each in self.objects:
            content, digest_and_proof = each.content, each.digest_and_proof
            size = content if isinstance(content, int) else len(content)
            if isinstance(content, bytes):
                digest_and_proof = content_digest(content) + digest_and_proof
            published_us = self.newest_us - each.before_us
            metadata = Metadata(
                Key(each.oid, self.nodes[each.owner]),
                tag_lists[each.tags],
                each.summary,
                published_us,
                size,
                digest_and_proof,
                None if each.life_us is None else published_us + each.life_us,
            )
            expanded.append(IndexedMetadata(metadata, *lists[each.replicas]))
            if isinstance(content, bytes):
                small.append(SmallObject(metadata, content))
        return expanded, tuple(small)

    def _expand_replicas(self, replicas: tuple[CompactReplica, ...]) -> tuple[Replica, ...]:
        return tuple(
            Replica(each.cell, None if each.node is None else self.nodes[each.node])
            for each in replicas
        )


class CompactPage(BaseMessage, frozen=True, array_like=True, tag=111):
    """A `CellPage` in compact form."""

    label = "CompactPage"
    operation = "subscribe"

    request_id: RequestId
    total: int
    has_more: bool
    content: CompactObjects

    def expanded(self) -> Expanded:
        items, small = self.content.expand()
        return Expanded(CellPage(self.request_id, self.total, tuple(items), self.has_more), small)


class CompactNotifyBatch(BaseMessage, frozen=True, array_like=True, tag=122):
    """A `CellNotifyBatch` in compact form."""

    label = "CompactNews"
    operation = "notification"

    content: CompactObjects
    sid_lists: Items[Items[SubscriptionId]]
    matches: Items[int]
    """For each object the position of its matching subscriptions in `sid_lists`."""
    ack_delay_us: int
    """How long the acknowledgement may wait; 0 for as long as usual."""

    def __post_init__(self) -> None:
        for sids in self.sid_lists:
            for sid in sids:
                as_subscription_id(sid)
        if len(self.matches) != len(self.content.objects):
            raise ValueError("a CompactNotifyBatch has one match for each object")
        _check_positions(self.matches, self.sid_lists)

    def expanded(self) -> Expanded:
        objects, small = self.content.expand()
        items = tuple(
            MatchedObject(indexed, self.sid_lists[match])
            for indexed, match in zip(objects, self.matches, strict=True)
        )
        return Expanded(CellNotifyBatch(items), small, self.ack_delay_us)


CompactMessage = CompactPage | CompactNotifyBatch
"""Messages that a receiver expands before it handles them."""


def compact_page(page: CellPage, small_object_of: SmallObjectOf) -> CompactPage:
    """Returns a page in compact form."""
    content = compact_objects(page.items, small_object_of)
    return CompactPage(page.request_id, page.total, page.has_more, content)


def compact_batch(
    items: Sequence[MatchedObject], small_object_of: SmallObjectOf, ack_delay_us: int
) -> CompactNotifyBatch:
    """Returns notifications in compact form."""
    sid_lists = _Table[tuple[SubscriptionId, ...]]()
    matches = tuple(sid_lists.position_of(item.sids) for item in items)
    content = compact_objects([item.indexed for item in items], small_object_of)
    return CompactNotifyBatch(content, sid_lists.values, matches, ack_delay_us)


def compact_objects(
    objects: Sequence[IndexedMetadata], small_object_of: SmallObjectOf
) -> CompactObjects:
    """Returns objects in compact form; the replicas of an object that is sent along are left
    out."""
    newest_us = max((each.metadata.published_us for each in objects), default=0)
    nodes, tags = _Table[NodeId](), _Table[Tag]()
    tag_lists = _Table[tuple[int, ...]]()
    lists = _Table[tuple[tuple[CompactReplica, ...], tuple[CompactReplica, ...]]]()

    def compact_replicas(replicas: tuple[Replica, ...]) -> tuple[CompactReplica, ...]:
        return tuple(
            CompactReplica(each.cell, None if each.node is None else nodes.position_of(each.node))
            for each in replicas
        )

    compacted: list[CompactObject] = []
    for indexed in objects:
        metadata = indexed.metadata
        data = small_object_of(metadata)
        active, passive = (indexed.active, indexed.passive) if data is None else ((), ())
        published_us, expires_us = metadata.published_us, metadata.expires_us
        compacted.append(
            CompactObject(
                metadata.oid,
                nodes.position_of(metadata.owner),
                tag_lists.position_of(tuple(map(tags.position_of, metadata.tags))),
                lists.position_of((compact_replicas(active), compact_replicas(passive))),
                newest_us - published_us,
                metadata.size if data is None else data,
                metadata.digest_and_proof if data is None else metadata.proof,
                metadata.summary,
                None if expires_us is None else expires_us - published_us,
            )
        )
    return CompactObjects(
        newest_us, nodes.values, tags.values, tag_lists.values, lists.values, tuple(compacted)
    )


class _Table(Generic[V]):
    """Values in the order of their first use."""

    def __init__(self) -> None:
        self._positions: dict[V, int] = {}

    @property
    def values(self) -> tuple[V, ...]:
        return tuple(self._positions)

    def position_of(self, value: V) -> int:
        return self._positions.setdefault(value, len(self._positions))


def _check_positions(positions: Iterable[int], table: Sequence[object]) -> None:
    for position in positions:
        if not 0 <= position < len(table):
            raise ValueError(f"there is no position {position} in a table of {len(table)}")
