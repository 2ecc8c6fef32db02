"""Messages of Thyme-DCS: between cells, between the nodes of a cell, and from nodes to cells.

Declared by the rules of `messages.common`, which also has the messages that contain another message
and the union of all messages.
Clauses: D4, D8, D9, D11–D18, D20–D24, D26, D28, B1–B3, B5, B6.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from thyme.model.ids import Key, NodeId, RequestId, SubscriptionId, as_node_id, as_subscription_id
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    IndexedMetadata,
    MatchedObject,
    Replica,
    SignedLocation,
    TombstoneRecord,
    as_cell_id,
    replica_cells,
)
from thyme.protocol.messages.list_limits import Items, PartRecords, Records
from thyme.protocol.messages.traits import (
    BaseMessage,
    KnownRecords,
    LocationMessage,
    RecordKind,
)


class CellBeacon(BaseMessage, frozen=True, array_like=True, tag=64):
    """The sender is in this cell (D4)."""

    label = "CellBeacon"
    routing_control = True

    cell: CellId
    serving: bool
    """Whether the sender serves its cell: forwards packets and answers requests (D20)."""
    populated_cells: bytes
    """Bitmap of the populated cells around the sender, see `thyme.routing.cells.cell_bitmap`;
    empty if the sender does not serve."""
    payload: bytes
    """Data of the layer above cell routing."""
    world: int | None = None
    """The number of the world, if there are several worlds (D26)."""

    def __post_init__(self) -> None:
        as_cell_id(self.cell)


class Undelivered(BaseMessage, frozen=True, array_like=True, tag=67):
    """A packet did not arrive because the node was not in the cell (D8)."""

    label = "Undelivered"

    number: int
    node: NodeId
    cell: CellId

    def __post_init__(self) -> None:
        as_node_id(self.node)
        as_cell_id(self.cell)


class IndexObject(BaseMessage, frozen=True, array_like=True, tag=80):
    """Index this metadata and notify subscribers (D11). Answered by `Done` or `Refused`."""

    label = "IndexObject"
    operation = "insert"
    replies_early = True
    changes_index = True
    records = (("indexed", RecordKind.INDEXED_METADATA),)

    request_id: RequestId
    indexed: IndexedMetadata

    def cells_referenced(self) -> Iterable[CellId]:
        return replica_cells((self.indexed,))

    def is_redundant(self, known: KnownRecords, origin: NodeId, origin_cell: CellId) -> bool:
        return known.has_metadata(self.indexed.metadata)


class IndexSmallObject(IndexObject, frozen=True, array_like=True, tag=110):
    """An `IndexObject` with the object itself, which is small: notifications and pages contain it,
    so that readers need not retrieve it (D28)."""

    label = "IndexSmallObject"

    data: bytes

    @property
    def data_bytes(self) -> int:
        return len(self.data)


class AnnounceReplica(BaseMessage, frozen=True, array_like=True, tag=81):
    """The sender is a passive replica of an object (D13). Not answered."""

    label = "AnnounceReplica"
    operation = "retrieve"
    broadcast_acknowledged = False

    key: Key


class AnnounceReplicas(BaseMessage, frozen=True, array_like=True, tag=109):
    """The sender is a passive replica of these objects (D13, D28). The receiver ignores objects
    that it does not index. Not answered."""

    label = "AnnounceReplicas"
    operation = "retrieve"
    broadcast_acknowledged = False

    keys: Items[Key]


class StoreReplica(BaseMessage, frozen=True, array_like=True, tag=82):
    """Store this object as an active replica (D11, D14). Not answered."""

    label = "HoldObject"
    operation = "insert"
    one_ack_suffices = True
    records = (("metadata", RecordKind.METADATA),)

    metadata: Metadata
    data: bytes
    holders: Items[NodeId] = ()
    """The nodes that store the object; empty if all nodes of the cell do (B6)."""

    def __post_init__(self) -> None:
        for node_id in self.holders:
            as_node_id(node_id)

    @property
    def data_bytes(self) -> int:
        return len(self.data)

    def is_acknowledged_by(self, node_id: NodeId) -> bool:
        return not self.holders or node_id in self.holders


class ConfirmReplica(BaseMessage, frozen=True, array_like=True, tag=108):
    """Confirm that you store this object of the sender, on disk if `durable` (M30). Answered by
    `Done` once the object is there, or by `Refused`."""

    label = "ConfirmReplica"
    operation = "insert"
    records = (("metadata", RecordKind.METADATA),)

    request_id: RequestId
    metadata: Metadata
    durable: bool


class CellNotify(BaseMessage, frozen=True, array_like=True, tag=83):
    """One object matches subscriptions of the receivers (D9, D17). Not answered."""

    label = "CellNotify"
    operation = "notification"
    records = (("indexed", RecordKind.INDEXED_METADATA),)

    indexed: IndexedMetadata
    sids: Items[SubscriptionId]
    """The matching subscriptions of all receivers; each receiver knows its own."""

    def __post_init__(self) -> None:
        for sid in self.sids:
            as_subscription_id(sid)

    def cells_referenced(self) -> Iterable[CellId]:
        return replica_cells((self.indexed,))


class CellPage(BaseMessage, frozen=True, array_like=True, tag=84):
    """A `Page` of past matches at a cell, with replication lists."""

    label = "CellPage"
    operation = "subscribe"
    records = (("items", RecordKind.INDEXED_METADATA),)

    request_id: RequestId
    total: int
    items: Records[IndexedMetadata]
    has_more: bool

    def cells_referenced(self) -> Iterable[CellId]:
        return replica_cells(self.items)


class CellStatus(BaseMessage, frozen=True, array_like=True, tag=85):
    """The status of an object at a cell: an `ObjectStatus` with the replication list."""

    label = "CellStatus"
    records = (("indexed", RecordKind.INDEXED_METADATA),)

    request_id: RequestId
    state: str
    indexed: IndexedMetadata | None

    def cells_referenced(self) -> Iterable[CellId]:
        return () if self.indexed is None else replica_cells((self.indexed,))


class FetchCellState(BaseMessage, frozen=True, array_like=True, tag=87):
    """Return the state of our cell (D23). Answered by all parts of `CellState`."""

    label = "FetchCellState"

    request_id: RequestId


class CellState(BaseMessage, frozen=True, array_like=True, tag=88):
    """Records of a cell: part `part` of `parts`, counted from 0 (D23)."""

    label = "CellState"
    records = (
        ("objects", RecordKind.INDEXED_METADATA),
        ("subscriptions", RecordKind.CELL_SUBSCRIPTION),
        ("object_tombstones", RecordKind.OBJECT_TOMBSTONE),
        ("subscription_tombstones", RecordKind.SUBSCRIPTION_TOMBSTONE),
        ("replicated", RecordKind.METADATA),
    )

    request_id: RequestId
    part: int
    parts: int
    objects: PartRecords[IndexedMetadata] = ()
    subscriptions: PartRecords[CellSubscription] = ()
    object_tombstones: PartRecords[TombstoneRecord] = ()
    subscription_tombstones: PartRecords[TombstoneRecord] = ()
    replicated: PartRecords[Metadata] = ()
    """The objects whose active replicas are the nodes of the cell."""

    def cells_referenced(self) -> Iterable[CellId]:
        located = (
            cell
            for subscription in self.subscriptions
            for cell in (subscription.cell, *subscription.key_cells)
        )
        return chain(replica_cells(self.objects), located)


class CellNotifyBatch(BaseMessage, frozen=True, array_like=True, tag=89):
    """Objects match subscriptions of the receivers. Answered by `NotifyAck` (B3)."""

    label = "CellNews"
    operation = "notification"
    records = (("items", RecordKind.MATCHED_OBJECT),)

    items: Records[MatchedObject]

    def cells_referenced(self) -> Iterable[CellId]:
        return replica_cells(item.indexed for item in self.items)


class NotifyAck(BaseMessage, frozen=True, array_like=True, tag=90):
    """The `CellNotifyBatch` packets with these numbers arrived."""

    label = "NewsCame"
    operation = "acknowledgement"

    numbers: Items[int]


class CellBroadcastAck(BaseMessage, frozen=True, array_like=True, tag=91):
    """The sender received a `CellBroadcast` of the receiver (B2)."""

    label = "SpreadHeard"
    operation = "acknowledgement"

    origin: NodeId
    number: int
    cell: CellId

    def __post_init__(self) -> None:
        as_node_id(self.origin)
        as_cell_id(self.cell)


class CellDigest(BaseMessage, frozen=True, array_like=True, tag=92):
    """Digests of the sender's records of our cell, by bucket, 4 bytes each (B2). Answered by
    `CellRecordHashes` if the receiver's digests differ."""

    label = "CellSums"

    bucket_digests: bytes


