"""Traits of messages: declared beside each message, complete, and true to its fields (rule 7)."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.wire.test_schema import GOLDEN
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionRecord
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import chunks as chunk_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    IndexedMetadata,
    MatchedObject,
    Replica,
    SignedLocation,
    TombstoneRecord,
)
from thyme.protocol.messages.common import MESSAGE_TYPES, Message, SignedMessage
from thyme.protocol.messages.traits import (
    UPKEEP,
    BaseMessage,
    LocationMessage,
    RecordKind,
    StatementMessage,
)

OPERATIONS = {"insert", "delete", "subscribe", "unsubscribe", "retrieve"}
OPERATIONS |= {"notification", "acknowledgement", UPKEEP}
KINDS_OF: dict[object, set[RecordKind]] = {
    Metadata: {RecordKind.METADATA},
    IndexedMetadata: {RecordKind.INDEXED_METADATA},
    MatchedObject: {RecordKind.MATCHED_OBJECT},
    SubscriptionRecord: {RecordKind.SUBSCRIPTION},
    CellSubscription: {RecordKind.CELL_SUBSCRIPTION},
    TombstoneRecord: {RecordKind.OBJECT_TOMBSTONE, RecordKind.SUBSCRIPTION_TOMBSTONE},
    cell_wire.CellState: {RecordKind.MESSAGE},
    Message: {RecordKind.MESSAGE},
}
"""How records of a type can be declared; every type with a proof is among them."""
OPENED_BY_ROUTING = (wire.Packet, wire.CellPacket, wire.CellBroadcast)
"""Routing removes these; the contained message is verified on its own."""
NOT_IN_CELLS = (*OPENED_BY_ROUTING, wire.ReliableMessage, wire.Flooded)
"""No node of Thyme-DCS accepts a contained message from these."""
each_type = pytest.mark.parametrize("kind", MESSAGE_TYPES, ids=lambda kind: kind.__name__)


def kinds_in(annotation: object) -> set[RecordKind]:
    """The kinds of records that a field of a type can have."""
    if (isinstance(annotation, type) or annotation == Message) and annotation in KINDS_OF:
        return KINDS_OF[annotation]
    return set[RecordKind]().union(*map(kinds_in, typing.get_args(annotation)))


def has_field(kind: type[BaseMessage], name: str) -> bool:
    return name in kind.__struct_fields__


@each_type
def test_a_message_declares_only_traits_that_there_are(kind: type[BaseMessage]) -> None:
    known = {"label"} | {name for base in kind.__mro__[1:] for name in vars(base)}
    own = {name for name in vars(kind) if not name.startswith("__")}

    assert own - set(kind.__struct_fields__) <= known, "a misspelt trait would have no effect"


@each_type
def test_a_message_has_every_trait(kind: type[BaseMessage]) -> None:
    assert "label" in vars(kind)
    assert kind.operation in OPERATIONS
    flags = [name for name, hint in BaseMessage.__annotations__.items() if "bool" in str(hint)]
    assert len(flags) == 9
    assert all(isinstance(getattr(kind, name), bool) for name in flags)
    assert not (kind.reads_only and kind.changes_index)
    assert has_field(kind, "request_id") or not kind.reads_only


@each_type
def test_b5_a_message_declares_every_signed_record_in_its_fields(kind: type[BaseMessage]) -> None:
    fields = {field.name: kinds_in(field.type) for field in msgspec.structs.fields(kind)}
    found = {name: kinds for name, kinds in fields.items() if kinds}
    declared = dict(kind.records)

    if kind in OPENED_BY_ROUTING:
        assert (list(found), declared) == (["message"], {})
        return
    assert list(declared) == list(found), "in the order of the fields"
    assert all(declared[name] in kinds for name, kinds in found.items())


@each_type
def test_b5_a_message_with_a_proof_says_who_signs_what(kind: type[BaseMessage]) -> None:
    signed = has_field(kind, "proof"), has_field(kind, "location")
    statement, location = issubclass(kind, StatementMessage), issubclass(kind, LocationMessage)

    assert signed == (statement, location) or not any(signed)
    assert any(signed) == (kind in typing.get_args(SignedMessage))
    if statement:
        assert kind.statement is not StatementMessage.statement  # type: ignore[attr-defined]
        assert kind.with_proof is not StatementMessage.with_proof  # type: ignore[attr-defined]
    if location:
        assert kind.with_location is not LocationMessage.with_location  # type: ignore[attr-defined]


def cells_in(value: Any) -> Iterator[CellId]:
    """The cells of replicas, subscribers and signed locations in a message, by inspection."""
    match value:
        case Replica() | SignedLocation():
            yield value.cell
        case chunk_wire.ChunkHolder(cell=int()):
            yield value.cell
        case CellSubscription():
            yield from (value.cell, *value.key_cells)
        case cell_wire.TransferState() | cell_wire.BackupState():
            yield value.cell
            yield from cells_in(value.state)
        case msgspec.Struct():
            yield from cells_in(tuple(getattr(value, name) for name in value.__struct_fields__))
        case tuple():
            for item in value:
                yield from cells_in(item)


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN], ids=lambda m: m.label)
def test_d1_a_message_names_the_cells_in_its_records(message: Message) -> None:
    if not isinstance(message, NOT_IN_CELLS):
        assert sorted(message.cells_referenced()) == sorted(cells_in(message))
        in_reply = wire.ReplyFromCell(CellId(1), message) if not_a_reply(message) else message
        assert list(in_reply.cells_referenced()) == list(message.cells_referenced())


def not_a_reply(message: Message) -> bool:
    return not isinstance(message, wire.ReplyFromCell)
