"""A large object over two lossy hops: speed against plain datagrams, memory, kill -9 (M37).

usage: python benchmarks/bench_large.py [--mb 1000] [--loss 0.05] [--mbit 100] [--substrate ls]

Three node processes in a row on loopback, each with its data on disk: the first publishes a file,
the last retrieves it, and only the one in the middle reaches both. Between them is the virtual
radio, as one medium that all share, with a limited rate and random loss; `--mbit 0` leaves the rate
to the machine. First, plain datagrams of the same size go over the same path, paced, at several
rates; the best rate at which they arrive is what the retrieve is compared with. When half of the
object has arrived, the retrieving node is killed without warning and started again; nothing that it
had may be sent again. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import filecmp
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from aiohttp import ClientSession

from thyme.lab.supervisor import free_ports
from thyme.lab.virtual_radio import LoopbackRadio, VirtualRadio
from thyme.transport.datagrams import FRAGMENT_BYTES_MAX

MB = 1_000_000
DATAGRAM_BYTES = FRAGMENT_BYTES_MAX
QUEUE_S = 0.05
"""The medium queues what it can send in this time; the rest is lost, as in a real interface."""
BASELINE_S = 4.0
POSITIONS = [(0.0, 0.0), (40.0, 0.0), (80.0, 0.0)]
RANGE_M = 50.0
START_S_MAX = 60.0
MEMORY_MB_MAX, RATIO_MIN = 64.0, 0.6
Figures = dict[str, Any]


class SharedMedium:
    """One channel for all: a datagram takes its time, and waits for those before it."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0
        self._queue: deque[tuple[float, Callable[..., None], tuple[object, ...]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def schedule(self, function: Callable[..., None], *arguments: object) -> None:
        """Delivers a datagram, the last of the arguments, when the channel is free."""
        if not self._bytes_per_s:
            function(*arguments)
            return
        datagram = arguments[-1]
        assert isinstance(datagram, bytes)
        now_s = time.monotonic()
        if self._free_s - now_s > QUEUE_S:
            return
        self._free_s = max(self._free_s, now_s) + len(datagram) / self._bytes_per_s
        self._queue.append((self._free_s, function, arguments))
        if self._timer is None:
            self._wait(now_s)

    def _wait(self, now_s: float) -> None:
        due_s = max(0.0, self._queue[0][0] - now_s)
        self._timer = asyncio.get_running_loop().call_later(due_s, self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        now_s = time.monotonic()
        while self._queue and self._queue[0][0] <= now_s:
            _, function, arguments = self._queue.popleft()
            function(*arguments)
        if self._queue:
            self._wait(now_s)


def run_radio(pipe: Connection, ports: list[int], loss: float, mbit: float) -> None:
    """The radio, in a process of its own."""

    async def serve() -> None:
        radio = VirtualRadio(POSITIONS, RANGE_M, loss, Random(1))
        loopback = LoopbackRadio(radio, ports, SharedMedium(mbit * 125_000))  # type: ignore[arg-type]
        loopback.open()
        pipe.send(loopback.addresses)
        await asyncio.Event().wait()

    with suppress(KeyboardInterrupt):
        asyncio.run(serve())


# Plain datagrams


def open_socket(port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
    opened.bind(("127.0.0.1", port))
    return opened


def relay(port: int, to: tuple[str, int]) -> None:
    """The node in the middle: passes every datagram on."""
    with open_socket(port) as opened:
        while True:
            opened.sendto(opened.recv(65_536), to)


def receive(port: int, pipe: Connection) -> None:
    """The last node: counts what arrives, until nothing has come for a second."""
    with open_socket(port) as opened:
        opened.settimeout(10.0)
        received, first_s, last_s = 0, 0.0, 0.0
        with suppress(TimeoutError):
            while True:
                received += len(opened.recv(65_536))
                last_s = time.monotonic()
                if not first_s:
                    first_s = last_s
                    opened.settimeout(1.0)
        pipe.send(received / max(last_s - first_s, 1e-6))


def send_paced(port: int, to: tuple[str, int], bytes_per_s: float) -> None:
    """The first node: sends at a constant rate."""
    with open_socket(port) as opened:
        started_s = time.monotonic()
        sent = 0
        payload = bytes(DATAGRAM_BYTES)
        while (passed_s := time.monotonic() - started_s) < BASELINE_S:
            while sent < passed_s * bytes_per_s:
                opened.sendto(payload, to)
                sent += DATAGRAM_BYTES
            time.sleep(0.001)


def measure_datagrams(
    ports: list[int], proxies: list[tuple[str, int]], rates: list[float]
) -> dict[float, float]:
    """The rate at which plain datagrams arrive over two hops, by the rate at which they are
    sent."""
    arrived = {}
    for rate in rates:
        ours, theirs = multiprocessing.Pipe()
        middle = multiprocessing.Process(target=relay, args=(ports[1], proxies[2]), daemon=True)
        last = multiprocessing.Process(target=receive, args=(ports[2], theirs), daemon=True)
        middle.start()
        last.start()
        time.sleep(0.5)
        send_paced(ports[0], proxies[1], rate)
        arrived[rate] = ours.recv()
        last.join()
        middle.terminate()
        middle.join()
        show(f"plain datagrams sent at {rate / MB:5.1f} MB/s arrive at {arrived[rate] / MB:5.1f}")
    return arrived


# Nodes


class Node:
    """A node process in the row."""

    def __init__(self, directory: Path, number: int, substrate: str, network: list[str]) -> None:
        self._log = directory / f"node-{number}.log"
        self.data = directory / f"node-{number}"
        [http] = free_ports(1, socket.SOCK_STREAM)
        self.url = f"http://127.0.0.1:{http}"
        words = [sys.executable, "-m", "thyme.cli", "node", "--world", "large"]
        words += ["--data", str(self.data), "--http", f"127.0.0.1:{http}", *network]
        if number == 0:
            words += ["--create", "--substrate", substrate]
        if substrate == "dcs":
            words += ["--area", "120x40", "--cell", "40"] if number == 0 else []
            words += ["--position", f"{POSITIONS[number][0] + 20:g},20"]
        self._words = words
        self.base_mb = 0.0
        self._peaks_mb: list[float] = []

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(self._words, stdout=log, stderr=log)  # noqa: ASYNC220
        until_s = time.monotonic() + START_S_MAX
        async with ClientSession() as session:
            while True:
                with suppress(OSError):
                    async with session.get(f"{self.url}/v1/status") as response:
                        await response.read()
                        return
                if time.monotonic() > until_s or self._child.poll() is not None:
                    raise SystemExit(f"a node did not start: {self._log.read_text()[-2_000:]}")
                await asyncio.sleep(0.2)

    def kill(self) -> None:
        self._peaks_mb.append(self._read("VmHWM"))
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        self._child.send_signal(signal.SIGTERM)
        self._child.wait()

    def mark_base(self) -> None:
        """Remembers the memory before the transfer."""
        self.base_mb = self._read("VmRSS")

    def growth_mb(self) -> float:
        """How far the memory grew at its peak, in any of the node's lives."""
        return max([*self._peaks_mb, self._read("VmHWM")]) - self.base_mb

    def _read(self, field: str) -> float:
        status = Path(f"/proc/{self._child.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith(field)]
        return int(line.split()[1]) / 1024

    def chunks_held(self) -> int:
        """The number of chunks of large objects in the node's data directory."""
        return sum(sum(file.read_bytes()) for file in self.data.glob("*.chunks/*.held"))


async def publish(node: Node, file: Path) -> str:
    words = [sys.executable, "-m", "thyme.cli", "publish", str(file), "--tags", "movie"]
    child = await asyncio.create_subprocess_exec(
        *words, "--node", node.url, "--json", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    if child.returncode:
        raise SystemExit("publish failed")
    return str(json.loads(out)["key"])


async def subscribe(node: Node) -> None:
    """Subscribes for good: a node retrieves what matches its subscriptions, also after a
    restart."""
    words = [sys.executable, "-m", "thyme.cli", "subscribe", "movie", "--keep"]
    child = await asyncio.create_subprocess_exec(*words, "--node", node.url)
    if await child.wait():
        raise SystemExit("subscribe failed")


async def retrieve(node: Node, key: str, copy: Path, half: int) -> Figures:
    """Retrieves the object; kills the node when half of it has arrived."""
    words = [sys.executable, "-m", "thyme.cli", "retrieve", key, "-o", str(copy)]
    started_s = time.monotonic()
    child = await asyncio.create_subprocess_exec(*words, "--node", node.url)
    while node.chunks_held() < half and child.returncode is None:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    first_s = time.monotonic() - started_s
    held = node.chunks_held()
    node.kill()
    show(f"killed the retrieving node after {first_s:.1f} s, with {held} chunks")
    await node.start()
    again_s = time.monotonic()
    kept = node.chunks_held()
    await child.wait()
    second_s = time.monotonic() - again_s
    if child.returncode:
        raise SystemExit("retrieve failed")
    return {
        "seconds": first_s + second_s,
        "chunks_before_kill": held,
        "chunks_after_kill": kept,
        "first_half_s": first_s,
        "second_half_s": second_s,
    }


async def transfer(directory: Path, args: argparse.Namespace, networks: list[list[str]]) -> Figures:
    file, copy = directory / "movie", directory / "copy"
    with file.open("wb") as made:
        for _ in range(args.mb):
            made.write(os.urandom(MB))
    nodes = [
        Node(directory, number, args.substrate, network) for number, network in enumerate(networks)
    ]
    for node in nodes:
        await node.start()
        await asyncio.sleep(3)
    await asyncio.sleep(8)
    for node in nodes:
        node.mark_base()
    started_s = time.monotonic()
    key = await publish(nodes[0], file)
    published_s = time.monotonic() - started_s
    show(f"published {args.mb} MB in {published_s:.1f} s")
    chunks = -(-args.mb * MB // (256 * 2**10))
    await subscribe(nodes[2])
    figures = await retrieve(nodes[2], key, copy, chunks // 2)
    same = await asyncio.to_thread(filecmp.cmp, file, copy, shallow=False)
    growth_mb = [node.growth_mb() for node in nodes]
    for node in nodes:
        node.stop()
    speed = args.mb * MB / figures["seconds"]
    return figures | {
        "publish_s": published_s,
        "bytes_per_s": speed,
        "same": same,
        "memory_growth_mb": growth_mb,
        "chunks": chunks,
    }


def show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mb", type=int, default=1_000, help="size of the object")
    parser.add_argument("--loss", type=float, default=0.05, help="loss of each hop")
    parser.add_argument("--mbit", type=float, default=100.0, help="rate of the medium; 0: no limit")
    parser.add_argument("--substrate", choices=("ls", "dcs"), default="ls")
    args = parser.parse_args()
    ports = free_ports(3, socket.SOCK_DGRAM)
    ours, theirs = multiprocessing.Pipe()
    radio = multiprocessing.Process(
        target=run_radio, args=(theirs, ports, args.loss, args.mbit), daemon=True
    )
    radio.start()
    proxies = ours.recv()
    # Two hops share the medium: at half of its rate, plain datagrams just do not overload it.
    share = args.mbit * 125_000 / 2
    rates = (
        [share * part for part in (0.9, 1.0, 1.1)]
        if share
        else [x * MB for x in (5, 10, 15, 20, 30, 40)]
    )
    arrived = measure_datagrams(ports, proxies, rates)
    networks = [
        ["--port", str(port), "--interface", "127.0.0.1", "--group", f"{host}:{proxy}"]
        for port, (host, proxy) in zip(ports, proxies, strict=True)
    ]
    with tempfile.TemporaryDirectory(prefix="thyme-large-") as directory:
        figures = asyncio.run(transfer(Path(directory), args, networks))
    radio.terminate()
    best = max(arrived.values())
    ratio = figures["bytes_per_s"] / best
    show(
        f"{args.substrate}, {args.mb} MB over two hops, {args.loss:.0%} loss: "
        f"{figures['bytes_per_s'] / MB:.1f} MB/s, {ratio:.0%} of plain paced datagrams "
        f"({best / MB:.1f} MB/s; target {RATIO_MIN:.0%})"
    )
    growth = max(figures["memory_growth_mb"])
    show(f"memory growth of a node: at most {growth:.0f} MB (target {MEMORY_MB_MAX:.0f} MB)")
    show(
        f"chunks before and after kill -9: {figures['chunks_before_kill']}, "
        f"{figures['chunks_after_kill']} of {figures['chunks']}; the copy is "
        f"{'the same' if figures['same'] else 'DIFFERENT'}"
    )
    print(
        json.dumps(
            figures
            | {
                "ratio": ratio,
                "plain_bytes_per_s": best,
                "loss": args.loss,
                "mbit": args.mbit,
                "mb": args.mb,
                "substrate": args.substrate,
            }
        )
    )
    kept = figures["chunks_after_kill"] >= figures["chunks_before_kill"]
    return 0 if figures["same"] and kept and ratio >= RATIO_MIN and growth < MEMORY_MB_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
