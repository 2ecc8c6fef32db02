"""Random messages of every kind, valid by construction."""

from __future__ import annotations

from hypothesis import strategies as st

from thyme.model.errors import KeyFormatError, TagError
from thyme.model.frames import INSTANT_MAX_US, TimeFrame
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId, as_object_id
from thyme.model.metadata import DIGEST_BYTES, PROOF_BYTES, Metadata
from thyme.model.subscriptions import Conjunction, SignedTerms, Subscription, SubscriptionKey
from thyme.model.tags import Tag, as_tag, as_tags
from thyme.protocol.cell_messages import (
    AnnounceReplica,
    BackUp,
    CellBeacon,
    CellMarks,
    CellNews,
    CellNotify,
    CellPage,
    CellState,
    CellStatus,
    CellSums,
    FetchCellState,
    HandedOver,
    HandOver,
    HoldObject,
    IndexAgain,
    IndexObject,
    MoveNoted,
    NewsCame,
    NodeMoved,
    SignedMove,
    SpreadHeard,
    SubscriberGone,
    Undelivered,
)
from thyme.protocol.cells import (
    CellId,
    CellTarget,
    Detour,
    Grave,
    Indexed,
    Interest,
    Matched,
    Place,
    Proven,
    Replica,
)
from thyme.protocol.messages import (
    CellPacket,
    CellSpread,
    DeleteObject,
    Done,
    FetchObject,
    FetchPage,
    FetchStatus,
    Flooded,
    FromCell,
    InsertObject,
    JoinReply,
    JoinRequest,
    Letter,
    Message,
    Notify,
    ObjectData,
    ObjectStatus,
    OwnerPage,
    Packet,
    Page,
    PlacedSubscription,
    Receipt,
    Refused,
    RouteUpdate,
    SignedDelete,
    SignedStop,
    StartSubscription,
    StopSubscription,
)
from thyme.query.cursor import Cursor


def _is_tag(text: str) -> bool:
    try:
        as_tag(text)
    except TagError:
        return False
    return True


def _is_name(text: str) -> bool:
    try:
        as_object_id(text)
    except KeyFormatError:
        return False
    return True


numbers = st.integers(min_value=0, max_value=2**64 - 1)
counts = st.integers(min_value=0, max_value=100_000)
instants = st.integers(min_value=-INSTANT_MAX_US, max_value=INSTANT_MAX_US)
names = st.text("abcXYZ019-_.é日", min_size=1, max_size=12) | st.text(min_size=1).filter(_is_name)
words = st.text("abcdeéß日", min_size=1, max_size=6) | st.text(min_size=1, max_size=9)
tags = words.filter(_is_tag).map(as_tag)
node_ids = st.binary(min_size=1, max_size=32).map(NodeId)
keys = st.builds(Key, names.map(ObjectId), node_ids)
sids = names.map(SubscriptionId)
data = st.binary(max_size=300)


@st.composite
def frames(draw: st.DrawFn) -> TimeFrame:
    start_us, end_us = sorted([draw(instants), draw(instants)])
    return TimeFrame(draw(st.sampled_from([start_us, None])), draw(st.sampled_from([end_us, None])))


@st.composite
def conjunctions(draw: st.DrawFn) -> Conjunction:
    literals = draw(st.lists(tags, min_size=1, max_size=5, unique=True))
    cut = draw(st.integers(min_value=1, max_value=len(literals)))
    return Conjunction(_sorted(literals[:cut]), _sorted(literals[cut:]))


def _sorted(some: list[Tag]) -> tuple[Tag, ...]:
    return tuple(sorted(some))


@st.composite
def metadatas(draw: st.DrawFn) -> Metadata:
    published_us, later_us = sorted(draw(st.tuples(instants, instants)))
    return Metadata(
        key=draw(keys),
        tags=draw(st.lists(tags, min_size=1, max_size=6).map(as_tags)),
        summary=draw(data),
        published_us=published_us,
        size=draw(numbers),
        seal=draw(
            st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES)
            | st.binary(min_size=DIGEST_BYTES + PROOF_BYTES, max_size=DIGEST_BYTES + PROOF_BYTES)
        ),
        expires_us=later_us if later_us > published_us and draw(st.booleans()) else None,
    )


metadata = metadatas()
disjunctions = st.lists(conjunctions(), min_size=1, max_size=4).map(tuple)
subscriptions = st.builds(
    Subscription,
    st.builds(SubscriptionKey, sids, node_ids),
    disjunctions | st.builds(SignedTerms, disjunctions, data),
    frames(),
)

