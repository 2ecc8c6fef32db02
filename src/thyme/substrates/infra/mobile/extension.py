"""Mobile extension: the components of a mobile node that use a base station.

Entry point: `MobileExtension`, the `NodeExtension` of a node over logical cells;
`thyme.substrates.infra.factory` makes such a node. The extension finds the station
(`station_link`), reports cell data (`cell_data`), serves the station's requests, and passes its
messages on to cells and nodes. Without a station the node is a Thyme-DCS node.
Clauses: I2–I8, I11, I19, I21–I26.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from thyme.model.errors import NotFoundError, OperationError
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages import stations as station_wire
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.protocol.messages.common import Message
from thyme.protocol.node import Timer
from thyme.protocol.results import Ok, Result
from thyme.protocol.retry import RetryPolicy
from thyme.routing.cells import BeaconReceived, Delivery, Destination, LogicalRouting
from thyme.substrates.common.catalogue import DELETED
from thyme.substrates.common.client_interfaces import BrokerClient, ObjectClient
from thyme.substrates.dcs.client.replica_locations import ReplicaLocations
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.dispatch import HandlerTable
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.dcs.service.cell_service import CellService
from thyme.substrates.dcs.state.replica_store import ReplicaRole
from thyme.substrates.infra.mobile.cell_data import (
    CellCycleTimer,
    CellDataConfig,
    CellDataReporter,
)
from thyme.substrates.infra.mobile.stability import NO_VENUE, venue_in, venue_number
from thyme.substrates.infra.mobile.station_client import StationBrokers, StationObjectClient
from thyme.substrates.infra.mobile.station_contents import StationContents
from thyme.substrates.infra.mobile.station_link import (
    ProbeTimer,
    StationLink,
    StationLinkConfig,
)
from thyme.substrates.infra.requests import StationRequests, StationRequestTimer
from thyme.substrates.infra.world_numbers import world_number

_ANNOUNCE_WAIT_US = 7 * SECOND_US
"""How long after a change of cells or venue a node announces its records: it has joined its cell
and knows its neighbours."""
_ANNOUNCE_SPREAD_US = 3 * SECOND_US


class AnnounceRecordsTimer(msgspec.Struct, frozen=True):
    """Time to announce the own objects and subscriptions to cells that do not know them."""


class MobileConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a mobile node, in addition to those of Thyme-DCS."""

    world_name: str
    cells: int = 4
    """The number of cells until a station says otherwise."""
    link: StationLinkConfig = StationLinkConfig()
    cell_data: CellDataConfig = CellDataConfig()
    retries: RetryPolicy = RetryPolicy(tries_max=2, wait_us=SECOND_US // 2)
    """Requests to the station; short, since the node can do without it (B8)."""

    @property
    def world(self) -> int:
        """The number of the world."""
        return world_number(self.world_name)


class MobileExtension:
    """What a mobile node has in addition to a Thyme-DCS node."""

    def __init__(
        self,
        config: MobileConfig,
        rng: Random,
        authenticator: MessageAuthenticator | None = None,
    ) -> None:
        self._config = config
        self._rng = rng
        self._authenticator = authenticator
        self.contents = StationContents()
        self._last_station: NodeId | None = None
        self._venue = NO_VENUE
        self._replies_dropped = 0

    # Composition: `DcsNode` calls these two in its constructor, `attach` follows.

    def extend_client(
        self,
        context: NodeContext,
        objects: ObjectClient,
        brokers: BrokerClient,
        replica_locations: ReplicaLocations,
    ) -> tuple[ObjectClient, BrokerClient]:
        config = self._config
        self._context = context
        self._outbox = context.outbox
        self._requests = StationRequests(context.outbox, config.retries, self._rng, self._wrap)
        self.link = StationLink(
            config.world_name,
            context.outbox,
            self._rng,
            self._requests,
            self._wrap,
            config.link,
            self._on_world,
            self._on_station,
        )
        self.cell_data = CellDataReporter(
            context.node_id,
            context.routing,
            context.index,
            context.outbox,
            config.cell_data,
            self._send_cell_data,
        )
        self.objects = StationObjectClient(
            context,
            config.world,
            objects,
            replica_locations,
            self._requests,
            lambda: self.link.station,
        )
        self.brokers = StationBrokers(brokers, self._requests, self.link)
        return self.objects, self.brokers

    def add_handlers(self, table: HandlerTable, service: CellService) -> None:
        self._service = service
        table.add(wire.StartSubscription, to_cell=service.answering(self._start_subscription))
        table.add(cell_wire.AnnounceReplica, to_cell=self._on_announce_replica)
        table.add(station_wire.StorageUpdate, to_cell=self.contents.on_update)
        table.add(wire.Unpublish, to_cell=self._on_unpublish)

    def attach(self, node: DcsNode) -> None:
        """Connects the extension with its node."""
        self._node = node
        self._logical_routing.accept_beacons(self._is_of_venue)

    def _is_of_venue(self, payload: bytes) -> bool:
        """Whether a beacon is of a node of the own venue: of one that had the same station last, or
        none so far. Where a station fails, its visitors stay together."""
        venue = venue_in(payload, 1)
        return venue == self._venue or venue == NO_VENUE or self._venue == NO_VENUE

    # Inputs

    def start(self, now_us: int) -> None:
        self.link.start(now_us)
        self.cell_data.start(now_us)

    def on_timer(self, timer: Timer, now_us: int) -> None:
        match timer:
            case ProbeTimer():
                self.link.on_timer(now_us)
            case CellCycleTimer():
                self.cell_data.on_timer(now_us)
            case StationRequestTimer():
                self._requests.on_timer(timer, now_us)
            case AnnounceRecordsTimer():
                self._announce_records(now_us)

    def on_send_failed(self, to: NodeId, message: Message, now_us: int) -> None:
        """A message that the station did not acknowledge: requests time out on their own."""

    def on_beacon(self, beacon: BeaconReceived, part: bytes, now_us: int) -> None:
        if self.link.station is None and self._logical_routing.neighbour_count == 1:
            self.link.start(now_us)  # the node was alone, perhaps between two venues
        self.cell_data.on_beacon(beacon, part, now_us)

    def beacon_part(self, now_us: int) -> bytes:
        return self.cell_data.beacon_part(now_us)

    def on_received(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Handles a message of a station, or one that a cell peer passes on for it."""
        if self._authenticator is not None:
            verified = self._authenticator.verify_message(sender, message)
            if verified is None:
                return True
            message = verified
        match message:
            case wire.ToStation():
                pass  # a probe, which stations answer
            case wire.RouteToNode():
                self._on_route_to_node(message, now_us)
            case wire.RouteToCell():
                self._on_route_to_cell(sender, message, now_us)
            case station_wire.FetchStored():
                self._outbox.send(sender, self._wrap(self._stored_object(message, now_us)))
            case station_wire.WorldList():
                if not self._requests.on_reply(sender, message.request_id, message, now_us):
                    self.link.on_world_list(sender, message, now_us)
            case wire.Done() | wire.Refused() | wire.Page() | wire.ObjectData():
                if not self._requests.on_reply(sender, message.request_id, message, now_us):
                    self._replies_dropped += 1  # a late or repeated reply
            case _:
                return False
        return True

    def _wrap(self, message: Message) -> Message:
        """A message to the station, with the address of this node (I25)."""
        return wire.ToStation(self._config.world, self._context.routing.cell, message)

    # Requests of the station

    def _on_route_to_node(self, message: wire.RouteToNode, now_us: int) -> None:
        """Passes a message of the station on to its node, or handles it (I25)."""
        if message.node != self._context.node_id:
            self._outbox.send(message.node, message)
        elif isinstance(message.message, station_wire.FetchStored):
            self.on_received(message.station, message.message, now_us)

    def _on_route_to_cell(self, sender: NodeId, message: wire.RouteToCell, now_us: int) -> None:
        """Passes a message of the station on to a cell (I26)."""
        inner = message.message
        accepted = sender == self.link.station and isinstance(
            inner, station_wire.StorageUpdate | wire.Unpublish | cell_wire.ReindexObjects
        )
        if accepted and self._context.routing.serving:
            self._context.routing.send([Destination(message.cell)], inner, now_us)
            reply: Message = wire.Done(message.request_id)
        else:
            reply = wire.Refused(message.request_id, "rejected", "not accepted here")
        self._outbox.send(sender, self._wrap(reply))

    def _stored_object(self, request: station_wire.FetchStored, now_us: int) -> Message:
        """An object with its metadata, for the station (I9, I22)."""
        replicas = self._context.replicas
        replicas.expire(now_us)
        stored = replicas.get(request.key)
        if stored is None or request.world != self._config.world:
            detail = f"{request.key} is not on this node"
            return wire.Refused(request.request_id, NotFoundError.code, detail)
        try:
            data = replicas.read_data(request.key)
        except OperationError as error:
            return wire.Refused(request.request_id, error.code, str(error))
        return station_wire.StoredObject(request.request_id, stored.metadata, data)

    # Messages to the cell

    def _start_subscription(
        self, delivery: Delivery, request: wire.StartSubscription, now_us: int
    ) -> cell_wire.CellPage | None:
        """Activates and counts a subscription; leaves out what the station returns (I5, I21)."""
        self.cell_data.count_subscription(request.subscription, delivery.cell)
        page = self._service.start_subscription(delivery, request, now_us)
        if page is None or not self.contents:
            return page
        return self.contents.first_page(self._service, delivery, request, now_us)

    def _on_announce_replica(
        self, delivery: Delivery, message: cell_wire.AnnounceReplica, now_us: int
    ) -> None:
        """Adds a replica, which is a download that has succeeded (I5)."""
        self.cell_data.count_download(message.key, delivery.cell)
        self._service.on_announce_replica(delivery, message, now_us)

    def _on_unpublish(self, delivery: Delivery, message: wire.Unpublish, now_us: int) -> None:
        """Deletes an object that its owner deleted in this or another venue (I23)."""
        delete = message.delete
        assert isinstance(delete, wire.DeleteObject)
        key, index = delete.key, self._context.index
        index.delete_object(key, key.owner, now_us, delete.proof)
        self._context.replicas.remove_with_tombstone(key, DELETED, now_us)

    # The station

    def _send_cell_data(
        self,
        cell: CellId,
        cycles: tuple[station_wire.CellCycle, ...],
        on_confirmed: Callable[[int], None],
        now_us: int,
    ) -> bool:
        station = self.link.station
        if station is None:
            return False

        def on_reply(result: Result[Message], now_us: int) -> None:
            if isinstance(result, Ok):
                on_confirmed(now_us)

        request_id = self._requests.next_id()
        cells = len(self._logical_routing.cells)
        message = station_wire.CellData(request_id, cell, cells, cycles)
        self._requests.send(station, request_id, message, now_us, on_reply)
        return True

    @property
    def cell_name(self) -> tuple[int, int, CellId]:
        """The own cell: the world, its number of cells, and the number of the cell."""
        routing = self._logical_routing
        return self._config.world, len(routing.cells), routing.cell

    @property
    def _logical_routing(self) -> LogicalRouting:
        routing = self._context.routing
        assert isinstance(routing, LogicalRouting)
        return routing

    def _on_world(
        self, entry: station_wire.WorldEntry, cell_data_us: int | None, now_us: int
    ) -> None:
        """Follows the number of cells and the cycle of cell data that the station sets (I3, I7)."""
        if cell_data_us is not None:
            self.cell_data.set_period(cell_data_us, now_us)
        routing = self._logical_routing
        if entry.cells != len(routing.cells):
            node = self._node
            routing.resize(entry.cells, lambda cell: node.membership.on_moved(cell, now_us))
            self._schedule_announcement(now_us)

    def _on_station(self, station: NodeId | None, now_us: int) -> None:
        """Handles a new station, or the loss of the old one (B8)."""
        self.contents.clear()
        if station is None:
            return
        self.objects.repeat_deletes(now_us)
        previous, self._last_station = self._last_station, station
        self.cell_data.venue = venue_number(station)
        self._venue = self.cell_data.venue.to_bytes(4)
        self._logical_routing.accept_beacons(self._is_of_venue)
        if previous not in (None, station):
            self.objects.previous_station = previous
            self._enter_venue(now_us)

    def _enter_venue(self, now_us: int) -> None:
        """Joins the cells of another venue, which know nothing of this node. Its own objects are on
        this node only, now."""
        context = self._context
        here = (Replica(context.routing.cell, context.node_id),)
        for stored in list(context.replicas.brief_with_role(ReplicaRole.OWN)):
            context.replicas.set_holders(stored.metadata.key, here)
        self._node.membership.rejoin(now_us)
        self._schedule_announcement(now_us)

    def _schedule_announcement(self, now_us: int) -> None:
        wait_us = _ANNOUNCE_WAIT_US + self._rng.randint(0, _ANNOUNCE_SPREAD_US)
        self._outbox.set_timer(AnnounceRecordsTimer(), now_us + wait_us)

    def _announce_records(self, now_us: int) -> None:
        """Announces own objects and subscriptions to their cells, which ask for unknown ones."""
        own = self._context.replicas.brief_with_role(ReplicaRole.OWN)
        objects = [stored.metadata for stored in own]
        self._node.membership.location_updater.announce_objects(objects, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        self._requests.check()
