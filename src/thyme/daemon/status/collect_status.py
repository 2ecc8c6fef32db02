"""Status collection: reads the status of a node and its world from the node's components.

Entry point: `collect_status`. The records are in `thyme.live.status`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import thyme
from thyme.events.segments import EventStats
from thyme.live.node_factory import (
    CLOCK_SKEW_US,
    SubstrateNode,
    current_station,
    unwrap_node,
)
from thyme.live.open_node import LiveNode
from thyme.live.shared_node import SharedNode
from thyme.live.sockets import format_address
from thyme.live.status import (
    EventsStatus,
    NeighbourStatus,
    NodeStatus,
    StorageStatus,
    UnknownVersionStatus,
    WorldStatus,
)
from thyme.live.world_choice import find_namesakes
from thyme.model.errors import safe_repr
from thyme.model.worlds import LIVE_SUBSTRATES, NAMED_SUBSTRATES, WorldInfo, WorldSettings
from thyme.routing.cells import GeographicRouting, Grid
from thyme.routing.dsdv.protocol import Dsdv
from thyme.routing.routed_node import RoutedNode
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.encounters.node import EncounterNode
from thyme.transport.link import Link


def describe_world(info: WorldInfo) -> WorldStatus:
    """Makes the JSON record of a world."""
    settings = info.settings or WorldSettings()
    has_profile = info.substrate in LIVE_SUBSTRATES and info.substrate not in NAMED_SUBSTRATES
    return WorldStatus(
        name=info.name,
        wid=info.world_id,
        substrate=info.substrate,
        area_m=None if info.area is None else (info.area.width_m, info.area.height_m),
        cell_m=info.cell_m,
        cells=info.cells,
        ends_us=info.ends_us,
        server=None if info.server is None else info.server.hex(),
        closed=info.closed or not info.substrate,
        profile=settings.profile if has_profile else None,
        key_choice=settings.key_choice,
        replicas=settings.replicas,
    )


def collect_status(
    live_node: LiveNode,
    shared_node: SharedNode,
    started_us: int,
    events: EventStats | None = None,
) -> NodeStatus:
    """Collects the current status of a node."""
    now_us = shared_node.node.now_us()
    neighbours = live_node.link.describe_neighbours()
    inner = unwrap_node(live_node.node)
    addresses = tuple(map(format_address, live_node.sockets.addresses))
    routing = live_node.node.routing if isinstance(live_node.node, RoutedNode) else None
    cells = inner.routing if isinstance(inner, DcsNode) else None
    places = cells if isinstance(cells, GeographicRouting) else None
    return NodeStatus(
        version=thyme.__version__,
        node=live_node.profile.node_id.hex(),
        world=describe_world(live_node.world),
        address=addresses[0],
        addresses=addresses,
        now_us=now_us,
        up_us=now_us - started_us,
        neighbours=tuple(
            NeighbourStatus(
                node=node_id.hex(),
                address=format_address(state.address),
                silent_us=now_us - state.last_seen_us,
                clock_ahead_us=state.clock_ahead_us,
                wire_version=state.version,
            )
            for node_id, state in neighbours
        ),
        unknown_versions=unknown_versions(live_node.link),
        routes=len(routing.routes) if isinstance(routing, Dsdv) else None,
        cell=None if cells is None else cells.cell,
        serving=cells is None or cells.serving,
        storage=_storage_status(live_node, inner),
        subscriptions_own=len(inner.subscriber),
        subscriptions_standing=_count_subscriptions(inner),
        applications=shared_node.session_count,
        dropped=dict(sorted((live_node.link.dropped + _drop_counts(inner)).items())),
        hint=live_node.link.decryption_warning
        or world_warning(
            live_node.world, live_node.link.hellos.worlds.get(live_node.world.world_id)
        )
        or namesake_warning(live_node.world, live_node.link.hellos.worlds)
        or reach_warning(inner, now_us)
        or version_warning(live_node.link)
        or clock_warning(state.clock_ahead_us for _, state in neighbours),
        events=None
        if events is None
        else EventsStatus(written=events.written, dropped=events.dropped, removed=events.removed),
        base_station=None
        if (station := current_station(live_node.node)) is None
        else station.hex(),
        reach_m=None if places is None else places.reach.reach_m(places.cell),
        unreachable_cells=() if places is None else tuple(places.reach.unreachable_cells(now_us)),
    )


def unknown_versions(link: Link) -> tuple[UnknownVersionStatus, ...]:
    """The nodes in range with which no wire version is agreed."""
    return tuple(
        UnknownVersionStatus(
            node=node_id.hex(),
            address=format_address(unknown.address),
            versions=None if unknown.versions is None else str(unknown.versions),
            advice=unknown.advice(link.versions),
        )
        for node_id, unknown in sorted(link.hellos.unknown_versions.items())
    )


def version_warning(link: Link) -> str | None:
    """Advice for the user if a node in range uses another wire version."""
    for unknown in unknown_versions(link):
        theirs = "a newer version" if unknown.versions is None else f"version {unknown.versions}"
        return (
            f"the node {unknown.node} at {unknown.address} uses {theirs} of the wire format, this "
            f"one {link.versions}: {unknown.advice}"
        )
    return None


def world_warning(own: WorldInfo, received: WorldInfo | None) -> str | None:
    """Advice for the user if a neighbour describes the same world differently, as is possible where
    the name alone makes the world (M21)."""
    for option, mine, other in (
        ("--cells", own.cells, None if received is None else received.cells),
        ("--ends", own.ends_us, None if received is None else received.ends_us),
    ):
        if other is not None and mine != other:
            return (
                f"another device started this world with another {option}: start all devices with "
                "the same"
            )
    return None


def namesake_warning(own: WorldInfo, received: dict[str, WorldInfo]) -> str | None:
    """Advice for the user if other worlds here have the name of this one (M21, B5)."""
    namesakes = find_namesakes(own, received)
    if not namesakes:
        return None
    return (
        f"this is the world {own.world_id}; also called {safe_repr(own.name)} here: "
        f"{', '.join(namesakes[:5])}. Join a world by its id to be sure"
    )


def reach_warning(inner: SubstrateNode, now_us: int) -> str | None:
    """Advice for the user if the cells of the world are too large for the radio (D2)."""
    routing = inner.routing if isinstance(inner, DcsNode) else None
    if not isinstance(routing, GeographicRouting):
        return None
    unreachable = routing.reach.unreachable_cells(now_us)
    if not unreachable:
        return None
    grid = routing.grid
    nearest_m = min(grid.distance_m(routing.cell, cell) for cell in unreachable)
    numbers = ", ".join(map(str, unreachable))
    return (
        f"cells of {grid.cell_m:g} m are too large for this radio: nodes of the adjacent cell "
        f"{numbers} are out of range; create the world with cells of at most "
        f"{Grid.cell_m_for(nearest_m):.0f} m"
    )


def clock_warning(clocks_ahead_us: Iterable[int | None]) -> str | None:
    """Advice for the user if the clocks of most neighbours differ from this one by more than the
    maximum skew (M12, M36)."""
    known = sorted(ahead_us for ahead_us in clocks_ahead_us if ahead_us is not None)
    median_us = known[len(known) // 2] if known else 0
    if abs(median_us) <= CLOCK_SKEW_US:
        return None
    direction = "behind" if median_us > 0 else "ahead of"
    return (
        f"the clock of this device is {abs(median_us) / 1e6:.0f} s {direction} those of its "
        f"neighbours; at most {CLOCK_SKEW_US / 1e6:.0f} s are tolerated: set the clock"
    )


def _drop_counts(inner: SubstrateNode) -> Counter[str]:
    """Dropped messages by reason; with DCS also records that the cell service refused (B5)."""
    return inner.dropped + inner.service.dropped if isinstance(inner, DcsNode) else inner.dropped


def _storage_status(live_node: LiveNode, inner: SubstrateNode) -> StorageStatus:
    metadata = _count_metadata(inner)
    return StorageStatus(
        objects=len(inner.replicas) if isinstance(inner, DcsNode) else metadata,
        metadata=metadata,
        durable=live_node.store.durable,
        file_bytes=0 if live_node.store_file is None else _file_bytes(live_node.store_file),
        full=not live_node.store.has_space(0),
        removed=dict(sorted(_removed_counts(inner).items())),
    )


def _removed_counts(inner: SubstrateNode) -> Counter[str]:
    """Objects that this node removed, by reason (M29)."""
    if isinstance(inner, EncounterNode):
        return Counter()
    if isinstance(inner, DcsNode):
        return inner.replicas.removed
    return Counter() if inner.broker is None else inner.broker.catalogue.removed


def _count_metadata(inner: SubstrateNode) -> int:
    if isinstance(inner, EncounterNode):
        return len(inner.dissemination.memory)
    broker = inner.index.broker if isinstance(inner, DcsNode) else inner.broker
    return 0 if broker is None else len(broker.catalogue)


def _count_subscriptions(inner: SubstrateNode) -> int:
    if isinstance(inner, EncounterNode):
        return len(inner.subscriber)
    if isinstance(inner, DcsNode):
        return inner.broker_subscriptions
    return 0 if inner.broker is None else inner.broker.subscription_count


def _file_bytes(file: Path) -> int:
    files = [file, *(file.with_name(file.name + ending) for ending in ("-wal", "-shm"))]
    return sum(found.stat().st_size for found in files if found.exists())
