"""Factory: combines nodes with their routing, for any driver.

Entry points: `with_dsdv` and `make_dcs_node`. ES and LS use DSDV, as in the papers; a node of DCS
has its own routing over the cells of a grid.
Clauses: D1, E3, L4.
"""

from __future__ import annotations

from random import Random

from thyme.model.ids import NodeId
from thyme.model.positions import Position
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.node import Node
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import Grid
from thyme.routing.dsdv.config import DsdvConfig
from thyme.routing.dsdv.protocol import Dsdv
from thyme.routing.routed_node import RoutedNode
from thyme.storage.store import Store
from thyme.substrates.dcs.cell_map import GridCellMap
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.dcs.membership.position_filter import margin_m
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.dcs.state.stored_cell import STORED_CELL


def with_dsdv(
    inner: Node, rng: Random, *, inner_start_us: int = 0, config: DsdvConfig | None = None
) -> RoutedNode:
    """Wraps a node with DSDV routing."""
    outbox = Outbox()
    routing = Dsdv(inner.node_id, outbox, rng, config)
    return RoutedNode(inner, routing, outbox, inner_start_us=inner_start_us)


def make_dcs_node(
    node_id: NodeId,
    grid: Grid,
    position: Position,
    store: Store,
    *,
    cells_rng: Random,
    rng: Random,
    config: DcsConfig,
    join_at_us: int = 0,
    authenticator: MessageAuthenticator | None = None,
) -> DcsNode:
    """Makes a node of Thyme-DCS at a position on a grid. A node that restarts stays in the cell of
    its stored state unless its position, which may be noisy, is clearly outside (D20)."""
    cell_map = GridCellMap(node_id, grid, cells_rng, config.routing)
    cell = grid.cell_at(position)
    stored, noise_m = dict(store.load(STORED_CELL)).get("here"), config.movement.noise_m
    if noise_m and stored is not None and grid.is_within(stored.cell, position, margin_m(noise_m)):
        cell = stored.cell
    return DcsNode(
        node_id,
        cell,
        cell_map,
        store,
        rng,
        config,
        join_at_us=join_at_us,
        authenticator=authenticator,
    )
