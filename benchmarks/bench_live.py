"""Live nodes against their targets, and beside others who carry small messages.

usage: python benchmarks/bench_live.py [--quick] [--only hop|lab|store] [--entries 1000000]

- hop: one publisher, one subscriber, two processes on loopback, 300-byte objects. How long from
  publish to notification, against a bare asyncio UDP round trip; how many objects in a second of
  processor time, both processes together. Nodes keep their state in memory, or on disk, where every
  batch of messages waits for the disk before it is acknowledged.
- lab: 12 nodes of DCS in 3 x 2 cells whose radios reach the cells beside, so several hops; without
  and with loss. Every operation counts, and the memory of a node that has just come up.
- store: a server that starts with a million metadata entries, and finds the 20 most recent of a
  past.

Latencies are medians. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from live import lab, rivals, store
from rich.console import Console
from rich.table import Table

from thyme.lab.plan import LabPlan
from thyme.lab.supervisor import free_ports

HERE = Path(__file__).resolve().parent
GAP_S = 0.005
ECHO = "UDP there and back"
TARGETS = {
    "notify_trips": 3.0,
    "objects_per_core_s": 2_000.0,
    "lab_notify_ms": 50.0,
    "lab_retrieve_s": 6.0,
    "idle_mb": 80.0,
    "start_s": 5.0,
    "past_ms": 10.0,
}
Figures = dict[str, Any]


def main() -> None:
    """Runs what is asked for and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer messages, 100,000 entries")
    parser.add_argument("--only", choices=("hop", "lab", "store"))
    parser.add_argument("--entries", type=int)
    args = parser.parse_args()
    figures: Figures = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    parts = [args.only] if args.only else ["hop", "lab", "store"]
    if "hop" in parts:
        figures["hop"] = hop(quick=args.quick)
    if "lab" in parts:
        figures["lab"] = measure_lab(quick=args.quick)
    if "store" in parts:
        figures["store"] = measure_store(args.entries or (100_000 if args.quick else 1_000_000))
    figures["load_after"] = os.getloadavg()[0]
    print(json.dumps(figures))


# One hop


def hop(*, quick: bool) -> Figures:
    """Latency and rate of Thyme and of others, in turns."""
    count, seconds = (200, 2.0) if quick else (1_000, 5.0)
    rows: Figures = {
        f"{ECHO}, {loop}": {"median_us": _echo(count, uvloop=loop == "uvloop")} for loop in _loops()
    }
    for name, system, on_disk in _contenders():
        rows[name] = _contend(system, count, seconds, on_disk=on_disk)
        print(f"{name}: {rows[name]}", file=sys.stderr)
    _print_hops(rows)
    return rows


def _loops() -> list[str]:
    return ["asyncio", "uvloop"] if find_spec("uvloop") else ["asyncio"]


def _contenders() -> list[tuple[str, str, bool]]:
    ours = [(f"Thyme-{name.upper()}", name, False) for name in ("es", "ls", "dcs")]
    ours.append(("Thyme-ES, on disk", "es", True))
    return [*ours, *((name, name, False) for name in ("udp", "zenoh", "nats", "mosquitto"))]


def _contend(system: str, count: int, seconds: float, *, on_disk: bool) -> Figures:
    why = rivals.missing(system)
    if why:
        return {"missing": why}
    # What else the machine does changes by the minute: the bare round trip just before and after.
    trip_us = _echo(count, uvloop=False)
    calm = _pair(system, on_disk, count=count)
    trip_us = (trip_us + _echo(count, uvloop=False)) / 2
    busy = _pair(system, on_disk, seconds=seconds)
    ages_us = sorted(calm["heard"]["ages_us"])
    cpu_s = busy["sent"]["cpu_s"] + busy["heard"]["cpu_s"]
    heard = busy["heard"]["count"]
    return {
        "median_us": median(ages_us),
        "trip_us": trip_us,
        "trips": median(ages_us) / trip_us,
        "p99_us": ages_us[int(0.99 * len(ages_us))],
        "lost": count - len(ages_us),
        "per_s": heard / busy["heard"]["seconds"],
        "per_core_s": heard / cpu_s,
        "busy_sent": busy["sent"]["count"],
        "busy_heard": heard,
    }


