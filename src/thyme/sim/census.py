"""Census: what nodes keep, who is in which cell, and whether those of one cell agree.

Nodes are looked at now and then during a run, and once more at its end; they do not notice. What
comes of it is in `Storage` for every substrate, and in `CellFigures` for Thyme-DCS.
Clauses: S14, D1, D3, B2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations

import msgspec

from thyme.protocol.cells import CellId
from thyme.protocol.node import Node
from thyme.routing.cells import Grid
from thyme.routing.relay import Relay
from thyme.sim.measure import Spread, spread
from thyme.sim.recorder import Keeps, Recorder
from thyme.sim.residents import Residents
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.dcs.replicas import Role
from thyme.substrates.es import EsNode
from thyme.substrates.ls.node import LsNode
from thyme.traces.operations import Insert, Subscribe
from thyme.traces.trace import Trace

TAGS_TOLD_MAX = 10
"""How many tags of the hot spot are named."""


class Holding(msgspec.Struct, frozen=True):
    """What one node keeps."""

    objects: int = 0
    bytes: int = 0
    """Of these objects."""
    metadata: int = 0
    """Objects that it answers for."""
    subscriptions: int = 0
    """Those that it matches."""


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """How what is kept at the end is spread over the nodes; one that is down keeps nothing."""

    objects: Spread
    bytes: Spread
    metadata: Spread
    subscriptions: Spread


class CellState(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of a run."""

    cell: CellId
    populated: float
    """The share of the time in which it had nodes that work for it."""
    load: float
    """Messages sent and heard by its nodes, routing control aside: that is everywhere."""
    nodes: int
    """At the end."""
    records: int
    """What any of them knows then: metadata, and conjunctions that stand."""
    records_differing: int
    """Those that not all of them know."""
    pairs: int
    pairs_differing: int


class HotSpot(msgspec.Struct, frozen=True, kw_only=True):
    """The busiest cell."""

    cell: CellId
    load: float
    share: float
    """Of the load of all cells."""
    tags: tuple[str, ...]
    """Those of the trace that belong to it, the most used first; the first ten."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """How far nodes of one cell differ at the end, which should all know the same."""

    pairs: int
    """Pairs of nodes of one cell."""
    pairs_differing: int
    share: float | None
    records: int
    records_differing: int


class CellFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of a run."""

    cells: int
    populated_mean: float
    """Over time."""
    populated_end: int
    empty_mean: float
    empty_end: int
    load: Spread
    """Messages sent and heard by the nodes of a cell, routing control aside, over the cells that
    ever had any. A node that was in several counts in each for the share of the time that it was
    there."""
    hot_spot: HotSpot | None
    divergence: Divergence
    by_cell: tuple[CellState, ...]
    """Those that ever had nodes."""


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of the nodes of a run."""

    holdings: tuple[Holding, ...]
    """By node, at the end."""
    looks: int = 0
    """How often they were looked at."""
    populated: dict[CellId, int] = {}
    """By cell, in how many looks it had nodes that work for it."""
    stays: tuple[dict[CellId, int], ...] = ()
    """By node, in how many looks it was up in each cell."""
    members: dict[CellId, tuple[frozenset[Hashable], ...]] = {}
    """What each node that works for a cell knows for it, at the end."""


class Surveyor:
    """Looks at the nodes of one run."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._looks = 0
        self._populated: Counter[CellId] = Counter()
        self._stays: list[Counter[CellId]] = [Counter() for _ in range(len(residents))]

    def look(self) -> None:
        """Sees who is where."""
        self._looks += 1
        populated = set()
        for number, node in self._nodes():
            if isinstance(node, DcsNode):
                self._stays[number][node.routing.cell] += 1
                if node.routing.serving:
                    populated.add(node.routing.cell)
        self._populated.update(populated)

    def census(self) -> Census:
        """The run is over."""
        holdings = [Holding()] * len(self._residents)
        members: dict[CellId, tuple[frozenset[Hashable], ...]] = {}
        for number, node in self._nodes():
            holdings[number] = holding_of(node)
            if isinstance(node, DcsNode) and node.routing.serving:
                cell = node.routing.cell
                members[cell] = (*members.get(cell, ()), known_to(node))
        return Census(
            holdings=tuple(holdings),
            looks=self._looks,
            populated=dict(sorted(self._populated.items())),
            stays=tuple(dict(sorted(stays.items())) for stays in self._stays),
            members=dict(sorted(members.items())),
        )

    def _nodes(self) -> Iterable[tuple[int, Node]]:
        """Those that are up, as they are behind their routing."""
        for number in range(len(self._residents)):
            node = self._residents.node(number)
            if node is not None:
                yield number, node.inner if isinstance(node, Relay) else node


