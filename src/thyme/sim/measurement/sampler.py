"""Sampler: samples the records that nodes store and the cells in which they are.

Entry point: `NodeSampler`. Nodes are sampled periodically during a run and once at its end, without
influence on the run. `thyme.sim.results.state_summary` summarises the samples.
Clauses: S14, D1, D3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

import msgspec

from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.node import Node
from thyme.sim.faults.devices import Devices
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.es import EsNode
from thyme.substrates.ls.node import LsNode


class StoredCounts(msgspec.Struct, frozen=True):
    """Numbers of objects and records that one node stores."""

    objects: int = 0
    bytes: int = 0
    """Size of these objects."""
    metadata: int = 0
    """Indexed metadata records."""
    subscriptions: int = 0
    """Subscriptions that the node matches."""


class StateSamples(msgspec.Struct, frozen=True, kw_only=True):
    """All samples of the nodes of a run."""

    stored: tuple[StoredCounts, ...]
    """Stored records by node, at the end."""
    sample_count: int = 0
    """Number of samples taken during the run."""
    populated_samples: dict[CellId, int] = {}
    """By cell: number of samples in which a node served the cell."""
    cell_residency: tuple[dict[CellId, int], ...] = ()
    """By node: number of samples in which the node was up, by cell."""
    cell_records: dict[CellId, tuple[frozenset[Hashable], ...]] = {}
    """By cell: the records of each node that serves the cell, at the end."""


class NodeSampler:
    """Samples the nodes of one run."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._sample_count = 0
        self._populated_samples: Counter[CellId] = Counter()
        self._cell_residency: list[Counter[CellId]] = [Counter() for _ in range(len(devices))]

    def sample(self) -> None:
        """Samples which cell each node is in, and which cells are served."""
        self._sample_count += 1
        populated = set()
        for number, node in self._running_nodes():
            if isinstance(node, DcsNode):
                self._cell_residency[number][node.routing.cell] += 1
                if node.routing.serving:
                    populated.add(node.routing.cell)
        self._populated_samples.update(populated)

    def build_samples(self) -> StateSamples:
        """Samples the stored records at the end of the run and returns all samples."""
        stored = [StoredCounts()] * len(self._devices)
        cell_records: dict[CellId, tuple[frozenset[Hashable], ...]] = {}
        for number, node in self._running_nodes():
            stored[number] = count_stored(node)
            if isinstance(node, DcsNode) and node.routing.serving:
                cell = node.routing.cell
                cell_records[cell] = (*cell_records.get(cell, ()), records_of(node))
        return StateSamples(
            stored=tuple(stored),
            sample_count=self._sample_count,
            populated_samples=dict(sorted(self._populated_samples.items())),
            cell_residency=tuple(
                dict(sorted(residency.items())) for residency in self._cell_residency
            ),
            cell_records=dict(sorted(cell_records.items())),
        )

    def _running_nodes(self) -> Iterable[tuple[int, Node]]:
        """Yields number and node of the devices that are up, without wrappers such as
        `RoutedNode`."""
        for number in range(len(self._devices)):
            node = self._devices.node_of(number)
            if node is not None:
                yield number, getattr(node, "inner", node)


def count_stored(node: Node) -> StoredCounts:
    """Counts the objects and records that a node stores."""
    match node:
        case DcsNode():
            broker, replicas = node.index.broker, node.replicas
            return StoredCounts(
                len(replicas),
                replicas.stored_bytes,
                len(broker.catalogue),
                broker.subscription_count,
            )
        case EsNode() | LsNode() if node.broker is not None:
            catalogue = node.broker.catalogue
            return StoredCounts(
                len(catalogue),
                catalogue.stored_bytes,
                len(catalogue),
                node.broker.subscription_count,
            )
        case _:
            return StoredCounts()


def records_of(node: DcsNode) -> frozenset[Hashable]:
    """Returns the keys of the records that a node stores for its cell.

    The records are metadata and the conjunctions of active subscriptions.
    """
    objects: list[Hashable] = [indexed.metadata.key for indexed in node.index.objects()]
    conjunctions: list[Hashable] = [
        (interest.subscription.key, conjunction)
        for interest in node.index.cell_subscriptions()
        for conjunction in interest.subscription.conjunctions
    ]
    return frozenset([*objects, *conjunctions])
