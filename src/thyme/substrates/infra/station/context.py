"""Station context: the services that the components of one station share.

`StationNode` creates one `StationContext` and passes it to its components.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from thyme.model.ids import Key, NodeId
from thyme.model.tags import Tag
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.protocol.outbox import Outbox
from thyme.protocol.reliable_send import ReliableSender
from thyme.routing.cells import LogicalCells
from thyme.substrates.infra.requests import StationRequests
from thyme.substrates.infra.station.content import StationContent
from thyme.substrates.infra.station.mobile_sender import MobileSender
from thyme.substrates.infra.station.popularity import ItemId, PopularityTable
from thyme.substrates.infra.station.records import StationRecords
from thyme.substrates.infra.station.settings import StationSettings
from thyme.substrates.infra.station.worlds import WorldTable
from thyme.substrates.infra.unpublished_items import UnpublishedItems
from thyme.substrates.infra.verification import StationVerifier

OnDownload = Callable[[int, Key, str | None], None]
"""Receives the world and key of each object that a client asks the station for, and the cache that
had it, if any (I29)."""


@dataclass(slots=True, kw_only=True)
class StationContext:
    """The identity, caches, tables and settings of one station."""

    node_id: NodeId
    stations: dict[NodeId, None]
    """The other stations."""
    settings: StationSettings
    content: StationContent
    worlds: WorldTable
    popularity: PopularityTable
    outbox: Outbox
    mobiles: MobileSender
    wired: StationRequests
    """Requests to other stations."""
    reliable: ReliableSender
    """One-way messages to other stations."""
    rng: Random
    sources: dict[ItemId, NodeId]
    """The source stations of items of other venues (I4)."""
    unpublished: UnpublishedItems
    """The unpublished objects (I23)."""
    verifier: StationVerifier
    records: StationRecords
    on_download: OnDownload
    counts: Counter[str] = field(default_factory=Counter)

    def is_unpublished(self, world: int, key: Key) -> bool:
        """Whether an object was deleted by its owner; it must not come back (I23)."""
        return (world, key) in self.unpublished

    def cells_of(self, world: int, tags: tuple[Tag, ...]) -> list[CellId]:
        """The cells that index an object with these tags, in the own venue."""
        if world not in self.worlds:
            return []
        cells = LogicalCells(self.worlds[world].cells)
        return list(dict.fromkeys(map(cells.cell_of_key, tags)))

    def owner_replicas(self, world: int, key: Key) -> tuple[Replica, ...]:
        """Where an object is if its owner is in the own venue: on the owner, and in its cell, whose
        number follows from the owner's id (I1)."""
        if world not in self.worlds:
            return ()
        cell = LogicalCells(self.worlds[world].cells).cell_of_node(key.owner)
        return Replica(cell, key.owner), Replica(cell)
