"""Output of `thyme sim run`: the progress of a run, and its measurements as text.

Entry points: `progress_callback` and `print_summary`.
Clauses: S14–S16, S18.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from thyme.model.errors import OptionError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from thyme.sim.event_export import SimulationEvents
    from thyme.sim.progress import RunProgress
    from thyme.sim.results.state_summary import CellsSummary
    from thyme.sim.results.summary import Latency, RunSummary
    from thyme.sim.users import Users

PROGRESS_EVERY_S = 0.5


def close_events(args: Namespace, events: SimulationEvents | None) -> None:
    """Closes the exported events of a run; refuses to go on if some did not fit on the disk."""
    if events is not None and (dropped := events.close()):
        raise OptionError(f"--events: {dropped:,} events do not fit into {args.events}")


def progress_callback(args: Namespace) -> Callable[[RunProgress, Users], None] | None:
    """Returns the progress callback: one updated line on a terminal; with --watch, a new line each
    time, with counts of the operations so far. None: no progress output."""
    screen = sys.stderr
    if screen is None or not (args.watch or (screen.isatty() and not args.json)):
        return None
    shown_s = 0.0

    def show(progress: RunProgress, users: Users) -> None:
        nonlocal shown_s
        over = progress.done_us == progress.span_us
        if not over and time.monotonic() < shown_s + PROGRESS_EVERY_S:
            return
        shown_s = time.monotonic()
        if args.watch:
            print(f"{progress}; {_format_counts(users)}", file=screen, flush=True)
        else:
            print(f"\r\x1b[K{progress}", end="\n" if over else "", file=screen, flush=True)

    return show


def _format_counts(users: Users) -> str:
    issued = Counter(attempt.kind for attempt in users.attempts)
    ended = Counter(attempt.kind for attempt in users.attempts if attempt.code == "ok")
    counts = [f"{kind} {ended[kind]}/{issued[kind]}" for kind in sorted(issued)]
    return ", ".join([*counts, f"notified {users.notification_count}"])


# Text output


def print_summary(outcome: RunSummary) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from thyme.cli.terminal import Terminal

    console = Terminal()
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("operation", no_wrap=True)
    for name in ("issued", "succeeded", "", "mean ms", "p50", "p95", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    for kind, ops in outcome.ops.items():
        table.add_row(
            kind,
            f"{ops.issued:,}",
            f"{ops.ok:,}",
            _format_share(ops.success),
            *_format_latency(ops.latency_ms),
        )
    notes = outcome.notifications
    table.add_row(
        "notification",
        f"{notes.expected:,}",
        f"{notes.delivered:,}",
        _format_share(notes.recall),
        *_format_latency(notes.latency_ms),
    )
    console.print(table)
    console.print(
        f"\nnotifications: {notes.spurious} spurious, {notes.duplicates} duplicates, "
        f"{notes.unexpected} not in a perfect execution"
    )
    for line in _summary_lines(outcome):
        console.print(line, soft_wrap=True)
    console.print(_message_table(outcome))


def _summary_lines(outcome: RunSummary) -> list[str]:
    traffic, load, joules = outcome.traffic, outcome.load, outcome.energy_j
    kept = outcome.storage
    return [
        f"on the air: {traffic.phy_bytes:,} bytes in {traffic.phy_frames:,} frames; "
        f"{traffic.mac_retransmissions:,} retransmissions, {traffic.mac_exceeded:,} given up",
        f"forwarded: {traffic.forwarded_bytes:,} bytes; routing control: "
        f"{traffic.control_bytes:,} bytes",
        f"busiest node: {load.max:,.0f} messages; Gini {load.gini:.3f}; "
        f"energy per node: {joules.mean:.0f} J, at most {joules.max:.0f} J",
        f"kept per node: {kept.objects.mean:.1f} objects ({kept.bytes.mean:,.0f} bytes), at most "
        f"{kept.objects.max:.0f}; metadata of {kept.metadata.mean:.1f}, at most "
        f"{kept.metadata.max:.0f}; {kept.subscriptions.mean:.1f} subscriptions, at most "
        f"{kept.subscriptions.max:.0f}",
        *([] if outcome.cells is None else _cell_lines(outcome.cells)),
        f"{outcome.events:,} events in {outcome.wall_s:.1f} s\n",
    ]


def _cell_lines(cells: CellsSummary) -> list[str]:
    load, hot_spot, differ = cells.load, cells.hot_spot, cells.divergence
    lines = [
        f"cells: {cells.cells}, of which populated: {cells.populated_mean:.1f} on average, "
        f"{cells.populated_end} at the end; messages per cell: {load.mean:,.0f} on average, at "
        f"most {load.max:,.0f}; Gini {load.gini:.3f}",
    ]
    if hot_spot is not None:
        tags = f" ({', '.join(hot_spot.tags)})" if hot_spot.tags else ""
        lines.append(f"hot spot: cell {hot_spot.cell}{tags}, {hot_spot.share:.1%} of the load")
    lines.append(
        f"agreement within cells: {differ.pairs_differing} of {differ.pairs} pairs of nodes "
        f"differ, {differ.records_differing} of {differ.records} records are not known to all"
    )
    return lines


def _message_table(outcome: RunSummary) -> Any:
    """Table of messages predicted by the analytical model and simulated messages."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("messages, each hop counted", no_wrap=True)
    table.add_column("by formula", justify="right")
    table.add_column("simulated", justify="right")
    formula, simulated = outcome.analytical.formula, outcome.analytical.simulated
    names = ("insert", "delete", "subscribe", "unsubscribe", "notification", "retrieve")
    for name in (*names, "acknowledgement", "upkeep"):
        by_formula = f"{getattr(formula, name):,.0f}" if name in names else "-"
        table.add_row(name, by_formula, f"{simulated.get(name, 0):,}")
    return table


def _format_share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _format_latency(latency: Latency) -> tuple[str, ...]:
    values = latency.mean, latency.p50, latency.p95, latency.max
    return tuple("-" if value is None else f"{value:,.1f}" for value in values)
