"""What only the cells of Thyme-DCS say: to each other, to their nodes, and nodes to them.

Declared as in `messages`, where those are that hold another message, and the union of all.
Clauses: D4, D8, D9, D11–D18, D20–D24, D26, B1–B3, B5, B6.
"""

from __future__ import annotations

from thyme.model.ids import (
    Key,
    NodeId,
    RequestNumber,
    SubscriptionId,
    as_node_id,
    as_subscription_id,
)
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol.cells import CellId, Grave, Indexed, Interest, Matched, Place, as_cell_id
from thyme.protocol.labels import LabelledMessage


class CellBeacon(LabelledMessage, frozen=True, array_like=True, tag=64):
    """I am here, in this cell (D4)."""

    label = "CellBeacon"
    routing_control = True

    cell: CellId
    serving: bool
    """Whether the sender is part of the hash table: forwards, and works for its cell (D20)."""
    around: bytes
    """The populated cells around, see `thyme.routing.cells.window`; empty from who serves not."""
    payload: bytes
    """What the layer above has to say."""
    world: int | None = None
    """Of which world this is, where there are several (D26)."""

    def __post_init__(self) -> None:
        as_cell_id(self.cell)


class Undelivered(LabelledMessage, frozen=True, array_like=True, tag=67):
    """The node was not in the cell: what you sent it under this number did not arrive (D8)."""

    label = "Undelivered"

    number: int
    node: NodeId
    cell: CellId

    def __post_init__(self) -> None:
        as_node_id(self.node)
        as_cell_id(self.cell)


class IndexObject(LabelledMessage, frozen=True, array_like=True, tag=80):
    """Keep this metadata and notify whom it concerns (D11). Answered by `Done` or `Refused`."""

    label = "IndexObject"
    operation = "insert"

    request: RequestNumber
    indexed: Indexed


class AnnounceReplica(LabelledMessage, frozen=True, array_like=True, tag=81):
    """The sender has this object, too (D13). Not answered."""

    label = "AnnounceReplica"
    operation = "retrieve"

    key: Key


class HoldObject(LabelledMessage, frozen=True, array_like=True, tag=82):
    """Be an active replica of this object (D11, D14). Not answered."""

    label = "HoldObject"
    operation = "insert"

    metadata: Metadata
    data: bytes
    holders: tuple[NodeId, ...] = ()
    """Who is one of the few that keep it; nobody in particular where all do (B6)."""

    def __post_init__(self) -> None:
        for node_id in self.holders:
            as_node_id(node_id)


class CellNotify(LabelledMessage, frozen=True, array_like=True, tag=83):
    """One object that matches subscriptions of the receivers (D9, D17). Not answered."""

    label = "CellNotify"
    operation = "notification"

    indexed: Indexed
    sids: tuple[SubscriptionId, ...]
    """Of all receivers: each knows its own."""

    def __post_init__(self) -> None:
        for sid in self.sids:
            as_subscription_id(sid)


class CellPage(LabelledMessage, frozen=True, array_like=True, tag=84):
    """A `Page` of a cell, with replication lists."""

    label = "CellPage"
    operation = "subscribe"

    request: RequestNumber
    total: int
    items: tuple[Indexed, ...]
    more: bool


class CellStatus(LabelledMessage, frozen=True, array_like=True, tag=85):
    """What a cell knows of a key: an `ObjectStatus` with the replication list."""

    label = "CellStatus"

    request: RequestNumber
    state: str
    indexed: Indexed | None


class FetchCellState(LabelledMessage, frozen=True, array_like=True, tag=87):
    """What does our cell know (D23)? Answered by all parts of `CellState`."""

    label = "FetchCellState"

    request: RequestNumber


class CellState(LabelledMessage, frozen=True, array_like=True, tag=88):
    """Some of what a cell knows: part `part` of `parts`, counted from 0 (D23)."""

    label = "CellState"

    request: RequestNumber
    part: int
    parts: int
    objects: tuple[Indexed, ...] = ()
    interests: tuple[Interest, ...] = ()
    buried_objects: tuple[Grave, ...] = ()
    buried_subscriptions: tuple[Grave, ...] = ()
    held: tuple[Metadata, ...] = ()
    """The objects of which the nodes of the cell are active replicas."""


class CellNews(LabelledMessage, frozen=True, array_like=True, tag=89):
    """Objects that match subscriptions of the receivers; each says that they came (B3)."""

    label = "CellNews"
    operation = "notification"

    items: tuple[Matched, ...]


class NewsCame(LabelledMessage, frozen=True, array_like=True, tag=90):
    """What you sent under these numbers came."""

    label = "NewsCame"
    operation = "acknowledgement"

    numbers: tuple[int, ...]


