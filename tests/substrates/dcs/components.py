"""Helpers for tests of single components of a DCS node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.builders import photo
from thyme.model.ids import NodeId
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata, Replica
from thyme.protocol.outbox import Outbox
from thyme.protocol.retry import RetryPolicy
from thyme.routing.cells import Delivery, Destination, Grid
from thyme.storage.store import MemoryStore
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.dcs.client.cell_requests import CellRequests
from thyme.substrates.dcs.client.large_replicas import LargeReplicas
from thyme.substrates.dcs.state.cell_index import CellIndex
from thyme.substrates.dcs.state.replica_store import ReplicaStore

GRID = Grid(columns=10, rows=10)
CELL = CellId(0)
"""The cell of the node under test."""


class RecordingRouting:
    """A cell routing that records the messages it is asked to send, and sends none."""

    cell = CELL
    serving = True

    def __init__(self) -> None:
        self.sent: list[tuple[list[Destination], wire.Message]] = []

    def start(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """Nothing to do."""

    def set_cell(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """Nothing to do."""

    def cell_of_key(self, key: str) -> CellId:
        return GRID.cell_of_key(key)

    def distance(self, one: CellId, other: CellId) -> float:
        return GRID.distance_m(one, other)

    def nodes_in(self, cell: CellId) -> list[NodeId]:
        return []

    def send(self, targets: Sequence[Destination], message: wire.Message, now_us: int) -> int:
        self.sent.append((list(targets), message))
        return len(self.sent)

    def broadcast_in_cell(self, message: wire.Message, now_us: int) -> int:
        raise NotImplementedError

    def when_acknowledged(
        self, arrival: Delivery, then: Callable[[int], None], now_us: int
    ) -> None:
        then(now_us)

    def on_received(self, sender: NodeId, message: wire.Message, now_us: int) -> bool:
        return False

    def on_timer(self, timer: object, now_us: int) -> bool:
        return False

    def on_send_failed(self, to: NodeId, message: wire.Message, now_us: int) -> bool:
        return False

    def check(self) -> None:
        """Nothing to check."""


def a_cell_index(
    store: MemoryStore | None = None,
    passive_max: int = 3,
    *,
    merge_lists: bool = False,
    **retention: int,
) -> CellIndex:
    """A cell index in a store, with limits for stored metadata."""
    broker = BrokerConfig(metadata_only=True, retention=Retention(**retention))
    return CellIndex(store or MemoryStore(), broker, passive_max, merge_lists=merge_lists)


def a_replica_store(store: MemoryStore | None = None, **retention: int) -> ReplicaStore:
    """A replica store in a store, with limits for the replicas."""
    return ReplicaStore(store or MemoryStore(), Retention(**retention))


def cell_requests(routing: RecordingRouting, outbox: Outbox) -> CellRequests:
    """The requests of a node."""
    return CellRequests(routing, outbox, RetryPolicy(), Random(1))


def large_replicas(
    routing: RecordingRouting, outbox: Outbox, replicas: ReplicaStore
) -> LargeReplicas:
    """The large objects of a node that sends whole objects."""
    requests = cell_requests(routing, outbox)
    cache = ChunkCache(store := MemoryStore())
    node_id = NodeId(b"node")
    return LargeReplicas(node_id, routing, outbox, requests, store, cache, replicas, passive=True)


def indexed(number: int = 1, at_us: int | None = None) -> IndexedMetadata:
    """Metadata of photo `number`, published at instant `number`, whose active cell is 5."""
    published_us = number if at_us is None else at_us
    return IndexedMetadata(photo(number, tags=["goal"], at_us=published_us), (Replica(CellId(5)),))
