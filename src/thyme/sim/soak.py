"""Soak: runs a small network under random faults and load, and checks the guarantees of Thyme.

Entry point: `run_soak`. A seed determines the nodes, their cells, the faults and the operations.
During the run, every application event is compared with the operations issued so far, and every
node checks its own invariants. After the faults have ended and a quiet period has passed, no
acknowledged object may be missing. A failure can be reproduced from its seed.
`thyme.testing.soak.faults` draws the faults, `thyme.testing.soak.workload` the operations.
Clauses: B12, D15, M16, M23, M24.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

import msgspec

from thyme.model.frames import SECOND_US
from thyme.model.ids import Key, NodeId
from thyme.model.streams import stream
from thyme.protocol.node import Action, Input, Node
from thyme.protocol.operations import RetryPolicy
from thyme.protocol.requests import Subscribe
from thyme.routing.cells import Grid
from thyme.routing.cells.grid import CELL_M
from thyme.sim.ether import Ether
from thyme.sim.fate import Fate
from thyme.sim.faults import Crash, Memory
from thyme.sim.paths import Point
from thyme.sim.residents import Residents
from thyme.sim.scenario import Profile, Substrate
from thyme.sim.soak_faults import SKEW_US_MAX, Mercy, Step, draw_faults, draw_walks
from thyme.sim.soak_people import TAGS, People
from thyme.storage.store import Store
from thyme.substrates.broker import BrokerConfig
from thyme.substrates.dcs.config import PAPER as DCS_PAPER
from thyme.substrates.dcs.config import ROBUST as DCS_ROBUST
from thyme.substrates.dcs.ground import Geography
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.es import PAPER as ES_PAPER
from thyme.substrates.es import ROBUST as ES_ROBUST
from thyme.substrates.es import EsNode
from thyme.substrates.ls.node import PAPER as LS_PAPER
from thyme.substrates.ls.node import ROBUST as LS_ROBUST
from thyme.substrates.ls.node import LsNode
from thyme.substrates.subscriber import SubscriberConfig

T = TypeVar("T")

SETTLE_US = 8 * SECOND_US
"""Time for the nodes to find their neighbours and to join."""
TROUBLE_US = 120 * SECOND_US
CALM_US = 90 * SECOND_US
SETTLED_US = SETTLE_US + TROUBLE_US + CALM_US // 2
"""Instant from which on all nodes of a cell must agree, whatever messages they missed."""
PROBE_US = 40 * SECOND_US
"""Time limit of the requests of the final checks."""
ACTS = 100
NODES_MIN, NODES_MAX = 6, 20
CHECK_EVERY = 16
"""Number of inputs between two invariant checks of a node; a check reads all its records."""
VIOLATIONS_MAX = 20
"""Maximum number of violations in a result."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one soak run."""

    seed: int
    substrate: Substrate
    profile: Profile
    nodes: int
    cells: int
    faults: int
    steps: int
    """Number of steps of moving nodes."""
    ended: dict[str, int]
    """Numbers of operations by kind and result."""
    told: int
    """Number of notifications that applications received."""
    violations: tuple[str, ...]
    """Violated guarantees; the seed reproduces them."""


class BrokenError(Exception):
    """A node raised an exception or violated an invariant; the run ends."""