class SpreadHeard(LabelledMessage, frozen=True, array_like=True, tag=91):
    """The sender heard this message for its cell, which the receiver spread (B2)."""

    label = "SpreadHeard"
    operation = "acknowledgement"

    origin: NodeId
    number: int
    cell: CellId

    def __post_init__(self) -> None:
        as_node_id(self.origin)
        as_cell_id(self.cell)


class CellSums(LabelledMessage, frozen=True, array_like=True, tag=92):
    """What the sender knows for our cell, summed up by buckets, 4 bytes each (B2). Answered by
    `CellMarks` where the receiver's sums differ."""

    label = "CellSums"

    sums: bytes


class CellMarks(LabelledMessage, frozen=True, array_like=True, tag=93):
    """The marks of all that the sender knows in some buckets, 8 bytes each (B2). Answered with what
    is not among them, as `CellState`; and with the receiver's own marks, if they are wanted."""

    label = "CellMarks"

    buckets: bytes
    """A byte for each."""
    marks: bytes
    wanted: bool


class NodeMoved(LabelledMessage, frozen=True, array_like=True, tag=94):
    """The origin of the packet is where the packet comes from now: notify it there of these
    subscriptions, and let others ask it there for these objects (D21). Answered by `MoveNoted`."""

    label = "NodeMoved"

    request: RequestNumber
    sids: tuple[SubscriptionId, ...] = ()
    keys: tuple[Key, ...] = ()

    def __post_init__(self) -> None:
        for sid in self.sids:
            as_subscription_id(sid)


class SignedMove(NodeMoved, frozen=True, array_like=True, tag=101):
    """A `NodeMoved` that proves where the node is (D21, B5)."""

    label = "SignedMove"

    place: Place | None = None


class MoveNoted(LabelledMessage, frozen=True, array_like=True, tag=95):
    """The cell knows where you are; but of these subscriptions of yours, and of these objects, it
    knew nothing."""

    label = "MoveNoted"

    request: RequestNumber
    missing: tuple[SubscriptionId, ...] = ()
    unknown: tuple[Key, ...] = ()

    def __post_init__(self) -> None:
        for sid in self.missing:
            as_subscription_id(sid)


class HandOver(LabelledMessage, frozen=True, array_like=True, tag=96):
    """Keep this from now on: it belongs to your cell, or to one for which that stands in (D24).
    Answered by `Done`."""

    label = "HandOver"

    request: RequestNumber
    cell: CellId
    """Whose state it is."""
    state: CellState

    def __post_init__(self) -> None:
        as_cell_id(self.cell)


class HandedOver(LabelledMessage, frozen=True, array_like=True, tag=97):
    """What we kept for this cell is where it belongs: these objects, these subscriptions (D24).
    From one node of a cell to the others; not answered."""

    label = "HandedOver"

    cell: CellId
    keys: tuple[Key, ...] = ()
    subscriptions: tuple[SubscriptionKey, ...] = ()

    def __post_init__(self) -> None:
        as_cell_id(self.cell)


class BackUp(LabelledMessage, frozen=True, array_like=True, tag=98):
    """Keep this aside, in case that we who look after a cell are gone all at once (B1). Answered by
    `Done`; by `Refused` from who has less than it should."""

    label = "BackUp"

    request: RequestNumber
    cell: CellId
    """Whose state it is."""
    total: int
    """How many objects and subscriptions there should be with these."""
    state: CellState

    def __post_init__(self) -> None:
        as_cell_id(self.cell)


class SubscriberGone(LabelledMessage, frozen=True, array_like=True, tag=99):
    """A subscriber was not in this cell for too long and was not heard of: ask it, and if it is not
    there, forget its subscriptions (D22). From one node of a cell to the others; not answered."""

    label = "SubscriberGone"

    subscriber: NodeId
    cell: CellId

    def __post_init__(self) -> None:
        as_node_id(self.subscriber)
        as_cell_id(self.cell)


class IndexAgain(LabelledMessage, frozen=True, array_like=True, tag=100):
    """These objects are of your cell, and you did not know them: index them again (B2). Answered by
    `Done`."""

    label = "IndexAgain"

    request: RequestNumber
    objects: tuple[Indexed, ...]


CellChore = NodeMoved | IndexAgain | HandOver | BackUp
"""What else cells are asked, by nodes on their own behalf (D21, D24)."""
CellTalk = IndexObject | AnnounceReplica | HoldObject | CellNotify | CellPage | CellStatus
"""Of objects and subscriptions (D9–D18)."""
CellUpkeep = (
    FetchCellState
    | CellState
    | CellNews
    | NewsCame
    | CellSums
    | CellMarks
    | NodeMoved
    | MoveNoted
    | HandOver
    | HandedOver
    | BackUp
    | SubscriberGone
    | IndexAgain
)
"""How cells keep what they know, where it belongs, and get the news through (D21–D24, B1–B3)."""
