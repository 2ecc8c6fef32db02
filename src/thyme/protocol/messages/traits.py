"""Message traits: what a message type is, declared once in its class.

`BaseMessage` lists the traits with their defaults; a message overrides those that differ. Routing,
substrates, message authentication and measurements read the traits, so none of them has a table of
message types. `StatementMessage` and `LocationMessage` are the bases of messages that have a signed
variant.
Clauses: S14, S17, S18, D1, D7, D28, B2, B5.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import ClassVar, NamedTuple, Protocol

import msgspec

from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Metadata
from thyme.model.signed_records import DeleteRecord, UnsubscribeRecord
from thyme.protocol.messages.cell_records import CellId, Replica, SignedLocation

UPKEEP = "upkeep"


class RecordKind(Enum):
    """The kinds of signed content that a field of a message can have (B5)."""

    METADATA = auto()
    INDEXED_METADATA = auto()
    MATCHED_OBJECT = auto()
    SUBSCRIPTION = auto()
    CELL_SUBSCRIPTION = auto()
    OBJECT_TOMBSTONE = auto()
    SUBSCRIPTION_TOMBSTONE = auto()
    MESSAGE = auto()
    """Another message, which declares its own records."""


class KnownRecords(Protocol):
    """The records of a cell that a node stores."""

    def has_metadata(self, metadata: Metadata) -> bool:
        """Whether an object is indexed with exactly this metadata."""
        ...

    def is_deleted(self, key: Key) -> bool:
        """Whether an object was deleted."""
        ...

    def is_active_replica(self, key: Key, replica: Replica) -> bool:
        """Whether a replica is one of the active replicas of an object; also True if the object is
        not indexed."""
        ...


class SmallObject(NamedTuple):
    """A small object that was sent with its metadata (D28)."""

    metadata: Metadata
    data: bytes


class Expanded(NamedTuple):
    """The full form of a compact message (D28)."""

    message: BaseMessage
    small_objects: tuple[SmallObject, ...] = ()
    ack_delay_us: int = 0
    """How long the acknowledgement of notifications may wait; 0 for as long as usual."""


class BaseMessage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The base of all messages; has no fields of its own. The fields of messages are immutable, so
    that no message is part of a cycle: the garbage collector need not look at them."""

    # Names and groups in tables, recordings and metrics. They do not change when a class is
    # renamed: results of earlier versions, and the programs that read them, know these words.
    label: ClassVar[str]
    """The name of the message type."""
    operation: ClassVar[str] = UPKEEP
    """The part of the analytical model that the message counts for: an operation, `notification`,
    `acknowledgement`, or `upkeep` for the rest."""
    routing_control: ClassVar[bool] = False
    """Whether a routing sends it to keep itself up to date."""

    # Messages to a cell
    reads_only: ClassVar[bool] = False
    """Whether it is a request that changes nothing, so that one node of a cell is enough for it."""
    long_reply: ClassVar[bool] = False
    """Whether it is a request for a page of objects, whose reply takes longer than others."""
    broadcast_acknowledged: ClassVar[bool] = True
    """Whether the nodes of a cell acknowledge it, if broadcasts are acknowledged at all (B2)."""
    one_ack_suffices: ClassVar[bool] = False
    """Whether the acknowledgement of one node of the cell is enough."""
    replies_early: ClassVar[bool] = False
    """Whether the cell replies after a few broadcasts, before all of its nodes acknowledged it."""
    changes_index: ClassVar[bool] = False
    """Whether it changes the index of the addressed cell."""

    # Answers and signed records
    authenticated: ClassVar[bool] = False
    """Whether a receiver accepts it only with the sender's code: it answers a message of the
    receiver, or says what arrived (B5)."""
    introduces: ClassVar[bool] = False
    """Whether the sender waits for such an answer, so that it may have to send its key (B5)."""
    records: ClassVar[tuple[tuple[str, RecordKind], ...]] = ()
    """The fields with signed records. A field has one record, None, or a tuple of records: without
    its one record the message is dropped; from a tuple, invalid records are removed (B5)."""

    @property
    def data_bytes(self) -> int:
        """The size of the object in the message."""
        return 0

    def is_acknowledged_by(self, node_id: NodeId) -> bool:
        """Whether a node of the cell acknowledges it, if the nodes of the cell do."""
        return True

    def author(self, sender: NodeId) -> NodeId:
        """The node in whose name the message speaks: the sender, unless the message names another
        node. Only this node can sign it (B5)."""
        return sender

    def cells_referenced(self) -> Iterable[CellId]:
        """The cells to which later messages could be sent if this message were accepted (D1)."""
        return ()

    def expanded(self) -> Expanded | None:
        """The full form of a compact message, None for all others; raises `InputError` if it
        contains something that is not valid (D28)."""
        return None

    def is_redundant(self, known: KnownRecords, origin: NodeId, origin_cell: CellId) -> bool:
        """Whether a message to a cell contains nothing new for a node of it.

        Retries and re-announcements mostly repeat records that the cell has. They need not be
        broadcast in the cell again: its other nodes received them the first time, or find by
        digests that they lack them. Passive replicas and subscriber locations are not part of
        digests, so messages about them are never redundant (D7, B2).
        """
        return False


class StatementMessage(BaseMessage, frozen=True, array_like=True):
    """A message that is itself a statement of its author: the signed variant has a proof (B5)."""

    def statement(self) -> DeleteRecord | UnsubscribeRecord:
        """The record that the author signs."""
        raise NotImplementedError

    @property
    def proof(self) -> bytes:
        """The author's proof; empty for the unsigned variant."""
        return b""

    def with_proof(self, proof: bytes) -> StatementMessage:
        """Returns the signed variant."""
        raise NotImplementedError


class LocationMessage(BaseMessage, frozen=True, array_like=True):
    """A message that depends on its author's location: the signed variant has it signed (B5)."""

    location_required: ClassVar[bool] = True
    """Whether a receiver requires the location even if it does not check those of subscribers."""

    @property
    def location(self) -> SignedLocation | None:
        """The author's signed location; None for the unsigned variant."""
        return None

    def with_location(self, location: SignedLocation) -> LocationMessage:
        """Returns the signed variant."""
        raise NotImplementedError
