"""Station node: composes the components of a base station and dispatches its messages to them.

Entry point: `StationNode.handle`. Mobile nodes send `ToStation`; stations send each other requests
and reliable one-way messages over wired links. The caches are behind `StationContent`. Messages of
mobile nodes to each other, which the station overhears, are ignored.
Clauses: I2, I3, I7–I11, I17–I23, I25–I27.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

import msgspec

from thyme.model.bounded import BoundedDict, drop_before
from thyme.model.errors import OperationError
from thyme.model.ids import Key, NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages import stations as station_wire
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import Message
from thyme.protocol.node import Action, Input, Received, Started, Timer, TimerFired
from thyme.protocol.outbox import Outbox
from thyme.protocol.reliable_send import ReliableSender, ResendTimer
from thyme.protocol.retry import RetryPolicy
from thyme.routing.cells import LogicalCells
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.infra.requests import StationRequests, StationRequestTimer
from thyme.substrates.infra.station.addresses import LogicalAddress, MobileAddresses
from thyme.substrates.infra.station.content import StationContent
from thyme.substrates.infra.station.context import OnDownload, StationContext
from thyme.substrates.infra.station.mobile_sender import MobileSender
from thyme.substrates.infra.station.operations import StationOperations, UnpublishTimer
from thyme.substrates.infra.station.popular_items import (
    BatchInsertTimer,
    DecisionTimer,
    PopularItems,
)
from thyme.substrates.infra.station.popularity import PopularityTable
from thyme.substrates.infra.station.records import StationRecords
from thyme.substrates.infra.station.settings import StationSettings
from thyme.substrates.infra.station.sharing import NeedsTimer, SlotTimer, StationSharing
from thyme.substrates.infra.station.subscription_needs import NeedsTable
from thyme.substrates.infra.station.worlds import WorldTable
from thyme.substrates.infra.unpublished_items import UnpublishedItems
from thyme.substrates.infra.verification import MakeAuthenticator, StationVerifier
from thyme.substrates.infra.world_numbers import world_number

_SOURCES_MAX = 1_000_000
_PRESENCE_US = 15 * SECOND_US
"""How long a mobile node counts as present after its latest message."""
_PRESENT_MAX = 100_000
_ADAPT_US = 10 * SECOND_US
"""How often the number of cells is compared with the population (I3)."""


class AdaptCellsTimer(msgspec.Struct, frozen=True):
    """Time to adapt the number of cells to the population."""


class StationNode:
    """One base station."""

    def __init__(
        self,
        node_id: NodeId,
        stations: Iterable[NodeId],
        content: StationContent,
        rng: Random,
        settings: StationSettings,
        *,
        store: Store | None = None,
        make_authenticator: MakeAuthenticator | None = None,
        on_download: OnDownload = lambda world, key, cache: None,
    ) -> None:
        """`stations` are the other stations; more can be added while the station runs. With a
        store, the station continues after a restart; with authenticators, it verifies records."""
        self._node_id = node_id
        self._outbox = outbox = Outbox()
        self.incarnation = rng.getrandbits(32)
        self.dropped: Counter[str] = Counter()
        size, ttl_us = settings.mobile_addresses, settings.mobile_address_ttl_us
        self.addresses = MobileAddresses(size, ttl_us)
        self._to_mobiles = StationRequests(outbox, _policy(settings, to_mobiles=True), rng)
        wired = _policy(settings, to_mobiles=False)
        self.mobiles = MobileSender(node_id, self.addresses, self._to_mobiles)
        store = MemoryStore() if store is None else store
        records = StationRecords(store)
        worlds = WorldTable(settings.nodes_per_cell, settings.cells_min, settings.cells_max)
        self.context = context = StationContext(
            node_id=node_id,
            stations=dict.fromkeys(each for each in stations if each != node_id),
            settings=settings,
            content=content,
            worlds=worlds,
            popularity=PopularityTable(
                settings.popularity.locations_max, settings.popularity.decay
            ),
            outbox=outbox,
            mobiles=self.mobiles,
            wired=StationRequests(outbox, wired, rng),
            reliable=ReliableSender(outbox, wired, rng, self._on_given_up),
            rng=rng,
            sources=BoundedDict(_SOURCES_MAX),
            unpublished=UnpublishedItems(store, records),
            verifier=StationVerifier(worlds.name_of, make_authenticator),
            records=records,
            on_download=on_download,
        )
        self.needs = NeedsTable()
        self.popular_items = PopularItems(context, self.needs)
        self.sharing = StationSharing(context, self.needs)
        self.operations = StationOperations(context, self.sharing)
        self._present: dict[NodeId, int] = {}
        self._world_of: BoundedDict[NodeId, int] = BoundedDict(_PRESENT_MAX)
        self._received: BoundedDict[tuple[NodeId, int], None] = BoundedDict(10_000)
        self._behind: dict[NodeId, None] = {}
        """The stations that a message did not reach: they may lack worlds and deletes."""

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Processes one input at its instant; returns the actions to carry out, in order."""
        match event:
            case Started():
                self._on_started(now_us)
            case Received():
                self._on_received(event.sender, event.message, now_us)
            case TimerFired():
                self._on_timer(event.timer, now_us)
            case _:
                pass  # a station has no application and no position; requests time out
        self._announce_changes(now_us)
        return self._outbox.drain_actions()

    def add_station(self, station: NodeId, now_us: int) -> None:
        """Adds a station at run time: slots are computed anew, worlds and deletes sent to it
        (B8)."""
        if station != self._node_id and station not in self.context.stations:
            self.context.stations[station] = None
            self.sharing.on_stations_changed(now_us)
            self._greet(station, now_us)

    def remove_station(self, station: NodeId, now_us: int) -> None:
        """Removes a station at run time (B8)."""
        self.context.stations.pop(station, None)
        self.sharing.on_stations_changed(now_us)

    def _on_started(self, now_us: int) -> None:
        for entry in self.context.records.load_worlds():
            self.context.worlds.restore(entry)
        self.context.unpublished.restore(now_us)
        self.popular_items.restore(now_us)
        self.sharing.start(now_us)
        self._outbox.set_timer(AdaptCellsTimer(), now_us + _ADAPT_US)
        for station in self.context.stations:
            self._outbox.send(station, station_wire.WorldProbe(0))
            if self.context.worlds.entries():
                self._greet(station, now_us)

    def _on_given_up(self, station: NodeId) -> None:
        """Notes that a station was out of reach; it is greeted when it sends again (B8)."""
        self._behind[station] = None

    def _greet(self, station: NodeId, now_us: int) -> None:
        """Sends the worlds and the deletes to a station that has started, or is back."""
        self.context.reliable.send(station, lambda _: self._world_list(0), now_us)
        self.operations.on_station_returned(station, now_us)

    def _world_list(self, request_id: int) -> station_wire.WorldList:
        return self._list(request_id, self.context.worlds.entries())

    def _list(
        self, request_id: int, worlds: tuple[station_wire.WorldEntry, ...]
    ) -> station_wire.WorldList:
        period_us = self.context.settings.cell_data_period_us
        return station_wire.WorldList(request_id, worlds, self.incarnation, period_us)

    def _on_timer(self, timer: Timer, now_us: int) -> None:
        match timer:
            case StationRequestTimer():
                self._to_mobiles.on_timer(timer, now_us)
                self.context.wired.on_timer(timer, now_us)
            case ResendTimer():
                self.context.reliable.on_timer(timer, now_us)
            case DecisionTimer():
                self.popular_items.on_decision_timer(now_us)
            case BatchInsertTimer():
                self.popular_items.on_batch_timer(timer, now_us)
            case NeedsTimer():
                self.sharing.on_needs_timer(now_us)
            case SlotTimer():
                self.sharing.on_slot_timer(now_us)
            case UnpublishTimer():
                self.operations.on_unpublish_timer(now_us)
            case AdaptCellsTimer():
                self._adapt_cells(now_us)

    # Messages

    def _on_received(self, sender: NodeId, message: Message, now_us: int) -> None:
        if isinstance(message, wire.ToStation):
            self._on_mobile(sender, message, now_us)
        elif sender in self.context.stations:
            self._on_station(sender, message, now_us)
        elif not isinstance(message, wire.CellRoutingMessage | cell_wire.CellBeacon):
            self.dropped["not a station of the list"] += 1

    def _on_mobile(self, sender: NodeId, envelope: wire.ToStation, now_us: int) -> None:
        """Handles a message of a mobile node, whose address it brings (I25)."""
        world, cell, message = envelope.world, envelope.cell, envelope.message
        if not isinstance(message, station_wire.WorldProbe | station_wire.CreateWorld):
            verified = self.context.verifier.verify(world, sender, message)
            if verified is None:
                self.dropped["not genuine, or of an unknown world"] += 1
                return
            message = verified
        self.addresses.refresh(sender, LogicalAddress(world, cell), now_us)
        self._present.pop(sender, None)
        self._present[sender] = now_us
        self._world_of.refresh(sender, world)
        match message:
            case station_wire.WorldProbe():
                self._outbox.send(sender, self._world_list(message.request_id))
            case station_wire.CreateWorld():
                self._create_world(sender, message, now_us)
            case station_wire.CellData():
                self._on_cell_data(sender, world, message, now_us)
            case wire.FetchPage():
                self._outbox.send(sender, self.operations.look_up(world, message, now_us))
            case wire.FetchObject():
                number, key = message.request_id, message.key
                self._outbox.send(sender, self.operations.download(world, number, key, now_us))
            case station_wire.ForceFetch():
                self.operations.force_download(sender, world, message, now_us)
            case wire.Unpublish() if message.world == world:
                self._outbox.send(sender, wire.Done(message.request_id))
                self.operations.unpublish(message, now_us, from_station=False)
            case wire.Done() | wire.Refused() | station_wire.StoredObject():
                if not self._to_mobiles.on_reply(sender, message.request_id, message, now_us):
                    self.dropped["late reply"] += 1
            case _:
                self.dropped["not spoken here"] += 1

    def _on_station(self, sender: NodeId, message: Message, now_us: int) -> None:
        """Handles a message of another station."""
        if sender in self._behind:
            del self._behind[sender]
            self._greet(sender, now_us)
        if isinstance(message, wire.ReliableMessage):
            inner = self.context.reliable.on_message(sender, message)
            name = (sender, message.number)
            if name not in self._received:
                self._received[name] = None
                self._on_station(sender, inner, now_us)
            return
        match message:
            case wire.ReliableAck():
                self.context.reliable.on_ack(sender, message, now_us)
            case station_wire.WorldProbe():
                self._greet(sender, now_us)
            case station_wire.WorldList():
                for entry in message.worlds:
                    self._add_world(entry, now_us)
            case station_wire.SubscriptionNeeds():
                self.sharing.on_needs(sender, message)
            case station_wire.ProvideItems():
                self.sharing.on_items(sender, message, now_us)
            case station_wire.ConsumptionNotice():
                self.sharing.on_consumption(sender, message)
            case station_wire.FetchStored():
                self.operations.fetch_for_station(sender, message, now_us)
            case wire.Unpublish():
                self._on_station_unpublish(sender, message, now_us)
            case wire.Done() | wire.Refused() | station_wire.StoredObject():
                if not self.context.wired.on_reply(sender, message.request_id, message, now_us):
                    self.dropped["late reply"] += 1
            case _:
                self.dropped["not spoken here"] += 1

    def _on_station_unpublish(self, sender: NodeId, message: wire.Unpublish, now_us: int) -> None:
        """Handles a delete that another station passes on. One of an unknown world is not confirmed
        and arrives again: the signature can be verified once the world is known."""
        verified = self.context.verifier.verify(message.world, sender, message)
        if verified is None:
            self.dropped["not genuine, or of an unknown world"] += 1
            return
        self._outbox.send(sender, wire.Done(message.request_id))
        self.operations.unpublish(verified, now_us, from_station=True)

    # Worlds (I3)

    def _create_world(self, sender: NodeId, message: station_wire.CreateWorld, now_us: int) -> None:
        is_new = world_number(message.name) not in self.context.worlds
        try:
            entry = self.context.worlds.create(message.name)
        except OperationError as error:
            refused = wire.Refused(message.request_id, error.code, str(error))
            self._outbox.send(sender, refused)
            return
        if is_new:
            self.context.records.save_world(entry)
            self.operations.on_world_added(entry.world, now_us)
        self._outbox.send(sender, self._list(message.request_id, (entry,)))
        announcement = self._list(0, (entry,))
        for station in self.context.stations:
            self.context.reliable.send(station, lambda _: announcement, now_us)

    def _add_world(self, entry: station_wire.WorldEntry, now_us: int) -> None:
        try:
            if self.context.worlds.add(entry):
                self.context.records.save_world(self.context.worlds[entry.world])
                self.operations.on_world_added(entry.world, now_us)
        except OperationError as error:
            self.dropped[error.code] += 1

    def _adapt_cells(self, now_us: int) -> None:
        """Adapts the number of cells of each world; mobile nodes learn it with their next probe.
        Expired objects are removed at the same time."""
        self.context.content.remove_expired(now_us)
        self._outbox.set_timer(AdaptCellsTimer(), now_us + _ADAPT_US)
        population = self.population(now_us)
        worlds = self.context.worlds
        for entry in worlds.entries():
            if population[entry.world] and worlds.adapt_cells(entry.world, population[entry.world]):
                self.context.records.save_world(worlds[entry.world])

    def population(self, now_us: int) -> Counter[int]:
        """The number of mobile nodes that are present, by world."""
        drop_before(self._present, now_us - _PRESENCE_US)
        return Counter(self._world_of.get(node, -1) for node in self._present)

    # Cells

    def _on_cell_data(
        self, sender: NodeId, world: int, message: station_wire.CellData, now_us: int
    ) -> None:
        """Takes cell data; its sender is the stable node of the cell (I8)."""
        self._outbox.send(sender, wire.Done(message.request_id))
        worlds = self.context.worlds
        if world not in worlds:
            self.dropped["cell data of an unknown world"] += 1
            return
        if message.cell >= worlds[world].cells:
            self.dropped["cell data of an unknown cell"] += 1
            return
        if LogicalCells(message.cells).cell_of_node(sender) != message.cell:
            self.dropped["cell data of another cell"] += 1
            return
        self.addresses.set_stable(world, message.cell, sender, now_us)
        population = self.population(now_us)[world]
        self.popular_items.on_cell_data(world, message, population, now_us)
        self.mobiles.on_stable_node(world, message.cell, now_us)

    def _announce_changes(self, now_us: int) -> None:
        """Tells the indexing cells what came into the station and what left it (I11)."""
        changes = self.context.content.drain_changes()
        if not changes:
            return
        updates: dict[tuple[int, CellId, bool], list[Key]] = {}
        for change in changes:
            for cell in self.context.cells_of(change.world, change.metadata.tags):
                name = (change.world, cell, change.is_stored)
                updates.setdefault(name, []).append(change.metadata.key)
        for (world, cell, is_stored), keys in updates.items():
            message = station_wire.StorageUpdate(tuple(keys), is_stored)
            self.mobiles.send_to_cell(world, cell, message, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        self.addresses.check()
        self._to_mobiles.check()
        self.context.wired.check()
        assert self._node_id not in self.context.stations


def _policy(settings: StationSettings, *, to_mobiles: bool) -> RetryPolicy:
    """The time-outs of requests to mobile nodes or to other stations (I27)."""
    total_us = settings.mobile_timeout_us if to_mobiles else settings.station_timeout_us
    pending = settings.mobile_requests_max if to_mobiles else settings.station_requests_max
    # With a doubled wait after each try, the last wait ends at the time-out.
    first_us = max(1, total_us // (2**settings.tries_max - 1))
    return RetryPolicy(tries_max=settings.tries_max, wait_us=first_us, pending_max=pending)
