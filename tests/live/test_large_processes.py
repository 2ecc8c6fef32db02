"""A large object between node processes, one of which is killed in mid-transfer (M37)."""

from __future__ import annotations

import filecmp
import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from tests.live.nodes import NodeProcess, free_group, running

MB = 1_000_000
SIZE_MB = 30
SOON_S = 60.0


def thyme(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "thyme.cli", *map(str, words)]


def chunks_held(data: Path) -> int:
    """The number of chunks in a data directory."""
    return sum(sum(file.read_bytes()) for file in data.glob("*.chunks/*.held"))


def test_m37_a_retrieve_over_cells_survives_kill_9_of_its_node(tmp_path: Path) -> None:
    movie, copy = tmp_path / "movie", tmp_path / "copy"
    movie.write_bytes(Random(1).randbytes(SIZE_MB * MB))
    world = ("--world", "film", "--create", "--wid", "w", "--group", free_group())
    world += ("--area", "80x40", "--cell", "40")

    def options(name: str, position: str) -> tuple[str | Path, ...]:
        return (*world, "--data", tmp_path / name, "--position", position)

    with running("node", *options("ann", "20,20")) as ann:
        dan = NodeProcess("node", *options("dan", "60,20"))
        published = subprocess.run(
            thyme("publish", movie, "--tags", "movie", "--node", ann.url, "--json"),
            check=True,
            capture_output=True,
        )
        key = json.loads(published.stdout)["key"]
        subscribe = thyme("subscribe", "movie", "--keep", "--node", dan.url)
        until_s = time.monotonic() + SOON_S
        while key.encode() not in subprocess.run(subscribe, capture_output=True).stdout:
            assert time.monotonic() < until_s  # until the cells know each other
        address = dan.url.removeprefix("http://")
        retrieve = subprocess.Popen(thyme("retrieve", key, "-o", copy, "--node", dan.url))
        while chunks_held(tmp_path / "dan") < 20 and retrieve.poll() is None:
            time.sleep(0.01)
        dan.kill()
        had = chunks_held(tmp_path / "dan")
        again = NodeProcess("node", *options("dan", "60,20"), "--http", address)

        assert retrieve.wait(SOON_S) == 0
        again.stop()
    assert 20 <= had < SIZE_MB * MB // 2**18
    assert filecmp.cmp(movie, copy, shallow=False)
