"""Messages: what nodes say to each other, each declared once.

Immutable records; on the wire each is an array that starts with its number (`tag`) and lists its
fields in the order they stand here (see docs/wire.md). Fields may be added at the end, with a
default; numbers are never used twice, and labels never change (`labels`). What only cells say to
each other is in `cell_messages`, but for what holds another message: that has to know them all.
Clauses: M13–M20, M25, E2, R1, D5–D9, D11, D16, B5.
"""

from __future__ import annotations

from thyme.model.frames import TimeFrame
from thyme.model.ids import (
    Key,
    NodeId,
    RequestNumber,
    SubscriptionId,
    as_node_id,
    as_subscription_id,
)
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import (
    Conjunction,
    Subscription,
    SubscriptionKey,
    check_conjunctions,
)
from thyme.protocol.cell_messages import (
    CellBeacon,
    CellPage,
    CellStatus,
    CellTalk,
    CellUpkeep,
    IndexObject,
    MoveNoted,
    SignedMove,
    SpreadHeard,
    Undelivered,
)
from thyme.protocol.cells import CellId, CellTarget, Place, as_cell_id
from thyme.protocol.labels import UPKEEP, LabelledMessage
from thyme.query.cursor import Cursor


class InsertObject(LabelledMessage, frozen=True, array_like=True, tag=1):
    """Store this object and notify whom it concerns. Answered by `Done` or `Refused`."""

    label = "InsertObject"
    operation = "insert"

    request: RequestNumber
    metadata: Metadata
    data: bytes


class DeleteObject(LabelledMessage, frozen=True, array_like=True, tag=2):
    """Remove an object; only from its owner. Answered by `Done` or `Refused`."""

    label = "DeleteObject"
    operation = "delete"

    request: RequestNumber
    key: Key


class StartSubscription(LabelledMessage, frozen=True, array_like=True, tag=3):
    """Match this from now on, and answer with a `Page` of the past."""

    label = "StartSubscription"
    operation = "subscribe"

    request: RequestNumber
    subscription: Subscription
    batch: int


class StopSubscription(LabelledMessage, frozen=True, array_like=True, tag=4):
    """Forget a subscription; only from its subscriber. Answered by `Done`."""

    label = "StopSubscription"
    operation = "unsubscribe"

    request: RequestNumber
    key: SubscriptionKey


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


class PlacedSubscription(StartSubscription, frozen=True, array_like=True, tag=10):
    """A `StartSubscription` that proves where the subscriber is (D16, B5)."""

    label = "PlacedSubscription"
    operation = UPKEEP

    place: Place


class FetchPage(LabelledMessage, frozen=True, array_like=True, tag=5):
    """The most recent matches before a cursor. Answered by `Page`; nothing is remembered."""

    label = "FetchPage"
    operation = "subscribe"

    request: RequestNumber
    conjunctions: tuple[Conjunction, ...]
    frame: TimeFrame
    count: int
    before: Cursor | None = None

    def __post_init__(self) -> None:
        check_conjunctions(self.conjunctions)


class FetchObject(LabelledMessage, frozen=True, array_like=True, tag=6):
    """The bytes of an object. Answered by `ObjectData` or `Refused`."""

    label = "FetchObject"
    operation = "retrieve"

    request: RequestNumber
    key: Key


class FetchStatus(LabelledMessage, frozen=True, array_like=True, tag=7):
    """What is known of a key. Answered by `ObjectStatus`."""

    label = "FetchStatus"

    request: RequestNumber
    key: Key


class Done(LabelledMessage, frozen=True, array_like=True, tag=16):
    """The request was carried out."""

    label = "Done"
    operation = "acknowledgement"

    request: RequestNumber


class Refused(LabelledMessage, frozen=True, array_like=True, tag=17):
    """The request failed for good: a code of `thyme.model.errors` and words for people."""

    label = "Refused"
    operation = "acknowledgement"

    request: RequestNumber
    code: str
    detail: str


