"""The union of all messages between nodes, and the messages that contain another message.

Immutable records. On the wire each is an array of its number (`tag`) and its fields in the order
of declaration (docs/wire.md). New fields are added at the end, with a default; a number is never
reused. Requests and replies that the substrates share are in `messages.requests` and
`messages.replies`, the messages of DCS only in `messages.cells`, those of stations in
`messages.stations`, those of the encounter substrates in `messages.encounters`, those of large
objects in `messages.chunks`. Messages that contain any other message need the union of all,
`Message`, and are declared here. This module has the names of all requests and replies, too.
Clauses: M20, E2, R1, D5–D9, D11, D16, I23–I26, B5.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import msgspec

from thyme.model.ids import Key, NodeId, RequestId, as_node_id
from thyme.model.tags import Tag, check_tags
from thyme.protocol.messages.cell_records import CellId, CellTarget, as_cell_id
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
from thyme.protocol.messages.chunks import ChunkReply, ChunkRequest, FetchChunkList, StoredChunks
from thyme.protocol.messages.compact import CompactMessage, CompactPage
from thyme.protocol.messages.encounters import EncounterMessage
from thyme.protocol.messages.list_limits import Items
from thyme.protocol.messages.replies import Done as Done
from thyme.protocol.messages.replies import JoinReply as JoinReply
from thyme.protocol.messages.replies import Missed as Missed
from thyme.protocol.messages.replies import MissedPage as MissedPage
from thyme.protocol.messages.replies import NotificationMessage as NotificationMessage
from thyme.protocol.messages.replies import Notify as Notify
from thyme.protocol.messages.replies import ObjectData as ObjectData
from thyme.protocol.messages.replies import ObjectStatus as ObjectStatus
from thyme.protocol.messages.replies import Page as Page
from thyme.protocol.messages.replies import PastMatches as PastMatches
from thyme.protocol.messages.replies import Refused as Refused
from thyme.protocol.messages.replies import Reply as Reply
from thyme.protocol.messages.requests import BrokerRequest as BrokerRequest
from thyme.protocol.messages.requests import CommonRequest as CommonRequest
from thyme.protocol.messages.requests import DeleteObject as DeleteObject
from thyme.protocol.messages.requests import FetchMissed as FetchMissed
from thyme.protocol.messages.requests import FetchObject as FetchObject
from thyme.protocol.messages.requests import FetchPage as FetchPage
from thyme.protocol.messages.requests import FetchStatus as FetchStatus
from thyme.protocol.messages.requests import InsertObject as InsertObject
from thyme.protocol.messages.requests import JoinRequest as JoinRequest
from thyme.protocol.messages.requests import LocatedSubscription as LocatedSubscription
from thyme.protocol.messages.requests import SignedDelete as SignedDelete
from thyme.protocol.messages.requests import SignedStop as SignedStop
from thyme.protocol.messages.requests import StartSubscription as StartSubscription
from thyme.protocol.messages.requests import StopSubscription as StopSubscription
from thyme.protocol.messages.stations import StationMessage
from thyme.protocol.messages.subscription_sets import CompareSubscriptions as CompareSubscriptions
from thyme.protocol.messages.subscription_sets import ComparisonMessage as ComparisonMessage
from thyme.protocol.messages.subscription_sets import MissingSubscriptions as MissingSubscriptions
from thyme.protocol.messages.subscription_sets import SubscriptionDigest as SubscriptionDigest
from thyme.protocol.messages.traits import BaseMessage, Expanded, RecordKind


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

    entries: Items[RouteEntry]

    def __post_init__(self) -> None:
        for destination, sequence, hops in self.entries:
            as_node_id(destination)
            if not (0 <= sequence < 2**62 and 0 < hops < 2**16):
                raise ValueError(f"invalid route entry: hops={hops}, sequence={sequence}")


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
    targets: Items[CellTarget]
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

    def expanded(self) -> Expanded | None:
        inner = self.message.expanded()
        if inner is None:
            return None
        return inner._replace(message=msgspec.structs.replace(self, message=inner.message))

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
    tags: Items[Tag]
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


RoutingMessage = Flooded | Packet | RouteUpdate
JoinMessage = JoinRequest | JoinReply | ComparisonMessage
ReliableDelivery = ReliableMessage | ReliableAck
CellRoutingMessage = CellBeacon | CellPacket | CellBroadcast | Undelivered | CellBroadcastAck
CellMessage = CellDataMessage | ReplyFromCell | CellMaintenance | CompactMessage
CellRequest = IndexObject | ConfirmReplica | FetchChunkList | CommonRequest
"""Requests to cells and to nodes in cells (D11–D18)."""
CellReply = Done | Refused | MissedPage | ObjectData | StoredChunks | CellOnlyReply | CompactPage
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