class Keepers:
    """Has it recorded who has which object (S17); of Thyme-DCS, where objects have replicas."""

    def __init__(self, residents: Residents, recorder: Recorder) -> None:
        self._residents = residents
        self._recorder = recorder
        self._seen: list[dict[str, str]] = [{} for _ in range(len(residents))]

    def look(self, at_us: int) -> None:
        """Writes down what has changed; instants count from the start of the run."""
        for number, seen in enumerate(self._seen):
            node = self._residents.node(number)
            now = _replicas(node) if isinstance(node, DcsNode) else {}
            if now == seen:
                continue
            for name, role in now.items():
                if seen.get(name) != role:
                    self._recorder.write(Keeps(at_us, number, name, role))
            for name in seen:
                if name not in now:
                    self._recorder.write(Keeps(at_us, number, name, ""))
            self._seen[number] = now


def _replicas(node: DcsNode) -> dict[str, str]:
    """The objects that a node has, and why."""
    return {held.metadata.oid: role.value for role in Role for held in node.replicas.of_role(role)}


def holding_of(node: Node) -> Holding:
    """What a node keeps for itself and others."""
    match node:
        case DcsNode():
            broker, replicas = node.index.broker, node.replicas
            return Holding(
                len(replicas), replicas.bytes_held, len(broker.catalogue), broker.subscriptions
            )
        case EsNode() | LsNode() if node.broker is not None:
            catalogue = node.broker.catalogue
            return Holding(
                len(catalogue), catalogue.bytes_held, len(catalogue), node.broker.subscriptions
            )
        case _:
            return Holding()


def known_to(node: DcsNode) -> frozenset[Hashable]:
    """What a node knows for its cell: metadata, and conjunctions that stand."""
    objects: list[Hashable] = [indexed.metadata.key for indexed in node.index.objects()]
    conjunctions: list[Hashable] = [
        (interest.subscription.key, conjunction)
        for interest in node.index.interests()
        for conjunction in interest.subscription.conjunctions
    ]
    return frozenset([*objects, *conjunctions])


# Figures


def storage_of(census: Census) -> Storage:
    """How what is kept is spread over the nodes."""
    return Storage(
        objects=spread([held.objects for held in census.holdings]),
        bytes=spread([held.bytes for held in census.holdings]),
        metadata=spread([held.metadata for held in census.holdings]),
        subscriptions=spread([held.subscriptions for held in census.holdings]),
    )


def cells_of(census: Census, loads: Sequence[float], grid: Grid, trace: Trace) -> CellFigures:
    """The cells of a run, whose nodes had these loads."""
    by_load = load_by_cell(census.stays, loads)
    ever = sorted({*census.populated, *by_load})
    states = tuple(_state(census, cell, by_load.get(cell, 0.0)) for cell in ever)
    populated = sum(census.populated.values()) / max(1, census.looks)
    return CellFigures(
        cells=len(grid),
        populated_mean=populated,
        populated_end=len(census.members),
        empty_mean=len(grid) - populated,
        empty_end=len(grid) - len(census.members),
        load=spread(list(by_load.values())),
        hot_spot=hot_spot_of(by_load, grid, trace),
        divergence=divergence_of(states),
        by_cell=states,
    )


def load_by_cell(
    stays: Iterable[Mapping[CellId, int]], loads: Iterable[float]
) -> dict[CellId, float]:
    """Each node's load, shared out over the cells in which it was."""
    found: dict[CellId, float] = {}
    for stay, load in zip(stays, loads, strict=False):  # the server of ES is in none
        looks = sum(stay.values())
        for cell, count in stay.items():
            found[cell] = found.get(cell, 0.0) + load * count / looks
    return found


def _state(census: Census, cell: CellId, load: float) -> CellState:
    members = census.members.get(cell, ())
    known = frozenset[Hashable]().union(*members)
    shared = known.intersection(*members)
    pairs = list(combinations(members, 2))
    return CellState(
        cell=cell,
        populated=census.populated.get(cell, 0) / max(1, census.looks),
        load=load,
        nodes=len(members),
        records=len(known),
        records_differing=len(known) - len(shared),
        pairs=len(pairs),
        pairs_differing=sum(one != other for one, other in pairs),
    )


def hot_spot_of(loads: Mapping[CellId, float], grid: Grid, trace: Trace) -> HotSpot | None:
    """The busiest cell, and the tags that belong to it."""
    if not loads:
        return None
    cell = max(loads, key=lambda cell: (loads[cell], -cell))
    used: Counter[str] = Counter()
    for operation in trace.operations:
        match operation:
            case Insert():
                used.update(operation.tags)
            case Subscribe():
                used.update(tag for each in operation.conjunctions for tag in each.positive)
    here = [tag for tag in used if grid.cell_of_key(tag) == cell]
    here.sort(key=lambda tag: (-used[tag], tag))
    return HotSpot(
        cell=cell,
        load=loads[cell],
        share=loads[cell] / (sum(loads.values()) or 1.0),
        tags=tuple(here[:TAGS_TOLD_MAX]),
    )


def divergence_of(states: Iterable[CellState]) -> Divergence:
    """All cells together."""
    states = list(states)
    pairs = sum(state.pairs for state in states)
    differing = sum(state.pairs_differing for state in states)
    return Divergence(
        pairs=pairs,
        pairs_differing=differing,
        share=differing / pairs if pairs else None,
        records=sum(state.records for state in states),
        records_differing=sum(state.records_differing for state in states),
    )
