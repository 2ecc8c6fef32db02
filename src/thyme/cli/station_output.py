"""Station output: the status of a base station as a table, for `thyme status`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thyme.live.status import NodeStatus, OtherStationStatus, StationStatus


def any_status_table(status: NodeStatus | StationStatus) -> Any:
    """Formats the status of a node or a base station as a table."""
    from thyme.cli.node_commands import status_table
    from thyme.live.status import StationStatus

    return station_table(status) if isinstance(status, StationStatus) else status_table(status)


def station_table(status: StationStatus) -> Any:
    """Formats the status of a base station as a table."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("station", f"{status.station}, {status.node}")
    table.add_row("address", f"{status.address} for nodes, {status.wired_address} for stations")
    table.add_row("up", str(timedelta(seconds=status.up_us // 1_000_000)))
    table.add_row("nodes", f"{status.mobiles} here, {status.addresses} addresses known")
    for world in status.worlds[:20]:
        table.add_row("world", f"{world.name}: {world.cells} cells, {world.mobiles} nodes")
    for name, cache in status.caches.items():
        reads = cache.hits + cache.misses
        ratio = f"hit ratio {cache.hit_ratio:.1%} of {reads:,}" if reads else "not read yet"
        words = name.replace("_", " ")
        table.add_row("cache", f"{words}: {cache.entries:,} of {cache.capacity:,}, {ratio}")
    for other in status.stations:
        table.add_row("other station", _describe_other(other))
        for difference in other.differences:
            table.add_row("look into", f"{other.name} differs: {difference}")
    table.add_row("subscriptions", f"{status.needs:,} tags")
    table.add_row("downloads", f"counted for {status.popular:,} objects")
    waiting = (
        f", {status.deletes_unconfirmed:,} not confirmed" if status.deletes_unconfirmed else ""
    )
    table.add_row("deletes", f"{status.deletes:,}{waiting}")
    if status.parked:
        table.add_row("parked", f"{status.parked:,} messages wait for their cell")
    for what, count in status.counts.items():
        table.add_row("counted", f"{count:,} {what}")
    for cause, count in status.dropped.items():
        table.add_row("dropped", f"{count:,} {cause}")
    if status.full:
        table.add_row("look into", f"the disk is full, {status.not_saved:,} reports not saved")
    if (events := status.events) is not None:
        table.add_row("events", f"{events.written} exported, {events.dropped} dropped")
    return table


def _describe_other(other: OtherStationStatus) -> str:
    state = "connected" if other.connected else "not connected"
    if other.connected != other.receiving:
        state += ", its messages arrive" if other.receiving else ", nothing arrives from it"
    waiting = f", {other.waiting:,} messages wait" if other.waiting else ""
    return f"{other.name} at {other.address}: {state}{waiting}"
