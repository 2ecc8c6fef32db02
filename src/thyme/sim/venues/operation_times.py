"""Operation times: how long each operation takes over one hop and over two.

Entry point: `measure_operations`. Three nodes of Thyme-DCS in a row, each in a cell of its own: the
first one operates on objects and tags of its neighbour, or of the node behind that.
Clauses: C34, C35. Source: thesis, section 5.4.2.
"""

from __future__ import annotations

from math import sqrt

import msgspec

from thyme.model.ids import Key, NodeId, as_object_id
from thyme.model.rng import derive_rng
from thyme.protocol import app_interface as requests
from thyme.protocol.node import Node
from thyme.routing.cells import Grid
from thyme.sim.radio.modes import get_mode
from thyme.sim.radio.phy import Phy
from thyme.sim.venues.small_network import SmallNetwork
from thyme.storage.store import Store
from thyme.substrates.dcs.config import PAPER
from thyme.substrates.factory import make_dcs_node

FIRST, MIDDLE, LAST = NodeId(b"first"), NodeId(b"middle"), NodeId(b"last")
HOPS = {1: MIDDLE, 2: LAST}
_COLUMNS, _CELLS_BETWEEN = 5, 2
"""Nodes are in the cells 0, 2 and 4 of a row: two cells are within range, four are not (D2)."""


class OperationScenario(msgspec.Struct, frozen=True, kw_only=True):
    """The operations of one node, over one hop or two."""

    hops: int
    size: int = 64
    seed: int = 1
    rate_mbps: float = 54.0


def measure_operations(scenario: OperationScenario) -> dict[str, float]:
    """How long each operation takes, in milliseconds."""
    range_m = Phy(mode=get_mode("802.11g", scenario.rate_mbps)).range_m()
    cell_m = range_m / sqrt(8)
    grid = Grid(columns=_COLUMNS, rows=1, cell_m=cell_m, range_m=range_m)
    positions = {
        name: ((_CELLS_BETWEEN * number + 0.5) * cell_m, cell_m / 2)
        for number, name in enumerate((FIRST, MIDDLE, LAST))
    }

    def make_node(node_id: NodeId, store: Store) -> Node:
        rng = derive_rng(scenario.seed, "node", node_id)
        return make_dcs_node(
            node_id, grid, positions[node_id], store, cells_rng=rng, rng=rng, config=PAPER
        )

    small = SmallNetwork(positions, make_node, seed=scenario.seed, rate_mbps=scenario.rate_mbps)
    small.run_s(30)
    other, cell = HOPS[scenario.hops], _CELLS_BETWEEN * scenario.hops
    tags = (f"tag{number}" for number in range(1_000))
    tag = next(each for each in tags if grid.cell_of_key(each) == cell)
    found: dict[str, float] = {}
    found["insert"] = small.insert(FIRST, "own", tag, scenario.size)
    started, found["subscribe"] = small.subscribe(FIRST, tag)
    small.insert(other, "other", tag, scenario.size)
    metadata = small.notification(FIRST, "other")
    found["retrieve"] = small.retrieve(FIRST, metadata)
    found["unsubscribe"] = small.ask(
        FIRST, lambda number: requests.Unsubscribe(request_id=number, sid=started.sid)
    )[1]
    own = Key(as_object_id("own"), FIRST)
    found["delete"] = small.ask(FIRST, lambda number: requests.Delete(request_id=number, key=own))[
        1
    ]
    return found
