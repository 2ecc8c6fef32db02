"""Live nodes against their targets.

usage: python benchmarks/bench_live.py [--quick] [--only lab|store] [--entries 1000000]

- lab: 12 nodes of DCS in 3 x 2 cells whose radios reach the cells beside, so several hops; without
  and with loss. Every operation counts, and the memory of a node that has just come up.
- store: a server that starts with a million metadata entries, and finds the 20 most recent of a
  past.

Latencies are medians. One hop is measured by bench_peers. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from live import lab, store

from thyme.lab.plan import LabPlan
from thyme.lab.supervisor import free_ports

HERE = Path(__file__).resolve().parent
TARGETS = {
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
    parser.add_argument("--only", choices=("lab", "store"))
    parser.add_argument("--entries", type=int)
    args = parser.parse_args()
    figures: Figures = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    parts = [args.only] if args.only else ["lab", "store"]
    if "lab" in parts:
        figures["lab"] = measure_lab(quick=args.quick)
    if "store" in parts:
        figures["store"] = measure_store(args.entries or (100_000 if args.quick else 1_000_000))
    figures["load_after"] = os.getloadavg()[0]
    print(json.dumps(figures))


def _port() -> int:
    return free_ports(1, socket.SOCK_DGRAM)[0]


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
