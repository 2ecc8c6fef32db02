"""Service under attack: pairs of nodes publish and notify while a hostile member does its worst.

usage: python benchmarks/bench_attack.py [--only routes,...] [--substrate ls] [--rate 5000]
       [--pairs 2] [--nodes 4] [--seconds 6] [--full] [--json]

Each pair has a publisher, at a steady rate, and a subscriber, in processes of their own on
loopback. The service kept is the number of notifications per second during the attack, against the
seconds before it in the same run; then follow the median age of notifications, the longest time for
which a node was blocked (before the attack in brackets) and for how much of it it computed rather
than waited for a processor, the longest run of Python's garbage collector, the memory of the node
that grew most beyond what it stores, and how long after the end of the attack all pairs had 90 % of
their service again. A rate of 0 is as fast as the machine sends. With --full: 12 nodes, and 5,000,
20,000 datagrams a second and full speed.

Nodes and attacker share the processors of one machine, unlike devices on a link: the table shows
how many cores were busy before, and how many the attacker used. The attack `nobody` sends to a port
without a node: what it takes from the nodes is the processor, and no defence gives it back.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from live.attacker import ATTACKS
from rich.console import Console
from rich.table import Table

from thyme.lab.supervisor import free_ports

HERE = Path(__file__).resolve().parent
SETTLE_S = 8.0
AFTER_S = 12.0
GIVEN_BACK_MB = 8.0
RETURN_S = 60.0
"""The memory that an attack took is looked at again until so long after its end."""
ONCE = ("routes", "long-message", "valid-message")
"""Attacks that are one message, at no rate."""
Report = dict[str, Any]


class Victim:
    """A process with one node of a pair."""

    def __init__(self, options: Report) -> None:
        self._process = _start("live.victim", options)
        self.name = options["tag"]
        self.role = options["role"]
        self.reports: list[Report] = []
        self._reader = threading.Thread(target=self._read, daemon=True)

    def wait_ready(self) -> None:
        """Waits until the node is in the world."""
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise SystemExit(f"a node did not start: {self.name}")
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.reports.append(json.loads(line))

    def between(self, start_s: float, end_s: float) -> list[Report]:
        """The reports of a time."""
        return [each for each in self.reports if start_s < each["at_s"] <= end_s]

    def stop(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def main() -> None:
    """Runs the attacks and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(ATTACKS), help=f"of {','.join(ATTACKS)}")
    parser.add_argument("--substrate", choices=("ls", "es", "dcs"), default="es")
    parser.add_argument("--rate", default="5000", help="hostile datagrams per second, some of them")
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=0, help="in all; those beyond are idle")
    parser.add_argument("--inserts", type=float, default=200.0, help="of each pair, per second")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--full", action="store_true", help="12 nodes and three rates")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    kinds = args.only.split(",")
    if unknown := [kind for kind in kinds if kind not in ATTACKS]:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(ATTACKS)}")
    rates = [float(rate) for rate in args.rate.split(",")]
    if args.full:
        args.pairs, rates = 6, [5_000.0, 20_000.0, 0.0]
    rows = []
    for kind in kinds:
        for rate in [0.0] if kind in ONCE else rates:
            row = _run(kind, rate, args)
            rows.append(row)
            print(json.dumps(row), file=sys.stderr)
    _print_table(rows, args)
    if args.json:
        print(json.dumps(rows))


def _run(kind: str, rate: float, args: argparse.Namespace) -> Report:
    """One attack, in a new world."""
    port = free_ports(1, socket.SOCK_DGRAM)[0]
    victims: list[Victim] = []
    try:
        for pair in range(args.pairs):
            for role in ("subscriber", "publisher"):
                options = {
                    "role": role,
                    "tag": f"pair-{pair}",
                    "creates": not victims,
                    "substrate": args.substrate,
                    "port": port,
                    "rate": args.inserts,
                    "secret": None,
                    "data": "",
                }
                victims.append(Victim(options))
                if len(victims) == 1:
                    victims[0].wait_ready()
        for number in range(2 * args.pairs, args.nodes):
            victims.append(Victim(options | {"role": "idle", "tag": f"idle-{number}"}))
        for victim in victims[1:]:
            victim.wait_ready()
        hostile = {"port": port, "substrate": args.substrate, "kind": kind, "rate": rate}
        return _measure(victims, hostile | {"seconds": args.seconds})
    finally:
        for victim in victims:
            victim.stop()


