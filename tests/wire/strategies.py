"""Random messages of every kind, valid by construction."""

from __future__ import annotations

from hypothesis import strategies as st

from thyme.model.errors import KeyFormatError, TagError
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId, as_object_id
from thyme.model.metadata import DIGEST_BYTES, PROOF_BYTES, Metadata
from thyme.model.subscriptions import (
    Conjunction,
    SignedConjunctions,
    SubscriptionKey,
    SubscriptionRecord,
)
from thyme.model.tags import Tag, as_tag, as_tags
from thyme.model.time_frames import INSTANT_MAX_US, TimeFrame
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    CellTarget,
    IndexedMetadata,
    MatchedObject,
    PerimeterState,
    Replica,
    SignedInstant,
    SignedLocation,
    TombstoneRecord,
)
from thyme.protocol.messages.cells import (
    AnnounceReplica,
    AnnounceReplicas,
    BackupState,
    CellBeacon,
    CellBroadcastAck,
    CellDigest,
    CellNotify,
    CellNotifyBatch,
    CellPage,
    CellRecordHashes,
    CellState,
    CellStatus,
    ConfirmReplica,
    FetchCellState,
    IndexObject,
    IndexSmallObject,
    LocationUpdate,
    LocationUpdateReply,
    NotifyAck,
    ReindexObjects,
    SignedLocationUpdate,
    StateTransferred,
    StoreReplica,
    SuspectSubscriber,
    TransferState,
    Undelivered,
)
from thyme.protocol.messages.chunks import (
    ChunkData,
    ChunkHolder,
    ChunksMissing,
    FetchChunk,
    FetchChunkList,
    InsertLargeObject,
    StoredChunks,
)
from thyme.protocol.messages.common import (
    Authenticated,
    CellBroadcast,
    CellPacket,
    Flooded,
    Message,
    Packet,
    ReliableAck,
    ReliableMessage,
    ReplyFromCell,
    RouteToCell,
    RouteToNode,
    RouteUpdate,
    ToStation,
    Unpublish,
)
from thyme.protocol.messages.compact import (
    CompactNotifyBatch,
    CompactPage,
    compact_batch,
    compact_page,
)
from thyme.protocol.messages.encounters import (
    SPEED_CM_S_MAX,
    EncounterEvents,
    EncounterProfile,
    EventData,
    EventDetails,
    EventSummary,
    Heartbeat,
    HeldEvents,
    NeighbourProbe,
    ProfileReply,
    ReconcileProfile,
)
from thyme.protocol.messages.event_ranges import FINGERPRINT_BYTES, ID_BYTES, EventRange
from thyme.protocol.messages.replies import (
    Done,
    JoinReply,
    Missed,
    MissedPage,
    Notify,
    ObjectData,
    ObjectStatus,
    Page,
    PastMatches,
    Refused,
)
from thyme.protocol.messages.requests import (
    DeleteObject,
    FetchMissed,
    FetchObject,
    FetchPage,
    FetchStatus,
    InsertObject,
    JoinRequest,
    LocatedSubscription,
    SignedDelete,
    SignedStop,
    StartSubscription,
    StopSubscription,
)
from thyme.protocol.messages.stations import (
    COUNT_MAX,
    CellCycle,
    CellData,
    ConsumptionNotice,
    CreateWorld,
    DownloadCount,
    FetchStored,
    ForceFetch,
    ItemName,
    ProvidedItem,
    ProvideItems,
    StorageUpdate,
    StoredObject,
    SubscriptionNeeds,
    TagNeed,
    WorldEntry,
    WorldList,
    WorldNeeds,
    WorldProbe,
)
from thyme.protocol.messages.subscription_sets import (
    CompareSubscriptions,
    MissingSubscriptions,
    SubscriptionDigest,
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
cells = st.integers(0, 2**16 - 1).map(CellId)
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
        digest_and_proof=draw(
            st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES)
            | st.binary(min_size=DIGEST_BYTES + PROOF_BYTES, max_size=DIGEST_BYTES + PROOF_BYTES)
        ),
        expires_us=later_us if later_us > published_us and draw(st.booleans()) else None,
    )


