"""Messages between nodes: those shared by the substrates, message carriers, and the unions.

Immutable records. On the wire each is an array of its number (`tag`) and its fields in the order
of declaration (docs/wire.md). New fields are added at the end, with a default; a number is never
reused. The messages of DCS only are in `messages.cells`, those of stations in `messages.stations`,
those of the encounter substrates in `messages.encounters`, those of large objects in
`messages.chunks`, except those that contain any other message: these need the union of all
messages, `Message`, and are declared here.
Clauses: M13–M20, M25, M34, E2, R1, D5–D9, D11, D16, I23–I26, B5.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from thyme.model.ids import Key, NodeId, RequestId, SubscriptionId, as_node_id, as_subscription_id
from thyme.model.metadata import Metadata
from thyme.model.signed_records import DeleteRecord, UnsubscribeRecord
from thyme.model.subscriptions import (
    Conjunction,
    SubscriptionKey,
    SubscriptionRecord,
    check_conjunctions,
)
from thyme.model.tags import Tag, check_tags
from thyme.model.time_frames import TimeFrame
from thyme.protocol.messages.cell_records import CellId, CellTarget, SignedLocation, as_cell_id
from thyme.protocol.messages.cells import (
    CellBeacon,
    CellBroadcastAck,
    CellDataMessage,
    CellMaintenance,
    CellOnlyReply,
    ConfirmReplica,
    IndexObject,
    SignedLocationUpdate,
    Undelivered,
)
from thyme.protocol.messages.chunks import (
    ChunkReply,
    ChunkRequest,
    ChunksMissing,
    FetchChunkList,
    InsertLargeObject,
    StoredChunks,
)
from thyme.protocol.messages.encounters import EncounterMessage
from thyme.protocol.messages.stations import StationMessage
from thyme.protocol.messages.traits import (
    UPKEEP,
    BaseMessage,
    KnownRecords,
    LocationMessage,
    RecordKind,
    StatementMessage,
)
from thyme.query.cursor import Cursor


class InsertObject(BaseMessage, frozen=True, array_like=True, tag=1):
    """Store this object and notify its subscribers. Answered by `Done` or `Refused`."""

    label = "InsertObject"
    operation = "insert"
    introduces = True
    records = (("metadata", RecordKind.METADATA),)

    request_id: RequestId
    metadata: Metadata
    data: bytes


class DeleteObject(StatementMessage, frozen=True, array_like=True, tag=2):
    """Delete an object; sent by its owner only. Answered by `Done` or `Refused`."""

    label = "DeleteObject"
    operation = "delete"
    introduces = True
    changes_index = True

    request_id: RequestId
    key: Key

    def author(self, sender: NodeId) -> NodeId:
        return self.key.owner

    def statement(self) -> DeleteRecord:
        return DeleteRecord(self.key)

    def with_proof(self, proof: bytes) -> SignedDelete:
        return SignedDelete(self.request_id, self.key, proof)

    def is_redundant(self, known: KnownRecords, origin: NodeId, origin_cell: CellId) -> bool:
        return known.is_deleted(self.key)


class StartSubscription(LocationMessage, frozen=True, array_like=True, tag=3):
    """Activate a subscription. Answered by a `Page` of past matches."""

    label = "StartSubscription"
    operation = "subscribe"
    introduces = True
    changes_index = True
    records = (("subscription", RecordKind.SUBSCRIPTION),)
    location_required = False

    request_id: RequestId
    subscription: SubscriptionRecord
    batch: int

    def author(self, sender: NodeId) -> NodeId:
        return self.subscription.key.subscriber

    def with_location(self, location: SignedLocation) -> LocatedSubscription:
        return LocatedSubscription(self.request_id, self.subscription, self.batch, location)


class StopSubscription(StatementMessage, frozen=True, array_like=True, tag=4):
    """Remove a subscription; sent by its subscriber only. Answered by `Done`."""

    label = "StopSubscription"
    operation = "unsubscribe"
    introduces = True
    changes_index = True

    request_id: RequestId
    key: SubscriptionKey

    def author(self, sender: NodeId) -> NodeId:
        return self.key.subscriber

    def statement(self) -> UnsubscribeRecord:
        return UnsubscribeRecord(self.key)

    def with_proof(self, proof: bytes) -> SignedStop:
        return SignedStop(self.request_id, self.key, proof)


class SignedDelete(DeleteObject, frozen=True, array_like=True, tag=8):
    """A `DeleteObject` with the owner's proof (B5)."""

    label = "SignedDelete"
    operation = UPKEEP

    proof: bytes