def _measure(victims: list[Victim], hostile: Report) -> Report:
    attacker = _start("live.attacker", hostile)
    assert attacker.stdout is not None
    assert attacker.stdin is not None
    try:
        if not attacker.stdout.readline():
            raise SystemExit("the attacker did not start")
        time.sleep(SETTLE_S - 5.0)
        busy_s, from_s = _busy_s(), time.time()
        time.sleep(5.0)
        started_s = time.time()
        busy_cores = (_busy_s() - busy_s) / (started_s - from_s)
        attacker.stdin.write("\n")
        attacker.stdin.flush()
        sent = json.loads(attacker.stdout.readline())
        ended_s = max(time.time(), started_s + hostile["seconds"])
        time.sleep(max(0.0, ended_s - time.time()))
    finally:
        attacker.kill()
        attacker.wait()
    time.sleep(AFTER_S)
    before = [_rates(v.between(started_s - 5, started_s)) for v in victims]
    during = [_rates(v.between(started_s, ended_s)) for v in victims]
    pairs = [i for i, victim in enumerate(victims) if victim.role == "subscriber"]
    kept = sum(during[i][0] for i in pairs) / max(1e-9, sum(before[i][0] for i in pairs))
    memories = [_Memory(v.between(started_s - 5, started_s)) for v in victims]
    growth = max(
        memory.growth_mb(report)
        for memory, victim in zip(memories, victims, strict=True)
        for report in victim.between(started_s, ended_s)
    )
    while True:
        stays = max(m.growth_mb(v.reports[-1]) for m, v in zip(memories, victims, strict=True))
        if stays < max(GIVEN_BACK_MB, growth / 4) or time.time() > ended_s + RETURN_S:
            break
        time.sleep(2.0)
    return {
        "attack": hostile["kind"],
        "rate": sent["sent"] / sent["seconds"] if sent["sent"] else 0.0,
        "busy_cores": busy_cores,
        "attacker_cores": sent["cores"],
        "before_per_s": sum(before[i][0] for i in pairs),
        "kept": kept,
        "median_ms": _median([d[1] for i in pairs if (d := during[i])[1] is not None]),
        "kept_by_second": _by_second([victims[i] for i in pairs], started_s, ended_s),
        "busy_ms": max(d[4] for d in during),
        "collector_ms": max(
            each["collector_ms"] for v in victims for each in v.between(started_s, ended_s)
        ),
        "blocked_ms": max(d[3] for d in during),
        "blocked_before_ms": max(b[3] for b in before),
        "growth_mb": growth,
        "stays_mb": stays,
        "recovery_s": _recovery_s(
            [victims[i] for i in pairs], [before[i][0] for i in pairs], ended_s
        ),
        "dropped": victims[-1].reports[-1]["dropped"],
    }


class _Memory:
    """The memory that a node would have without the attack: it stores objects all the time."""

    def __init__(self, before: list[Report]) -> None:
        first, self._last = before[0], before[-1]
        self._mb_per_s = (self._last["rss_mb"] - first["rss_mb"]) / (
            self._last["at_s"] - first["at_s"]
        )

    def growth_mb(self, report: Report) -> float:
        """How much more memory a node has."""
        usual_mb = self._mb_per_s * (report["at_s"] - self._last["at_s"])
        return float(report["rss_mb"] - self._last["rss_mb"] - usual_mb)


def _busy_s() -> float:
    """The time for which all processors of the machine were not idle."""
    times = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(times) - times[3] - times[4]) / os.sysconf("SC_CLK_TCK")


def _by_second(victims: list[Victim], start_s: float, end_s: float) -> list[int]:
    """The notifications in each second of the attack."""
    return [
        sum(each["notified"] for v in victims for each in v.between(at_s, at_s + 1.0))
        for at_s in (start_s + second for second in range(int(end_s - start_s)))
    ]


def _rates(reports: list[Report]) -> tuple[float, float | None, float, float, float]:
    """Notifications per second, median age, memory, and the longest time for which the loop was
    blocked and for which it computed, of some reports."""
    if not reports:
        return 0.0, None, 0.0, 0.0, 0.0
    seconds = len(reports) * 0.5
    ages = [each["median_ms"] for each in reports if each["median_ms"] is not None]
    return (
        sum(each["notified"] for each in reports) / seconds,
        median(ages) if ages else None,
        max(each["rss_mb"] for each in reports),
        max(each["blocked_ms"] for each in reports),
        max(each["busy_ms"] for each in reports),
    )


def _recovery_s(victims: list[Victim], before: list[float], ended_s: float) -> float | None:
    """When all pairs had 90 % of their service for a second, after the end of the attack."""
    for step in range(int(2 * AFTER_S) - 2):
        start_s = ended_s + step / 2
        rates = [_rates(v.between(start_s, start_s + 1.1))[0] for v in victims]
        if all(rate >= 0.9 * usual for rate, usual in zip(rates, before, strict=True)):
            return step / 2
    return None


def _median(values: list[float]) -> float | None:
    return median(values) if values else None


def _start(module: str, options: Report) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", module, json.dumps(options)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=HERE, stdin=pipe, stdout=pipe, text=True)


def _print_table(rows: list[Report], args: argparse.Namespace) -> None:
    nodes = max(2 * args.pairs, args.nodes)
    title = f"{nodes} nodes, {args.substrate}, {args.inserts:.0f} inserts/s per pair"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("attack")
    names = (
        "datagrams/s",
        "cores",
        "busy",
        "before/s",
        "kept",
        "median ms",
        "blocked ms",
        "of it busy",
        "collector ms",
        "memory MB",
        "stays MB",
    )
    for name in (*names, "recovery s"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            row["attack"],
            f"{row['rate']:,.0f}" if row["rate"] else "1 message",
            f"{row['attacker_cores']:.1f}",
            f"{row['busy_cores']:.1f}",
            f"{row['before_per_s']:,.0f}",
            f"{row['kept']:.0%}",
            _figure(row["median_ms"]),
            f"{row['blocked_ms']:.0f} ({row['blocked_before_ms']:.0f})",
            f"{row['busy_ms']:.0f}",
            f"{row['collector_ms']:.0f}",
            f"{row['growth_mb']:+.0f}",
            f"{row['stays_mb']:+.0f}",
            _figure(row["recovery_s"], "never"),
        )
    Console().print(table)


def _figure(value: float | None, missing: str = "none") -> str:
    return missing if value is None else f"{value:.1f}"


if __name__ == "__main__":
    main()