metadata = metadatas()
disjunctions = st.lists(conjunctions(), min_size=1, max_size=4).map(tuple)
subscriptions = st.builds(
    SubscriptionRecord,
    st.builds(SubscriptionKey, sids, node_ids),
    disjunctions | st.builds(SignedConjunctions, disjunctions, data),
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
    FetchMissed: st.builds(
        FetchMissed,
        numbers,
        subscriptions.map(lambda sub: sub.key),
        numbers,
        numbers,
        st.none() | st.builds(Cursor, instants, keys),
        counts,
        numbers,
    ),
    FetchObject: st.builds(FetchObject, numbers, keys),
    FetchStatus: st.builds(FetchStatus, numbers, keys),
    InsertLargeObject: st.builds(InsertLargeObject, numbers, metadata),
    FetchChunkList: st.builds(FetchChunkList, numbers, st.binary(), st.booleans()),
    FetchChunk: st.builds(FetchChunk, numbers, st.binary(), numbers),
    ChunksMissing: st.builds(ChunksMissing, numbers, counts),
    StoredChunks: st.builds(
        StoredChunks,
        numbers,
        st.binary(),
        st.binary(),
        st.lists(st.builds(ChunkHolder, node_ids, st.none() | cells), max_size=3).map(tuple),
    ),
    ChunkData: st.builds(ChunkData, numbers, st.binary()),
    Done: st.builds(Done, numbers),
    Refused: st.builds(Refused, numbers, st.text(), st.text()),
    Page: st.builds(
        Page, numbers, numbers, st.lists(metadata, max_size=4).map(tuple), st.booleans()
    ),
    MissedPage: st.builds(
        MissedPage,
        numbers,
        numbers,
        numbers,
        st.lists(metadata, max_size=4).map(tuple),
        st.booleans(),
        numbers,
    ),
    ObjectData: st.builds(ObjectData, numbers, keys, data),
    ObjectStatus: st.builds(ObjectStatus, numbers, st.text(), st.none() | metadata),
    Notify: st.builds(Notify, metadata, st.lists(sids, min_size=1, max_size=4).map(tuple)),
    PastMatches: st.builds(
        PastMatches, sids, numbers, st.lists(metadata, max_size=4).map(tuple), st.booleans()
    ),
    JoinRequest: st.builds(JoinRequest, numbers, counts),
    JoinReply: st.builds(
        JoinReply, numbers, counts, counts, st.lists(subscriptions, max_size=3).map(tuple)
    ),
    ReliableAck: st.builds(ReliableAck, numbers),
    Authenticated: st.builds(
        Authenticated, st.binary(max_size=32), st.binary(max_size=8), st.binary(max_size=40)
    ),
    Missed: st.builds(Missed, sids, st.integers(1, 2**48)),
}
messages[ReliableMessage] = st.builds(ReliableMessage, numbers, st.one_of(*messages.values()))
messages[Flooded] = st.builds(Flooded, node_ids, numbers, counts, st.one_of(*messages.values()))
messages[Packet] = st.builds(Packet, node_ids, node_ids, counts, st.one_of(*messages.values()))
messages[RouteUpdate] = st.builds(
    RouteUpdate,
    st.lists(
        st.tuples(node_ids, st.integers(0, 2**62 - 1), st.integers(1, 2**16 - 1)), max_size=5
    ).map(tuple),
)
perimeters = st.builds(PerimeterState, cells, cells, cells, cells)
targets = st.lists(
    st.builds(CellTarget, cells, st.none() | node_ids, st.none() | perimeters),
    min_size=1,
    max_size=4,
).map(tuple)
_carried = st.one_of(*messages.values())
worlds = st.none() | st.integers(0, 2**16 - 1)
messages[CellPacket] = st.builds(
    CellPacket, node_ids, cells, numbers, counts, targets, _carried, worlds
)
messages[CellBroadcast] = st.builds(
    CellBroadcast, node_ids, cells, numbers, counts, cells, cells, _carried, worlds
)
messages[CellBeacon] = st.builds(CellBeacon, cells, st.booleans(), data, data, worlds)
messages[Undelivered] = st.builds(Undelivered, numbers, node_ids, cells)
replicas = st.lists(st.builds(Replica, cells, st.none() | node_ids), max_size=3).map(tuple)
indexed = st.builds(IndexedMetadata, metadata, replicas, replicas)
proven = st.builds(SignedInstant, instants, data)
places = st.builds(SignedLocation, cells, proven)
tombstones = st.lists(
    st.builds(TombstoneRecord, st.text(), st.text(), instants | proven), max_size=3
).map(tuple)
messages[LocatedSubscription] = st.builds(
    LocatedSubscription, numbers, subscriptions, counts, places
)
messages[IndexObject] = st.builds(IndexObject, numbers, indexed)
messages[IndexSmallObject] = st.builds(IndexSmallObject, numbers, indexed, data)
messages[AnnounceReplica] = st.builds(AnnounceReplica, keys)
messages[AnnounceReplicas] = st.builds(AnnounceReplicas, st.lists(keys, max_size=3).map(tuple))
messages[ConfirmReplica] = st.builds(ConfirmReplica, numbers, metadata, st.booleans())
messages[StoreReplica] = st.builds(
    StoreReplica, metadata, data, st.lists(node_ids, max_size=2).map(tuple)
)
messages[CellNotify] = st.builds(CellNotify, indexed, st.lists(sids, max_size=4).map(tuple))
messages[CellPage] = st.builds(
    CellPage, numbers, numbers, st.lists(indexed, max_size=3).map(tuple), st.booleans()
)
messages[CellStatus] = st.builds(CellStatus, numbers, st.text(), st.none() | indexed)
messages[ReplyFromCell] = st.builds(ReplyFromCell, cells, _carried)
messages[FetchCellState] = st.builds(FetchCellState, numbers)
messages[CellState] = st.builds(
    CellState,
    numbers,
    counts,
    counts,
    st.lists(indexed, max_size=2).map(tuple),
    st.lists(
        st.builds(
            CellSubscription,
            subscriptions,
            cells,
            st.lists(cells, max_size=2).map(tuple),
            st.none() | instants | proven,
        ),
        max_size=2,
    ).map(tuple),
    tombstones,
    tombstones,
    st.lists(metadata, max_size=2).map(tuple),
)
messages[CellNotifyBatch] = st.builds(
    CellNotifyBatch,
    st.lists(
        st.builds(MatchedObject, indexed, st.lists(sids, max_size=3).map(tuple)), max_size=2
    ).map(tuple),
)
small = st.sampled_from([None, b"pixels"])
messages[CompactPage] = st.builds(
    lambda number, total, items, more, data: compact_page(
        CellPage(number, total, items, more), lambda metadata: data
    ),
    numbers, numbers, st.lists(indexed, max_size=3).map(tuple), st.booleans(), small,
)  # fmt: skip
messages[CompactNotifyBatch] = st.builds(
    lambda items, data, delay_us: compact_batch(items, lambda metadata: data, delay_us),
    st.lists(st.builds(MatchedObject, indexed, st.lists(sids, max_size=3).map(tuple)), max_size=3),
    small, counts,
)  # fmt: skip
messages[NotifyAck] = st.builds(NotifyAck, st.lists(numbers, max_size=3).map(tuple))
messages[CellBroadcastAck] = st.builds(CellBroadcastAck, node_ids, numbers, cells)
messages[CellDigest] = st.builds(CellDigest, data)
messages[CellRecordHashes] = st.builds(CellRecordHashes, data, data, st.booleans())
_some_sids = st.lists(sids, max_size=3).map(tuple)
_some_keys = st.lists(keys, max_size=3).map(tuple)
messages[ReindexObjects] = st.builds(
    ReindexObjects, numbers, st.lists(indexed, max_size=2).map(tuple)
)
messages[LocationUpdate] = st.builds(LocationUpdate, numbers, _some_sids, _some_keys)
messages[SignedLocationUpdate] = st.builds(
    SignedLocationUpdate, numbers, _some_sids, _some_keys, places
)
messages[LocationUpdateReply] = st.builds(LocationUpdateReply, numbers, _some_sids, _some_keys)
messages[TransferState] = st.builds(TransferState, numbers, cells, messages[CellState])
messages[StateTransferred] = st.builds(
    StateTransferred,
    cells,
    _some_keys,
    st.lists(st.builds(SubscriptionKey, sids, node_ids), max_size=3).map(tuple),
)
messages[BackupState] = st.builds(BackupState, numbers, cells, counts, messages[CellState])
messages[SuspectSubscriber] = st.builds(SuspectSubscriber, node_ids, cells)
topics = st.lists(tags, max_size=4, unique=True).map(_sorted)
_items = st.lists(metadata, max_size=2).map(tuple)
_contents = st.lists(data, max_size=2).map(tuple)
speeds = st.none() | st.integers(0, SPEED_CM_S_MAX)
messages[EncounterProfile] = st.builds(EncounterProfile, numbers, topics, st.booleans())
messages[ProfileReply] = st.builds(ProfileReply, numbers, topics, _items, _contents, st.booleans())
messages[EncounterEvents] = st.builds(EncounterEvents, numbers, _items, _contents)
messages[Heartbeat] = st.builds(Heartbeat, topics, speeds)
messages[HeldEvents] = st.builds(HeldEvents, topics, speeds, _some_keys, st.booleans())
messages[NeighbourProbe] = st.builds(NeighbourProbe, st.booleans())
_short_ids = st.binary(min_size=ID_BYTES, max_size=ID_BYTES)
_many_short_ids = st.lists(_short_ids, max_size=3).map(tuple)
_until = st.none() | st.tuples(instants, _short_ids)
_prints = st.binary(min_size=FINGERPRINT_BYTES, max_size=FINGERPRINT_BYTES)
_ranges = (
    st.builds(EventRange, _until, _prints, st.none())
    | st.builds(EventRange, _until, st.none(), _many_short_ids)
    | st.builds(EventRange, _until, st.none(), st.none())
)
messages[SubscriptionDigest] = st.builds(SubscriptionDigest, counts, _prints)
messages[CompareSubscriptions] = st.builds(
    CompareSubscriptions, st.lists(_ranges, max_size=4).map(tuple), _many_short_ids
)
messages[MissingSubscriptions] = st.builds(
    MissingSubscriptions,
    st.lists(subscriptions, max_size=3).map(tuple),
    tombstones.map(tuple),
)
messages[ReconcileProfile] = st.builds(ReconcileProfile, numbers, topics)
messages[EventSummary] = st.builds(
    EventSummary, numbers, topics, st.lists(_ranges, max_size=3).map(tuple), _many_short_ids,
    st.booleans(),
)  # fmt: skip
messages[EventDetails] = st.builds(EventDetails, numbers, _items)
messages[EventData] = st.builds(EventData, numbers, _contents)
_counts_of = st.integers(1, COUNT_MAX)
_worlds = st.integers(0, 2**48)
_names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)
_entries = st.builds(WorldEntry, _worlds, _names, st.integers(1, 1000))
_needs = st.builds(TagNeed, tags, _counts_of, st.none() | instants, st.none() | instants)
_downloads = st.builds(
    DownloadCount,
    keys,
    _counts_of,
    st.lists(st.builds(Replica, cells, st.none() | node_ids), max_size=2).map(tuple),
)
_cycles = st.builds(
    CellCycle,
    counts,
    st.lists(_downloads, max_size=2).map(tuple),
    st.lists(_needs, max_size=2).map(tuple),
)
messages[WorldProbe] = st.builds(WorldProbe, numbers)
messages[WorldList] = st.builds(
    WorldList,
    numbers,
    st.lists(_entries, max_size=3).map(tuple),
    numbers,
    st.none() | st.integers(1_000_000, 86_400_000_000),
)
messages[CreateWorld] = st.builds(CreateWorld, numbers, _names)
messages[CellData] = st.builds(
    CellData, numbers, cells, counts, st.lists(_cycles, max_size=2).map(tuple)
)
messages[FetchStored] = st.builds(FetchStored, numbers, _worlds, keys)
messages[StoredObject] = st.builds(StoredObject, numbers, metadata, data)
messages[StorageUpdate] = st.builds(StorageUpdate, _some_keys, st.booleans())
messages[ForceFetch] = st.builds(ForceFetch, numbers, keys, st.none() | node_ids)
messages[SubscriptionNeeds] = st.builds(
    SubscriptionNeeds,
    counts,
    counts,
    st.lists(
        st.builds(WorldNeeds, _worlds, st.lists(_needs, max_size=2).map(tuple)), max_size=2
    ).map(tuple),
)
messages[ProvideItems] = st.builds(
    ProvideItems,
    counts,
    counts,
    st.lists(st.builds(ProvidedItem, _worlds, metadata, data), max_size=2).map(tuple),
)
messages[ConsumptionNotice] = st.builds(
    ConsumptionNotice, st.lists(st.builds(ItemName, _worlds, keys), max_size=2).map(tuple)
)
messages[ToStation] = st.builds(ToStation, _worlds, cells, _carried)
messages[RouteToNode] = st.builds(RouteToNode, node_ids, node_ids, _carried)
messages[RouteToCell] = st.builds(RouteToCell, numbers, cells, _carried)
messages[Unpublish] = st.builds(
    Unpublish,
    numbers,
    _worlds,
    st.lists(tags, min_size=1, max_size=3).map(as_tags),
    messages[DeleteObject],
)
any_message: st.SearchStrategy[Message] = st.one_of(*messages.values())
