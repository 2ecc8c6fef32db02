"""Factory: makes the mobile nodes of Thyme-Infrastructure.

Entry point: `make_mobile_node`. The cells of a mobile node are logical; a node in a world with
geographic cells is made by `thyme.substrates.factory.make_dcs_node`. The choice is made at start.
Clauses: I1.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from thyme.model.ids import NodeId
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.routing.cells import LogicalCells
from thyme.storage.store import Store
from thyme.substrates.dcs.cell_map import LogicalCellMap
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.infra.mobile.extension import MobileConfig, MobileExtension


def make_mobile_node(
    node_id: NodeId,
    store: Store,
    *,
    cells_rng: Random,
    rng: Random,
    station_rng: Random,
    config: DcsConfig,
    mobile: MobileConfig,
    join_at_us: int = 0,
    authenticator: MessageAuthenticator | None = None,
) -> tuple[DcsNode, MobileExtension]:
    """Makes a node over logical cells that uses a station if it finds one."""
    cells = LogicalCells(mobile.cells)
    routing = replace(config.routing, world=mobile.world)
    extension = MobileExtension(mobile, station_rng, authenticator)
    node = DcsNode(
        node_id,
        cells.cell_of_node(node_id),
        LogicalCellMap(node_id, cells, cells_rng, routing),
        store,
        rng,
        replace(config, routing=routing),
        join_at_us=join_at_us,
        authenticator=authenticator,
        extension=extension,
    )
    extension.attach(node)
    return node, extension
