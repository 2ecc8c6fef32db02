"""One hop: Thyme beside bare UDP, signed and not, zenoh, NATS and Mosquitto with QoS 1, in one run.

usage: python benchmarks/bench_peers.py [--quick] [--only es,ls,dcs,...] [--json]

A publisher and a subscriber, two processes on loopback, 300-byte objects. First one object at a
time: how long from publish to notification, against a bare asyncio UDP round trip just before and
after. Then as many as the publisher can: how many objects a second arrive. Nodes of Thyme sign and
verify; they store in memory, or on disk (`es-disk`), where a batch of messages waits for the disk
before it is acknowledged. In ES the subscriber is the server, in DCS both are in one cell.

Missing rivals are installed: clients by pip into build/peers, servers by apt-get if run as root;
else they are skipped with the reason. With --json, the last line of output is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from live import rivals
from rich.console import Console
from rich.table import Table

from thyme.lab.supervisor import free_ports

HERE = Path(__file__).resolve().parent
GAP_S = 0.005
SUBSTRATES = ("es", "ls", "dcs")
SYSTEMS = (*SUBSTRATES, *(f"{name}-disk" for name in SUBSTRATES), *rivals.SUBSCRIBERS)
TITLES = {
    "udp": "bare asyncio UDP",
    "signed": "the same, signed",
    "zenoh": "zenoh",
    "nats": "NATS",
    "mosquitto": "Mosquitto, QoS 1",
}
TRIPS_MAX = {"es": 2.0, "ls": 2.0, "dcs": 3.5}
PER_S_MIN = {"es": 20_000, "ls": 8_000, "dcs": 8_000}
PER_S_MIN |= {f"{name}-disk": rate // 2 for name, rate in PER_S_MIN.items()}
Figures = dict[str, Any]


def main() -> None:
    """Measures the systems in turn and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer messages, 2 s of full speed")
    parser.add_argument("--only", default=",".join(SYSTEMS), help=f"of {','.join(SYSTEMS)}")
    parser.add_argument("--profile", default="", help="write a cProfile of each role to this file")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    systems = args.only.split(",")
    if unknown := [system for system in systems if system not in SYSTEMS]:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(SYSTEMS)}")
    rivals.install(systems)
    count, seconds = (200, 2.0) if args.quick else (1_000, 4.0)
    rows: Figures = {}
    for system in systems:
        rows[system] = _measure(system, count, seconds, args.profile)
    _print_table(rows)
    if args.json:
        print(json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0], "systems": rows}))


def _measure(system: str, count: int, seconds: float, profile: str) -> Figures:
    why = rivals.missing(system)
    if why:
        return {"missing": why}
    trip_us = _round_trip_us(count)
    sent, received = _run_pair(system, count, seconds, profile)
    trip_us = (trip_us + _round_trip_us(count)) / 2
    ages_us = sorted(received["ages_us"])
    return {
        "median_us": median(ages_us),
        "p99_us": ages_us[int(0.99 * len(ages_us))],
        "trip_us": trip_us,
        "trips": median(ages_us) / trip_us,
        "lost": count - len(ages_us),
        "per_s": received["count"] / received["seconds"],
        "published": sent["count"],
        "received": received["count"],
        "publisher_cpu": sent["cpu_s"] / sent["seconds"],
        "subscriber_cpu": received["cpu_s"] / received["seconds"],
    }


def _run_pair(
    system: str, count: int, seconds: float, profile: str = ""
) -> tuple[Figures, Figures]:
    """Runs a subscriber and a publisher, and returns their reports."""
    name, _, disk = system.partition("-")
    with tempfile.TemporaryDirectory() as data:
        port = free_ports(1, socket.SOCK_DGRAM)[0]
        options = {
            "system": name,
            "port": port,
            "count": count,
            "gap_s": GAP_S,
            "seconds": seconds,
            "data": data if disk else "",
            "profile": f"{profile}.{system}" if profile else "",
        }
        server = rivals.server_of(name, port)
        try:
            with _start_role("subscriber", options) as subscriber:
                _await_ready(subscriber)
                with _start_role("publisher", options) as publisher:
                    sent = _read_report(publisher)
                    received = _tell_and_read(subscriber, f"{sent['count']}\n")
                    _end(publisher)
                _end(subscriber)
                return sent, received
        finally:
            if server is not None:
                server.terminate()
                server.wait()


def _round_trip_us(count: int) -> float:
    """The median of bare asyncio round trips."""
    port = free_ports(1, socket.SOCK_DGRAM)[0]
    with _start_role("echo", {"port": port}) as echo:
        _await_ready(echo)
        trips_us = asyncio.run(rivals.round_trips(port, count, GAP_S))
        echo.terminate()
    return median(trips_us)


def _start_role(role: str, options: Figures) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "live.hop", role, json.dumps(options)]
    paths = [os.environ.get("PYTHONPATH", ""), str(rivals.DIRECTORY)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=HERE, stdin=pipe, stdout=pipe, text=True, env=environment)


def _await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    if line.strip() != "ready":
        raise SystemExit(f"a process did not start: {line!r}")


def _tell_and_read(process: subprocess.Popen[str], line: str) -> Figures:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()
    return _read_report(process)


def _read_report(process: subprocess.Popen[str]) -> Figures:
    """The report that a process prints as one line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a process ended with status {process.wait()}")
    figures: Figures = json.loads(line)
    return figures


def _end(process: subprocess.Popen[str]) -> None:
    """Closes the standard input of a process, which ends it."""
    process.communicate()
    if process.returncode:
        raise SystemExit(f"a process ended with status {process.returncode}")


def _print_table(rows: Figures) -> None:
    table = Table(title="One hop, 300 bytes", title_justify="left", box=None)
    table.add_column("")
    for name in ("median us", "p99 us", "round trips", "bar", "per s", "bar", "arrived", "CPU"):
        table.add_column(name, justify="right")
    console = Console(width=110)
    for system, row in rows.items():
        if "missing" in row:
            console.print(f"{system}: {row['missing']}")
            continue
        table.add_row(
            _title(system),
            f"{row['median_us']:,.0f}",
            f"{row['p99_us']:,.0f}",
            f"{row['trips']:.2f}",
            _bar(TRIPS_MAX.get(system), row["trips"], largest=True),
            f"{row['per_s']:,.0f}",
            _bar(PER_S_MIN.get(system), row["per_s"], largest=False),
            f"{row['received']:,} of {row['published']:,}",
            f"{row['publisher_cpu']:.0%}+{row['subscriber_cpu']:.0%}",
        )
    console.print(table)


def _title(system: str) -> str:
    name, _, disk = system.partition("-")
    return TITLES.get(name, f"Thyme-{name.upper()}" + (", on disk" if disk else ""))


def _bar(limit: float | None, value: float, *, largest: bool) -> str:
    if limit is None:
        return ""
    reached = value <= limit if largest else value >= limit
    return f"{limit:,.10g} {'reached' if reached else 'missed'}"


if __name__ == "__main__":
    main()
