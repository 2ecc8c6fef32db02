"""Least air: how long the channel must be used at least for the notifications of a match.

The estimate leaves out everything but data: every new object goes once to the cells of its tags, on
the shortest tree, and from each of them once to the subscribers, on the shortest tree; what was
published before a subscription goes to the subscriber in pages. No message is lost, acknowledged or
sent again; there are no beacons, replies and retrieves. Sizes are those of compact messages. A
frame takes its airtime, half the smallest contention window, DIFS, SIFS and the acknowledgement of
the MAC. Entry point: `least_air`.
Clauses: D28, C16.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from thyme.model.rng import derive_rng
from thyme.model.time_frames import SECOND_US
from thyme.sim.mobility.models import random_positions
from thyme.sim.radio.phy import ACK_BYTES, DIFS_US, OVERHEAD_BYTES, SIFS_US, SLOT_US, Phy
from thyme.sim.scenario import Scenario, grid_over
from thyme.traces.operations import InsertOperation, SubscribeOperation
from thyme.traces.trace import Trace

HOP_M = 100.0
"""The longest link that carries most frames at once."""
PACKET_BYTES = 40
"""Header of cell routing, and what the objects of a message share."""
OBJECT_BYTES = 40
"""Metadata of an object in a compact message, without its bytes."""
PAGE = 50
MINUTE_US = 60 * SECOND_US


class Air(NamedTuple):
    """Seconds of airtime in each second, by minute; the sum over all senders."""

    index: list[float]
    """New objects to the cells of their tags."""
    notify: list[float]
    past: list[float]

    @property
    def peak(self) -> float:
        return max(map(sum, zip(*self, strict=True)))


def frame_us(payload: int) -> float:
    """The time for which one frame occupies the channel around its sender."""
    mode = Phy().mode
    return (
        mode.duration_us(payload + OVERHEAD_BYTES)
        + DIFS_US
        + 7.5 * SLOT_US
        + SIFS_US
        + mode.duration_us(ACK_BYTES)
    )


class Topology:
    """The nodes of a static scenario, and the shortest ways between them."""

    def __init__(self, scenario: Scenario) -> None:
        seed = scenario.seed if scenario.topology is None else scenario.topology
        places = random_positions(derive_rng(seed, "places"), scenario.nodes, scenario.area)
        self._neighbours = [
            [
                other
                for other, there in enumerate(places)
                if other != node and _distance(here, there) <= HOP_M
            ]
            for node, here in enumerate(places)
        ]
        grid = grid_over(scenario.area)
        self.node_of_cell = {grid.cell_at(place): node for node, place in enumerate(places)}
        self._grid = grid
        self._parents: dict[int, dict[int, int]] = {}

    def node_of_tag(self, tag: str) -> int:
        """A node of the cell of a tag, or of the populated cell that is closest to it."""
        cell = self._grid.cell_of_key(tag)
        nearest = min(self.node_of_cell, key=lambda other: self._grid.distance_key(other, cell))
        return self.node_of_cell[nearest]

    def tree(self, source: int, targets: Iterable[int]) -> int:
        """The number of links of a tree of shortest ways from a node to others."""
        parents = self._shortest(source)
        links: set[int] = set()
        for target in targets:
            while target != source and target not in links and target in parents:
                links.add(target)
                target = parents[target]
        return len(links)

    def _shortest(self, source: int) -> Mapping[int, int]:
        if source not in self._parents:
            parents, queue = {source: source}, deque([source])
            while queue:
                node = queue.popleft()
                for other in self._neighbours[node]:
                    if other not in parents:
                        parents[other] = node
                        queue.append(other)
            self._parents[source] = parents
        return self._parents[source]


def least_air(scenario: Scenario, trace: Trace) -> Air:
    """The airtime that the notifications of a trace need at least."""
    topology = Topology(scenario)
    tags = {tag for each in trace.operations for tag in getattr(each, "tags", ())}
    cells = {tag: topology.node_of_tag(tag) for tag in tags}
    minutes = -(-scenario.timeline.operations_us // MINUTE_US)
    index, notify, past = ([0.0] * minutes for _ in range(3))
    subscribers: defaultdict[str, list[int]] = defaultdict(list)
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for each in trace.operations:
        minute = min(each.at_us // MINUTE_US, minutes - 1)
        if isinstance(each, InsertOperation):
            size = PACKET_BYTES + OBJECT_BYTES + each.size
            nodes = {cells[tag] for tag in each.tags}
            index[minute] += topology.tree(each.user, nodes) * frame_us(size)
            for node in nodes:
                readers = {
                    user for tag in each.tags if cells[tag] == node for user in subscribers[tag]
                }
                notify[minute] += topology.tree(node, readers) * frame_us(size)
            for tag in each.tags:
                sizes[tag].append(OBJECT_BYTES + each.size)
        elif isinstance(each, SubscribeOperation) and each.query in cells:
            hops = topology.tree(cells[each.query], [each.user])
            known = sizes[each.query]
            for start in range(0, len(known), PAGE):
                past[minute] += hops * frame_us(PACKET_BYTES + sum(known[start : start + PAGE]))
            subscribers[each.query].append(each.user)
    shares = [[each / MINUTE_US for each in part] for part in (index, notify, past)]
    return Air(*shares)


def _distance(one: tuple[float, float], other: tuple[float, float]) -> float:
    return ((one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2) ** 0.5
