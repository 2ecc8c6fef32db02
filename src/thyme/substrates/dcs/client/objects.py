"""Object client: insert, delete and lookup in Thyme-DCS; `retrieve` retrieves objects.

The metadata of an object is sent to the cell of each of its tags; the object itself stays in the
owner's cell. Entry point: `DcsObjectClient`.
Clauses: D11, D12, D14, D15, D18, M14, M30, M32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from thyme.model.errors import (
    NotFoundError,
    OperationError,
    OperationTimeoutError,
    RejectedError,
)
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.protocol.app_interface import ALL_NODES, AS_USUAL, LookupResult, StorageOptions
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata, Replica
from thyme.protocol.messages.cells import (
    CellStatus,
    IndexObject,
    IndexSmallObject,
    StoreReplica,
)
from thyme.protocol.messages.requests import DeleteObject, FetchStatus
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.routing.cells import Destination
from thyme.substrates.common.catalogue import DELETED, EVICTED, EXPIRED, THERE, UNKNOWN
from thyme.substrates.common.client_interfaces import Guarantees
from thyme.substrates.dcs.client.cell_requests import Replies
from thyme.substrates.dcs.client.copy_confirmation import CopyConfirmer
from thyme.substrates.dcs.client.deletion_log import Deletion, PendingDeletes
from thyme.substrates.dcs.client.insert_pacing import InsertPacer
from thyme.substrates.dcs.client.key_choice import KeyChooser
from thyme.substrates.dcs.client.replica_announcements import Announcer, tag_cells
from thyme.substrates.dcs.client.replica_locations import ReplicaLocations
from thyme.substrates.dcs.client.retrieve import Retriever
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.state.replica_store import ReplicaRole, StoredReplica

WhenAcknowledged = Callable[[Callable[[int], None], int], None]
"""Calls a function once enough nodes have acknowledged a broadcast: at once, or later."""
_LOOKUP_CELLS_MAX = 16
_STATE_PRIORITY = (THERE, DELETED, EXPIRED, EVICTED, UNKNOWN)
"""Which state of a key is reported if cells answer differently: the first of these."""


class DcsObjectClient:
    """The `ObjectClient` of a Thyme-DCS node."""

    def __init__(
        self,
        context: NodeContext,
        key_chooser: KeyChooser,
        replica_locations: ReplicaLocations,
        announcer: Announcer,
    ) -> None:
        self._node_id = context.node_id
        self._routing = context.routing
        self._requests = context.requests
        self._key_chooser = key_chooser
        self._replicas = context.replicas
        self._received_objects = context.received_objects
        self._replica_locations = replica_locations
        self._rng = context.rng
        self._config = context.config
        self._retriever = Retriever(
            context.node_id,
            context.routing,
            context.requests,
            context.replicas,
            context.received_objects,
            replica_locations,
            context.config.retries,
            context.config.replication,
            announcer,
            context.neighbour_replicas,
        )
        self._copy_confirmer = CopyConfirmer(context)
        pacing = context.config.insert_pacing
        self.insert_pacer = None if pacing is None else InsertPacer(context.outbox, pacing)
        self._durable_store = context.store.durable
        self._deletion_log = context.deletion_log
        self._pending_deletes = PendingDeletes(context.store)

    def guarantees(self) -> Guarantees:
        """The guarantees that this node can give for an insert now: a copy for each node of its
        cell; durable if it stores objects on disk and indexes them again whatever the tag cells
        lose (M30)."""
        nodes = 1 + len(self._routing.nodes_in(self._routing.cell))
        durable_reason = "this node stores its data in memory"
        if self._durable_store:
            durable_reason = "nodes of this world do not index their objects again after a crash"
        return Guarantees(
            copies_max=nodes,
            copies_reason=f"the cell of this node has {nodes} node{'s' * (nodes > 1)} now",
            durable=self._durable_store and self._deletion_log is not None,
            durable_reason=durable_reason,
            replicates=True,
        )

    def insert(
        self,
        metadata: Metadata,
        data: bytes,
        now_us: int,
        on_result: OnResult[object],
        options: StorageOptions = AS_USUAL,
    ) -> None:
        """Inserts an object, or has it wait while the channel is busy (D28)."""
        pacer = self.insert_pacer
        if pacer is None:
            self._insert(metadata, data, now_us, on_result, options)
            return

        def start(started_us: int) -> None:
            def on_inserted(result: Result[object], now_us: int) -> None:
                pacer.on_answered(started_us, now_us)
                on_result(result, now_us)

            self._insert(metadata, data, started_us, on_inserted, options)

        def refuse(reason: str, now_us: int) -> None:
            on_result(Failure(RejectedError.code, reason), now_us)

        pacer.admit(start, refuse, now_us)

    def _insert(
        self,
        metadata: Metadata,
        data: bytes,
        now_us: int,
        on_result: OnResult[object],
        options: StorageOptions,
    ) -> None:
        """Stores the object on this node and in its cell, and has the cell of each tag index it
        (D11). Guaranteed copies are confirmed before, so that no reader finds an object without
        them (M30)."""
        active = self._choose_active_replicas(options)
        stored = StoredReplica(metadata, ReplicaRole.OWN, active)
        try:
            self._replicas.add_replica(stored, data, now_us)
            if options.replicas not in (None, ALL_NODES):
                self._replicas.want_replicas(metadata.key, options.replicas)
        except OperationError as error:
            on_result(Failure.from_error(error), now_us)
            return
        when_replicated = self._replicate_in_cell(metadata, data, active, now_us)
        if options.copies == 1:

            def on_indexed(result: Result[object], now_us: int) -> None:
                when_replicated(lambda now_us: on_result(result, now_us), now_us)

            self._index_object(metadata, data, active, now_us, on_indexed)
            return

        def on_copies(result: Result[object], now_us: int) -> None:
            if isinstance(result, Ok):
                stored = self._replicas.get(metadata.key)
                holders = stored.active if stored else active
                self._index_object(metadata, data, holders, now_us, on_result)
                return
            self._replicas.remove_without_tombstone(metadata.key)
            forget = DeleteObject(self._requests.next_id(), metadata.key)
            here = Destination(self._routing.cell)
            self._requests.send_requests({here: forget}, now_us, lambda *_: None)
            on_result(result, now_us)

        self._copy_confirmer.start(metadata, data, active, options, now_us, on_copies)

    def _index_object(
        self,
        metadata: Metadata,
        data: bytes,
        active: tuple[Replica, ...],
        now_us: int,
        on_result: OnResult[object],
    ) -> None:
        """Has the cell of each tag index a stored object."""

        def on_replies(result: Result[Replies], now_us: int) -> None:
            # After a timeout some cell may have the metadata and refer readers to this node.
            if isinstance(result, Failure) and result.code != OperationTimeoutError.code:
                self._replicas.remove_without_tombstone(metadata.key)
            on_result(result, now_us)

        request_id, indexed = self._requests.next_id(), IndexedMetadata(metadata, active)
        request = IndexObject(request_id, indexed)
        if self._received_objects.is_small(metadata):
            request = IndexSmallObject(request_id, indexed, data)
        requests = dict.fromkeys(map(Destination, self.tag_cells(metadata)), request)
        self._requests.send_requests(requests, now_us, on_replies)

    def _choose_active_replicas(self, options: StorageOptions) -> tuple[Replica, ...]:
        """The active replicas of a new object: one entry for the whole cell, or one for each chosen
        node (D12, D14)."""
        cell, replication = self._routing.cell, self._config.replication
        others = self._routing.nodes_in(cell)
        is_crowded = 1 + len(others) >= replication.crowded_nodes_min
        replicas_max = replication.active_max if is_crowded else None
        if options.replicas is not None:
            replicas_max = None if options.replicas == ALL_NODES else options.replicas
        if replicas_max is not None:
            replicas_max = max(replicas_max, options.copies)
        if replicas_max is None and (others or self._routing.serving):
            return (Replica(cell),)
        count = len(others) if replicas_max is None else min(replicas_max - 1, len(others))
        chosen = self._rng.sample(others, count)
        return (Replica(cell, self._node_id), *(Replica(cell, node) for node in chosen))

    def _replicate_in_cell(
        self, metadata: Metadata, data: bytes, active: tuple[Replica, ...], now_us: int
    ) -> WhenAcknowledged:
        """Broadcasts the object in the cell, whether all nodes store it or only the chosen ones
        (B6). The result calls a function once another node has acknowledged it, if nodes do."""
        holders = tuple(replica.node for replica in active if replica.node is not None)
        alone = holders == (self._node_id,) or not self._routing.nodes_in(self._routing.cell)
        if alone:
            return lambda callback, now_us: callback(now_us)
        cell = self._routing.cell
        number = self._routing.broadcast_in_cell(StoreReplica(metadata, data, holders), now_us)
        return partial(self._routing.when_broadcast_acknowledged, number, cell)

    def delete(self, key: Key, now_us: int, on_result: OnResult[object]) -> None:
        """Has the metadata and the active replicas removed from their cells (D15)."""
        cells = self._cells_to_delete(key)
        if cells is None:
            state = self._replicas.removal_reason(key) or UNKNOWN
            missing = Failure(NotFoundError.code, f"this node has no object {key} ({state})")
            on_result(Ok(None) if state == DELETED else missing, now_us)
            return
        self._pending_deletes.add(key, Deletion(cells, now_us))
        if self._deletion_log is not None:
            self._deletion_log.add(key, cells, now_us)  # repeats it also if this node restarts

        def on_replies(result: Result[Replies], now_us: int) -> None:
            if isinstance(result, Ok):
                self._pending_deletes.remove(key)
                if self._deletion_log is not None:
                    self._deletion_log.add(key, cells, now_us)
                self._replicas.remove_with_tombstone(key, DELETED, now_us)
            on_result(result, now_us)

        request = DeleteObject(self._requests.next_id(), key)
        requests = dict.fromkeys(map(Destination, cells), request)
        self._requests.send_requests(requests, now_us, on_replies)

    def _cells_to_delete(self, key: Key) -> tuple[CellId, ...] | None:
        """The cells that must know that an own object is deleted; None if there is no such object,
        or if all of them know already."""
        if (pending := self._pending_deletes.get(key)) is not None:
            return pending.cells
        stored = self._replicas.get(key)
        if stored is None or stored.role is not ReplicaRole.OWN:
            return None
        active_cells = [replica.cell for replica in stored.active]
        return tuple(dict.fromkeys([*self.tag_cells(stored.metadata), *active_cells]))

    def retrieve(self, metadata: Metadata, now_us: int, on_result: OnResult[bytes]) -> None:
        self._retriever.start(metadata, now_us, on_result)

    def look_up(self, key: Key, now_us: int, on_result: OnResult[LookupResult]) -> None:
        """Requests the state of a key from the cell of one of its tags, if this node knows the
        tags; else from the cells of its own subscriptions: an object that none of these knows
        matches none of the subscriptions."""
        cached, stored = self._replica_locations.get(key), self._replicas.get(key)
        if cached is not None:
            cells = self.tag_cells(cached.metadata)[:1]
        elif stored is not None:
            cells = self.tag_cells(stored.metadata)[:1]
        else:
            cells = self._key_chooser.all_cells()[:_LOOKUP_CELLS_MAX]

        request = FetchStatus(self._requests.next_id(), key)
        self._requests.send_requests(
            dict.fromkeys(map(Destination, cells), request),
            now_us,
            lambda result, now_us: on_result(result.map(_best_status), now_us),
        )

    def tag_cells(self, metadata: Metadata) -> list[CellId]:
        """The cells that index an object, without duplicates."""
        return tag_cells(self._routing, metadata)


def _best_status(replies: Replies) -> LookupResult:
    """The state of a key, of the states that cells replied with."""
    states = [reply for reply in replies.values() if isinstance(reply, CellStatus)]
    states = [reply for reply in states if reply.state in _STATE_PRIORITY]
    best = min(states, key=lambda reply: _STATE_PRIORITY.index(reply.state), default=None)
    if best is None:
        return LookupResult(UNKNOWN)
    return LookupResult(best.state, None if best.indexed is None else best.indexed.metadata)
