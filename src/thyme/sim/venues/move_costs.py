"""Move costs: the messages that one node causes when it moves to another cell.

Entry point: `measure_move`. Nine geographic cells with the same number of nodes each. One node has
a subscription in each cell and replicas of objects that each cell indexes, and walks to the next
cell. What all nodes send meanwhile is compared with the same time without the walk.
Clauses: D20, D21, I1, C33. Source: thesis, section 5.4.1.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thyme.model.ids import NodeId
from thyme.model.rng import derive_rng
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.description import CONTROL
from thyme.protocol.node import Node
from thyme.routing.cells import Grid, LogicalCells
from thyme.sim.mobility.paths import Leg, pause_leg, straight_leg
from thyme.sim.venues.small_network import SmallNetwork
from thyme.storage.store import Store
from thyme.substrates.dcs.cell_map import LogicalCellMap
from thyme.substrates.dcs.config import PAPER
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.factory import make_dcs_node

_GRID = Grid(columns=3, rows=3)
_CELLS = LogicalCells(len(_GRID))
_CENTRE, _NEXT = 4, 5
"""The cells between which the node walks."""
_WALK_US, _SETTLED_US = 200 * SECOND_US, 300 * SECOND_US
_SPEED_M_S = 2.5


class MoveScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A walk in a network with so many nodes in each cell."""

    nodes_per_cell: int
    is_logical: bool = False
    """Whether cells are logical: a walk does not leave them."""
    seed: int = 1


class MoveCost(msgspec.Struct, frozen=True):
    """The messages that a walk caused; received ones are those that the thesis counts, since it
    sends a message to each node of a cell."""

    sent: int
    received: int


def measure_move(scenario: MoveScenario) -> MoveCost:
    """The additional messages of a run with a walk."""
    with_walk, without = _count(scenario, walks=True), _count(scenario, walks=False)
    return MoveCost(with_walk.sent - without.sent, with_walk.received - without.received)


def _count(scenario: MoveScenario, *, walks: bool) -> MoveCost:
    rng = derive_rng(scenario.seed, "places")
    names = [NodeId(f"node {number}".encode()) for number in range(9 * scenario.nodes_per_cell)]
    positions = {
        name: (
            _GRID.cell_m * (number % 3 + 0.2 + 0.6 * rng.random()),
            _GRID.cell_m * (number // 3 % 3 + 0.2 + 0.6 * rng.random()),
        )
        for number, name in enumerate(names)
    }
    mover = names[_CENTRE]

    def make_node(node_id: NodeId, store: Store) -> Node:
        return _make_node(scenario, node_id, positions[node_id], store)

    start = positions[mover]
    end = start[0] + _GRID.cell_m, start[1]
    legs: list[Leg] = [
        pause_leg(0, _WALK_US, start),
        straight_leg(_WALK_US, start, end, _SPEED_M_S),
    ]
    paths = {mover: legs} if walks else {}
    small = SmallNetwork(positions, make_node, seed=scenario.seed, paths=paths)
    small.run_s(30)
    for cell, tag in enumerate(_tags()):
        small.subscribe(mover, tag)
        publisher = names[(_CENTRE + cell % 4 + 1) % 9]
        small.insert(publisher, f"object-{cell}", tag, 64)
        small.retrieve(mover, small.notification(mover, f"object-{cell}"))
    small.net.run(_WALK_US - SECOND_US)
    before = _messages(small)
    small.net.run(_SETTLED_US)
    after = _messages(small)
    return MoveCost(after.sent - before.sent, after.received - before.received)


def _tags() -> Iterator[str]:
    """A tag for each cell."""
    for cell in range(len(_GRID)):
        tags = (f"tag{number}" for number in range(10_000))
        yield next(tag for tag in tags if _GRID.cell_of_key(tag) == cell)


def _messages(small: SmallNetwork) -> MoveCost:
    """All messages except beacons and other routing control."""
    loads = small.net.collect_measurements().loads
    counted = [load for kind, load in loads.items() if kind not in CONTROL]
    return MoveCost(sum(load.sent for load in counted), sum(load.heard for load in counted))


def _make_node(
    scenario: MoveScenario, node_id: NodeId, position: tuple[float, float], store: Store
) -> DcsNode:
    rng = derive_rng(scenario.seed, "node", node_id)
    if not scenario.is_logical:
        return make_dcs_node(node_id, _GRID, position, store, cells_rng=rng, rng=rng, config=PAPER)
    cell_map = LogicalCellMap(node_id, _CELLS, rng, PAPER.routing)
    return DcsNode(node_id, _CELLS.cell_of_node(node_id), cell_map, store, rng, PAPER)
