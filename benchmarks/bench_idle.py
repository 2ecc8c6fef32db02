"""Wake-ups per minute of idle nodes: a process that sleeps longer needs less battery.

Starts a node of each substrate as a process, alone and beside a neighbour, and a bare asyncio
process that sends one datagram a second, which is what hellos need at least. Counts how often each
process goes to sleep (voluntary context switches, /proc/PID/status; Linux only), and prints the
ratio to the bare process.

    ./run bench idle [--seconds 30]
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path

NODES = {
    "ls": ["node", "--create"],
    "es": ["server"],
    "dcs": ["node", "--create", "--area", "100x100", "--cell", "50"],
    "infra": ["node", "--substrate", "infra"],
    "mobuser": ["node", "--substrate", "mobuser"],
}
BARE = """
import asyncio, socket
async def main():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        while True:
            out.sendto(b"hello", ("127.0.0.1", 9))
            await asyncio.sleep(1)
asyncio.run(main())
"""
START_S = 12.0
"""How long a node has to start and join before it is measured."""


def main() -> None:
    parser = ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="duration of the measurement")
    seconds: float = parser.parse_args().seconds
    groups = {
        name: f"239.84.9.{random.randint(1, 254)}:{20_000 + n}" for n, name in enumerate(NODES)
    }
    processes = {"bare": subprocess.Popen([sys.executable, "-c", BARE])}
    try:
        for name, words in NODES.items():
            processes[f"{name}, alone"] = _start(words, f"239.85.9.1:{groups[name][-5:]}")
            processes[f"{name}, one neighbour"] = _start(words, groups[name])
        time.sleep(START_S)
        for name, words in NODES.items():
            named = [word for word in words if word not in ("--create", "server", "node")]
            joining = named if name in ("infra", "mobuser") else []
            processes[f"{name}, the neighbour"] = _start(["node", *joining], groups[name])
        time.sleep(START_S)
        before = {name: _count_wake_ups(process.pid) for name, process in processes.items()}
        time.sleep(seconds)
        after = {name: _count_wake_ups(process.pid) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait()
    per_minute = {name: (after[name] - before[name]) * 60 / seconds for name in processes}
    print(f"{'idle process':<26} {'wake-ups a minute':>18} {'of a bare process':>18}")
    for name, count in per_minute.items():
        print(f"{name:<26} {count:>18.0f} {count / max(per_minute['bare'], 1):>17.1f}x")


def _start(words: list[str], group: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "thyme.cli", *words, "--world", "idle", "--memory"]
    network = ["--interface", "127.0.0.1", "--group", group, "--http", "127.0.0.1:0"]
    return subprocess.Popen([*command, *network], stderr=subprocess.DEVNULL)


def _count_wake_ups(pid: int) -> int:
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


if __name__ == "__main__":
    main()