def _pair(system: str, on_disk: bool, *, count: int = 0, seconds: float = 0.0) -> Figures:
    """Runs a subscriber and a publisher, and returns what both say."""
    with tempfile.TemporaryDirectory() as data:
        port = _port()
        options = {
            "system": system,
            "port": port,
            "count": count,
            "gap_s": GAP_S,
            "seconds": seconds,
            "data": data if on_disk else "",
            "uvloop": "uvloop" in _loops(),
        }
        server = rivals.server_of(system, port)
        try:
            with _role("subscriber", options) as subscriber:
                _await_ready(subscriber)
                with _role("publisher", options) as publisher:
                    sent = _told(publisher)
                heard = _told(subscriber)
        finally:
            if server is not None:
                server.terminate()
                server.wait()
    return {"sent": sent, "heard": heard}


def _echo(count: int, *, uvloop: bool) -> float:
    """The median of bare round trips, in microseconds."""
    port = _port()
    with _role("echo", {"port": port, "uvloop": uvloop}) as echo:
        _await_ready(echo)
        measuring = rivals.round_trips(port, count, GAP_S)
        if uvloop:
            import uvloop as loops

            trips = loops.run(measuring)
        else:
            trips = asyncio.run(measuring)
        echo.terminate()
    return median(trips)


def _port() -> int:
    import socket

    return free_ports(1, socket.SOCK_DGRAM)[0]


def _role(role: str, options: Figures) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "live.hop", role, json.dumps(options)]
    return subprocess.Popen(words, cwd=HERE, stdout=subprocess.PIPE, text=True)


def _await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    if line.strip() != "ready":
        raise SystemExit(f"a process did not come up: {line!r}")


def _told(process: subprocess.Popen[str]) -> Figures:
    """What a process says at its end."""
    told = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"a process ended with status {process.returncode}")
    figures: Figures = json.loads(told)
    return figures


def _print_hops(rows: Figures) -> None:
    table = Table(title="One hop, 300 bytes", title_justify="left", box=None)
    columns = ("", "median us", "p99 us", "round trips", "per s", "per s of CPU", "heard")
    for name in columns:
        table.add_column(name, justify="left" if not name else "right", no_wrap=not name)
    for name, row in rows.items():
        if "missing" in row:
            continue
        table.add_row(
            name,
            f"{row['median_us']:,.0f}",
            f"{row['p99_us']:,.0f}" if "p99_us" in row else "",
            f"{row['trips']:.2f}" if "trips" in row else "",
            f"{row['per_s']:,.0f}" if "per_s" in row else "",
            f"{row['per_core_s']:,.0f}" if "per_core_s" in row else "",
            f"{row['busy_heard'] / row['busy_sent']:.0%}" if "busy_sent" in row else "",
        )
    console = Console()
    console.print(table)
    for name, row in rows.items():
        if "missing" in row:
            console.print(f"{name}: {row['missing']}")
    console.print(
        f"targets: {TARGETS['notify_trips']:g} bare round trips, "
        f"{TARGETS['objects_per_core_s']:,.0f} objects in a second of a core"
    )


# Many nodes, and much stored


def measure_lab(*, quick: bool) -> Figures:
    """The lab, without and with loss."""
    found: Figures = {}
    for loss in (0.0, 0.05):
        with tempfile.TemporaryDirectory() as directory:
            plan = LabPlan(nodes=12, range_m=50, loss=loss)
            figures = lab.measure(Path(directory), plan, 24 if quick else 120)
        found[f"{loss:.0%}"] = figures
        print(
            f"12 nodes, loss {loss:.0%}: publish to notification {figures['notify_ms']:.1f} ms "
            f"(target {TARGETS['lab_notify_ms']:g}), "
            f"5 MB over two hops {figures['retrieve_s']:.2f} s "
            f"(target {TARGETS['lab_retrieve_s']:g}), an idle node {figures['resident_mb']:.0f} MB "
            f"(target {TARGETS['idle_mb']:g}), {figures['operations']} operations, "
            f"{len(figures['failed'])} failed"
        )
    return found


def measure_store(entries: int) -> Figures:
    """The start of a server that looks after much."""
    with tempfile.TemporaryDirectory() as directory:
        store.fill(Path(directory), entries)
        options = {"port": _port(), "data": directory, "queries": 300}
        options["told_s"] = time.monotonic()
        words = [sys.executable, "-m", "live.store", json.dumps(options)]
        done = subprocess.run(words, cwd=HERE, stdout=subprocess.PIPE, text=True, check=True)
    figures: Figures = json.loads(done.stdout) | {"entries": entries}
    print(
        f"{entries:,} entries: starts in {figures['start_s']:.1f} s "
        f"(target {TARGETS['start_s']:g}), finds the past in {figures['past_ms']:.2f} ms "
        f"(target {TARGETS['past_ms']:g}), "
        f"{figures['resident_mb']:.0f} MB"
    )
    return figures


if __name__ == "__main__":
    main()
