"""A net: nodes of Thyme-DCS at places, who hear whoever is in range, and what they say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import combinations

import msgspec

from tests.fake_signer import authenticator
from tests.links import Links
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.metadata import Metadata
from thyme.model.rng import derive_rng
from thyme.model.tags import Tag, as_tags
from thyme.model.time_frames import ALWAYS, TimeFrame
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
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import CellBroadcast, CellPacket, Message
from thyme.protocol.node import Action, Broadcast, Input, Leaving, PositionChanged, Received, Send
from thyme.protocol.retry import RetryPolicy
from thyme.query.query import Query
from thyme.routing.cells import Grid
from thyme.storage.store import MemoryStore
from thyme.substrates.dcs.cell_map import GridCellMap
from thyme.substrates.dcs.config import PAPER, DcsConfig
from thyme.substrates.dcs.node import DcsNode

Place = tuple[float, float]
ROW = Grid(columns=8, rows=1)
"""A street of eight cells; nodes hear across two of them at least."""


def in_cell(cell: int, number: int = 0, grid: Grid = ROW) -> Place:
    """A place in a cell, another for each number."""
    x_m, y_m = grid.centre_of(CellId(cell))
    return x_m + number, y_m + number


def tag_in(cell: int, which: int = 0, grid: Grid = ROW) -> Tag:
    """A tag that a cell looks after."""
    names = (f"tag{number}" for number in range(10_000))
    fitting = [name for name in names if grid.cell_of_key(name) == cell]
    return Tag(fitting[which])


class DcsNetwork:
    """Nodes, their stores, their applications, and a journal of what they sent."""

    def __init__(
        self,
        places: Mapping[str, Place],
        *,
        grid: Grid = ROW,
        config: DcsConfig = PAPER,
        seed: int = 1,
        loss: float = 0.0,
        absent: tuple[str, ...] = (),
        settle_s: float = 6.0,
        skews_s: Mapping[str, float] | None = None,
        worlds: Mapping[str, int] | None = None,
        keys: bool = False,
        start_s: float = 0.0,
    ) -> None:
        """With `keys`, nodes sign what they say."""
        self._keys = keys
        self.grid = grid
        self.places = dict(places)
        self.config = config
        self.seed = seed
        links = [
            (_id(one), _id(other))
            for one, other in combinations(places, 2)
            if math.dist(places[one], places[other]) <= grid.range_m
        ]
        self.links = Links(links, seed=seed, loss=loss, journal=self._note)
        self.links.run(start_s)
        self._skews_s = dict(skews_s or {})
        self._worlds = dict(worlds or {})
        self.nodes: dict[str, DcsNode] = {}
        self.stores: dict[str, MemoryStore] = {}
        self.told: dict[str, list[AppEvent]] = {name: [] for name in places}
        self.sent: list[tuple[str, str | None, Message]] = []
        self._asks = 0
        self._lives: Counter[str] = Counter()
        for name in places:
            if name not in absent:
                self.come(name)
        self.run(settle_s)
        self.sent.clear()

    # Lives

    def come(self, name: str, place: Place | None = None) -> DcsNode:
        """A node comes up, with what it had before."""
        node_id = _id(name)
        self._lives[name] += 1
        rng = derive_rng(self.seed, name, self._lives[name])
        cell = self.grid.cell_at(place or self.places[name])
        store = self.stores.setdefault(name, MemoryStore())
        cells = msgspec.structs.replace(self.config.routing, world=self._worlds.get(name))
        ground = GridCellMap(node_id, self.grid, rng, cells)
        guard = authenticator(node_id, places=True) if self._keys else None
        node = DcsNode(node_id, cell, ground, store, rng, self.config, authenticator=guard)
        self.nodes[name] = node
        skew_us = round(1e6 * self._skews_s.get(name, 0.0))
        self.links.add(node, self.told[name].append, skew_us)
        return node

    def go(self, name: str) -> None:
        """A node is gone without a word."""
        self.links.remove(_id(name))
        del self.nodes[name]

    def leave(self, name: str) -> None:
        """A node says goodbye and is gone a moment later."""
        self.links.feed(_id(name), Leaving())
        self.run(0.2)
        self.go(name)

    def move(self, name: str, place: Place, *, settle_s: float = 0.0) -> None:
        """A device is somewhere else at once, and stands there for some time."""
        self.places[name] = place
        near = [
            _id(other)
            for other in self.places
            if other != name and math.dist(place, self.places[other]) <= self.grid.range_m
        ]
        self.links.relink(_id(name), near)
        if name in self.nodes:
            self.links.feed(_id(name), PositionChanged(place))
        self.run(settle_s)

    def receive(self, name: str, sender: str, message: Message) -> None:
        """A node hears something, said by whomever."""
        self.links.feed(_id(name), Received(_id(sender), message))

    def run(self, seconds: float) -> None:
        self.links.run(seconds)

    # Acts

    def ask(self, name: str, request: AppRequest, seconds: float = 3.0) -> AppEvent | None:
        """Has an application ask, lets time pass, and returns the answer, if there is one."""
        self.links.ask(_id(name), request)
        self.run(seconds)
        number = getattr(request, "request_id", None)
        for told in self.told[name]:
            if isinstance(told, Finished | Failed) and told.request_id == number:
                return told
        return None

    def insert(
        self, name: str, oid: str, *tags: str, data: bytes = b"pixels", seconds: float = 3.0
    ) -> Key:
        request = asked.Insert(
            request_id=self._ask(), data=data, tags=as_tags(tags), oid=ObjectId(oid)
        )
        told = self.ask(name, request, seconds)
        assert isinstance(told, Finished), told
        assert isinstance(told.value, Key)
        return told.value

    def subscribe(self, name: str, query: str, frame: TimeFrame = ALWAYS) -> SubscriptionStarted:
        conjunctions = Query(query).conjunctions
        request = asked.Subscribe(
            request_id=self._ask(), conjunctions=conjunctions, frame=frame, batch=20
        )
        told = self.ask(name, request)
        assert isinstance(told, Finished), told
        assert isinstance(told.value, SubscriptionStarted)
        return told.value

    def finish(
        self, name: str, make: type[msgspec.Struct], seconds: float = 3.0, **fields: object
    ) -> object:
        """What an operation ends with, which must succeed."""
        told = self.ask(name, make(request_id=self._ask(), **fields), seconds)  # type: ignore[arg-type]
        assert isinstance(told, Finished), told
        return told.value

    def fail(self, name: str, make: type[msgspec.Struct], **fields: object) -> str:
        """The code of the failure that an operation ends with."""
        told = self.ask(name, make(request_id=self._ask(), **fields), 40)  # type: ignore[arg-type]
        assert isinstance(told, Failed), told
        return told.code

    def found(self, name: str, query: str) -> set[str]:
        """The objects that a search finds."""
        conjunctions = Query(query).conjunctions
        found = self.finish(
            name, asked.Search, conjunctions=conjunctions, frame=TimeFrame(), count=60
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
        notes = [
            told.notification for told in self.told[name] if isinstance(told, NotificationEvent)
        ]
        return next(note.metadata for note in notes if note.key.oid == oid)

    def _ask(self) -> int:
        self._asks += 1
        return self._asks

    # What is true

    def index(self, name: str) -> dict[str, tuple[list[int], list[str]]]:
        """The objects that a node indexes: their active cells, and who else has them."""
        return {
            entry.metadata.oid: (
                [replica.cell for replica in entry.active],
                [replica.node.decode() for replica in entry.passive if replica.node is not None],
            )
            for entry in self.nodes[name].index.objects()
        }

    def indexing(self, oid: str) -> set[str]:
        """The nodes that index an object."""
        return {name for name in self.nodes if oid in self.index(name)}

    def holding(self, key: Key) -> set[str]:
        """The nodes that have an object."""
        return {name for name, node in self.nodes.items() if node.replicas.get(key) is not None}

    def standing(self) -> dict[str, int]:
        """How many subscriptions each node keeps, of those that keep any."""
        counts = {name: node.broker_subscriptions for name, node in self.nodes.items()}
        return {name: count for name, count in counts.items() if count}

    def messages(self, kind: type[msgspec.Struct]) -> list[tuple[str, CellPacket]]:
        """The packets with a message of some kind that their origin sent, not those passed on."""
        return [
            (name, packet)
            for name, _, packet in self.sent
            if isinstance(packet, CellPacket)
            and isinstance(_inmost(packet.message), kind)
            and packet.hops == 0
            and packet.origin == _id(name)
        ]

    def _note(self, now_us: int, node_id: NodeId, entry: Input | Action) -> None:
        if isinstance(entry, Send | Broadcast) and isinstance(
            entry.message, CellPacket | CellBroadcast
        ):
            to = entry.to.decode() if isinstance(entry, Send) else None
            self.sent.append((node_id.decode(), to, entry.message))


def _id(name: str) -> NodeId:
    return NodeId(name.encode())


def _inmost(message: Message) -> Message:
    inner = getattr(message, "message", None)
    return message if inner is None else _inmost(inner)


HASTY = msgspec.structs.replace(PAPER, retries=RetryPolicy(tries_max=3, wait_us=200_000))
"""For stories in which somebody does not answer."""
STREET = {
    "ann": in_cell(0),
    "abe": in_cell(0, 1),
    "bea": in_cell(2),
    "ben": in_cell(2, 1),
    "cat": in_cell(4),
    "col": in_cell(4, 1),
    "dan": in_cell(6),
    "dot": in_cell(6, 1),
}
"""Two nodes in every other cell: those between are empty."""
LONE = {"ann": in_cell(1), "bea": in_cell(3), "cat": in_cell(4), "dan": in_cell(5)}
"""One node in each of some cells: who goes leaves an empty one, and the others hear each other."""
SETTLED_S = 6.0
"""After this time, whoever moved has joined the cell where it stands."""
