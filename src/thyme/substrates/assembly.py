"""Factory: combines nodes with their routing, for any driver.

Entry points: `with_dsdv` and `make_dcs_node`. ES and LS use DSDV, as in the papers; a node of DCS
has its own routing over the cells of a grid.
Clauses: D1, E3, L4.
"""

from __future__ import annotations

from random import Random

from thyme.model.ids import NodeId
from thyme.protocol.node import Node
from thyme.protocol.outbox import Outbox
from thyme.protocol.warden import Warden
from thyme.routing.cells import Grid
from thyme.routing.dsdv import Dsdv
from thyme.routing.dsdv_config import DsdvConfig
from thyme.routing.relay import Relay
from thyme.storage.store import Store
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.dcs.ground import Geography, Point
from thyme.substrates.dcs.node import DcsNode


def over_dsdv(
    inner: Node, rng: Random, *, inner_starts_us: int = 0, config: DsdvConfig | None = None
) -> Relay:
    """Wraps a node with DSDV routing."""
    outbox = Outbox()
    routing = Dsdv(inner.node_id, outbox, rng, config)
    return Relay(inner, routing, outbox, inner_starts_us=inner_starts_us)


def dcs_node(
    node_id: NodeId,
    grid: Grid,
    place: Point,
    store: Store,
    *,
    cells_rng: Random,
    rng: Random,
    config: DcsConfig,
    joins_us: int = 0,
    warden: Warden | None = None,
) -> DcsNode:
    """Makes a node of Thyme-DCS at a position on a grid."""
    cell_map = Geography(node_id, grid, cells_rng, config.cells)
    cell = grid.cell_at(place)
    return DcsNode(node_id, cell, cell_map, store, rng, config, joins_us=joins_us, warden=warden)