messages: dict[type[Message], st.SearchStrategy[Message]] = {
    InsertObject: st.builds(InsertObject, numbers, metadata, data),
    DeleteObject: st.builds(DeleteObject, numbers, keys),
    StartSubscription: st.builds(StartSubscription, numbers, subscriptions, counts),
    StopSubscription: st.builds(StopSubscription, numbers, subscriptions.map(lambda sub: sub.key)),
    SignedDelete: st.builds(SignedDelete, numbers, keys, data),
    SignedStop: st.builds(SignedStop, numbers, subscriptions.map(lambda sub: sub.key), data),
    FetchPage: st.builds(
        FetchPage,
        numbers,
        disjunctions,
        frames(),
        counts,
        st.none() | st.builds(Cursor, instants, keys),
    ),
    FetchObject: st.builds(FetchObject, numbers, keys),
    FetchStatus: st.builds(FetchStatus, numbers, keys),
    Done: st.builds(Done, numbers),
    Refused: st.builds(Refused, numbers, st.text(), st.text()),
    Page: st.builds(
        Page, numbers, numbers, st.lists(metadata, max_size=4).map(tuple), st.booleans()
    ),
    ObjectData: st.builds(ObjectData, numbers, keys, data),
    ObjectStatus: st.builds(ObjectStatus, numbers, st.text(), st.none() | metadata),
    Notify: st.builds(Notify, metadata, st.lists(sids, min_size=1, max_size=4).map(tuple)),
    OwnerPage: st.builds(
        OwnerPage, sids, numbers, st.lists(metadata, max_size=4).map(tuple), st.booleans()
    ),
    JoinRequest: st.builds(JoinRequest, numbers, counts),
    JoinReply: st.builds(
        JoinReply, numbers, counts, counts, st.lists(subscriptions, max_size=3).map(tuple)
    ),
    Receipt: st.builds(Receipt, numbers),
}
messages[Letter] = st.builds(Letter, numbers, st.one_of(*messages.values()))
messages[Flooded] = st.builds(Flooded, node_ids, numbers, counts, st.one_of(*messages.values()))
messages[Packet] = st.builds(Packet, node_ids, node_ids, counts, st.one_of(*messages.values()))
messages[RouteUpdate] = st.builds(
    RouteUpdate,
    st.lists(
        st.tuples(node_ids, st.integers(0, 2**62 - 1), st.integers(1, 2**16 - 1)), max_size=5
    ).map(tuple),
)
cells = st.integers(0, 2**16 - 1).map(CellId)
detours = st.builds(Detour, cells, cells, cells, cells)
targets = st.lists(
    st.builds(CellTarget, cells, st.none() | node_ids, st.none() | detours), min_size=1, max_size=4
).map(tuple)
_carried = st.one_of(*messages.values())
worlds = st.none() | st.integers(0, 2**16 - 1)
messages[CellPacket] = st.builds(
    CellPacket, node_ids, cells, numbers, counts, targets, _carried, worlds
)
messages[CellSpread] = st.builds(
    CellSpread, node_ids, cells, numbers, counts, cells, cells, _carried, worlds
)
messages[CellBeacon] = st.builds(CellBeacon, cells, st.booleans(), data, data, worlds)
messages[Undelivered] = st.builds(Undelivered, numbers, node_ids, cells)
replicas = st.lists(st.builds(Replica, cells, st.none() | node_ids), max_size=3).map(tuple)
indexed = st.builds(Indexed, metadata, replicas, replicas)
proven = st.builds(Proven, instants, data)
places = st.builds(Place, cells, proven)
graves = st.lists(st.builds(Grave, st.text(), st.text(), instants | proven), max_size=3).map(tuple)
messages[PlacedSubscription] = st.builds(PlacedSubscription, numbers, subscriptions, counts, places)
messages[IndexObject] = st.builds(IndexObject, numbers, indexed)
messages[AnnounceReplica] = st.builds(AnnounceReplica, keys)
messages[HoldObject] = st.builds(
    HoldObject, metadata, data, st.lists(node_ids, max_size=2).map(tuple)
)
messages[CellNotify] = st.builds(CellNotify, indexed, st.lists(sids, max_size=4).map(tuple))
messages[CellPage] = st.builds(
    CellPage, numbers, numbers, st.lists(indexed, max_size=3).map(tuple), st.booleans()
)
messages[CellStatus] = st.builds(CellStatus, numbers, st.text(), st.none() | indexed)
messages[FromCell] = st.builds(FromCell, cells, _carried)
messages[FetchCellState] = st.builds(FetchCellState, numbers)
messages[CellState] = st.builds(
    CellState,
    numbers,
    counts,
    counts,
    st.lists(indexed, max_size=2).map(tuple),
    st.lists(
        st.builds(
            Interest,
            subscriptions,
            cells,
            st.lists(cells, max_size=2).map(tuple),
            st.none() | instants | proven,
        ),
        max_size=2,
    ).map(tuple),
    graves,
    graves,
    st.lists(metadata, max_size=2).map(tuple),
)
messages[CellNews] = st.builds(
    CellNews,
    st.lists(st.builds(Matched, indexed, st.lists(sids, max_size=3).map(tuple)), max_size=2).map(
        tuple
    ),
)
messages[NewsCame] = st.builds(NewsCame, st.lists(numbers, max_size=3).map(tuple))
messages[SpreadHeard] = st.builds(SpreadHeard, node_ids, numbers, cells)
messages[CellSums] = st.builds(CellSums, data)
messages[CellMarks] = st.builds(CellMarks, data, data, st.booleans())
_some_sids = st.lists(sids, max_size=3).map(tuple)
_some_keys = st.lists(keys, max_size=3).map(tuple)
messages[IndexAgain] = st.builds(IndexAgain, numbers, st.lists(indexed, max_size=2).map(tuple))
messages[NodeMoved] = st.builds(NodeMoved, numbers, _some_sids, _some_keys)
messages[SignedMove] = st.builds(SignedMove, numbers, _some_sids, _some_keys, places)
messages[MoveNoted] = st.builds(MoveNoted, numbers, _some_sids, _some_keys)
messages[HandOver] = st.builds(HandOver, numbers, cells, messages[CellState])
messages[HandedOver] = st.builds(
    HandedOver,
    cells,
    _some_keys,
    st.lists(st.builds(SubscriptionKey, sids, node_ids), max_size=3).map(tuple),
)
messages[BackUp] = st.builds(BackUp, numbers, cells, counts, messages[CellState])
messages[SubscriberGone] = st.builds(SubscriberGone, node_ids, cells)
any_message: st.SearchStrategy[Message] = st.one_of(*messages.values())
