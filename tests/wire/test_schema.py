"""The schema: what each message looks like in bytes, now and beside later versions (I24)."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.builders import ALICE, BOB, conjunctions, frame, key, photo, subscribe
from tests.wire.strategies import messages
from thyme.model.errors import DecodeError
from thyme.model.ids import SubscriptionId
from thyme.model.subscriptions import SignedConjunctions, SubscriptionKey, SubscriptionRecord
from thyme.model.tags import Tag
from thyme.model.time_frames import ALWAYS
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
from thyme.protocol.messages.compact import compact_batch, compact_page
from thyme.protocol.messages.encounters import (
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
from thyme.protocol.messages.event_ranges import EventRange
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
from thyme.wire.codec import VERSION_MIN, decode, encode

KINDS: tuple[type[Message], ...] = typing.get_args(Message)

PHOTO = photo(7, tags=["goal", "éder"], at_us=1_468_187_340_000_000, data=b"pixels", summary=b"th")
PHOTO_HEX = (
    "97 92 a6 70686f746f37 c403 626f62"  # photo7, bob
    " 92 a4 676f616c a5 c3a9646572 c402 7468 cf 0005374f00dd4b00 06"  # tags, summary, stamp, size
    " c420 6ec9c2b0eb14010746c8bce8939303b382344b296206612eb8a907a37b2b2f37 c0"  # digest, no end
)
INDEXED = IndexedMetadata(PHOTO, (Replica(CellId(9)),), (Replica(CellId(8), ALICE),))
INDEXED_HEX = f"93 {PHOTO_HEX} 91 92 09 c0 91 92 08 c405 616c696365"
SIGNED = SubscriptionRecord(
    subscribe(1).key, SignedConjunctions(conjunctions("goal"), b"proof"), ALWAYS
)
PLACE = SignedLocation(CellId(7), SignedInstant(5, b"proof"))
PLACE_HEX = "92 07 92 05 c405 70726f6f66"
NEED = TagNeed(Tag("goal"), 2, None, 70_000)
GOLDEN: list[tuple[Message, str]] = [
    (InsertObject(1, PHOTO, b"pixels"), f"01 94 01 01 {PHOTO_HEX} c406 706978656c73"),
    (InsertLargeObject(8, PHOTO), f"01 93 0c 08 {PHOTO_HEX}"),
    (DeleteObject(2, key(7)), "01 93 02 02 92 a6 70686f746f37 c403 626f62"),
    (
        StartSubscription(3, subscribe(1, "goal & !replay | save", frame(0, 10**15)), 20),
        "01 94 03 03 93 92 a4 73756231 c405 616c696365"
        " 92 92 91 a4 676f616c 91 a6 7265706c6179 92 91 a4 73617665 90"
        " 92 00 cf 00038d7ea4c68000 14",
    ),
    (StopSubscription(4, subscribe(1).key), "01 93 04 04 92 a4 73756231 c405 616c696365"),
    (
        FetchPage(5, conjunctions("goal"), frame(None, 70_000), 20, Cursor(-1, key(7))),
        "01 96 05 05 91 92 91 a4 676f616c 90 92 c0 ce 00011170 14"
        " 92 ff 92 a6 70686f746f37 c403 626f62",
    ),
    (
        FetchMissed(8, subscribe(1).key, 9, 1, Cursor(-1, key(7)), 200, 0),
        "01 98 0b 08 92 a4 73756231 c405 616c696365 09 01"
        " 92 ff 92 a6 70686f746f37 c403 626f62 cc c8 00",
    ),
    (FetchObject(6, key(7)), "01 93 06 06 92 a6 70686f746f37 c403 626f62"),
    (FetchStatus(7, key(7, by=ALICE)), "01 93 07 07 92 a6 70686f746f37 c405 616c696365"),
    (Done(2**48 - 1), "01 92 10 cf 0000ffffffffffff"),
    (Refused(9, "not_owner", "no"), "01 94 11 09 a9 6e6f745f6f776e6572 a2 6e6f"),
    (Page(10, 1, (PHOTO,), True), f"01 95 12 0a 01 91 {PHOTO_HEX} c3"),
    (MissedPage(8, 9, 1, (PHOTO,), False, 2), f"01 97 15 08 09 01 91 {PHOTO_HEX} c2 02"),
    (
        ObjectData(11, key(7, by=BOB), b"pixels"),
        "01 94 13 0b 92 a6 70686f746f37 c403 626f62 c406 706978656c73",
    ),
    (ObjectStatus(12, "deleted", None), "01 94 14 0c a7 64656c65746564 c0"),
    (ChunksMissing(8, 300), "01 93 16 08 cd012c"),
    (FetchChunkList(8, b"\1\2", True), "01 94 0d 08 c4020102 c3"),
    (FetchChunk(8, b"\1\2", 300), "01 94 0e 08 c4020102 cd012c"),
    (
        StoredChunks(8, b"", b"\3", (ChunkHolder(BOB, CellId(5)),)),
        "01 95 17 08 c400 c40103 91 92 c403626f62 05",
    ),
    (ChunkData(8, b"\1"), "01 93 18 08 c40101"),
    (
        Notify(PHOTO, (SubscriptionId("sub1"), SubscriptionId("sub2"))),
        f"01 93 20 {PHOTO_HEX} 92 a4 73756231 a4 73756232",
    ),
    (
        PastMatches(SubscriptionId("sub1"), 1, (PHOTO,), True),
        f"01 95 21 a4 73756231 01 91 {PHOTO_HEX} c3",
    ),
    (Missed(SubscriptionId("sub1"), 9), "01 93 26 a4 73756231 09"),
    (JoinRequest(13, 2), "01 93 22 0d 02"),
    (
        JoinReply(13, 0, 1, (subscribe(1, "goal"),)),
        "01 95 23 0d 00 01 91 93 92 a4 73756231 c405 616c696365 91 92 91 a4 676f616c 90 92 c0 c0",
    ),
    (
        SubscriptionDigest(13, b"f" * 12),
        "01 93 28 0d c40c 666666666666666666666666",
    ),
    (
        CompareSubscriptions((EventRange(None, None, (b"12345678",)),), (b"87654321",)),
        "01 93 29 91 93 c0 c0 91 c408 3132333435363738 91 c408 3837363534333231",
    ),
    (
        MissingSubscriptions(
            (subscribe(1, "goal"),),
            (TombstoneRecord("sub2@626f62", "cancelled", SignedInstant(5, b"p")),),
        ),
        "01 93 2a 91 93 92 a4 73756231 c405 616c696365 91 92 91 a4 676f616c 90 92 c0 c0"
        " 91 93 ab 7375623240363236663632 a9 63616e63656c6c6564 92 05 c401 70",
    ),
    (ReliableMessage(14, Done(7)), "01 93 24 0e 92 10 07"),
    (ReliableAck(14), "01 92 25 0e"),
    (Authenticated(b"", b"code", b"\x92\x10\x07"), "01 94 27 c400 c404 636f6465 c403 921007"),
    (Flooded(ALICE, 15, 2, Done(7)), "01 95 32 c405 616c696365 0f 02 92 10 07"),
    (Packet(ALICE, BOB, 2, Done(7)), "01 95 30 c405 616c696365 c403 626f62 02 92 10 07"),
    (
        RouteUpdate(((ALICE, 1000, 1), (BOB, 7, 3))),
        "01 92 31 92 93 c405 616c696365 cd03e8 01 93 c403 626f62 07 03",
    ),
    (CellBeacon(CellId(300), True, b"\x01\x02", b""), "01 96 40 cd012c c3 c402 0102 c400 c0"),
    (
        CellPacket(
            ALICE,
            CellId(9),
            16,
            2,
            (
                CellTarget(CellId(7)),
                CellTarget(
                    CellId(8), BOB, PerimeterState(CellId(1), CellId(2), CellId(3), CellId(4))
                ),
            ),
            Done(7),
        ),
        "01 98 41 c405 616c696365 09 10 02"
        " 92 93 07 c0 c0 93 08 c403 626f62 94 01 02 03 04 92 10 07 c0",
    ),
    (
        CellBroadcast(ALICE, CellId(9), 16, 3, CellId(8), CellId(7), Done(7), 5),
        "01 99 42 c405 616c696365 09 10 03 08 07 92 10 07 05",
    ),
    (Undelivered(16, BOB, CellId(8)), "01 94 43 10 c403 626f62 08"),
    (CellBroadcastAck(BOB, 16, CellId(8)), "01 94 5b c403 626f62 10 08"),
    (IndexObject(17, INDEXED), f"01 93 50 11 {INDEXED_HEX}"),
    (IndexSmallObject(17, INDEXED, b"pixels"), f"01 94 6e 11 {INDEXED_HEX} c406 706978656c73"),
    (AnnounceReplica(key(7)), "01 92 51 92 a6 70686f746f37 c403 626f62"),
    (
        AnnounceReplicas((key(7), key(8))),
        "01 92 6d 92 92 a6 70686f746f37 c403 626f62 92 a6 70686f746f38 c403 626f62",
    ),
    (StoreReplica(PHOTO, b"pixels"), f"01 94 52 {PHOTO_HEX} c406 706978656c73 90"),
    (ConfirmReplica(17, PHOTO, True), f"01 94 6c 11 {PHOTO_HEX} c3"),
    (CellNotify(INDEXED, (SubscriptionId("sub1"),)), f"01 93 53 {INDEXED_HEX} 91 a4 73756231"),
    (CellPage(18, 1, (INDEXED,), False), f"01 95 54 12 01 91 {INDEXED_HEX} c2"),
    (CellStatus(19, "there", INDEXED), f"01 94 55 13 a5 7468657265 {INDEXED_HEX}"),
    (ReplyFromCell(CellId(8), Done(7)), "01 93 56 08 92 10 07"),
    (FetchCellState(20), "01 92 57 14"),
    (
        CellState(
            20,
            0,
            1,
            (INDEXED,),
            (CellSubscription(subscribe(1, "goal"), CellId(9)),),
            (TombstoneRecord("photo1@00", "deleted", 5),),
            (TombstoneRecord("sub2@00", "cancelled", 6),),
            (PHOTO,),
        ),
        f"01 99 58 14 00 01 91 {INDEXED_HEX}"
        " 91 94 93 92 a4 73756231 c405 616c696365 91 92 91 a4 676f616c 90 92 c0 c0 09 90 c0"
        " 91 93 a9 70686f746f31403030 a7 64656c65746564 05"
        f" 91 93 a7 73756232403030 a9 63616e63656c6c6564 06 91 {PHOTO_HEX}",
    ),
    (
        CellNotifyBatch((MatchedObject(INDEXED, (SubscriptionId("sub1"),)),)),
        f"01 92 59 91 92 {INDEXED_HEX} 91 a4 73756231",
    ),
    (NotifyAck((21, 22)), "01 92 5a 92 15 16"),
    (CellDigest(b"\x00\x01\x02\x03"), "01 92 5c c404 00010203"),
    (CellRecordHashes(b"\x05", b"12345678", True), "01 94 5d c401 05 c408 3132333435363738 c3"),
    (
        LocationUpdate(23, (SubscriptionId("sub1"),), (key(7),)),
        "01 94 5e 17 91 a4 73756231 91 92 a6 70686f746f37 c403 626f62",
    ),
    (LocationUpdateReply(23, (SubscriptionId("sub1"),)), "01 94 5f 17 91 a4 73756231 90"),
    (
        TransferState(24, CellId(7), CellState(0, 0, 1, (INDEXED,))),
        f"01 94 60 18 07 99 58 00 00 01 91 {INDEXED_HEX} 90 90 90 90",
    ),
    (
        StateTransferred(CellId(7), (key(7),), (SubscriptionKey(SubscriptionId("sub1"), ALICE),)),
        "01 94 61 07 91 92 a6 70686f746f37 c403 626f62 91 92 a4 73756231 c405 616c696365",
    ),
    (
        BackupState(25, CellId(7), 3, CellState(0, 0, 1)),
        "01 95 62 19 07 03 99 58 00 00 01 90 90 90 90 90",
    ),
    (SuspectSubscriber(BOB, CellId(8)), "01 93 63 c403 626f62 08"),
    (ReindexObjects(30, (INDEXED,)), f"01 93 64 1e 91 {INDEXED_HEX}"),
    (
        compact_page(CellPage(18, 1, (INDEXED,), False), lambda metadata: None),
        "01 95 6f 12 01 c2 96 cf 0005374f00dd4b00 92 c403 626f62 c405 616c696365"
        " 92 a4 676f616c a5 c3a9646572 91 92 00 01 91 92 91 92 09 c0 91 92 08 01"
        " 91 99 a6 70686f746f37 00 00 00 00 06"
        " c420 6ec9c2b0eb14010746c8bce8939303b382344b296206612eb8a907a37b2b2f37 c402 7468 c0",
    ),
    (
        compact_batch(
            [MatchedObject(INDEXED, (SubscriptionId("sub1"),))], lambda metadata: b"x", 7
        ),
        "01 95 7a 96 cf 0005374f00dd4b00 91 c403 626f62 92 a4 676f616c a5 c3a9646572"
        " 91 92 00 01 91 92 90 90 91 99 a6 70686f746f37 00 00 00 00 c401 78 c400 c402 7468 c0"
        " 91 91 a4 73756231 91 00 07",
    ),
    (
        SignedDelete(26, key(7), b"proof"),
        "01 94 08 1a 92 a6 70686f746f37 c403 626f62 c405 70726f6f66",
    ),
    (
        SignedStop(27, subscribe(1).key, b"proof"),
        "01 94 09 1b 92 a4 73756231 c405 616c696365 c405 70726f6f66",
    ),
    (
        LocatedSubscription(28, SIGNED, 20, PLACE),
        "01 95 0a 1c 93 92 a4 73756231 c405 616c696365"
        " 82 a1 63 91 92 91 a4 676f616c 90 a1 70 c405 70726f6f66"
        f" 92 c0 c0 14 {PLACE_HEX}",
    ),
    (
        SignedLocationUpdate(29, (SubscriptionId("sub1"),), (), PLACE),
        f"01 95 65 1d 91 a4 73756231 90 {PLACE_HEX}",
    ),
    (EncounterProfile(9, (Tag("goal"),), True), "01 94 70 09 91 a4 676f616c c3"),
    (
        ProfileReply(9, (Tag("goal"),), (PHOTO,), (b"pixels",), False),
        f"01 96 71 09 91 a4 676f616c 91 {PHOTO_HEX} 91 c406 706978656c73 c2",
    ),
    (
        EncounterEvents(9, (PHOTO,), (b"pixels",)),
        f"01 94 72 09 91 {PHOTO_HEX} 91 c406 706978656c73",
    ),
    (Heartbeat((Tag("goal"),), 150), "01 93 73 91 a4 676f616c cc96"),
    (
        HeldEvents((), None, (key(7),), True),
        "01 95 74 90 c0 91 92 a6 70686f746f37 c403 626f62 c3",
    ),
    (NeighbourProbe(False), "01 92 75 c2"),
    (ReconcileProfile(9, (Tag("goal"),)), "01 93 76 09 91 a4 676f616c"),
    (
        EventSummary(
            9,
            (),
            (EventRange((5, b"12345678"), b"f" * 12, None), EventRange(None, None, ())),
            (b"87654321",),
            True,
        ),
        "01 96 77 09 90 92 93 92 05 c408 3132333435363738 c40c 666666666666666666666666 c0"
        " 93 c0 c0 90 91 c408 3837363534333231 c3",
    ),
    (EventDetails(9, (PHOTO,)), f"01 93 78 09 91 {PHOTO_HEX}"),
    (EventData(9, (b"pixels",)), "01 93 79 09 91 c406 706978656c73"),
    (
        WorldProbe(31),
        "0192341f",
    ),
    (
        WorldList(31, (WorldEntry(5, "match", 4),), 9),
        "0195351f919305a56d617463680409c0",
    ),
    (
        CreateWorld(32, "match"),
        "01933620a56d61746368",
    ),
    (
        CellData(
            33,
            CellId(3),
            4,
            (CellCycle(6, (DownloadCount(key(7), 2, (Replica(CellId(1), BOB),)),), (NEED,)),),
        ),
        "019537210304919306919392a670686f746f37c403626f6202919201c403626f629194a4676f616c"
        "02c0ce00011170",
    ),
    (
        FetchStored(34, 5, key(7)),
        "019438220592a670686f746f37c403626f62",
    ),
    (
        StoredObject(35, PHOTO, b"pixels"),
        f"01943923 {PHOTO_HEX} c406706978656c73",
    ),
    (
        StorageUpdate((key(7),), True),
        "01933c9192a670686f746f37c403626f62c3",
    ),
    (
        ForceFetch(36, key(7), BOB),
        "01943d2492a670686f746f37c403626f62c403626f62",
    ),
    (
        SubscriptionNeeds(3, 50, (WorldNeeds(5, (NEED,)),)),
        "01943e03329192059194a4676f616c02c0ce00011170",
    ),
    (
        ProvideItems(0, 1, (ProvidedItem(5, PHOTO, b"pixels"),)),
        f"01943f0001919305 {PHOTO_HEX} c406706978656c73",
    ),
    (
        ConsumptionNotice((ItemName(5, key(7)),)),
        "01924491920592a670686f746f37c403626f62",
    ),
    (
        ToStation(5, CellId(3), Done(7)),
        "0194330503921007",
    ),
    (
        RouteToNode(ALICE, BOB, Done(7)),
        "01943ac405616c696365c403626f62921007",
    ),
    (
        RouteToCell(37, CellId(3), Done(7)),
        "01943b2503921007",
    ),
    (
        Unpublish(38, 5, (Tag("goal"),), DeleteObject(2, key(7))),
        "019545260591a4676f616c93020292a670686f746f37c403626f62",
    ),
]
each_golden = pytest.mark.parametrize(
    ("message", "golden"), GOLDEN, ids=[type(message).__name__ for message, _ in GOLDEN]
)


def number_of(kind: type[Message]) -> object:
    return kind.__struct_config__.tag


def changed(frame: bytes, change: Callable[[list[Any]], Any]) -> bytes:
    """A frame whose array of number and fields was changed by hand."""
    array = msgspec.msgpack.decode(frame[1:])
    change(array)
    return frame[:1] + msgspec.msgpack.encode(array)


def test_the_numbers_of_messages_are_unique_and_never_change() -> None:
    assert {number_of(kind): kind.__name__ for kind in KINDS} == {
        1: "InsertObject",
        2: "DeleteObject",
        3: "StartSubscription",
        4: "StopSubscription",
        5: "FetchPage",
        6: "FetchObject",
        7: "FetchStatus",
        11: "FetchMissed",
        12: "InsertLargeObject",
        13: "FetchChunkList",
        14: "FetchChunk",
        16: "Done",
        17: "Refused",
        18: "Page",
        19: "ObjectData",
        20: "ObjectStatus",
        21: "MissedPage",
        22: "ChunksMissing",
        23: "StoredChunks",
        24: "ChunkData",
        32: "Notify",
        33: "PastMatches",
        34: "JoinRequest",
        35: "JoinReply",
        36: "ReliableMessage",
        37: "ReliableAck",
        38: "Missed",
        39: "Authenticated",
        40: "SubscriptionDigest",
        41: "CompareSubscriptions",
        42: "MissingSubscriptions",
        50: "Flooded",
        48: "Packet",
        49: "RouteUpdate",
        64: "CellBeacon",
        65: "CellPacket",
        66: "CellBroadcast",
        67: "Undelivered",
        91: "CellBroadcastAck",
        80: "IndexObject",
        110: "IndexSmallObject",
        111: "CompactPage",
        122: "CompactNotifyBatch",
        81: "AnnounceReplica",
        109: "AnnounceReplicas",
        82: "StoreReplica",
        83: "CellNotify",
        84: "CellPage",
        85: "CellStatus",
        86: "ReplyFromCell",
        87: "FetchCellState",
        88: "CellState",
        89: "CellNotifyBatch",
        90: "NotifyAck",
        92: "CellDigest",
        93: "CellRecordHashes",
        94: "LocationUpdate",
        95: "LocationUpdateReply",
        96: "TransferState",
        97: "StateTransferred",
        98: "BackupState",
        99: "SuspectSubscriber",
        100: "ReindexObjects",
        108: "ConfirmReplica",
        8: "SignedDelete",
        9: "SignedStop",
        10: "LocatedSubscription",
        101: "SignedLocationUpdate",
        112: "EncounterProfile",
        113: "ProfileReply",
        114: "EncounterEvents",
        115: "Heartbeat",
        116: "HeldEvents",
        117: "NeighbourProbe",
        118: "ReconcileProfile",
        119: "EventSummary",
        120: "EventDetails",
        121: "EventData",
        51: "ToStation",
        52: "WorldProbe",
        53: "WorldList",
        54: "CreateWorld",
        55: "CellData",
        56: "FetchStored",
        57: "StoredObject",
        58: "RouteToNode",
        59: "RouteToCell",
        60: "StorageUpdate",
        61: "ForceFetch",
        62: "SubscriptionNeeds",
        63: "ProvideItems",
        68: "ConsumptionNotice",
        69: "Unpublish",
    }


def test_i24_every_kind_of_message_is_drawn_and_has_its_golden_bytes() -> None:
    assert set(messages) == set(KINDS)
    assert [type(message) for message, _ in GOLDEN] == list(KINDS)


@each_golden
def test_a_message_has_the_bytes_it_always_had(message: Message, golden: str) -> None:
    assert encode(message).hex() == golden.replace(" ", "")
    assert decode(bytes.fromhex(golden)) == message


@each_golden
def test_i24_a_message_is_its_number_and_its_fields_in_order(message: Message, golden: str) -> None:
    version, array = bytes.fromhex(golden)[0], msgspec.msgpack.decode(bytes.fromhex(golden)[1:])

    assert version == VERSION_MIN
    assert array[0] == number_of(type(message))
    assert len(array) == 1 + len(type(message).__struct_fields__)


@each_golden
@pytest.mark.parametrize("extra", [None, 7, "text", [1, [2]], {"map": b"bytes"}, 1.5])
def test_i24_fields_that_a_later_version_appends_are_passed_over(
    message: Message, golden: str, extra: object
) -> None:
    later = changed(bytes.fromhex(golden), lambda array: array.extend([extra, extra]))

    assert decode(later) == message


@pytest.mark.parametrize(
    "extend",
    [
        lambda array: array[2].append("later"),  # metadata
        lambda array: array[2][0].append("later"),  # its key
    ],
    ids=["metadata", "key"],
)
def test_fields_appended_to_a_record_inside_a_message_are_passed_over(
    extend: Callable[[list[Any]], Any],
) -> None:
    message = InsertObject(1, PHOTO, b"pixels")

    assert decode(changed(encode(message), extend)) == message


@pytest.mark.parametrize(
    ("message", "drop"),
    [
        (FetchPage(5, conjunctions("goal"), ALWAYS, 20), lambda array: array.pop()),
        (FetchPage(5, conjunctions("goal"), ALWAYS, 20), lambda array: array[3].clear()),
        (FetchPage(5, conjunctions("goal"), frame(5, None), 9), lambda array: array[3].pop()),
        (FetchPage(5, conjunctions("goal"), ALWAYS, 20), lambda array: array[2][0].pop()),
        (InsertObject(1, PHOTO, b"pixels"), lambda array: array[2].pop()),
    ],
    ids=["cursor", "frame", "end", "negative", "expiry"],
)
def test_a_field_that_an_earlier_version_did_not_have_takes_its_default(
    message: Message, drop: Callable[[list[Any]], Any]
) -> None:
    earlier = changed(encode(message), drop)

    assert len(earlier) < len(encode(message))
    assert decode(earlier) == message


@each_golden
def test_a_field_that_always_was_there_must_be_there(message: Message, golden: str) -> None:
    always = len(type(message).__struct_fields__) - len(type(message).__struct_defaults__)
    short = changed(bytes.fromhex(golden), lambda array: array.__delitem__(slice(always, None)))

    with pytest.raises(DecodeError) as caught:
        decode(short)
    assert caught.value.reason == "invalid"


@pytest.mark.parametrize("number", [0, 8, 15, 21, 31, 38, 255, -1, 2**63])
def test_a_number_that_means_nothing_yet_is_refused(number: int) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(bytes([VERSION_MIN]) + msgspec.msgpack.encode([number, 1]))
    assert caught.value.reason == "invalid"


@pytest.mark.parametrize("version", [0, 2, 127, 255])
def test_a_version_we_do_not_speak_is_refused_by_its_number(version: int) -> None:
    with pytest.raises(DecodeError, match=f"expected version 1, got {version}") as caught:
        decode(bytes([version]) + encode(Done(1))[1:])
    assert caught.value.reason == "version"
