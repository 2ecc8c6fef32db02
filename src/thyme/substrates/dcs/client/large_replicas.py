"""Large replicas: objects in chunks that a node of Thyme-DCS fetches, serves and stores.

A large object is announced by its metadata, whose digest is the root of its chunks; each node that
is to store it fetches the chunks from all nodes that have some, over routed cells. A fetch that is
not complete is recorded in the store, so it goes on after a restart. A node that retrieved all
chunks is a passive replica. Entry points: `LargeReplicas.store`, for replicas, and
`ReplicaLocator`, for the application's inserts and retrieves.
Clauses: D11, D13, D18, M37.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from thyme.model.errors import NotFoundError, OperationError
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Metadata
from thyme.model.time_frames import SECOND_US
from thyme.protocol import app_interface as app
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata, Replica
from thyme.protocol.messages.cells import AnnounceReplica
from thyme.protocol.messages.chunks import (
    ChunkHolder,
    ChunkReply,
    ChunkRequest,
    FetchChunkList,
    StoredChunks,
)
from thyme.protocol.outbox import Outbox
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.routing.cells import CellRouting, Delivery, Destination
from thyme.storage.store import RecordTable, Store
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.chunks.fetcher import ChunkFetcher
from thyme.substrates.chunks.service import ChunkService
from thyme.substrates.dcs.client.cell_requests import CellRequests, Replies
from thyme.substrates.dcs.client.replica_locations import ReplicaLocations, fetch_replication_list
from thyme.substrates.dcs.state.replica_store import ReplicaRole, ReplicaStore, StoredReplica

_RETRY_US = 15 * SECOND_US
_FIRST_RETRY_US = 3 * SECOND_US
"""A node that starts waits this long for beacons before it goes on to fetch."""
_FAILURES_MAX = 20
"""How often a fetch of a replica may fail in a row."""
_CELL_HOLDERS_MAX = 16


class FetchedReplica(msgspec.Struct, frozen=True, array_like=True):
    """A replica whose chunks are being fetched."""

    stored: StoredReplica
    announced: bool
    """Whether it is announced to the tag cells when it is complete."""


FETCHED_REPLICAS = RecordTable("replica being fetched", FetchedReplica)


class FetchReplicaTimer(msgspec.Struct, frozen=True):
    """Time to fetch a replica again."""

    key: Key


@dataclass(slots=True)
class _Fetch:
    replica: FetchedReplica
    failures: int = 0
    active: bool = True


class LargeReplicas:
    """The large objects that one node stores, or is going to."""

    def __init__(
        self,
        node_id: NodeId,
        routing: CellRouting,
        outbox: Outbox,
        requests: CellRequests,
        store: Store,
        cache: ChunkCache,
        replicas: ReplicaStore,
        *,
        passive: bool,
    ) -> None:
        self._node_id = node_id
        self._routing = routing
        self._outbox = outbox
        self._store = store
        self._replicas = replicas
        self._passive = passive
        self.cache = cache
        self._service = ChunkService(cache)
        self.fetcher = ChunkFetcher(node_id, cache, outbox, requests.next_id, self._send)
        self.fetcher.on_complete = self._on_complete
        cache.is_in_use = self._is_in_use
        self._fetches: dict[Key, _Fetch] = {}
        self.on_stored: Callable[[Key, int], None] = lambda key, now_us: None
        """Called when a replica is stored."""
        self.rejected = 0

    def start(self, now_us: int) -> None:
        """Goes on with the fetches of an earlier process."""
        for _, replica in self._store.load(FETCHED_REPLICAS):
            key = replica.stored.metadata.key
            self._fetches[key] = _Fetch(replica, active=False)
            self._outbox.set_timer(FetchReplicaTimer(key), now_us + _FIRST_RETRY_US)

    def store(
        self,
        stored: StoredReplica,
        data: bytes,
        sources: Iterable[ChunkHolder],
        now_us: int,
        *,
        announced: bool = False,
    ) -> None:
        """Stores a replica of an object that another node sent, as a whole or to be fetched in
        chunks; raises why it is rejected."""
        metadata = stored.metadata
        if not self._replicas.is_in_chunks(metadata, data):
            self._replicas.add_replica(stored, data, now_us)
            self._on_stored(metadata, announced, now_us)
            return
        self._replicas.check_acceptable(stored, now_us)
        if metadata.key in self._fetches:
            self.fetcher.add_holders(metadata.digest, sources, now_us)
            return
        replica = FetchedReplica(stored, announced)
        self._store.put(FETCHED_REPLICAS, str(metadata.key), replica)
        fetch = self._fetches[metadata.key] = _Fetch(replica)
        self._fetch_chunks(fetch, sources, now_us)

    def leave_cell(self) -> None:
        """Gives up the fetches for the cell that this node leaves; chunks that arrived stay while
        there is space."""
        for key in list(self._fetches):
            self._end_fetch(key)

    def on_timer(self, timer: FetchReplicaTimer, now_us: int) -> None:
        """Fetches a replica again, from all nodes that may have it by now."""
        fetch = self._fetches.get(timer.key)
        if fetch is None or fetch.active:
            return
        stored = fetch.replica.stored
        try:
            self._replicas.check_acceptable(stored, now_us)
        except OperationError:  # deleted or expired meanwhile
            self._give_up(fetch)
            return
        cell = self._routing.cell
        listed = [replica for replica in stored.active if replica.node is not None]
        sources = [ChunkHolder(node, cell) for node in self._routing.nodes_in(cell)]
        sources += [ChunkHolder(replica.node, replica.cell) for replica in listed if replica.node]
        sources.append(ChunkHolder(stored.metadata.owner, cell))
        fetch.active = True
        self._fetch_chunks(fetch, sources, now_us)

    def _fetch_chunks(self, fetch: _Fetch, sources: Iterable[ChunkHolder], now_us: int) -> None:
        metadata = fetch.replica.stored.metadata
        missing = self.cache.missing_indexes(metadata)
        if not missing:
            self._finish(fetch, now_us)
            return

        def on_chunk(result: Result[None], now_us: int) -> None:
            if isinstance(result, Failure) and fetch.active:
                self._on_failure(fetch, now_us)

        self.fetcher.fetch(metadata, missing, sources, now_us, on_chunk)

    def _on_failure(self, fetch: _Fetch, now_us: int) -> None:
        fetch.active = False
        fetch.failures += 1
        if fetch.failures > _FAILURES_MAX:
            self._give_up(fetch)
        else:
            key = fetch.replica.stored.metadata.key
            self._outbox.set_timer(FetchReplicaTimer(key), now_us + _RETRY_US)

    def _on_complete(self, metadata: Metadata, now_us: int) -> None:
        """Stores the replicas whose last chunk has arrived; without any, the application retrieved
        the object, and this node is a passive replica (D13)."""
        fetches = [
            fetch
            for fetch in self._fetches.values()
            if fetch.replica.stored.metadata.digest == metadata.digest
        ]
        for fetch in fetches:
            self._finish(fetch, now_us)
        if not fetches and self._passive and self._replicas.get(metadata.key) is None:
            self._add(StoredReplica(metadata, ReplicaRole.PASSIVE), now_us, announced=True)

    def _finish(self, fetch: _Fetch, now_us: int) -> None:
        replica = fetch.replica
        self._end_fetch(replica.stored.metadata.key)
        self._add(replica.stored, now_us, announced=replica.announced)

    def _add(self, stored: StoredReplica, now_us: int, *, announced: bool) -> None:
        try:
            self._replicas.add_replica(stored, b"", now_us)
        except OperationError:
            self.rejected += 1
            self.cache.discard_unused(stored.metadata.digest)
            return
        self._on_stored(stored.metadata, announced, now_us)

    def _on_stored(self, metadata: Metadata, announced: bool, now_us: int) -> None:
        if announced:
            cells = dict.fromkeys(map(self._routing.cell_of_key, metadata.tags))
            targets = [Destination(cell) for cell in cells]
            self._routing.send(targets, AnnounceReplica(metadata.key), now_us)
        self.on_stored(metadata.key, now_us)

    def _give_up(self, fetch: _Fetch) -> None:
        metadata = fetch.replica.stored.metadata
        self._end_fetch(metadata.key)
        self.rejected += 1
        self.cache.discard_unused(metadata.digest)

    def _end_fetch(self, key: Key) -> None:
        del self._fetches[key]
        self._outbox.cancel_timer(FetchReplicaTimer(key))
        self._store.remove(FETCHED_REPLICAS, str(key))

    def _is_in_use(self, digest: bytes) -> bool:
        metadata = (fetch.replica.stored.metadata for fetch in self._fetches.values())
        return self.fetcher.is_active(digest) or any(m.digest == digest for m in metadata)

    # Messages

    def _send(self, holder: ChunkHolder, message: ChunkRequest, now_us: int) -> None:
        cell = self._routing.cell if holder.cell is None else holder.cell
        self._routing.send([Destination(cell, holder.node)], message, now_us)

    def on_request(self, delivery: Delivery, request: ChunkRequest, now_us: int) -> None:
        """Answers for the chunks of this node."""
        asker = ChunkHolder(delivery.origin, delivery.origin_cell)
        reply = self._service.answer(asker, request, now_us)
        self._routing.send([Destination(delivery.origin_cell, delivery.origin)], reply, now_us)

    def list_cell_nodes(
        self, delivery: Delivery, request: FetchChunkList, now_us: int
    ) -> StoredChunks:
        """Names the nodes of this cell, each of which may have chunks."""
        cell = self._routing.cell
        nodes = [self._node_id, *self._routing.nodes_in(cell)][:_CELL_HOLDERS_MAX]
        holders = tuple(ChunkHolder(node, cell) for node in nodes)
        return StoredChunks(request.request_id, b"", b"\0", holders)

    def on_reply(self, delivery: Delivery, reply: ChunkReply, now_us: int) -> None:
        """Handles the chunks of a holder."""
        self.fetcher.on_reply(delivery.origin, reply, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self.fetcher.check()


InsertObject = Callable[[Metadata, bytes, int, OnResult[object], app.StorageOptions], None]


class ReplicaLocator:
    """Inserts large objects, and finds the nodes that have their chunks; a `ChunkLocator`."""

    def __init__(
        self,
        routing: CellRouting,
        requests: CellRequests,
        replica_locations: ReplicaLocations,
        fetcher: ChunkFetcher,
        insert_object: InsertObject,
    ) -> None:
        self._routing = routing
        self._requests = requests
        self._replica_locations = replica_locations
        self._fetcher = fetcher
        self._insert_object = insert_object
        fetcher.locate_again = self._locate_again

    def insert(
        self,
        metadata: Metadata,
        now_us: int,
        on_result: OnResult[object],
        options: app.StorageOptions = app.AS_USUAL,
    ) -> None:
        """Inserts an object whose chunks are in the cache."""
        self._insert_object(metadata, b"", now_us, on_result, options)

    def locate(
        self, metadata: Metadata, now_us: int, on_result: OnResult[tuple[ChunkHolder, ...]]
    ) -> None:
        """Finds the nodes in the object's replication list; if the tag's cell does not answer, in
        the list that came with the notification."""

        def on_list(result: Result[IndexedMetadata], now_us: int) -> None:
            indexed = self._replica_locations.get(metadata.key)
            if isinstance(result, Ok):
                indexed = result.value
            if indexed is not None:
                self._find_nodes(indexed, now_us, on_result)
            elif isinstance(result, Failure):
                on_result(result, now_us)

        fetch_replication_list(
            self._routing, self._requests, self._replica_locations, metadata, now_us, on_list
        )

    def _find_nodes(
        self,
        indexed: IndexedMetadata,
        now_us: int,
        on_result: OnResult[tuple[ChunkHolder, ...]],
    ) -> None:
        """Asks the cells in a replication list for their nodes."""
        metadata = indexed.metadata
        replicas: tuple[Replica, ...] = (*indexed.active, *indexed.passive)
        holders = [ChunkHolder(one.node, one.cell) for one in replicas if one.node is not None]
        cells: dict[CellId, None] = dict.fromkeys(one.cell for one in replicas if one.node is None)

        def on_replies(result: Result[Replies], now_us: int) -> None:
            for reply in result.value.values() if isinstance(result, Ok) else ():
                if isinstance(reply, StoredChunks):
                    holders.extend(reply.others)
            holders.extend(ChunkHolder(metadata.owner, cell) for cell in cells)
            found = tuple({holder.node: holder for holder in reversed(holders)}.values())
            if found:
                on_result(Ok(found), now_us)
            else:
                detail = f"no replica of {metadata.key} is known"
                on_result(Failure(NotFoundError.code, detail), now_us)

        request = FetchChunkList(self._requests.next_id(), metadata.digest, with_digests=False)
        requests = dict.fromkeys(map(Destination, cells), request)
        self._requests.send_requests(requests, now_us, on_replies, tries_max=3)

    def _locate_again(self, metadata: Metadata, now_us: int) -> None:
        def on_located(result: Result[tuple[ChunkHolder, ...]], now_us: int) -> None:
            if isinstance(result, Ok):
                self._fetcher.add_holders(metadata.digest, result.value, now_us)

        self.locate(metadata, now_us, on_located)
