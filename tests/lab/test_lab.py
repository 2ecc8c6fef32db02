"""Labs: node processes start, exchange messages within radio range, and stop."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from thyme.lab.lab import down, read_status, up
from thyme.lab.namespaces import check_namespaces
from thyme.lab.plan import LabPlan
from thyme.lab.supervisor import LabState
from thyme.model.errors import OptionError

pytest.importorskip("aiohttp", reason="live nodes need the extra `live`")
PATIENCE_S = 20.0
A_ROW = LabPlan(nodes=3, width_m=120, height_m=40, range_m=50)


def spaces_missing() -> str:
    try:
        check_namespaces()
    except OptionError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_a_lab_comes_up_and_goes_without_a_trace(tmp_path: Path) -> None:
    state = up(tmp_path, A_ROW, lambda _: None)
    try:
        with pytest.raises(OptionError, match="running already"):
            up(tmp_path, A_ROW, lambda _: None)
        await_neighbours(state, [1, 2, 1])
        publish_and_find(state)
    finally:
        assert down(tmp_path) == 3
    assert read_status(tmp_path) is None
    assert not alive(state)


@pytest.mark.slow
def test_i1_a_lab_with_two_stations_is_two_venues_joined_by_a_wire(tmp_path: Path) -> None:
    plan = LabPlan(nodes=4, stations=2, substrate="infra")
    state = up(tmp_path, plan, lambda _: None)
    try:
        await_neighbours(state, [2, 2, 2, 2])
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            stations = [call(f"{station.url}/v1/status") for station in state.stations]
            nodes = [call(f"{node.url}/v1/status")["base_station"] for node in state.nodes]
            if None not in nodes and all(each["stations"][0]["connected"] for each in stations):
                break
            time.sleep(0.1)
        north, south = (each["node"] for each in stations)
        assert nodes == [north, south, north, south], "in turn"
    finally:
        assert down(tmp_path) == 4
    assert not alive(state)


@pytest.mark.slow
def test_each_node_has_a_network_of_its_own(tmp_path: Path) -> None:
    missing = spaces_missing()
    if missing:
        pytest.skip(missing)
    plan = LabPlan(nodes=3, width_m=120, height_m=40, range_m=50, namespaces=True)
    state = up(tmp_path, plan, lambda _: None)
    try:
        await_neighbours(state, [1, 2, 1])
        networks = {os.readlink(f"/proc/{node.pid}/ns/net") for node in state.nodes}
        assert len(networks) == 3
        os.kill(state.pid, signal.SIGKILL)
        await_end(state)
    finally:
        down(tmp_path)


def test_there_is_nothing_to_end_where_nothing_is(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    assert down(tmp_path) == 0


def test_a_directory_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("dear diary")
    with pytest.raises(OptionError, match="other files"):
        up(tmp_path, LabPlan(nodes=1), lambda _: None)

    assert (tmp_path / "diary.txt").read_text() == "dear diary"


def call(url: str, data: bytes | None = None) -> Any:
    request = urllib.request.Request(url, data, {"Content-Type": "application/octet-stream"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def await_neighbours(state: LabState, expected: list[int]) -> None:
    """Waits until each node sees as many neighbours as its radio reaches."""
    until, seen = time.monotonic() + PATIENCE_S, list[int]()
    while seen != expected and time.monotonic() < until:
        seen = [len(call(f"{node.url}/v1/status")["neighbours"]) for node in state.nodes]
        time.sleep(0.1)
    assert seen == expected


def publish_and_find(state: LabState) -> None:
    """The first node publishes, and the last one, two hops away, finds the object."""
    first, last = state.nodes[0].url, state.nodes[-1].url
    call(f"{first}/v1/objects?tags=goal", b"pixels")
    until, found = time.monotonic() + PATIENCE_S, 0
    while not found and time.monotonic() < until:
        found = call(f"{last}/v1/objects?query=goal")["total"]
    assert found == 1


def alive(state: LabState) -> list[int]:
    pids = [state.pid, *(node.pid for node in (*state.nodes, *state.stations))]
    return [
        pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and b"thyme" in _words(pid)
    ]


def await_end(state: LabState) -> None:
    until = time.monotonic() + PATIENCE_S
    while alive(state) and time.monotonic() < until:
        time.sleep(0.1)
    assert not alive(state)


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