class CellRecordHashes(BaseMessage, frozen=True, array_like=True, tag=93):
    """Hashes of the sender's records in some buckets, 8 bytes each (B2). Answered by a `CellState`
    with the records not among them and, on request, by the receiver's own hashes."""

    label = "CellMarks"

    buckets: bytes
    """The bucket numbers, one byte each."""
    record_hashes: bytes
    hashes_wanted: bool


class LocationUpdate(LocationMessage, frozen=True, array_like=True, tag=94):
    """The origin of the packet is now in the packet's origin cell: send notifications of these
    subscriptions and retrieves of these objects there (D21). Answered by `LocationUpdateReply`."""

    label = "NodeMoved"

    request_id: RequestId
    sids: Items[SubscriptionId] = ()
    keys: Items[Key] = ()

    def __post_init__(self) -> None:
        for sid in self.sids:
            as_subscription_id(sid)

    def is_redundant(self, known: KnownRecords, origin: NodeId, origin_cell: CellId) -> bool:
        cell = origin_cell if self.location is None else self.location.cell
        replica = Replica(cell, origin)
        return not self.sids and all(known.is_active_replica(key, replica) for key in self.keys)

    def with_location(self, location: SignedLocation) -> SignedLocationUpdate:
        return SignedLocationUpdate(self.request_id, self.sids, self.keys, location)


