"""Node composition: creates the components of one Thyme-DCS node and connects them.

Entry point: `NodeParts`, which `DcsNode` creates. The node issues requests through its client
(`client_composition`), serves requests for its cell (`service.cell_service`), and joins the cell
before it serves it (`membership.cell_joining`).
Clauses: D11–D19, D20, D22, D23, B2.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from thyme.model.ids import NodeId
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellState
from thyme.protocol.outbox import Outbox
from thyme.protocol.round_trip import RoundTripTimes
from thyme.routing.cells import CellRoutingUser, Destination
from thyme.storage.store import RecordTable, Store
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.common.broker import SUBSCRIPTIONS
from thyme.substrates.common.catalogue import OBJECTS
from thyme.substrates.common.notification_gaps import GAPS
from thyme.substrates.common.quotas import PEER_USAGE
from thyme.substrates.common.world_lifetime import WorldLifetime
from thyme.substrates.dcs.cell_map import CellMap
from thyme.substrates.dcs.client.cell_requests import CellRequests
from thyme.substrates.dcs.client.copy_confirmation import ReplicaConfirmer
from thyme.substrates.dcs.client.deletion_log import DeletionLog
from thyme.substrates.dcs.client.large_replicas import FETCHED_REPLICAS, LargeReplicas
from thyme.substrates.dcs.client.neighbour_replicas import NeighbourReplicas
from thyme.substrates.dcs.client_composition import ClientParts
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.extension import NodeExtension
from thyme.substrates.dcs.membership.cell_joining import CellJoining
from thyme.substrates.dcs.membership.membership import CellMembership
from thyme.substrates.dcs.membership.position_filter import PositionFilter
from thyme.substrates.dcs.robust.anti_entropy import AntiEntropy
from thyme.substrates.dcs.robust.replica_upkeep import ReplicaUpkeep
from thyme.substrates.dcs.service.cell_service import CellService
from thyme.substrates.dcs.state.cell_index import SUBSCRIBER_CELLS, CellIndex
from thyme.substrates.dcs.state.cell_state import MergeResult
from thyme.substrates.dcs.state.proxied_cells import PROXIED_CELLS
from thyme.substrates.dcs.state.replica_store import ReplicaRole, ReplicaStore
from thyme.substrates.dcs.state.replication_lists import REPLICATION_LISTS
from thyme.substrates.dcs.state.small_objects import SmallObjects
from thyme.substrates.dcs.state.stored_cell import STORED_CELL, StoredCell

_CELL_TABLES: tuple[RecordTable[Any], ...] = (
    OBJECTS,
    PEER_USAGE,
    SUBSCRIPTIONS,
    REPLICATION_LISTS,
    SUBSCRIBER_CELLS,
    PROXIED_CELLS,
    GAPS,
    FETCHED_REPLICAS,
)


class NodeParts:
    """The components of one node."""

    def __init__(
        self,
        node_id: NodeId,
        cell: CellId,
        cell_map: CellMap,
        store: Store,
        rng: Random,
        config: DcsConfig,
        user: CellRoutingUser,
        join_at_us: int,
        authenticator: MessageAuthenticator | None,
        extension: NodeExtension | None,
    ) -> None:
        self.cell = cell
        self.store = store
        self.join_at_us = join_at_us
        self.extension = extension
        self.dropped: Counter[str] = Counter() if authenticator is None else authenticator.dropped
        self._settle_us = config.movement.settle_us
        self.outbox = Outbox()
        self.positions = PositionFilter(cell_map, self.outbox, config.movement.noise_m)
        self.routing = cell_map.make_routing(self.outbox, user)
        wait_us_max = config.reply_wait_us_max
        self.round_trips = None if wait_us_max is None else RoundTripTimes(wait_us_max)
        page_round_trips = None if wait_us_max is None else RoundTripTimes(2 * wait_us_max)
        self.requests = CellRequests(
            self.routing,
            self.outbox,
            config.retries,
            rng,
            authenticator,
            self.round_trips,
            page_round_trips,
        )
        names_max = config.replication.beacon_names_max
        self.neighbour_replicas: NeighbourReplicas | None = None
        # Stations count downloads (I5): their nodes do not retrieve from each other unseen.
        if names_max and extension is None:
            self.neighbour_replicas = NeighbourReplicas(self.routing, names_max)
        self._compose_state(node_id, config)
        context = self._make_context(node_id, rng, config)
        self._compose_service(context)
        self.world_lifetime = WorldLifetime(self.outbox, config.world_ends_us)
        self.client = ClientParts(context, authenticator, extension, self.dropped)
        self.membership = CellMembership(
            context,
            self.joining,
            self.service,
            self.client.key_chooser,
            self.client.subscriber,
            self.client.client.on_late_page,
            self._on_settled,
        )
        self.anti_entropy = AntiEntropy(context, self._on_merged) if config.anti_entropy else None
        self.replica_upkeep = ReplicaUpkeep(context)
        self.replica_confirmer = ReplicaConfirmer(context)
        self.large_replicas.on_stored = self.replica_confirmer.on_stored

    def _compose_state(self, node_id: NodeId, config: DcsConfig) -> None:
        """Creates the components that store the objects and the state of the cell."""
        store = self.store
        chunk_cache = ChunkCache(store)
        self.replicas = ReplicaStore(
            store,
            config.retention,
            config.broker.quota,
            chunk_cache if config.in_chunks else None,
        )
        self.large_replicas = LargeReplicas(
            node_id,
            self.routing,
            self.outbox,
            self.requests,
            store,
            chunk_cache,
            self.replicas,
            passive=config.replication.passive,
        )
        self.received_objects = SmallObjects(config.small_object_bytes_max)
        self._drop_foreign_state()
        # Stored records that have expired are removed at `Started`, which brings the time.
        self.index = CellIndex(store, config.broker, merge_lists=config.anti_entropy)

    def _drop_foreign_state(self) -> None:
        """Drops stored state of another cell; own objects and passive replicas stay."""
        store = self.store
        stored = dict(store.load(STORED_CELL)).get("here")
        if stored is not None and stored.cell != self.cell:
            for table in _CELL_TABLES:
                for key, _ in list(store.load(table)):
                    store.remove(table, key)
            self.replicas.remove_role(ReplicaRole.ACTIVE)
        self._set_cell(self.cell)

    def _set_cell(self, cell: CellId) -> None:
        self.cell = cell
        self.store.put(STORED_CELL, "here", StoredCell(cell))
        self.replicas.set_cell(cell)

    def _make_context(self, node_id: NodeId, rng: Random, config: DcsConfig) -> NodeContext:
        return NodeContext(
            node_id=node_id,
            routing=self.routing,
            outbox=self.outbox,
            requests=self.requests,
            store=self.store,
            index=self.index,
            replicas=self.replicas,
            large_replicas=self.large_replicas,
            received_objects=self.received_objects,
            neighbour_replicas=self.neighbour_replicas,
            deletion_log=DeletionLog(self.store, self.requests) if config.reannounce else None,
            round_trips=self.round_trips,
            rng=rng,
            config=config,
        )

    def _compose_service(self, context: NodeContext) -> None:
        """Creates the components that serve the cell, and join it before."""
        self.service = CellService(
            self.routing,
            self.outbox,
            self.index,
            self.replicas,
            self.large_replicas,
            self.store,
            self.requests,
            context.config,
            self.round_trips,
            self._on_subscriber_failed,
            self._on_subscriber_absent,
        )
        self.joining = CellJoining(context, self._on_joined)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        self.index.check()
        self.replicas.check()
        self.requests.check()
        self.service.check()
        self.large_replicas.check()
        self.routing.check()
        self.membership.check()
        self.client.check()
        if self.anti_entropy is not None:
            self.anti_entropy.check()
        if self.neighbour_replicas is not None:
            self.neighbour_replicas.check()

    # Callbacks between components

    def _on_joined(self, now_us: int) -> None:
        """Starts to serve the cell after the join has finished."""
        self.routing.set_cell(self.routing.cell, now_us, serving=True)
        self.membership.on_joined(now_us)

    def _on_settled(self, moved: bool, now_us: int) -> None:
        """Joins the cell in which the device became stationary, possibly another one (D20)."""
        if moved:
            self._set_cell(self.routing.cell)
            self.large_replicas.leave_cell()
        if now_us >= self.join_at_us:
            self.joining.start(now_us, self._settle_us)

    def _on_subscriber_failed(self, subscriber: NodeId, now_us: int) -> None:
        """Has the cell probe a subscriber that could not be notified for too long (D22)."""
        self.membership.on_subscriber_failed(subscriber, now_us)

    def _on_subscriber_absent(self, subscriber: NodeId, cell: CellId) -> None:
        """Drops the subscriptions of a subscriber that did not answer the probes (D22)."""
        self.membership.forget_subscriber(subscriber, cell)

    def _on_merged(
        self, sender: NodeId, state: CellState, result: MergeResult, now_us: int
    ) -> None:
        """Handles records that a cell peer had and this node lacked (B2)."""
        self.service.on_merged(result, now_us)
        for metadata in state.replicated:
            # A replica that was removed here, for its age or for space, is not fetched again.
            known = self.replicas.get(metadata.key) or self.replicas.removal_reason(metadata.key)
            if known is None:
                self.joining.fetch_object(Destination(self.routing.cell, sender), metadata, now_us)
