"""Sampler: samples the records that nodes store and the cells in which they are.

Entry point: `NodeSampler`. Nodes are sampled periodically during a run and once at its end, without
influence on the run. `summarise_storage` computes a `StorageSummary` for every substrate,
`summarise_cells` a `CellsSummary` for Thyme-DCS, which includes whether the nodes of a cell agree.
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
"""Number of tags listed for the hot spot."""


class Holding(msgspec.Struct, frozen=True):
    """Numbers of objects and records that one node stores."""

    objects: int = 0
    bytes: int = 0
    """Size of these objects."""
    metadata: int = 0
    """Indexed metadata records."""
    subscriptions: int = 0
    """Subscriptions that the node matches."""


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """Distribution of stored records over the nodes at the end; a node that is down has none."""

    objects: Spread
    bytes: Spread
    metadata: Spread
    subscriptions: Spread


class CellState(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of one cell."""

    cell: CellId
    populated: float
    """Share of the time in which at least one node served the cell."""
    load: float
    """Messages sent and received by the nodes of the cell, without routing control."""
    nodes: int
    """Nodes serving the cell at the end."""
    records: int
    """Records of any of these nodes: metadata, and conjunctions of active subscriptions."""
    records_differing: int
    """Records that not all of these nodes have."""
    pairs: int
    pairs_differing: int


class HotSpot(msgspec.Struct, frozen=True, kw_only=True):
    """The cell with the highest load."""

    cell: CellId
    load: float
    share: float
    """Share of the load of all cells."""
    tags: tuple[str, ...]
    """The most used tags of the trace whose key cell this is; at most ten."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """How much the records of the nodes of one cell differ at the end; they should be equal."""

    pairs: int
    """Pairs of nodes that serve the same cell."""
    pairs_differing: int
    share: float | None
    records: int
    records_differing: int


class CellFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of all cells of a run."""

    cells: int
    populated_mean: float
    """Mean number of populated cells over time."""
    populated_end: int
    empty_mean: float
    empty_end: int
    load: Spread
    """Distribution of messages sent and received by the nodes of a cell, without routing control,
    over the cells that ever had nodes. The load of a node is divided among its cells in proportion
    to the time it was in each."""
    hot_spot: HotSpot | None
    divergence: Divergence
    by_cell: tuple[CellState, ...]
    """Statistics of the cells that ever had nodes."""


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of the nodes of a run."""

    holdings: tuple[Holding, ...]
    """Stored records by node, at the end."""
    looks: int = 0
    """Number of samples taken during the run."""
    populated: dict[CellId, int] = {}
    """By cell: number of samples in which a node served the cell."""
    stays: tuple[dict[CellId, int], ...] = ()
    """By node: number of samples in which the node was up, by cell."""
    members: dict[CellId, tuple[frozenset[Hashable], ...]] = {}
    """By cell: the records of each node that serves the cell, at the end."""


class Surveyor:
    """Samples the nodes of one run."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._looks = 0
        self._populated: Counter[CellId] = Counter()
        self._stays: list[Counter[CellId]] = [Counter() for _ in range(len(residents))]

    def look(self) -> None:
        """Samples which cell each node is in, and which cells are served."""
        self._looks += 1
        populated = set()
        for number, node in self._nodes():
            if isinstance(node, DcsNode):
                self._stays[number][node.routing.cell] += 1
                if node.routing.serving:
                    populated.add(node.routing.cell)
        self._populated.update(populated)

    def census(self) -> Census:
        """Samples the stored records at the end of the run and returns all samples."""
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
        """Yields number and node of the devices that are up, without the routing wrapper."""
        for number in range(len(self._residents)):
            node = self._residents.node(number)
            if node is not None:
                yield number, node.inner if isinstance(node, Relay) else node


class Keepers:
    """Writes changes of the replicas of objects to the recording (S17); Thyme-DCS only."""

    def __init__(self, residents: Residents, recorder: Recorder) -> None:
        self._residents = residents
        self._recorder = recorder
        self._seen: list[dict[str, str]] = [{} for _ in range(len(residents))]

    def look(self, at_us: int) -> None:
        """Records the replicas that were added, changed or removed since the last call.

        Instants count from the start of the run.
        """
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
    """Returns the role of each object that a node stores, by object id."""
    return {held.metadata.oid: role.value for role in Role for held in node.replicas.of_role(role)}


def holding_of(node: Node) -> Holding:
    """Counts the objects and records that a node stores."""
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
    """Returns the keys of the records that a node stores for its cell.

    The records are metadata and the conjunctions of active subscriptions.
    """
    objects: list[Hashable] = [indexed.metadata.key for indexed in node.index.objects()]
    conjunctions: list[Hashable] = [
        (interest.subscription.key, conjunction)
        for interest in node.index.interests()
        for conjunction in interest.subscription.conjunctions
    ]
    return frozenset([*objects, *conjunctions])


# Summaries


def storage_of(census: Census) -> Storage:
    """Summarises the distribution of stored records over the nodes."""
    return Storage(
        objects=spread([held.objects for held in census.holdings]),
        bytes=spread([held.bytes for held in census.holdings]),
        metadata=spread([held.metadata for held in census.holdings]),
        subscriptions=spread([held.subscriptions for held in census.holdings]),
    )


def cells_of(census: Census, loads: Sequence[float], grid: Grid, trace: Trace) -> CellFigures:
    """Summarises the cells of a run, given the load of each node."""
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
    """Divides the load of each node among the cells in which it was."""
    found: dict[CellId, float] = {}
    for stay, load in zip(stays, loads, strict=False):  # the server of ES is in no cell
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
    """Finds the cell with the highest load and its most used tags; None without cells."""
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
    """Adds up the differences between nodes over all cells."""
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
