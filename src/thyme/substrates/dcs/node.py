"""Thyme-DCS node: composes the components of one node and dispatches inputs and messages to them.

Entry point: `DcsNode.handle`. Cell routing, below, delivers messages to this node or its cell and
sends its own messages. The node issues requests through its client (`client.objects`,
`client.key_cell_brokers`), serves requests for its cell (`service.cell_service`), and joins the
cell before it serves it (`membership.cell_joining`).
Clauses: D11–D19, D23, M21, M24, M34, M37.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import Any, assert_never

from msgspec.structs import replace

from thyme.model.ids import NodeId
from thyme.model.tags import Tag
from thyme.protocol.app_interface import Insert, InsertBatch
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import chunks as chunk_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.node import (
    Action,
    AppRequested,
    ClocksCompared,
    Input,
    Leaving,
    PositionChanged,
    Received,
    SendFailed,
    Started,
    TimerFired,
)
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import BeaconReceived, Delivery, DeliveryFailure, Destination
from thyme.storage.store import RecordTable, Store
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.chunks.fetcher import ChunkTransferTimer
from thyme.substrates.chunks.large_objects import LargeObjects
from thyme.substrates.common.broker import SUBSCRIPTIONS
from thyme.substrates.common.catalogue import OBJECTS
from thyme.substrates.common.client import Client
from thyme.substrates.common.client_interfaces import BrokerClient, ObjectClient
from thyme.substrates.common.gap_reader import GapReader, GapRetryTimer
from thyme.substrates.common.notification_gaps import GAPS, GapTimer, GapUpkeepTimer
from thyme.substrates.common.quotas import PEER_USAGE
from thyme.substrates.common.subscriber import FrameEndTimer, Subscriber
from thyme.substrates.common.world_lifetime import WorldEndTimer, WorldLifetime
from thyme.substrates.dcs.cell_map import CellMap
from thyme.substrates.dcs.client.cell_requests import (
    CellRequests,
    CellRequestTimer,
    missed_pages_from_cells,
)
from thyme.substrates.dcs.client.copy_confirmation import ReplicaConfirmer
from thyme.substrates.dcs.client.deletion_log import DeletionLog
from thyme.substrates.dcs.client.insert_pacing import InsertPacingTimer
from thyme.substrates.dcs.client.key_cell_brokers import KeyCellBrokers
from thyme.substrates.dcs.client.key_choice import KeyChooser
from thyme.substrates.dcs.client.large_replicas import (
    FETCHED_REPLICAS,
    FetchReplicaTimer,
    LargeReplicas,
    ReplicaLocator,
)
from thyme.substrates.dcs.client.notification_receiver import AckTimer, NotificationReceiver
from thyme.substrates.dcs.client.objects import DcsObjectClient
from thyme.substrates.dcs.client.replica_announcements import (
    AnnouncementTimer,
    PromptAnnouncer,
    SparingAnnouncer,
)
from thyme.substrates.dcs.client.replica_locations import ReplicaLocations
from thyme.substrates.dcs.client.tag_popularity import TagPopularity
from thyme.substrates.dcs.config import DcsConfig, KeyChoice
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.dispatch import HandlerTable
from thyme.substrates.dcs.extension import NodeExtension
from thyme.substrates.dcs.membership.cell_joining import CellJoining, CellJoinPhase, CellJoinTimer
from thyme.substrates.dcs.membership.membership import CellMembership
from thyme.substrates.dcs.membership.position_filter import LeaveCellTimer, PositionFilter
from thyme.substrates.dcs.robust.anti_entropy import AntiEntropy, AntiEntropyTimer
from thyme.substrates.dcs.robust.replica_upkeep import ReplicaUpkeep, ReplicaUpkeepTimer
from thyme.substrates.dcs.service.cell_service import CellService, ExpiryTimer
from thyme.substrates.dcs.service.notification_delivery import (
    AggregationTimer,
    NotificationRetryTimer,
)
from thyme.substrates.dcs.state.cell_digest import DIGEST_BYTES
from thyme.substrates.dcs.state.cell_index import SUBSCRIBER_CELLS, CellIndex
from thyme.substrates.dcs.state.cell_state import MergeResult
from thyme.substrates.dcs.state.proxied_cells import PROXIED_CELLS
from thyme.substrates.dcs.state.replica_store import ReplicaRole, ReplicaStore
from thyme.substrates.dcs.state.replication_lists import REPLICATION_LISTS
from thyme.substrates.dcs.state.stored_cell import STORED_CELL, DelayedJoinTimer, StoredCell

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


class DcsNode:
    """One node of a Thyme-DCS world."""

    def __init__(
        self,
        node_id: NodeId,
        cell: CellId,
        cell_map: CellMap,
        store: Store,
        rng: Random,
        config: DcsConfig,
        *,
        join_at_us: int = 0,
        authenticator: MessageAuthenticator | None = None,
        extension: NodeExtension | None = None,
    ) -> None:
        """Until `join_at_us` the node receives beacons but does not join its cell."""
        self.extension = extension
        self._node_id = node_id
        self._cell = cell
        self._cell_map = cell_map
        self._store = store
        self._authenticator = authenticator
        self.dropped: Counter[str] = Counter() if authenticator is None else authenticator.dropped
        self._join_at_us = join_at_us
        self._settle_us = config.movement.settle_us
        self._started_us = 0
        self._outbox = outbox = Outbox()
        self._positions = PositionFilter(cell_map, outbox, config.movement.noise_m)
        self._inbox: deque[Delivery | DeliveryFailure] = deque()
        self.routing = routing = cell_map.make_routing(outbox, self)
        self.requests = requests = CellRequests(routing, outbox, config.retries, rng, authenticator)
        chunk_cache = ChunkCache(store)
        self.replicas = ReplicaStore(
            store,
            config.retention,
            config.broker.quota,
            chunk_cache if config.in_chunks else None,
        )
        self.large_replicas = LargeReplicas(
            node_id,
            routing,
            outbox,
            requests,
            store,
            chunk_cache,
            self.replicas,
            passive=config.replication.passive,
        )
        self._drop_foreign_state(store)
        # Stored records that have expired are removed at `Started`, which brings the time.
        self.index = CellIndex(store, config.broker, merge_lists=config.anti_entropy)
        context = NodeContext(
            node_id=node_id,
            routing=routing,
            outbox=outbox,
            requests=requests,
            store=store,
            index=self.index,
            replicas=self.replicas,
            large_replicas=self.large_replicas,
            deletion_log=DeletionLog(store, requests) if config.reannounce else None,
            rng=rng,
            config=config,
        )
        self.service = CellService(
            routing,
            outbox,
            self.index,
            self.replicas,
            self.large_replicas,
            store,
            config,
            self._on_subscriber_failed,
            self._on_subscriber_absent,
        )
        self.joining = CellJoining(context, self._on_joined)
        self._world_lifetime = WorldLifetime(outbox, config.world_ends_us)
        self._compose_client(context)
        self.membership = CellMembership(
            context,
            self.joining,
            self.service,
            self._key_chooser,
            self.subscriber,
            self._client.on_late_page,
            self._on_settled,
        )
        self.anti_entropy = AntiEntropy(context, self._on_merged) if config.anti_entropy else None
        self.replica_upkeep = ReplicaUpkeep(context)
        self._replica_confirmer = ReplicaConfirmer(context)
        self.large_replicas.on_stored = self._replica_confirmer.on_stored
        self._handlers = self._make_handlers()
        if extension is not None:
            extension.add_handlers(self._handlers, self.service)

    def _compose_client(self, context: NodeContext) -> None:
        """Creates the components that carry out the application's requests."""
        node_id, store, rng, config = context.node_id, context.store, context.rng, context.config
        signer = None if self._authenticator is None else self._authenticator.signer
        self.subscriber = Subscriber(node_id, context.outbox, store, config.subscriber, signer)
        self._replica_locations = ReplicaLocations()
        self._limits = config.limits
        self._tag_popularity = TagPopularity()
        self._key_choice = config.key_choice
        self._key_chooser = KeyChooser(
            store,
            rng,
            config.key_choice,
            self.routing.cell_of_key,
            self._key_cost,
        )
        self.announcer: SparingAnnouncer | None = None
        # Stations count downloads by announcements (I5): their nodes announce every replica.
        if config.replication.announcements is not None and self.extension is None:
            self.announcer = SparingAnnouncer(
                context, self._replica_locations, config.replication.announcements
            )
        dcs_objects = DcsObjectClient(
            context,
            self._key_chooser,
            self._replica_locations,
            self.announcer or PromptAnnouncer(self.routing),
        )
        self.insert_pacer = dcs_objects.insert_pacer
        objects: ObjectClient = dcs_objects
        brokers: BrokerClient = KeyCellBrokers(
            self.requests, self._key_chooser, self._replica_locations, self.subscriber
        )
        if self.extension is not None:
            objects, brokers = self.extension.extend_client(
                context, objects, brokers, self._replica_locations
            )
        self._gap_reader = GapReader(
            self.subscriber,
            context.outbox,
            self.requests.next_id,
            missed_pages_from_cells(self.requests),
        )
        self._client = Client(
            node_id,
            objects,
            brokers,
            context.outbox,
            self.subscriber,
            rng,
            config.limits,
            dcs_objects.guarantees,
            self._gap_reader,
            signer,
            self._make_large_objects(dcs_objects) if config.in_chunks else None,
        )
        self._notifications = NotificationReceiver(
            self.routing,
            context.outbox,
            self._client,
            self.subscriber,
            self._replica_locations,
            self.dropped,
            config.notification_delivery.ack_delay_us,
        )

    def _make_large_objects(self, objects: DcsObjectClient) -> LargeObjects:
        """Creates the component for objects in chunks (M37)."""
        large = self.large_replicas
        locator = ReplicaLocator(
            self.routing, self.requests, self._replica_locations, large.fetcher, objects.insert
        )
        return LargeObjects(large.cache, large.fetcher, locator, self._limits)

    def _drop_foreign_state(self, store: Store) -> None:
        """Drops stored state of another cell; own objects and passive replicas stay."""
        stored = dict(store.load(STORED_CELL)).get("here")
        if stored is not None and stored.cell != self._cell:
            for table in _CELL_TABLES:
                for key, _ in list(store.load(table)):
                    store.remove(table, key)
            self.replicas.remove_role(ReplicaRole.ACTIVE)
        store.put(STORED_CELL, "here", StoredCell(self._cell))
        self.replicas.set_cell(self._cell)

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    @property
    def broker_subscriptions(self) -> int:
        """The number of active subscriptions stored on this node."""
        return self.index.broker.subscription_count

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Processes one input at its instant; returns the actions to carry out, in order."""
        if isinstance(event, Received):
            if not self.routing.on_received(event.sender, event.message, now_us):
                self._on_other_message(event.sender, event.message, now_us)
            changed = False
        else:
            self._dispatch(event, now_us)
            changed = not isinstance(event, SendFailed)
        # Most inputs are beacons and messages to forward, which do not change this node's state.
        if changed or self._inbox:
            self._process_inbox(now_us)
            self.service.set_expiry_timer()
        return self._outbox.drain_actions()

    def _on_other_message(self, sender: NodeId, message: wire.Message, now_us: int) -> None:
        """Passes a message that is not of cell routing to the extension."""
        extension = self.extension
        if extension is None or not extension.on_received(sender, message, now_us):
            self.dropped["not spoken here"] += 1

    def _process_inbox(self, now_us: int) -> None:
        while self._inbox:
            queued = self._inbox.popleft()
            if isinstance(queued, Delivery):
                self._process_delivery(queued, now_us)
            else:
                self._process_failure(queued, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        parts = (
            self.subscriber,
            self.index,
            self.replicas,
            self.requests,
            self.service.notification_delivery,
            self._gap_reader,
            self.large_replicas,
        )
        for part in (*parts, self.routing, self.membership):
            part.check()
        if self.anti_entropy is not None:
            self.anti_entropy.check()
        if self.announcer is not None:
            self.announcer.check()
        if self.insert_pacer is not None:
            self.insert_pacer.check()
        assert not self._inbox

    def _dispatch(
        self,
        event: Started
        | AppRequested
        | TimerFired
        | SendFailed
        | Leaving
        | PositionChanged
        | ClocksCompared,
        now_us: int,
    ) -> None:
        match event:
            case Started():
                self.index.broker.expire(now_us)
                self.replicas.expire(now_us)
                self.service.notification_delivery.gaps.start(now_us)
                self.subscriber.set_frame_end_timers()
                self._world_lifetime.set_timer()
                self.replica_upkeep.schedule_round(now_us)
                self.large_replicas.start(now_us)
                self.routing.start(self._cell, now_us, serving=False)
                self.membership.start(self._cell)
                if self.extension is not None:
                    self.extension.start(now_us)
                self._started_us = now_us
                if now_us < self._join_at_us:
                    self._outbox.set_timer(DelayedJoinTimer(), self._join_at_us)
                else:
                    self.joining.start(now_us)
            case AppRequested():
                request = event.request
                inserts = request.inserts if isinstance(request, InsertBatch) else (request,)
                for insert in inserts:
                    if isinstance(insert, Insert):
                        self._tag_popularity.add_tags(insert.tags)
                if not self._world_lifetime.reject_if_ended(event.request, now_us):
                    self._client.on_request(event.request, now_us)
            case TimerFired():
                self._on_timer(event, now_us)
            case SendFailed():
                taken = self.routing.on_send_failed(event.to, event.message, now_us)
                if not taken and self.extension is not None:
                    self.extension.on_send_failed(event.to, event.message, now_us)
            case PositionChanged():
                filtered = self._positions.on_position(event.position, self.routing.cell, now_us)
                self.membership.on_moved(filtered.cell, now_us, displaced=filtered.displaced)
            case ClocksCompared():
                self.index.broker.set_clock_ahead(event.ahead_us)
            case Leaving():
                self.membership.on_leaving(now_us)
            case _:
                assert_never(event)

    def _on_timer(self, event: TimerFired, now_us: int) -> None:
        match event.timer:
            case CellRequestTimer():
                self.requests.on_timer(event.timer, now_us)
            case FrameEndTimer():
                self.subscriber.on_frame_end(event.timer.sid, now_us)
            case ExpiryTimer():
                self.service.on_expiry_timer(now_us)
            case NotificationRetryTimer():
                self.service.notification_delivery.on_timer(event.timer, now_us)
            case GapTimer():
                self.service.notification_delivery.gaps.on_timer(event.timer, now_us)
            case GapUpkeepTimer():
                self.service.notification_delivery.gaps.on_upkeep_timer(now_us)
            case GapRetryTimer():
                self._gap_reader.on_retry_timer(event.timer, now_us)
            case AckTimer():
                self._notifications.send_acks(now_us)
            case AnnouncementTimer() if self.announcer is not None:
                self.announcer.send_waiting(now_us)
            case InsertPacingTimer() if self.insert_pacer is not None:
                self.insert_pacer.on_timer(now_us)
            case AggregationTimer():
                self.service.notification_delivery.flush(now_us)
            case ChunkTransferTimer():
                self.large_replicas.fetcher.on_timer(event.timer, now_us)
            case FetchReplicaTimer():
                self.large_replicas.on_timer(event.timer, now_us)
            case ReplicaUpkeepTimer():
                self.replica_upkeep.on_timer(now_us)
            case AntiEntropyTimer() if self.anti_entropy is not None:
                self.anti_entropy.on_timer(event.timer, now_us)
            case DelayedJoinTimer():
                if not self.membership.movement.is_moving:
                    self.joining.start(now_us, now_us - self._started_us)
            case LeaveCellTimer():
                self.membership.on_moved(self._positions.leave_cell().cell, now_us)
            case CellJoinTimer():
                self.joining.on_timer(now_us)
            case WorldEndTimer():
                self.subscriber.end_all("the life span of its world is over")
            case _:
                timer = event.timer
                taken = self.membership.on_timer(timer, now_us)
                taken = taken or self.routing.on_timer(timer, now_us)
                if not taken and self.extension is not None:
                    self.extension.on_timer(timer, now_us)

    def _on_joined(self, now_us: int) -> None:
        """Starts to serve the cell after the join has finished."""
        self.routing.set_cell(self.routing.cell, now_us, serving=True)
        self.membership.on_joined(now_us)

    def _on_settled(self, moved: bool, now_us: int) -> None:
        """Joins the cell in which the device became stationary, possibly another one (D20)."""
        if moved:
            self._cell = self.routing.cell
            self._store.put(STORED_CELL, "here", StoredCell(self._cell))
            self.replicas.set_cell(self._cell)
            self.large_replicas.leave_cell()
        if now_us >= self._join_at_us:
            self.joining.start(now_us, self._settle_us)

    # Callbacks of cell routing

    def on_delivery(self, delivery: Delivery, now_us: int) -> None:
        """Queues a delivered message; it is processed once the current input has been handled."""
        self._inbox.append(delivery)

    def on_delivery_failure(self, failure: DeliveryFailure, now_us: int) -> None:
        """Queues the failure of a message to a node that was not in its cell."""
        self._inbox.append(failure)

    def on_beacon(self, beacon: BeaconReceived, now_us: int) -> None:
        """Passes a neighbour's beacon to the components that use it."""
        if self.extension is not None:
            own, payload = _split_payload(beacon.payload)
            self.extension.on_beacon(beacon, own, now_us)
            beacon = replace(beacon, payload=payload)
        self.service.notification_delivery.gaps.on_subscriber_active(
            beacon.node, now_us, answered=False
        )
        if self.joining.phase is CellJoinPhase.LISTENING:
            self.joining.on_beacon(beacon, now_us)
        self.membership.on_beacon(beacon, now_us)
        anti_entropy = self.anti_entropy
        if anti_entropy is not None and (
            beacon.cell == self.routing.cell or anti_entropy.is_suspect(beacon.node)
        ):
            anti_entropy.on_beacon(beacon, now_us)

    def beacon_payload(self, now_us: int) -> bytes:
        """The payload of the next beacon: the digest of this node's cell state, and the stamp of
        the latest topology change."""
        payload = b"" if self.anti_entropy is None else self.anti_entropy.beacon_digest(now_us)
        stamp = self.membership.change_stamp
        if stamp and self.routing.serving:
            payload = payload.ljust(DIGEST_BYTES, b"\0") + stamp
        if self.extension is None:
            return payload
        own = self.extension.beacon_part(now_us)
        return bytes((len(own),)) + own + payload

    def is_redundant(self, origin: NodeId, origin_cell: CellId, message: wire.Message) -> bool:
        """Whether a message to the cell contains nothing new for this node."""
        return message.is_redundant(self.index, origin, origin_cell)

    def is_new_payload(self, payload: bytes) -> bool:
        """Whether a beacon's payload reports a topology change that is new to this node."""
        start = DIGEST_BYTES
        if self.extension is not None and payload:
            start += 1 + payload[0]
        return len(payload) > start and payload[start:] != self.membership.change_stamp

    def _key_cost(self, tag: Tag) -> tuple[float, ...]:
        """The cost of a literal as the key of a conjunction: lower is preferred (B10)."""
        if self._key_choice is KeyChoice.FIRST:
            return ()
        key_cell = self.routing.cell_of_key(tag)
        distance = self.routing.distance(self.routing.cell, key_cell)
        if self._key_choice is KeyChoice.NEAREST:
            return (distance,)
        return (self._tag_popularity.count_of(tag), distance)

    def _on_subscriber_failed(self, subscriber: NodeId, now_us: int) -> None:
        """Has the cell probe a subscriber that could not be notified for too long (D22)."""
        self.membership.on_subscriber_failed(subscriber, now_us)

    def _on_subscriber_absent(self, subscriber: NodeId, cell: CellId) -> None:
        """Drops the subscriptions of a subscriber that did not answer the probes (D22)."""
        self.membership.forget_subscriber(subscriber, cell)

    def _on_merged(
        self, sender: NodeId, state: cell_wire.CellState, result: MergeResult, now_us: int
    ) -> None:
        """Handles records that a cell peer had and this node lacked (B2)."""
        self.service.on_merged(result, now_us)
        for metadata in state.replicated:
            # A replica that was removed here, for its age or for space, is not fetched again.
            known = self.replicas.get(metadata.key) or self.replicas.removal_reason(metadata.key)
            if known is None:
                self.joining.fetch_object(Destination(self.routing.cell, sender), metadata, now_us)

    def _process_failure(self, failure: DeliveryFailure, now_us: int) -> None:
        if not (
            self.requests.on_delivery_failure(failure, now_us)
            or self.service.notification_delivery.on_delivery_failure(failure, now_us)
        ):
            self.dropped["answer to nobody"] += 1  # the requester retries

    def _process_delivery(self, delivery: Delivery, now_us: int) -> None:
        message = delivery.message
        if not all(cell in self._cell_map for cell in message.cells_referenced()):
            self.dropped["no such cell"] += 1
            return
        if self._authenticator is not None:
            verified = self._authenticator.verify_message(delivery.origin, message)
            if verified is None:
                return
            if verified is not message:
                delivery = replace(delivery, message=verified)
                message = verified
        if not delivery.is_unicast:
            self.membership.before_cell_message(delivery, now_us)
        handler = self._handlers.find(delivery, self.routing.cell)
        if handler is not None:
            handler(delivery, message, now_us)
        else:
            self.dropped["not for a node" if delivery.is_unicast else "not for a cell"] += 1

    def _make_handlers(self) -> HandlerTable:
        """Names the handlers of all messages that this node accepts, except those of routing."""
        service, membership, anti_entropy = self.service, self.membership, self.anti_entropy
        answering, read_object = service.answering, service.answering(service.read_object)
        table = HandlerTable()
        # Requests (D11–D18)
        table.add(cell_wire.IndexObject, to_cell=answering(service.index_object))
        table.add(wire.DeleteObject, to_cell=answering(service.delete_object))
        table.add(wire.StartSubscription, to_cell=answering(service.start_subscription))
        table.add(wire.StopSubscription, to_cell=answering(service.stop_subscription))
        table.add(wire.FetchPage, to_cell=answering(service.read_page))
        read_missed = answering(service.read_missed)
        table.add(wire.FetchMissed, to_cell=read_missed, to_node=read_missed)
        table.add(wire.FetchStatus, to_cell=answering(service.read_status))
        table.add(wire.FetchObject, to_cell=read_object, to_node=read_object)
        # Replies
        table.add(wire.ReplyFromCell, to_node=self._on_cell_reply)
        table.add(wire.ObjectData, to_node=self.requests.on_node_reply)
        table.add(wire.Refused, to_node=self._on_refused)
        table.add(wire.MissedPage, to_node=self.requests.on_node_reply)
        # Notifications (D17, B3)
        table.add(cell_wire.CellNotify, to_node=self._notifications.on_notify)
        table.add(cell_wire.CellNotifyBatch, to_node=self._notifications.on_notify_batch)
        table.add(wire.Missed, to_node=self._notifications.on_missed)
        table.add(cell_wire.NotifyAck, to_node=service.notification_delivery.on_ack)
        # Replicas (D11–D14, B6)
        table.add(
            cell_wire.StoreReplica, to_cell=self._on_store_replica, to_node=self._on_store_replica
        )
        confirm_replica = service.answering(self._replica_confirmer.confirm_replica)
        table.add(cell_wire.ConfirmReplica, to_node=confirm_replica)
        table.add(wire.Done, to_node=self.requests.on_node_reply)
        table.add(cell_wire.AnnounceReplica, to_cell=service.on_announce_replica)
        table.add(cell_wire.AnnounceReplicas, to_cell=service.on_announce_replicas)
        # Large objects (M37)
        large = self.large_replicas
        list_cell_nodes = answering(large.list_cell_nodes)
        table.add(chunk_wire.FetchChunkList, to_cell=list_cell_nodes, to_node=large.on_request)
        table.add(chunk_wire.FetchChunk, to_node=large.on_request)
        table.add(chunk_wire.StoredChunks, to_node=large.on_reply)
        table.add(chunk_wire.ChunkData, to_node=large.on_reply)
        # Cells whose nodes move, fail or return (D21–D24, B1, B2)
        table.add(cell_wire.LocationUpdate, to_cell=membership.on_location_update)
        table.add(cell_wire.ReindexObjects, to_cell=membership.on_reindex_objects)
        table.add(cell_wire.TransferState, to_cell=membership.on_transfer_state)
        if membership.backups is not None:
            table.add(cell_wire.BackupState, to_cell=membership.backups.on_backup_state)
        table.add(cell_wire.StateTransferred, from_peer=membership.on_state_transferred)
        table.add(cell_wire.SuspectSubscriber, from_peer=membership.on_suspect_subscriber)
        # The state of the own cell (D23, B2)
        table.add(cell_wire.FetchCellState, to_node=self.joining.on_state_request)
        table.add(cell_wire.CellState, to_node=self._on_cell_state)
        if anti_entropy is not None:
            table.add(cell_wire.CellDigest, to_node=anti_entropy.on_digest)
            table.add(cell_wire.CellRecordHashes, to_node=anti_entropy.on_record_hashes)
        return table

    def _on_cell_reply(self, delivery: Delivery, message: wire.ReplyFromCell, now_us: int) -> None:
        reply = message.message
        if isinstance(reply, wire.CellReply):
            self.requests.on_cell_reply(message.cell, reply, now_us)
        else:
            self.dropped["not for a node"] += 1

    def _on_refused(self, delivery: Delivery, message: wire.Refused, now_us: int) -> None:
        if not self.large_replicas.fetcher.on_reply(delivery.origin, message, now_us):
            self.requests.on_node_reply(delivery, message, now_us)

    def _on_store_replica(
        self, delivery: Delivery, message: cell_wire.StoreReplica, now_us: int
    ) -> None:
        self._tag_popularity.add_tags(message.metadata.tags)
        if message.holders:
            self.replica_upkeep.on_store_replica(delivery, message, now_us)
        else:
            self.service.on_store_replica(delivery, message, now_us)

    def _on_cell_state(self, delivery: Delivery, message: cell_wire.CellState, now_us: int) -> None:
        if self.anti_entropy is not None and self.routing.serving:
            self.anti_entropy.on_state(delivery, message, now_us)
        else:
            self.joining.on_state(delivery.origin, message, now_us)


def _split_payload(payload: bytes) -> tuple[bytes, bytes]:
    """The part of the extension, which begins with its length, and the rest of a payload."""
    end = 1 + payload[0] if payload else 0
    return payload[1:end], payload[end:]
