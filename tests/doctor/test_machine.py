"""What is wrong with a machine, and what to do: faults are made, and the doctor must name them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import namedtuple
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.nodes import free_group, running
from thyme.cli import main
from thyme.doctor import machine, network, running_node
from thyme.doctor.check_results import CheckResult, is_healthy
from thyme.live.node_factory import CLOCK_SKEW_US
from thyme.live.sockets import NetworkConfig

NOW_US = 1_790_000_000_000_000
Usage = namedtuple("Usage", "total used free")


def test_a_folder_that_can_be_made_is_fine_and_a_file_in_its_place_is_not(tmp_path: Path) -> None:
    assert machine.check_permissions(tmp_path / "new" / "node").verdict == "ok"
    (tmp_path / "file").write_text("")

    finding = machine.check_permissions(tmp_path / "file" / "node")

    assert finding.verdict == "failed"
    assert finding.text == f"{tmp_path / 'file'} is not a folder"
    assert finding.advice == "choose another with --data"


def test_a_key_that_others_can_read_or_that_is_damaged_is_named(tmp_path: Path) -> None:
    key = tmp_path / "node.key"
    key.write_bytes(bytes(32))
    key.chmod(0o644)
    readable = machine.check_permissions(tmp_path)
    key.chmod(0o600)
    fine = machine.check_permissions(tmp_path)
    key.write_bytes(b"half")
    damaged = machine.check_permissions(tmp_path)

    assert (readable.verdict, readable.advice) == ("failed", f"chmod 600 {key}")
    assert fine.verdict == "ok"
    assert (damaged.verdict, damaged.text) == ("failed", f"{key} is damaged")


@pytest.mark.parametrize(
    ("free_mib", "verdict"), [(10, "failed"), (100, "warning"), (10_000, "ok")]
)
def test_a_full_disk_is_named(
    free_mib: int, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = Usage(2**40, 0, free_mib * 2**20)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda path: usage)

    assert machine.check_disk(tmp_path / "missing").verdict == verdict


def test_a_port_of_another_program_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        taken = machine.check_http_port("127.0.0.1", port, node_answers=False)
        ours = machine.check_http_port("127.0.0.1", port, node_answers=True)

    assert (taken.verdict, ours.verdict) == ("failed", "ok")
    assert taken.advice == "choose another port: thyme node --http 127.0.0.1:PORT"
    assert machine.check_http_port("127.0.0.1", port, node_answers=False).verdict == "ok"


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1))
def test_a_clock_is_wrong_if_it_differs_from_the_median_by_more_than_the_skew(
    ahead_us: list[int],
) -> None:
    """M12, M36."""
    finding = machine.check_clock(NOW_US, ahead_us)

    median_us = sorted(ahead_us)[len(ahead_us) // 2]
    assert (finding.verdict == "failed") == (abs(median_us) > CLOCK_SKEW_US)


def test_a_clock_that_was_never_set_is_named_and_one_alone_cannot_be_judged() -> None:
    assert machine.check_clock(0, [0]).verdict == "failed"
    assert machine.check_clock(NOW_US, []).verdict == "skipped"


REACHES: dict[tuple[bool, network.Reach], str] = {
    (True, "reached"): "ok",
    (True, "silent"): "ok",
    (True, "unreachable"): "failed",
    (False, "reached"): "warning",
    (False, "silent"): "warning",
    (False, "unreachable"): "failed",
}


@pytest.mark.parametrize(("heard", "reach"), REACHES)
def test_a_device_that_is_heard_and_not_reached_is_isolated(
    heard: bool, reach: network.Reach
) -> None:
    hosts = {"10.0.0.7": 3} if heard else {}

    (finding,) = network.check_devices(hosts, ["10.0.0.7"], {"10.0.0.7": reach})

    assert finding.verdict == REACHES[heard, reach]


def test_an_interface_that_does_not_exist_is_named() -> None:
    config = NetworkConfig(interfaces=("192.0.2.1",))

    heard = asyncio.run(network.listen(config, 0.1))

    (finding,) = network.check_multicast(config, heard)
    assert finding.verdict == "failed"
    assert finding.text == "no interface here has the address 192.0.2.1"


def test_another_program_at_the_address_of_the_node_is_told_from_no_node() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        hangs = running_node.check_node(url, running_node.NodeUnreachableError("no answer"))
    nobody = running_node.check_node(url, asyncio.run(running_node.fetch(url)))

    assert (hangs.verdict, nobody.verdict) == ("failed", "skipped")
    assert is_healthy([nobody])
    assert not is_healthy([nobody, hangs])


def test_a_running_node_is_found_well_and_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group, data = free_group(), tmp_path / "data"
    make = ("--world", "lisbon", "--create", "--wid", "w", "--group", group, "--data", data)
    with running("node", *make) as node:
        options = ["--node", node.url, "--http", node.url[7:], "--group", group]
        words = ["doctor", "--interface", "127.0.0.1", "--data", str(data), *options, "--json"]
        status = main([*words, "--seconds", "1.5"])
        found = json.loads(capsys.readouterr().out)

    verdicts = {finding["check"]: finding["verdict"] for finding in found}
    assert verdicts == {
        "interface": "warning",
        "multicast": "ok",
        "firewall": "ok",
        "isolation": "skipped",
        "clock": "ok",
        "ports": "ok",
        "disk": "ok",
        "permissions": "ok",
        "node": "warning",
    }
    assert status == 0
    assert [CheckResult(**finding) for finding in found][-1].advice is not None
