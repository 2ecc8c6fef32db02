"""docs/wire.md describes the records as they are: same numbers, same fields, same bytes."""

from __future__ import annotations

import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest

from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata, make_metadata
from thyme.model.subscriptions import (
    Conjunction,
    SignedConjunctions,
    SubscriptionKey,
    SubscriptionRecord,
)
from thyme.model.time_frames import TimeFrame
from thyme.protocol.messages.cell_records import (
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
from thyme.protocol.messages.chunks import (
    ChunkHolder,
)
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.compact import CompactObject, CompactObjects, CompactReplica
from thyme.protocol.messages.event_ranges import EventRange
from thyme.protocol.messages.replies import Notify
from thyme.protocol.messages.stations import (
    CellCycle,
    DownloadCount,
    ItemName,
    ProvidedItem,
    TagNeed,
    WorldEntry,
    WorldNeeds,
)
from thyme.query.cursor import Cursor
from thyme.wire import codec

PAGE = Path(__file__).parents[2] / "docs" / "wire.md"
RECORDS = (
    CompactObject,
    CompactObjects,
    CompactReplica,
    ChunkHolder,
    Key,
    Metadata,
    SubscriptionKey,
    SubscriptionRecord,
    SignedConjunctions,
    Conjunction,
    TimeFrame,
    Cursor,
    CellTarget,
    PerimeterState,
    Replica,
    IndexedMetadata,
    CellSubscription,
    MatchedObject,
    TombstoneRecord,
    SignedInstant,
    SignedLocation,
    WorldEntry,
    DownloadCount,
    TagNeed,
    CellCycle,
    WorldNeeds,
    ProvidedItem,
    ItemName,
    EventRange,
)
MESSAGES = get_args(Message)


def sections() -> dict[str, list[tuple[str, str]]]:
    """The heading of each record and the rows of its table."""
    found = {}
    for part in re.split(r"^### ", PAGE.read_text("utf-8"), flags=re.M)[1:]:
        part = re.split(r"^## ", part, flags=re.M)[0]
        heading, _, rest = part.partition("\n")
        rows = re.findall(r"^\| (\w+) \| (.+?) \|$", rest, flags=re.M)
        found[heading] = [row for row in rows if row != ("field", "type")]
    return found


def written(record: Any) -> list[tuple[str, str]]:
    """The rows that the table of a record should have."""
    rows = []
    for field in msgspec.structs.fields(record):
        word = written_type(field.type)
        if field.default is not msgspec.NODEFAULT:
            word += ", default " + ("nil" if field.default is None else "[]")
        rows.append((field.name, word))
    return rows


def written_type(kind: Any) -> str:
    kind = getattr(kind, "__supertype__", kind)
    if get_origin(kind) is Annotated:  # the limit of a list, which the page says for all lists
        kind = get_args(kind)[0]
    if kind in (str, bytes, int, bool):
        return {str: "text", bytes: "bytes", int: "int", bool: "bool"}[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind.__name__
    if kind == Message:
        return "message"
    inner = get_args(kind)
    if NoneType in inner or get_origin(kind) is UnionType:
        return " or ".join("nil" if one is NoneType else written_type(one) for one in inner)
    if inner[1:] == (...,):
        return f"[{written_type(inner[0])}]"
    assert get_origin(kind) is tuple, f"no word for {kind}"
    return f"({', '.join(map(written_type, inner))})"


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_described_as_it_is(message: type[msgspec.Struct]) -> None:
    number = message.__struct_config__.tag

    assert sections()[f"{number} {message.__name__}"] == written(message)


@pytest.mark.parametrize("record", RECORDS)
def test_a_record_is_described_as_it_is(record: type[msgspec.Struct]) -> None:
    assert sections()[record.__name__] == written(record)


def test_nothing_else_is_described() -> None:
    assert len(sections()) == len(MESSAGES) + len(RECORDS)


def example() -> bytes:
    [block] = re.findall(r"^```hex\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    return bytes.fromhex("".join(line.partition(";")[0] for line in block.splitlines()))


def test_the_worked_example_is_the_message_it_says() -> None:
    key = Key(ObjectId("photo-1"), NodeId(bytes(range(16))))
    metadata = make_metadata(
        key, b"jpeg", ["goal", "eder"], 1_752_950_400_000_000, summary=b"79' Eder!"
    )
    message = Notify(metadata, (SubscriptionId("sub-1"),))

    assert codec.encode(message) == example()
    assert codec.decode(example()) == message
    assert f"`sub-1`, {len(example())} bytes;" in PAGE.read_text("utf-8")


def test_fields_may_be_missing_or_added_at_the_end() -> None:
    number, metadata, sids = msgspec.msgpack.decode(example()[1:])
    older = [number, metadata[:-1], sids]
    newer = [number, [*metadata, "later"], sids, "still later"]

    for variant in (older, newer):
        frame = bytes([codec.VERSION_MIN]) + msgspec.msgpack.encode(variant)
        assert codec.decode(frame) == codec.decode(example())