class SignedLocationUpdate(LocationUpdate, frozen=True, array_like=True, tag=101):
    """A `LocationUpdate` with the node's signed location (D21, B5)."""

    label = "SignedMove"

    location: SignedLocation | None = None

    def cells_referenced(self) -> Iterable[CellId]:
        return () if self.location is None else (self.location.cell,)


class LocationUpdateReply(BaseMessage, frozen=True, array_like=True, tag=95):
    """The cell recorded the location, but does not know these subscriptions and objects."""

    label = "MoveNoted"

    request_id: RequestId
    unknown_sids: Items[SubscriptionId] = ()
    unknown_keys: Items[Key] = ()

    def __post_init__(self) -> None:
        for sid in self.unknown_sids:
            as_subscription_id(sid)


class TransferState(BaseMessage, frozen=True, array_like=True, tag=96):
    """Take over this state: it belongs to your cell, or to a cell that yours is proxy of (D24).
    Answered by `Done`."""

    label = "HandOver"
    records = (("state", RecordKind.MESSAGE),)

    request_id: RequestId
    cell: CellId
    """The cell to which the state belongs."""
    state: CellState

    def __post_init__(self) -> None:
        as_cell_id(self.cell)

    def cells_referenced(self) -> Iterable[CellId]:
        return chain((self.cell,), self.state.cells_referenced())


class StateTransferred(BaseMessage, frozen=True, array_like=True, tag=97):
    """These objects and subscriptions of another cell were transferred to it (D24). Sent by a node
    to the others of its cell; not answered."""

    label = "HandedOver"

    cell: CellId
    keys: Items[Key] = ()
    subscriptions: Items[SubscriptionKey] = ()

    def __post_init__(self) -> None:
        as_cell_id(self.cell)


class BackupState(BaseMessage, frozen=True, array_like=True, tag=98):
    """Store this backup of a cell, in case all nodes responsible for the cell fail (B1). Answered
    by `Done`, or by `Refused` if the receiver has fewer records than `expected_total`."""

    label = "BackUp"
    broadcast_acknowledged = False
    records = (("state", RecordKind.MESSAGE),)

    request_id: RequestId
    cell: CellId
    """The cell to which the state belongs."""
    expected_total: int
    """The number of objects and subscriptions in the backup after this message."""
    state: CellState

    def __post_init__(self) -> None:
        as_cell_id(self.cell)

    def cells_referenced(self) -> Iterable[CellId]:
        return chain((self.cell,), self.state.cells_referenced())


class SuspectSubscriber(BaseMessage, frozen=True, array_like=True, tag=99):
    """A subscriber has been absent from this cell for too long: probe it and, if it is not there,
    remove its subscriptions (D22). Sent by a node to the others of its cell; not answered."""

    label = "SubscriberGone"

    subscriber: NodeId
    cell: CellId

    def __post_init__(self) -> None:
        as_node_id(self.subscriber)
        as_cell_id(self.cell)


class ReindexObjects(BaseMessage, frozen=True, array_like=True, tag=100):
    """Index these objects of your cell again, which you did not know (B2). Answered by `Done`."""

    label = "IndexAgain"
    changes_index = True
    records = (("objects", RecordKind.INDEXED_METADATA),)

    request_id: RequestId
    objects: Records[IndexedMetadata]

    def cells_referenced(self) -> Iterable[CellId]:
        return replica_cells(self.objects)


CellMaintenanceRequest = LocationUpdate | ReindexObjects | TransferState | BackupState
"""Requests of nodes to cells that no application request causes (D21, D24)."""
CellOnlyReply = CellPage | CellStatus | LocationUpdateReply
"""Replies that only cells send."""
CellDataMessage = (
    IndexObject
    | IndexSmallObject
    | AnnounceReplica
    | AnnounceReplicas
    | StoreReplica
    | ConfirmReplica
    | CellNotify
    | CellPage
    | CellStatus
)
"""Messages about objects and subscriptions (D9–D18)."""
CellMaintenance = (
    FetchCellState
    | CellState
    | CellNotifyBatch
    | NotifyAck
    | CellDigest
    | CellRecordHashes
    | LocationUpdate
    | LocationUpdateReply
    | TransferState
    | StateTransferred
    | BackupState
    | SuspectSubscriber
    | ReindexObjects
)
"""Messages that keep the state of cells complete and in the right cell, and that deliver
notifications reliably (D21–D24, B1–B3)."""
