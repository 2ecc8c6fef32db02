"""Cells in messages: their numbers, and the records about them that messages are made of.

What a cell is depends on who makes them (`thyme.routing.cells`); here it is a number.
Clauses: D5, D9, D12, D15, D16, C22, B5.
"""

from __future__ import annotations

from typing import NewType

import msgspec

from thyme.model.ids import NodeId, SubscriptionId, as_node_id, as_subscription_id
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Subscription

CellId = NewType("CellId", int)
"""A cell of a grid, or a logical one: 0 to 65,535, so that it takes 3 bytes at most (C22)."""

CELLS_MAX = 2**16


def as_cell_id(value: int) -> CellId:
    """A cell's number."""
    if not 0 <= value < CELLS_MAX:
        raise ValueError(f"a cell is a number from 0 to {CELLS_MAX - 1}, not {value}")
    return CellId(value)


class Detour(msgspec.Struct, frozen=True, array_like=True):
    """Where a message stands on its way around a void (D5)."""

    entry: CellId
    """The cell that knew no closer one."""
    first: CellId
    """Where the way around it began; to go there again is to have made the loop."""
    behind: CellId
    ahead: CellId

    def __post_init__(self) -> None:
        for cell in (self.entry, self.first, self.behind, self.ahead):
            as_cell_id(cell)


class CellTarget(msgspec.Struct, frozen=True, array_like=True):
    """Where a message should go: a cell, or a node in it."""

    cell: CellId
    node: NodeId | None = None
    detour: Detour | None = None

    def __post_init__(self) -> None:
        as_cell_id(self.cell)
        if self.node is not None:
            as_node_id(self.node)


class Replica(msgspec.Struct, frozen=True, array_like=True):
    """Where an object can be had: from any node of a cell, or from one in it (D12)."""

    cell: CellId
    node: NodeId | None = None

    def __post_init__(self) -> None:
        as_cell_id(self.cell)
        if self.node is not None:
            as_node_id(self.node)


class Indexed(msgspec.Struct, frozen=True, array_like=True):
    """Metadata as a cell keeps it: with its replication list, the active replicas first (D12)."""

    metadata: Metadata
    active: tuple[Replica, ...]
    passive: tuple[Replica, ...] = ()


class Proven(msgspec.Struct, frozen=True, array_like=True):
    """An instant, with the proof of whoever named it (B5)."""

    at_us: int
    proof: bytes


Said = int | Proven
"""When something was said: by somebody who proves it, or not."""


def instant_of(said: Said) -> int:
    """The instant alone."""
    return said if isinstance(said, int) else said.at_us


def proof_of(said: Said | None) -> bytes:
    """The proof alone; empty where there is none."""
    return said.proof if isinstance(said, Proven) else b""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a node says that it is since an instant, with its proof (D20, B5)."""

    cell: CellId
    since: Proven

    def __post_init__(self) -> None:
        as_cell_id(self.cell)


class Interest(msgspec.Struct, frozen=True, array_like=True):
    """A subscription as a cell keeps it: the conjunctions keyed there, and the subscriber's cell
    (D16)."""

    subscription: Subscription
    cell: CellId
    homes: tuple[CellId, ...] = ()
    """The cells that it is keyed to, of those which are here: one that stands in for empty ones
    keeps theirs, too (D6, D24)."""
    heard: Said | None = None
    """When the subscriber itself said where it is: what is older is not believed (D21)."""

    def __post_init__(self) -> None:
        as_cell_id(self.cell)
        for home in self.homes:
            as_cell_id(home)

    @property
    def heard_us(self) -> int:
        """When, as a number; 0 for never."""
        return 0 if self.heard is None else instant_of(self.heard)


class Matched(msgspec.Struct, frozen=True, array_like=True):
    """One object that matches subscriptions of those who are told (D17)."""

    indexed: Indexed
    sids: tuple[SubscriptionId, ...]
    """Of all receivers: each knows its own."""

    def __post_init__(self) -> None:
        for sid in self.sids:
            as_subscription_id(sid)


class Grave(msgspec.Struct, frozen=True, array_like=True):
    """What left: its written key, why, and when; with the proof of whoever wanted it so (D15)."""

    key: str
    why: str
    left: Said

    @property
    def at_us(self) -> int:
        """When it left."""
        return instant_of(self.left)