class SignedStop(StopSubscription, frozen=True, array_like=True, tag=9):
    """A `StopSubscription` with the subscriber's proof (B5)."""

    label = "SignedStop"
    operation = UPKEEP

    proof: bytes


class LocatedSubscription(StartSubscription, frozen=True, array_like=True, tag=10):
    """A `StartSubscription` with the subscriber's signed location (D16, B5)."""

    label = "PlacedSubscription"
    operation = UPKEEP

    location: SignedLocation

    def cells_referenced(self) -> Iterable[CellId]:
        return (self.location.cell,)


class FetchPage(BaseMessage, frozen=True, array_like=True, tag=5):
    """Return the most recent matches before a cursor. Answered by `Page`; changes no state."""

    label = "FetchPage"
    operation = "subscribe"
    introduces = True
    reads_only = True

    request_id: RequestId
    conjunctions: tuple[Conjunction, ...]
    frame: TimeFrame
    count: int
    before: Cursor | None = None

    def __post_init__(self) -> None:
        check_conjunctions(self.conjunctions)


class FetchObject(BaseMessage, frozen=True, array_like=True, tag=6):
    """Return the bytes of an object. Answered by `ObjectData` or `Refused`."""

    label = "FetchObject"
    operation = "retrieve"
    introduces = True
    reads_only = True

    request_id: RequestId
    key: Key


class FetchStatus(BaseMessage, frozen=True, array_like=True, tag=7):
    """Return the status of an object. Answered by `ObjectStatus`."""

    label = "FetchStatus"
    introduces = True
    reads_only = True

    request_id: RequestId
    key: Key


class FetchMissed(BaseMessage, frozen=True, array_like=True, tag=11):
    """Return the matches of a subscription that its subscriber missed, after a cursor (M34).
    Answered by `MissedPage` or `Refused`."""

    label = "FetchMissed"
    operation = "notification"
    authenticated = True
    introduces = True
    reads_only = True

    request_id: RequestId
    key: SubscriptionKey
    gap: int
    """The gap from `Missed`; 0 if the subscriber itself dropped notifications."""
    round: int
    """The round from the latest `MissedPage` of the gap; 0 at first."""
    after: Cursor | None
    """Everything up to here arrived in this round; None at the beginning of a gap."""
    count: int
    lost: int
    """The number of lost objects that the subscriber knows of."""


class Done(BaseMessage, frozen=True, array_like=True, tag=16):
    """The request succeeded."""

    label = "Done"
    operation = "acknowledgement"
    authenticated = True

    request_id: RequestId


class Refused(BaseMessage, frozen=True, array_like=True, tag=17):
    """The request failed: a code of `thyme.model.errors` and an explanation."""

    label = "Refused"
    operation = "acknowledgement"
    authenticated = True

    request_id: RequestId
    code: str
    detail: str


class Page(BaseMessage, frozen=True, array_like=True, tag=18):
    """Past matches, newest first, with the total number; `has_more` if older ones remain."""

    label = "Page"
    operation = "subscribe"
    authenticated = True
    records = (("items", RecordKind.METADATA),)

    request_id: RequestId
    total: int
    items: tuple[Metadata, ...]
    has_more: bool


class ObjectData(BaseMessage, frozen=True, array_like=True, tag=19):
    """The bytes of an object."""

    label = "ObjectData"
    operation = "retrieve"

    request_id: RequestId
    key: Key
    data: bytes


class ObjectStatus(BaseMessage, frozen=True, array_like=True, tag=20):
    """The status of an object at a broker, see `LookupResult`."""

    label = "ObjectStatus"
    authenticated = True
    records = (("metadata", RecordKind.METADATA),)

    request_id: RequestId
    state: str
    metadata: Metadata | None


