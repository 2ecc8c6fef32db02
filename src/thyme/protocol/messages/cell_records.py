"""Cell records: cell numbers, and the records that the messages of Thyme-DCS contain.

Here a cell is only a number; `thyme.routing.cells` defines the geometry.
Clauses: D5, D9, D12, D15, D16, C22, B5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NewType

import msgspec

from thyme.model.ids import NodeId, SubscriptionId, as_node_id, as_subscription_id
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionRecord
from thyme.protocol.messages.list_limits import Items, Records

CellId = NewType("CellId", int)
"""Number of a grid cell or a logical cell: 0 to 65,535, at most 3 bytes on the wire (C22)."""

CELLS_MAX = 2**16


def as_cell_id(value: int) -> CellId:
    """Checks a cell number."""
    if not 0 <= value < CELLS_MAX:
        raise ValueError(f"a cell number is from 0 to {CELLS_MAX - 1}, not {value}")
    return CellId(value)


class PerimeterState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a packet that is routed around a void (D5)."""

    entry_cell: CellId
    """The cell where greedy routing ended: it knew no closer cell."""
    first_cell: CellId
    """The first cell of the perimeter; reaching it again in the same direction closes the loop."""
    previous_cell: CellId
    next_cell: CellId

    def __post_init__(self) -> None:
        for cell in (self.entry_cell, self.first_cell, self.previous_cell, self.next_cell):
            as_cell_id(cell)


class CellTarget(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The destination of a message: a cell, or a node in a cell."""

    cell: CellId
    node: NodeId | None = None
    perimeter: PerimeterState | None = None

    def __post_init__(self) -> None:
        as_cell_id(self.cell)
        if self.node is not None:
            as_node_id(self.node)


class Replica(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A location of an object: any node of a cell, or one node in it (D12)."""

    cell: CellId
    node: NodeId | None = None

    def __post_init__(self) -> None:
        as_cell_id(self.cell)
        if self.node is not None:
            as_node_id(self.node)


class IndexedMetadata(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Metadata as a cell stores it: with its replication list, active replicas first (D12)."""

    metadata: Metadata
    active: Records[Replica]
    passive: Records[Replica] = ()


def replica_cells(objects: Iterable[IndexedMetadata]) -> Iterator[CellId]:
    """Returns the cells of all replicas of objects."""
    return (replica.cell for indexed in objects for replica in (*indexed.active, *indexed.passive))


class SignedInstant(msgspec.Struct, frozen=True, array_like=True):
    """An instant with its author's proof (B5)."""

    at_us: int
    proof: bytes


ClaimedInstant = int | SignedInstant
"""An instant claimed by a node, with or without a proof."""


def instant_of(claimed: ClaimedInstant) -> int:
    """Returns the instant of a claim."""
    return claimed if isinstance(claimed, int) else claimed.at_us


def proof_of(claimed: ClaimedInstant | None) -> bytes:
    """Returns the proof of a claim; empty if there is none."""
    return claimed.proof if isinstance(claimed, SignedInstant) else b""


class SignedLocation(msgspec.Struct, frozen=True, array_like=True):
    """The cell of a node since an instant, with the node's proof (D20, B5)."""

    cell: CellId
    since: SignedInstant

    def __post_init__(self) -> None:
        as_cell_id(self.cell)


class CellSubscription(msgspec.Struct, frozen=True, array_like=True):
    """A subscription as a cell stores it: the conjunctions keyed to the cell, and the subscriber's
    cell (D16)."""

    subscription: SubscriptionRecord
    cell: CellId
    key_cells: Items[CellId] = ()
    """The key cells of the subscription among the cells stored here: the node's own cell and the
    cells it is proxy of (D6, D24)."""
    located: ClaimedInstant | None = None
    """When the subscriber last announced its location; older claims are ignored (D21)."""

    def __post_init__(self) -> None:
        as_cell_id(self.cell)
        for cell in self.key_cells:
            as_cell_id(cell)

    @property
    def located_us(self) -> int:
        """The instant of the subscriber's last location claim; 0 if there is none."""
        return 0 if self.located is None else instant_of(self.located)


class MatchedObject(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One object and the matching subscriptions of the receivers (D17)."""

    indexed: IndexedMetadata
    sids: Items[SubscriptionId]
    """The matching subscriptions of all receivers; each receiver knows its own."""

    def __post_init__(self) -> None:
        for sid in self.sids:
            as_subscription_id(sid)


class TombstoneRecord(msgspec.Struct, frozen=True, array_like=True):
    """A tombstone: key as text, reason and time of a removal, with its author's proof (D15)."""

    key: str
    reason: str
    removed: ClaimedInstant

    @property
    def removed_us(self) -> int:
        """The instant of the removal."""
        return instant_of(self.removed)