class Page(LabelledMessage, frozen=True, array_like=True, tag=18):
    """Some of the past, newest first; how much there is in all; whether there are older ones."""

    label = "Page"
    operation = "subscribe"

    request: RequestNumber
    total: int
    items: tuple[Metadata, ...]
    more: bool


class ObjectData(LabelledMessage, frozen=True, array_like=True, tag=19):
    """An object."""

    label = "ObjectData"
    operation = "retrieve"

    request: RequestNumber
    key: Key
    data: bytes


class ObjectStatus(LabelledMessage, frozen=True, array_like=True, tag=20):
    """What a broker knows of a key, see `KnownObject`."""

    label = "ObjectStatus"

    request: RequestNumber
    state: str
    metadata: Metadata | None


class Notify(LabelledMessage, frozen=True, array_like=True, tag=32):
    """One object that matches one or more subscriptions of the receiver. Not answered."""

    label = "Notify"
    operation = "notification"

    metadata: Metadata
    sids: tuple[SubscriptionId, ...]

    def __post_init__(self) -> None:
        for sid in self.sids:
            as_subscription_id(sid)


class Packet(LabelledMessage, frozen=True, array_like=True, tag=48):
    """A message on its way over several hops, see `thyme.routing`."""

    label = "Packet"

    origin: NodeId
    destination: NodeId
    hops: int
    """How many links it has crossed before this one."""
    message: Message

    def __post_init__(self) -> None:
        as_node_id(self.origin)
        as_node_id(self.destination)
        if self.hops < 0:
            raise ValueError("a packet has crossed no fewer than 0 links")
        inner: Message | None = self.message
        while inner is not None:
            if isinstance(inner, Packet):
                raise ValueError("a packet holds no packet")
            inner = getattr(inner, "message", None)


Hearsay = tuple[NodeId, int, int]
"""A destination, its sequence number, and the hops to it over the one who says so. A plain tuple:
thousands are passed over each second by nodes that know as much."""


class RouteUpdate(LabelledMessage, frozen=True, array_like=True, tag=49):
    """What a node knows of the ways to others, itself among them; an odd sequence number tells
    of a way that is lost (R1)."""

    label = "RouteUpdate"
    routing_control = True

    entries: tuple[Hearsay, ...]

    def __post_init__(self) -> None:
        for destination, sequence, hops in self.entries:
            as_node_id(destination)
            if not (0 <= sequence < 2**62 and 0 < hops < 2**16):
                raise ValueError(f"no way is {hops} hops long and has the number {sequence}")


class OwnerPage(LabelledMessage, frozen=True, array_like=True, tag=33):
    """What the sender has for a subscription of the receiver: a `Page` that nobody need ask for."""

    label = "OwnerPage"
    operation = "subscribe"

    sid: SubscriptionId
    total: int
    items: tuple[Metadata, ...]
    more: bool

    def __post_init__(self) -> None:
        as_subscription_id(self.sid)


class JoinRequest(LabelledMessage, frozen=True, array_like=True, tag=34):
    """Which subscriptions do you hold? Some who hear it answer with `JoinReply`."""

    label = "JoinRequest"

    request: RequestNumber
    attempt: int


class JoinReply(LabelledMessage, frozen=True, array_like=True, tag=35):
    """Some of the subscriptions the sender holds: part `part` of `parts`, counted from 0."""

    label = "JoinReply"

    request: RequestNumber
    part: int
    parts: int
    subscriptions: tuple[Subscription, ...]


class Letter(LabelledMessage, frozen=True, array_like=True, tag=36):
    """A message that is sent until its receiver says that it came."""

    label = "Letter"

    number: int
    message: Message

    def __post_init__(self) -> None:
        if isinstance(self.message, Letter):
            raise ValueError("a letter holds no letter")


class Receipt(LabelledMessage, frozen=True, array_like=True, tag=37):
    """The letter of this number came."""

    label = "Receipt"
    operation = "acknowledgement"

    number: int