class MissedPage(BaseMessage, frozen=True, array_like=True, tag=21):
    """Matches that the subscriber missed, oldest first (M34)."""

    label = "MissedPage"
    operation = "notification"
    authenticated = True
    records = (("items", RecordKind.METADATA),)

    request_id: RequestId
    gap: int
    round: int
    """Increases when objects with earlier timestamps arrived meanwhile and are read next."""
    items: tuple[Metadata, ...]
    ended: bool
    """Whether the subscriber has everything; from now on it is notified again."""
    lost: int
    """The number of missed objects that are no longer stored, in the whole gap."""


class Notify(BaseMessage, frozen=True, array_like=True, tag=32):
    """One object matches one or more subscriptions of the receiver. Not answered."""

    label = "Notify"
    operation = "notification"
    records = (("metadata", RecordKind.METADATA),)

    metadata: Metadata
    sids: tuple[SubscriptionId, ...]

    def __post_init__(self) -> None:
        for sid in self.sids:
            as_subscription_id(sid)


class Packet(BaseMessage, frozen=True, array_like=True, tag=48):
    """A message routed over several hops, see `thyme.routing`."""

    label = "Packet"

    origin: NodeId
    destination: NodeId
    hops: int
    """The number of links crossed before this one."""
    message: Message

    def __post_init__(self) -> None:
        as_node_id(self.origin)
        as_node_id(self.destination)
        if self.hops < 0:
            raise ValueError("the hops of a Packet must be 0 or more")
        inner: Message | None = self.message
        while inner is not None:
            if isinstance(inner, Packet):
                raise ValueError("a Packet cannot contain another Packet")
            inner = getattr(inner, "message", None)


RouteEntry = tuple[NodeId, int, int]
"""A destination, its sequence number, and the number of hops to it via the sender. A plain tuple,
because nodes skip thousands of known entries per second."""


class RouteUpdate(BaseMessage, frozen=True, array_like=True, tag=49):
    """The sender's routes, including the route to itself; an odd sequence number marks a lost
    route (R1)."""

    label = "RouteUpdate"
    routing_control = True

    entries: tuple[RouteEntry, ...]

    def __post_init__(self) -> None:
        for destination, sequence, hops in self.entries:
            as_node_id(destination)
            if not (0 <= sequence < 2**62 and 0 < hops < 2**16):
                raise ValueError(f"invalid route entry: hops={hops}, sequence={sequence}")


class PastMatches(BaseMessage, frozen=True, array_like=True, tag=33):
    """Past matches at the sender for a subscription of the receiver: an unsolicited `Page`."""

    label = "OwnerPage"
    operation = "subscribe"
    records = (("items", RecordKind.METADATA),)

    sid: SubscriptionId
    total: int
    items: tuple[Metadata, ...]
    has_more: bool

    def __post_init__(self) -> None:
        as_subscription_id(self.sid)


class JoinRequest(BaseMessage, frozen=True, array_like=True, tag=34):
    """Return the subscriptions you store. Some receivers answer with `JoinReply`."""

    label = "JoinRequest"

    request_id: RequestId
    attempt: int


class JoinReply(BaseMessage, frozen=True, array_like=True, tag=35):
    """Some subscriptions stored by the sender: part `part` of `parts`, counted from 0."""

    label = "JoinReply"
    records = (("subscriptions", RecordKind.SUBSCRIPTION),)

    request_id: RequestId
    part: int
    parts: int
    subscriptions: tuple[SubscriptionRecord, ...]


class ReliableMessage(BaseMessage, frozen=True, array_like=True, tag=36):
    """A message that is repeated until the receiver answers with `ReliableAck`."""

    label = "Letter"
    introduces = True
    records = (("message", RecordKind.MESSAGE),)

    number: int
    message: Message

    def __post_init__(self) -> None:
        if isinstance(self.message, ReliableMessage):
            raise ValueError("a ReliableMessage cannot contain another ReliableMessage")


class ReliableAck(BaseMessage, frozen=True, array_like=True, tag=37):
    """The `ReliableMessage` with this number arrived."""

    label = "Receipt"
    operation = "acknowledgement"
    authenticated = True

    number: int


