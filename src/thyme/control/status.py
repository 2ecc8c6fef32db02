"""Status collection: reads the status of a node and its world from the node's components.

Entry point: `collect_status`. The records are in `thyme.live.status`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import thyme
from thyme.live.status import Neighbour, Status, Storage, World
from thyme.live.switchboard import Switchboard
from thyme.live.world import LiveNode
from thyme.model.worlds import WorldInfo
from thyme.protocol.node import Node
from thyme.routing.dsdv import Dsdv
from thyme.routing.relay import Relay
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.es import EsNode
from thyme.substrates.ls.node import LsNode


def world_of(info: WorldInfo) -> World:
    """Makes the JSON record of a world."""
    return World(
        name=info.name,
        wid=info.wid,
        substrate=info.substrate,
        area_m=None if info.area is None else (info.area.width_m, info.area.height_m),
        cell_m=info.cell_m,
        ends_us=info.ends_us,
        server=None if info.server is None else info.server.hex(),
        closed=info.closed or not info.substrate,
    )


def look_at(live: LiveNode, board: Switchboard, started_us: int) -> Status:
    """Collects the current status of a node."""
    now_us = board.node.now_us()
    inner = inner_of(live.node)
    host, port = live.sockets.address
    routing = live.node.routing if isinstance(live.node, Relay) else None
    cells = inner.routing if isinstance(inner, DcsNode) else None
    return Status(
        version=thyme.__version__,
        node=live.home.node_id.hex(),
        world=world_of(live.world),
        address=f"{host}:{port}",
        now_us=now_us,
        up_us=now_us - started_us,
        neighbours=tuple(
            Neighbour(node=node_id.hex(), address=f"{at[0]}:{at[1]}", silent_us=now_us - heard_us)
            for node_id, at, heard_us in live.link.acquaintances()
        ),
        routes=len(routing.routes) if isinstance(routing, Dsdv) else None,
        cell=None if cells is None else cells.cell,
        serving=cells is None or cells.serving,
        storage=_storage(live, inner),
        subscriptions_own=len(inner.subscriber),
        subscriptions_standing=_standing(inner),
        applications=board.lines,
        dropped=dict(sorted((live.link.dropped + _left_out(inner)).items())),
        hint=live.link.hint,
    )


def inner_of(node: Node) -> EsNode | LsNode | DcsNode:
    """The substrate node inside a `RoutedNode`, or the node itself."""
    inner = node.inner if isinstance(node, Relay) else node
    assert isinstance(inner, EsNode | LsNode | DcsNode)
    return inner


def _left_out(inner: EsNode | LsNode | DcsNode) -> Counter[str]:
    """Dropped messages by reason; with DCS also records that the cell service refused (B5)."""
    return inner.dropped + inner.service.dropped if isinstance(inner, DcsNode) else inner.dropped


def _storage(live: LiveNode, inner: EsNode | LsNode | DcsNode) -> Storage:
    broker = inner.index.broker if isinstance(inner, DcsNode) else inner.broker
    metadata = 0 if broker is None else len(broker.catalogue)
    return Storage(
        objects=len(inner.replicas) if isinstance(inner, DcsNode) else metadata,
        metadata=metadata,
        durable=live.store.durable,
        file_bytes=0 if live.file is None else _size(live.file),
        full=not live.store.has_room(0),
    )


def _standing(inner: EsNode | LsNode | DcsNode) -> int:
    if isinstance(inner, DcsNode):
        return inner.broker_subscriptions
    return 0 if inner.broker is None else inner.broker.subscriptions


def _size(file: Path) -> int:
    files = [file, *(file.with_name(file.name + ending) for ending in ("-wal", "-shm"))]
    return sum(found.stat().st_size for found in files if found.exists())
