"""Venues: stations with wires between them, and mobile nodes that hear those of their venue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from tests.fake_signer import authenticator
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.metadata import Metadata
from thyme.model.rng import derive_rng
from thyme.model.tags import as_tags
from thyme.model.time_frames import ALWAYS, SECOND_US, TimeFrame
from thyme.protocol import app_interface as asked
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    Failed,
    Finished,
    NotificationEvent,
    SearchResult,
    SubscriptionStarted,
)
from thyme.protocol.messages.common import Message
from thyme.protocol.node import Action, Broadcast, Input, Send
from thyme.query.query import Query
from thyme.sim.networks.ideal_network import PERFECT, IdealNetwork, LinkConditions
from thyme.storage.store import MemoryStore
from thyme.substrates.dcs.config import PAPER, DcsConfig
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.infra.factory import make_mobile_node
from thyme.substrates.infra.mobile.cell_data import CellDataConfig
from thyme.substrates.infra.mobile.extension import MobileConfig, MobileExtension
from thyme.substrates.infra.station.cached_content import CachedContent
from thyme.substrates.infra.station.content import StationContent
from thyme.substrates.infra.station.node import StationNode
from thyme.substrates.infra.station.settings import (
    GlobalSettings,
    PopularitySettings,
    StationSettings,
)

WORLD = "match"
START_US = 1_700_000_000_000_000
QUICK = StationSettings(
    popularity=PopularitySettings(decision_period_us=10 * SECOND_US),
    sharing=GlobalSettings(needs_period_us=5 * SECOND_US, reply_window_us=5 * SECOND_US),
    cells_min=2,
    cells_max=2,
)
"""Short periods, and always two cells."""
MOBILE = MobileConfig(
    world_name=WORLD,
    cells=2,
    cell_data=CellDataConfig(period_us=5 * SECOND_US, wait_us=6 * SECOND_US),
)


class Venues:
    """Nodes, their stores, their applications, and what they sent."""

    def __init__(
        self,
        mobiles: Mapping[str, str],
        *,
        stations: tuple[str, ...] = ("north",),
        settings: StationSettings = QUICK,
        mobile: MobileConfig = MOBILE,
        config: DcsConfig = PAPER,
        conditions: LinkConditions = PERFECT,
        make_content: Callable[[], StationContent] | None = None,
        seed: int = 1,
        settle_s: float = 8.0,
        durable: bool = False,
        signed: bool = False,
    ) -> None:
        """`mobiles` are the names of mobile nodes and of the stations whose venue they are in.
        Stations are `durable` if they continue with their records after a restart; nodes sign
        their records, and stations verify them, if `signed`."""
        self._durable = durable
        self._signed = signed
        self.venue = {**{name: name for name in stations}, **mobiles}
        self.overlap = False
        """Whether mobile nodes of different venues hear each other."""
        self.all_stations = stations
        self.settings = settings
        self.mobile = mobile
        self.config = config
        self._make_content = make_content or (lambda: CachedContent(settings.caches))
        self.seed = seed
        self.net = IdealNetwork(
            seed=seed,
            conditions=conditions,
            start_us=START_US,
            in_range=self._in_range,
            journal=self._note,
        )
        self.stations: dict[str, StationNode] = {}
        self.nodes: dict[str, DcsNode] = {}
        self.extensions: dict[str, MobileExtension] = {}
        self.stores: dict[str, MemoryStore] = {}
        self.told: dict[str, list[AppEvent]] = {name: [] for name in mobiles}
        self.sent: list[tuple[str, str | None, Message]] = []
        self._asks = 0
        self._lives: Counter[str] = Counter()
        for name in stations:
            self.start_station(name)
        for name in mobiles:
            self.come(name)
        self.run(settle_s)
        self.sent.clear()

    def _in_range(self, sender: NodeId, receiver: NodeId) -> bool:
        one, other = sender.decode(), receiver.decode()
        wired = one in self.all_stations and other in self.all_stations
        if self.overlap and not {one, other} & set(self.all_stations):
            return True
        return wired or self.venue[one] == self.venue[other]

    # Lives

    def start_station(self, name: str) -> StationNode:
        self._lives[name] += 1
        node_id = _id(name)
        station = StationNode(
            node_id,
            [_id(other) for other in self.all_stations],
            self._make_content(),
            derive_rng(self.seed, "station", name, self._lives[name]),
            self.settings,
            store=self.stores.setdefault(name, MemoryStore()) if self._durable else None,
            make_authenticator=(lambda _: authenticator(node_id)) if self._signed else None,
        )
        self.stations[name] = station
        self.net.add(station, MemoryStore(), lambda _event: None)
        return station

    def stop_station(self, name: str) -> None:
        self.net.remove(_id(name))
        del self.stations[name]

    def come(self, name: str, *, battery: float = 1.0) -> DcsNode:
        """A mobile node starts, with what it had before."""
        self._lives[name] += 1
        life = self._lives[name]
        store = self.stores.setdefault(name, MemoryStore())
        node, extension = make_mobile_node(
            _id(name),
            store,
            cells_rng=derive_rng(self.seed, "cells", name, life),
            rng=derive_rng(self.seed, "node", name, life),
            station_rng=derive_rng(self.seed, "link", name, life),
            config=self.config,
            mobile=self.mobile,
            authenticator=authenticator(_id(name), places=True) if self._signed else None,
        )
        extension.cell_data.battery = battery
        self.nodes[name], self.extensions[name] = node, extension
        self.net.add(node, store, self.told[name].append)
        return node

    def go(self, name: str) -> None:
        """A mobile node is gone without a word."""
        self.net.remove(_id(name))
        del self.nodes[name], self.extensions[name]

    def walk(self, name: str, venue: str) -> None:
        """A mobile node is in another venue from now on."""
        self.venue[name] = venue

    def run(self, seconds: float) -> None:
        self.net.run(self.net.now_us + round(1e6 * seconds))
        for node in (*self.nodes.values(), *self.stations.values()):
            node.check()

    # Acts

    def ask(self, name: str, request: AppRequest, seconds: float = 3.0) -> AppEvent | None:
        self.net.send_request(_id(name), request)
        self.run(seconds)
        number = getattr(request, "request_id", None)
        for told in self.told[name]:
            if isinstance(told, Finished | Failed) and told.request_id == number:
                return told
        return None

    def finish(
        self, name: str, make: Callable[..., AppRequest], *, seconds: float = 3.0, **fields: object
    ) -> object:
        """What an operation ends with, which must succeed."""
        self._asks += 1
        told = self.ask(name, make(request_id=self._asks, **fields), seconds)
        assert isinstance(told, Finished), told
        return told.value

    def fail(self, name: str, make: Callable[..., AppRequest], **fields: object) -> str:
        """The code of the failure that an operation ends with."""
        self._asks += 1
        told = self.ask(name, make(request_id=self._asks, **fields), 40)
        assert isinstance(told, Failed), told
        return told.code

    def insert(self, name: str, oid: str, *tags: str, data: bytes = b"pixels") -> Key:
        value = self.finish(
            name, asked.Insert, data=data, tags=as_tags(tags), oid=ObjectId(oid), seconds=1.0
        )
        assert isinstance(value, Key)
        return value

    def subscribe(
        self, name: str, query: str, frame: TimeFrame = ALWAYS, batch: int = 20
    ) -> SubscriptionStarted:
        conjunctions = Query(query).conjunctions
        value = self.finish(
            name, asked.Subscribe, conjunctions=conjunctions, frame=frame, batch=batch
        )
        assert isinstance(value, SubscriptionStarted)
        return value

    def retrieve(self, name: str, metadata: Metadata, seconds: float = 3.0) -> object:
        return self.finish(name, asked.Retrieve, metadata=metadata, seconds=seconds)

    def delete(self, name: str, key: Key) -> None:
        self.finish(name, asked.Delete, key=key)

    def found(self, name: str, query: str) -> set[str]:
        """The objects that a search finds."""
        conjunctions = Query(query).conjunctions
        found = self.finish(
            name, asked.Search, conjunctions=conjunctions, frame=TimeFrame(), count=50
        )
        assert isinstance(found, SearchResult)
        return {note.key.oid for note in found}

    def heard(self, name: str) -> list[str]:
        """The objects that an application was told of, in order."""
        return [
            told.notification.key.oid
            for told in self.told[name]
            if isinstance(told, NotificationEvent)
        ]

    def metadata(self, name: str, oid: str) -> Metadata:
        """What an application was told of an object."""
        return next(
            told.notification.metadata
            for told in self.told[name]
            if isinstance(told, NotificationEvent) and told.notification.key.oid == oid
        )

    # What was sent

    def messages(self, kind: type[msgspec.Struct]) -> list[tuple[str, str | None]]:
        """Who sent a message of some kind to whom, alone or inside another message."""
        return [(name, to) for name, to, message in self.sent if isinstance(message, kind)]

    def _note(self, now_us: int, node_id: NodeId, entry: Input | Action) -> None:
        if isinstance(entry, Send | Broadcast):
            to = entry.to.decode() if isinstance(entry, Send) else None
            message: Message | None = entry.message
            while message is not None:
                self.sent.append((node_id.decode(), to, message))
                message = getattr(message, "message", None)


def _id(name: str) -> NodeId:
    return NodeId(name.encode())