class Authenticated(BaseMessage, frozen=True, array_like=True, tag=39):
    """A message with what shows who sent it to the receiver (B5). See `thyme.protocol.answer_auth`;
    nodes on the way do not read it."""

    label = "Authenticated"

    public_key: bytes
    """The public key of the sender; empty if the receiver knows it."""
    code: bytes
    """The code of the content; empty if the content needs none."""
    content: bytes
    """A message, encoded without a version."""


class Missed(BaseMessage, frozen=True, array_like=True, tag=38):
    """The receiver missed notifications of its subscription (M34). Repeated until the receiver
    reads them with `FetchMissed`."""

    label = "Missed"
    operation = "notification"
    introduces = True

    sid: SubscriptionId
    gap: int

    def __post_init__(self) -> None:
        as_subscription_id(self.sid)
        if self.gap <= 0:
            raise ValueError("the number of a gap must be greater than 0")


class Flooded(BaseMessage, frozen=True, array_like=True, tag=50):
    """A message for all nodes: each node broadcasts it once more when it first receives it."""

    label = "Flooded"
    records = (("message", RecordKind.MESSAGE),)

    origin: NodeId
    number: int
    hops: int
    """The number of links crossed before this one."""
    message: Message

    def __post_init__(self) -> None:
        as_node_id(self.origin)
        if self.hops < 0 or isinstance(self.message, Flooded):
            raise ValueError("a Flooded needs hops of 0 or more and cannot contain another Flooded")

    def author(self, sender: NodeId) -> NodeId:
        return self.origin


class CellPacket(BaseMessage, frozen=True, array_like=True, tag=65):
    """A message routed to cells, or to nodes in cells (D5–D9)."""

    label = "CellPacket"

    origin: NodeId
    origin_cell: CellId
    number: int
    """Chosen by the origin, different for each message."""
    hops: int
    """The number of links crossed before this one."""
    targets: tuple[CellTarget, ...]
    message: Message
    world: int | None = None

    def __post_init__(self) -> None:
        _check_carrier(self.origin, self.origin_cell, self.hops, self.message)
        if not self.targets:
            raise ValueError("a CellPacket needs at least one target")


class CellBroadcast(BaseMessage, frozen=True, array_like=True, tag=66):
    """A message from one node of a cell to all others; nodes of other cells ignore it (D7)."""

    label = "CellSpread"

    origin: NodeId
    origin_cell: CellId
    number: int
    hops: int
    receiving_cell: CellId
    """The cell whose nodes receive the message."""
    addressed_cell: CellId
    """The cell that was addressed: the receiving cell, or an empty one it is proxy of (D6)."""
    message: Message
    world: int | None = None

    def __post_init__(self) -> None:
        _check_carrier(self.origin, self.origin_cell, self.hops, self.message)
        as_cell_id(self.receiving_cell)
        as_cell_id(self.addressed_cell)


class ReplyFromCell(BaseMessage, frozen=True, array_like=True, tag=86):
    """A reply on behalf of the cell that was addressed, perhaps sent by its proxy (D6, D11)."""

    label = "FromCell"
    records = (("message", RecordKind.MESSAGE),)

    cell: CellId
    message: Message

    def __post_init__(self) -> None:
        as_cell_id(self.cell)
        if isinstance(self.message, ReplyFromCell):
            raise ValueError("a ReplyFromCell cannot contain another ReplyFromCell")

    def cells_referenced(self) -> Iterable[CellId]:
        return self.message.cells_referenced()


class ToStation(BaseMessage, frozen=True, array_like=True, tag=51):
    """A message of a mobile node to its station, with the logical address of the node (I25)."""

    label = "ToStation"
    records = (("message", RecordKind.MESSAGE),)

    world: int
    cell: CellId
    message: Message

    def __post_init__(self) -> None:
        as_cell_id(self.cell)

    def cells_referenced(self) -> Iterable[CellId]:
        return self.message.cells_referenced()


