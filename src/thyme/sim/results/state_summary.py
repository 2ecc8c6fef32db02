"""State summary: summarises the records that nodes stored and the cells of Thyme-DCS.

Entry points: `summarise_storage` for every substrate, `summarise_cells` for Thyme-DCS, which
includes whether the nodes of a cell agree. The samples come from `thyme.sim.measurement.sampler`.
Clauses: S14, D1, D3, B2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations

import msgspec

from thyme.protocol.messages.cell_records import CellId
from thyme.routing.cells import Grid
from thyme.sim.measurement.measurements import Distribution, distribution_of
from thyme.sim.measurement.sampler import StateSamples
from thyme.traces.operations import InsertOperation, SubscribeOperation
from thyme.traces.trace import Trace

HOT_SPOT_TAGS_MAX = 10
"""Number of tags listed for the hot spot."""


class StorageSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Distribution of stored records over the nodes at the end; a node that is down has none."""

    objects: Distribution
    bytes: Distribution
    metadata: Distribution
    subscriptions: Distribution


class CellStatistics(msgspec.Struct, frozen=True, kw_only=True):
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


class CellsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of all cells of a run."""

    cells: int
    populated_mean: float
    """Mean number of populated cells over time."""
    populated_end: int
    empty_mean: float
    empty_end: int
    load: Distribution
    """Distribution of messages sent and received by the nodes of a cell, without routing control,
    over the cells that ever had nodes. The load of a node is divided among its cells in proportion
    to the time it was in each."""
    hot_spot: HotSpot | None
    divergence: Divergence
    by_cell: tuple[CellStatistics, ...]
    """Statistics of the cells that ever had nodes."""


def summarise_storage(samples: StateSamples) -> StorageSummary:
    """Summarises the distribution of stored records over the nodes."""
    return StorageSummary(
        objects=distribution_of([stored.objects for stored in samples.stored]),
        bytes=distribution_of([stored.bytes for stored in samples.stored]),
        metadata=distribution_of([stored.metadata for stored in samples.stored]),
        subscriptions=distribution_of([stored.subscriptions for stored in samples.stored]),
    )


def summarise_cells(
    samples: StateSamples, loads: Sequence[float], grid: Grid, trace: Trace
) -> CellsSummary:
    """Summarises the cells of a run, given the load of each node."""
    by_load = load_by_cell(samples.cell_residency, loads)
    cells = sorted({*samples.populated_samples, *by_load})
    statistics = tuple(_cell_statistics(samples, cell, by_load.get(cell, 0.0)) for cell in cells)
    populated = sum(samples.populated_samples.values()) / max(1, samples.sample_count)
    return CellsSummary(
        cells=len(grid),
        populated_mean=populated,
        populated_end=len(samples.cell_records),
        empty_mean=len(grid) - populated,
        empty_end=len(grid) - len(samples.cell_records),
        load=distribution_of(list(by_load.values())),
        hot_spot=find_hot_spot(by_load, grid, trace),
        divergence=sum_divergence(statistics),
        by_cell=statistics,
    )


def load_by_cell(
    cell_residency: Iterable[Mapping[CellId, int]], loads: Iterable[float]
) -> dict[CellId, float]:
    """Divides the load of each node among the cells in which it was."""
    load_of_cell: dict[CellId, float] = {}
    for residency, load in zip(
        cell_residency, loads, strict=False
    ):  # the server of ES is in no cell
        sample_count = sum(residency.values())
        for cell, count in residency.items():
            load_of_cell[cell] = load_of_cell.get(cell, 0.0) + load * count / sample_count
    return load_of_cell


def _cell_statistics(samples: StateSamples, cell: CellId, load: float) -> CellStatistics:
    nodes = samples.cell_records.get(cell, ())
    records = frozenset[Hashable]().union(*nodes)
    common = records.intersection(*nodes)
    pairs = list(combinations(nodes, 2))
    return CellStatistics(
        cell=cell,
        populated=samples.populated_samples.get(cell, 0) / max(1, samples.sample_count),
        load=load,
        nodes=len(nodes),
        records=len(records),
        records_differing=len(records) - len(common),
        pairs=len(pairs),
        pairs_differing=sum(one != other for one, other in pairs),
    )


def find_hot_spot(loads: Mapping[CellId, float], grid: Grid, trace: Trace) -> HotSpot | None:
    """Finds the cell with the highest load and its most used tags; None without cells."""
    if not loads:
        return None
    cell = max(loads, key=lambda cell: (loads[cell], -cell))
    tag_uses: Counter[str] = Counter()
    for operation in trace.operations:
        match operation:
            case InsertOperation():
                tag_uses.update(operation.tags)
            case SubscribeOperation():
                tag_uses.update(tag for each in operation.conjunctions for tag in each.positive)
    cell_tags = [tag for tag in tag_uses if grid.cell_of_key(tag) == cell]
    cell_tags.sort(key=lambda tag: (-tag_uses[tag], tag))
    return HotSpot(
        cell=cell,
        load=loads[cell],
        share=loads[cell] / (sum(loads.values()) or 1.0),
        tags=tuple(cell_tags[:HOT_SPOT_TAGS_MAX]),
    )


def sum_divergence(statistics: Iterable[CellStatistics]) -> Divergence:
    """Adds up the differences between nodes over all cells."""
    statistics = list(statistics)
    pairs = sum(state.pairs for state in statistics)
    differing = sum(state.pairs_differing for state in statistics)
    return Divergence(
        pairs=pairs,
        pairs_differing=differing,
        share=differing / pairs if pairs else None,
        records=sum(state.records for state in statistics),
        records_differing=sum(state.records_differing for state in statistics),
    )