class Flooded(LabelledMessage, frozen=True, array_like=True, tag=50):
    """A message for everybody: whoever sees it for the first time broadcasts it again."""

    label = "Flooded"

    origin: NodeId
    number: int
    hops: int
    """How many links it has crossed before this one."""
    message: Message

    def __post_init__(self) -> None:
        as_node_id(self.origin)
        if self.hops < 0 or isinstance(self.message, Flooded):
            raise ValueError("a flood has crossed no fewer than 0 links and holds no flood")


class CellPacket(LabelledMessage, frozen=True, array_like=True, tag=65):
    """A message on its way to cells, or to nodes in cells (D5–D9)."""

    label = "CellPacket"

    origin: NodeId
    origin_cell: CellId
    number: int
    """Chosen by the origin, anew for each message."""
    hops: int
    """How many links it has crossed before this one."""
    targets: tuple[CellTarget, ...]
    message: Message
    world: int | None = None

    def __post_init__(self) -> None:
        _check_carried(self.origin, self.origin_cell, self.hops, self.message)
        if not self.targets:
            raise ValueError("a cell packet goes somewhere")


class CellSpread(LabelledMessage, frozen=True, array_like=True, tag=66):
    """A message for all nodes of a cell, from one of them; others pass it over (D7)."""

    label = "CellSpread"

    origin: NodeId
    origin_cell: CellId
    number: int
    hops: int
    within: CellId
    """Whose nodes it is for."""
    cell: CellId
    """Where it was addressed to: the same cell, or an empty one that it stands in for (D6)."""
    message: Message
    world: int | None = None

    def __post_init__(self) -> None:
        _check_carried(self.origin, self.origin_cell, self.hops, self.message)
        as_cell_id(self.within)
        as_cell_id(self.cell)


class FromCell(LabelledMessage, frozen=True, array_like=True, tag=86):
    """A reply in the name of a cell: the one that was asked, whoever answers for it (D6, D11)."""

    label = "FromCell"

    cell: CellId
    message: Message

    def __post_init__(self) -> None:
        as_cell_id(self.cell)
        if isinstance(self.message, FromCell):
            raise ValueError("a reply in the name of a cell holds no other")


def _check_carried(origin: NodeId, cell: CellId, hops: int, message: Message) -> None:
    as_node_id(origin)
    as_cell_id(cell)
    if hops < 0:
        raise ValueError("a message has crossed no fewer than 0 links")
    inner: Message | None = message
    while inner is not None:
        if isinstance(inner, CellPacket | CellSpread):
            raise ValueError("what is carried to cells holds nothing else that is")
        inner = getattr(inner, "message", None)


AnyAsk = DeleteObject | StartSubscription | StopSubscription | FetchPage | FetchObject | FetchStatus
"""What brokers and cells are asked alike."""
Ask = InsertObject | AnyAsk
Reply = Done | Refused | Page | ObjectData | ObjectStatus
Carriage = Flooded | Packet | RouteUpdate
News = Notify | OwnerPage
Joining = JoinRequest | JoinReply
Letters = Letter | Receipt
Cells = CellBeacon | CellPacket | CellSpread | Undelivered | SpreadHeard
InCells = CellTalk | FromCell | CellUpkeep
CellAsk = IndexObject | AnyAsk
"""What cells, and nodes in cells, are asked (D11–D18)."""
CellReply = Done | Refused | CellPage | CellStatus | ObjectData | MoveNoted
Signed = SignedDelete | SignedStop | PlacedSubscription | SignedMove
"""The same, said by those who have keys (B5)."""
Message = Ask | Reply | News | Joining | Letters | Carriage | Cells | InCells | Signed


def proof_in(message: DeleteObject | StopSubscription) -> bytes:
    """Who wants it so proves it with this; empty where nodes have no keys (B5)."""
    return message.proof if isinstance(message, SignedDelete | SignedStop) else b""
