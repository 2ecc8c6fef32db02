"""Message descriptions: the type of a message with those inside it, and the objects it is about.

Entry points: `kind_of`, `objects_of`. Measurements and recordings use them.
Clauses: S14, S17.
"""

from __future__ import annotations

from collections.abc import Iterator

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.protocol.messages.cell_records import IndexedMetadata, MatchedObject
from thyme.protocol.messages.common import MESSAGE_TYPES, CellPacket, Message
from thyme.protocol.messages.compact import CompactObjects

CONTROL = frozenset(kind.label for kind in MESSAGE_TYPES if kind.routing_control)
"""The labels of routing control messages."""
OBJECTS_MAX = 8
"""Number of objects of one message that are named; a batch may have more."""
_FIELDS = ("key", "metadata", "indexed", "items", "keys", "objects", "content")


def kind_of(message: Message) -> str:
    """The label of a message, and of the message inside it, if there is one: `Packet/Notify`."""
    kind = message.label
    inner = getattr(message, "message", None)
    return kind if inner is None else f"{kind}/{kind_of(inner)}"


def innermost(kind: str) -> str:
    """The label of the innermost message of a type: of `Packet/Notify`, `Notify`."""
    return kind.rpartition("/")[2]


def is_routing_control(kind: str) -> bool:
    """Whether a message type, with or without the prefix `Packet/`, is routing control."""
    return innermost(kind) in CONTROL


def is_perimeter(message: Message) -> bool:
    """Whether a message, or a part of it, is routed around a void, in perimeter mode (D5)."""
    return isinstance(message, CellPacket) and any(
        target.perimeter is not None for target in message.targets
    )


def objects_of(message: Message) -> tuple[str, ...]:
    """The ids of the objects that a message is about, without those in the state of a cell."""
    inner: object = message
    while (deeper := getattr(inner, "message", None)) is not None:
        inner = deeper
    found: dict[str, None] = {}
    for name in _FIELDS:
        for oid in _object_ids(getattr(inner, name, None)):
            found[oid] = None
            if len(found) == OBJECTS_MAX:
                return tuple(found)
    return tuple(found)


def _object_ids(value: object) -> Iterator[str]:
    match value:
        case Key() | Metadata():
            yield value.oid
        case IndexedMetadata():
            yield value.metadata.oid
        case MatchedObject():
            yield value.indexed.metadata.oid
        case CompactObjects():
            yield from (each.oid for each in value.objects)
        case tuple():
            for item in value:
                yield from _object_ids(item)