class RouteToNode(BaseMessage, frozen=True, array_like=True, tag=58):
    """Pass this message of a station on to a node of your cell, whose address the station does not
    know (I25). Not answered; the node answers the station."""

    label = "InfraRouting"
    records = (("message", RecordKind.MESSAGE),)

    station: NodeId
    node: NodeId
    message: Message

    def __post_init__(self) -> None:
        as_node_id(self.station)
        as_node_id(self.node)

    def cells_referenced(self) -> Iterable[CellId]:
        return self.message.cells_referenced()


class RouteToCell(BaseMessage, frozen=True, array_like=True, tag=59):
    """Pass this message of a station on to all nodes of a cell (I26). Answered by `Done`."""

    label = "InfraCellRouting"
    records = (("message", RecordKind.MESSAGE),)

    request_id: RequestId
    cell: CellId
    message: Message

    def __post_init__(self) -> None:
        as_cell_id(self.cell)

    def cells_referenced(self) -> Iterable[CellId]:
        return self.message.cells_referenced()


class Unpublish(BaseMessage, frozen=True, array_like=True, tag=69):
    """The owner deletes an object in all venues (I23): from a mobile node to its station, from a
    station to the others and to its cells. Answered by `Done`, except by cells."""

    label = "GlobalUnpublish"
    operation = "delete"
    changes_index = True
    records = (("delete", RecordKind.MESSAGE),)

    request_id: RequestId
    world: int
    tags: tuple[Tag, ...]
    delete: Message
    """The owner's `DeleteObject`, signed in worlds with node keys."""

    def __post_init__(self) -> None:
        check_tags(self.tags)
        if not isinstance(self.delete, DeleteObject):
            raise ValueError("an Unpublish contains a DeleteObject")


def unpublished_key(message: Unpublish) -> Key:
    """The object that an `Unpublish` deletes."""
    assert isinstance(message.delete, DeleteObject)
    return message.delete.key


def _check_carrier(origin: NodeId, cell: CellId, hops: int, message: Message) -> None:
    as_node_id(origin)
    as_cell_id(cell)
    if hops < 0:
        raise ValueError("the hops of a message must be 0 or more")
    inner: Message | None = message
    while inner is not None:
        if isinstance(inner, CellPacket | CellBroadcast):
            raise ValueError("a CellPacket or CellBroadcast cannot contain another one")
        inner = getattr(inner, "message", None)


CommonRequest = (
    DeleteObject
    | StartSubscription
    | StopSubscription
    | FetchPage
    | FetchMissed
    | FetchObject
    | FetchStatus
)
"""Requests that both brokers and cells answer."""
BrokerRequest = InsertObject | InsertLargeObject | CommonRequest
Reply = Done | Refused | Page | MissedPage | ObjectData | ObjectStatus | ChunksMissing
RoutingMessage = Flooded | Packet | RouteUpdate
NotificationMessage = Notify | PastMatches
JoinMessage = JoinRequest | JoinReply
ReliableDelivery = ReliableMessage | ReliableAck
CellRoutingMessage = CellBeacon | CellPacket | CellBroadcast | Undelivered | CellBroadcastAck
CellMessage = CellDataMessage | ReplyFromCell | CellMaintenance
CellRequest = IndexObject | ConfirmReplica | FetchChunkList | CommonRequest
"""Requests to cells and to nodes in cells (D11–D18)."""
CellReply = Done | Refused | MissedPage | ObjectData | StoredChunks | CellOnlyReply
StationCarrier = ToStation | RouteToNode | RouteToCell | Unpublish
"""Messages to and from stations that contain another message."""
SignedMessage = SignedDelete | SignedStop | LocatedSubscription | SignedLocationUpdate
"""Signed variants of messages, used in worlds with node keys (B5)."""
Message = (
    BrokerRequest
    | Reply
    | ChunkRequest
    | ChunkReply
    | NotificationMessage
    | Missed
    | JoinMessage
    | ReliableDelivery
    | Authenticated
    | RoutingMessage
    | CellRoutingMessage
    | CellMessage
    | SignedMessage
    | EncounterMessage
    | StationMessage
    | StationCarrier
)
MESSAGE_TYPES: tuple[type[BaseMessage], ...] = get_args(Message)