class Watched:
    """Wraps a node and checks its invariants after every few inputs."""

    def __init__(self, inner: Node) -> None:
        self.inner = inner
        self._inputs = 0

    @property
    def node_id(self) -> NodeId:
        return self.inner.node_id

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Passes an input to the node; an exception of the node is a violation."""
        try:
            actions = self.inner.handle(event, now_us)
            self._inputs += 1
            if self._inputs % CHECK_EVERY == 0:
                self.inner.check()
        except Exception as error:
            name = self.node_id.decode()
            raise BrokenError(f"{name}, on {type(event).__name__}: {error!r}") from error
        return actions

    def check(self) -> None:
        """Asserts the invariants of the node."""
        self.inner.check()


def soak(seed: int, substrate: Substrate, profile: Profile) -> Verdict:
    """Executes the soak run of a seed and returns its violations."""
    return _World(seed, substrate, profile).verdict()


class _World:
    """One soak run: the network, its devices, its faults and its workload."""

    def __init__(self, seed: int, substrate: Substrate, profile: Profile) -> None:
        self._seed = seed
        self._substrate = substrate
        self._profile = profile
        rng = stream(seed, "soak", "world")
        self._names = [
            NodeId(f"n{n:02}".encode()) for n in range(rng.randint(NODES_MIN, NODES_MAX))
        ]
        self._grid, places = _ground(rng, len(self._names))
        self._places = dict(zip(self._names, places, strict=True))
        self._cells = substrate is Substrate.DCS
        self._ether = Ether(seed=seed, hears=self._hears if self._cells else None)
        mercy = self._mercy()
        self.people = People(
            self._ether,
            self._names,
            stream(seed, "soak", "people"),
            settled_us=SETTLED_US if self._cells and mercy.loses_messages else 0,
        )
        self.residents = Residents(
            self._ether, self._names, self._make, on_told=self.people.on_told, on_life=self._on_life
        )
        weather = stream(seed, "soak", "weather")
        until_us = SETTLE_US + TROUBLE_US
        self._schedule = draw_faults(weather, places, SETTLE_US, until_us, mercy)
        if self._cells:
            self.people.losses_us = [
                fault.at_us
                for fault in self._schedule
                if isinstance(fault, Crash) and fault.memory is Memory.LOST
            ]
        self._walks: list[Step] = []
        if self._cells:
            area = self._grid.columns * CELL_M, self._grid.rows * CELL_M
            walks = stream(seed, "soak", "walks")
            self._walks = draw_walks(walks, places, area, SETTLE_US, until_us, mercy)

    def _hears(self, one: NodeId, other: NodeId) -> bool:
        return math.dist(self._places[one], self._places[other]) <= self._grid.range_m

    def _mercy(self) -> Mercy:
        """Returns the faults that a substrate and profile are not designed to survive.

        DCS `paper` does not survive an emptied cell, a partition or lost messages; DCS `robust`
        survives the loss of one store at a time; ES does not survive the loss of its server's
        store.
        """
        match self._substrate, self._profile:
            case Substrate.DCS, Profile.PAPER:
                anchors = self._anchors()
                return Mercy(
                    spared=frozenset(map(self._names.index, anchors)),
                    loses_messages=False,
                    divides=False,
                    destinations=tuple(self._places[name] for name in anchors),
                )
            case Substrate.DCS, Profile.ROBUST:
                return Mercy(one_by_one=True)
            case Substrate.ES, _:
                return Mercy(keeps_memory=frozenset([len(self._names) - 1]))
            case _:
                return Mercy()

    def _anchors(self) -> list[NodeId]:
        """Returns one node of each cell, and further nodes until they form a connected network."""
        cells: dict[int, NodeId] = {}
        for name in self._names:
            cells.setdefault(self._grid.cell_at(self._places[name]), name)
        anchors = list(cells.values())
        others = [name for name in self._names if name not in anchors]
        while not _connected(anchors, self._hears):
            anchors.append(others.pop(0))
        return anchors

    # Nodes

    def _make(self, node_id: NodeId, store: Store, life: int) -> Node:
        rng = stream(self._seed, "node", node_id, life)
        return Watched(self._node(node_id, store, rng))

    def _node(self, node_id: NodeId, store: Store, rng: Random) -> Node:
        robust = self._profile is Profile.ROBUST
        retries = RetryPolicy(tries_max=6, backoff=1.5)
        broker = BrokerConfig(skew_us=SKEW_US_MAX)
        subscriber = SubscriberConfig(skew_us=SKEW_US_MAX)
        replace = msgspec.structs.replace
        match self._substrate:
            case Substrate.ES:
                es = ES_ROBUST if robust else ES_PAPER
                es = replace(es, retries=retries, broker=broker, subscriber=subscriber)
                return EsNode(node_id, self._names[-1], store, rng, es)
            case Substrate.LS:
                ls = LS_ROBUST if robust else LS_PAPER
                ls = replace(ls, retries=retries, broker=broker, subscriber=subscriber)
                return LsNode(node_id, store, rng, ls)
            case Substrate.DCS:
                dcs = replace(
                    DCS_ROBUST if robust else DCS_PAPER,
                    retries=retries,
                    broker=replace(broker, metadata_only=True),
                    subscriber=subscriber,
                )
                ground = Geography(node_id, self._grid, rng, dcs.cells)
                cell = self._grid.cell_at(self._places[node_id])
                return DcsNode(node_id, cell, ground, store, rng, dcs)

    def _on_life(self, node_id: NodeId, life: int) -> None:
        self.people.on_life(node_id, life)
        if life > 1:
            node = self._inner(self._names.index(node_id))
            held = {held.sid for held in node.subscriber.held()}
            self.people.take_up_again(node_id, held)

    def _inner(self, number: int) -> EsNode | LsNode | DcsNode:
        node = self.residents.node(number)
        assert isinstance(node, Watched)
        assert isinstance(node.inner, EsNode | LsNode | DcsNode)
        return node.inner

    def _up(self) -> list[int]:
        return [n for n in range(len(self._names)) if self.residents.node(n) is not None]

    # Phases of the run

    def verdict(self) -> Verdict:
        """Executes all phases and returns the result."""
        try:
            self._live()
            self._rest()
            self._look()
        except BrokenError as error:
            self.people.wrong("broken", str(error))
        return Verdict(
            seed=self._seed,
            substrate=self._substrate,
            profile=self._profile,
            nodes=len(self._names),
            cells=len({self._grid.cell_at(place) for place in self._places.values()}),
            faults=len(self._schedule),
            steps=len(self._walks),
            ended=dict(sorted(self.people.ended.items())),
            told=sum(len(wish.heard) for wish in self.people.wishes.values()),
            violations=tuple(self.people.violations[:VIOLATIONS_MAX]),
        )

    def _live(self) -> None:
        """Runs the operations while faults are injected."""
        Fate(self._ether, self.residents, self._schedule)
        for number in range(len(self._names)):
            self.residents.start(number)
        for step in self._walks:
            self._ether.kernel.at(step.at_us, self._move, step)
        acts = stream(self._seed, "soak", "acts")
        for _ in range(ACTS):
            at_us = acts.randint(SETTLE_US, SETTLE_US + TROUBLE_US)
            self._ether.kernel.at(at_us, self.people.act, acts.choice(self._names))
        self._ether.run(SETTLE_US + TROUBLE_US)

    def _move(self, step: Step) -> None:
        name = self._names[step.node]
        self._places[name] = step.place
        if self.residents.node(step.node) is not None:
            self._ether.move(name, step.place)

    def _rest(self) -> None:
        """Runs a quiet period without faults; afterwards every request must be answered."""
        self._ether.run(self._ether.now_us + CALM_US)
        for name, asks in self.people.waiting.items():
            for ask in asks.values():
                self.people.wrong("never answered", f"{ask.request} of {name.decode()}")

    def _look(self) -> None:
        """Checks that acknowledged objects are found, deleted ones are not, and limits hold."""
        for number in self._up():
            self._check_bounds(number)
        if not self._connected():
            return
        rng = stream(self._seed, "soak", "probes")
        probers = [self._names[n] for n in rng.sample(self._up(), min(3, len(self._up())))]
        searches = {
            (prober, tag): self.people.search(prober, tag) for prober in probers for tag in TAGS
        }
        self._ether.run(self._ether.now_us + PROBE_US // 2)
        living = [key for key in self.people.things if self._must_be_there(key)]
        for (prober, tag), number in searches.items():
            found = self.people.found.get(number)
            if found is None:
                self.people.wrong("no reply", f"to {prober.decode()}'s search for {tag}")
                continue
            there = {note.key: note.metadata for note in found}
            for key in living:
                if tag in self.people.things[key].tags and key not in there:
                    what = f"{key}, stored by {self._holders(key)}, for {prober.decode()} at {tag}"
                    self.people.wrong("lost", what)
            self.people.met[prober].update(there)
        self._fetch(rng, probers, living)

    def _fetch(self, rng: Random, probers: list[NodeId], living: list[Key]) -> None:
        """Checks that a sample of the existing objects can be retrieved."""
        asks = {}
        for key in rng.sample(living, min(10, len(living))):
            prober = rng.choice(probers)
            if (metadata := self.people.met[prober].get(key)) is not None:
                asks[key, prober] = self.people.retrieve(prober, metadata)
        self._ether.run(self._ether.now_us + PROBE_US)
        for (key, prober), number in asks.items():
            if number not in self.people.fetched:
                what = f"{key}, stored by {self._holders(key)}, by {prober.decode()}"
                self.people.wrong("not retrieved", what)

    def _must_be_there(self, key: Key) -> bool:
        thing = self.people.things[key]
        if thing.acknowledged_us is None or thing.delete_asked or not self._holders(key):
            return False
        return self.people.is_safe(thing.acknowledged_us)

    def _holders(self, key: Key) -> list[str]:
        """Returns the names of the running nodes that store an object."""
        return [self._names[n].decode() for n in self._up() if _has(self._inner(n), key)]

    def _check_bounds(self, number: int) -> None:
        node = self._inner(number)
        try:
            node.check()
        except AssertionError as error:
            raise BrokenError(f"{self._names[number].decode()}: {error!r}") from error
        things, wishes = len(self.people.things), self.people.ended[f"{Subscribe.label} ok"]
        # A subscription whose reply was lost may be active, too.
        wishes += self.people.ended[f"{Subscribe.label} timeout"] + ACTS
        objects, subscriptions = _sizes(node)
        if objects > things or subscriptions > wishes:
            what = f"{self._names[number].decode()} stores {objects} objects of {things}"
            self.people.wrong("unbounded", f"{what}, {subscriptions} subscriptions of {wishes}")

    def _connected(self) -> bool:
        """Whether the running nodes form a connected network."""
        up = [self._names[number] for number in self._up()]
        if not self._cells:
            return bool(up)
        return _connected(up, self._hears)


def _ground(rng: Random, nodes: int) -> tuple[Grid, list[Point]]:
    """Draws a grid, and positions on it that form a connected network."""
    grid = Grid(columns=rng.randint(2, 6), rows=rng.randint(1, 3))
    while True:
        places = [
            (rng.uniform(0, grid.columns * CELL_M), rng.uniform(0, grid.rows * CELL_M))
            for _ in range(nodes)
        ]
        if _connected(places, lambda one, other: math.dist(one, other) <= grid.range_m):
            return grid, places


def _connected(all_of_them: Sequence[T], hears: Callable[[T, T], bool]) -> bool:
    """Whether there are items, and each reaches every other one over items in range."""
    if not all_of_them:
        return False
    left, waiting = list(all_of_them[1:]), [all_of_them[0]]
    while waiting and left:
        here = waiting.pop()
        waiting += [other for other in left if hears(here, other)]
        left = [other for other in left if not hears(here, other)]
    return not left


def _has(node: EsNode | LsNode | DcsNode, key: Key) -> bool:
    """Whether a node stores an object."""
    if isinstance(node, DcsNode):
        return node.replicas.get(key) is not None
    return node.broker is not None and key in node.broker.catalogue.history


def _sizes(node: EsNode | LsNode | DcsNode) -> tuple[int, int]:
    """Counts the objects and subscriptions that a node indexes."""
    broker = node.index.broker if isinstance(node, DcsNode) else node.broker
    return (0, 0) if broker is None else (len(broker.catalogue), broker.subscriptions)
