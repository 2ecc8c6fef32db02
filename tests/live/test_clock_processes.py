"""M36 with processes: the clock of an ES server is wrong, jumps, and is corrected."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.live.nodes import NodeProcess, free_group

SOON_S = 40.0
WRONG_US = 600_000_000


def publish(node: NodeProcess, text: str) -> None:
    """Publishes a text; tries again until the server has compared the clocks."""
    words = [sys.executable, "-m", "thyme.cli", "publish", "-", "--tags", "goal", "--summary", text]
    until_s = time.monotonic() + SOON_S
    while True:
        done = subprocess.run(
            [*words, "--node", node.url], input="", capture_output=True, text=True
        )
        if done.returncode == 0:
            return
        assert time.monotonic() < until_s, done.stderr


def test_m36_a_server_with_a_wrong_clock_serves_its_clients_before_and_after_a_correction(
    tmp_path: Path,
) -> None:
    clock = tmp_path / "clock"
    clock.write_text(str(-WRONG_US))
    where = ("--world", "lisbon", "--group", free_group())
    nodes = [NodeProcess("server", *where, "--data", tmp_path / "server", clock=clock)]
    try:
        nodes += [
            NodeProcess("node", *where, "--data", tmp_path / name) for name in ("alice", "bob")
        ]
        alice, bob = nodes[1:]
        words = [sys.executable, "-m", "thyme.cli", "subscribe", "goal", "--json"]
        with subprocess.Popen(
            [*words, "--follow", "--node", bob.url], stdout=subprocess.PIPE, text=True
        ) as reader:
            assert reader.stdout is not None
            for wrong_us in (-WRONG_US, 0, WRONG_US, 0):
                clock.write_text(str(wrong_us))
                publish(alice, f"clock {wrong_us}")
                assert f"clock {wrong_us}" in reader.stdout.readline()
            reader.kill()
    finally:
        for node in nodes:
            node.kill()
