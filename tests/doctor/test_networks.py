"""Faults of networks, made in network namespaces: the doctor must name each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.namespaces import Network, made_network


@pytest.fixture
def network() -> Iterator[Network]:
    with made_network() as made:
        yield made


def examine(network: Network, device: str, data: Path, *words: str) -> dict[str, dict[str, Any]]:
    """The failed checks of a device, by name."""
    common = ("--interface", "eth0", "--data", str(data), "--json", "--seconds", "0.6")
    done = network.thyme(device, "doctor", *common, *words)
    found = json.loads(done.stdout or "[]")
    assert done.returncode == (1 if any(f["verdict"] == "failed" for f in found) else 0), done
    return {f["check"]: f for f in found if f["verdict"] == "failed"}


def test_a_device_in_a_sound_network_has_no_fault(network: Network, tmp_path: Path) -> None:
    network.add_device("ana", "10.9.0.1/24")
    network.add_device("rui", "10.9.0.2/24")

    assert examine(network, "ana", tmp_path, "--peer", "10.9.0.2:8472") == {}


def test_client_isolation_is_named(network: Network, tmp_path: Path) -> None:
    network.add_device("ana", "10.9.0.1/24")
    network.add_device("rui", "10.9.0.2/24")
    for device in ("ana", "rui"):
        network.ip("bridge", f"link set {device}-eth0 type bridge_slave isolated on")

    found = examine(network, "ana", tmp_path, "--peer", "10.9.0.2:8472")

    assert list(found) == ["isolation"]
    assert "Client isolation" in found["isolation"]["advice"]


def test_multicast_that_is_switched_off_is_named(network: Network, tmp_path: Path) -> None:
    network.add_device("ana", "10.9.0.1/24")
    network.ip("ana", "link set eth0 multicast off")

    assert examine(network, "ana", tmp_path)["interface"]["advice"].startswith(
        "ip link set eth0 multicast on"
    )


def test_a_firewall_that_drops_the_port_is_named(network: Network, tmp_path: Path) -> None:
    if shutil.which("nft") is None:
        pytest.skip("a firewall needs nft")
    network.add_device("ana", "10.9.0.1/24")
    network.run("ana", "nft", "add", "table", "inet", "filter")
    chain = "{ type filter hook input priority 0 ; }"
    network.run("ana", "nft", "add", "chain", "inet", "filter", "input", chain)
    rule = ("inet", "filter", "input", "udp", "dport", "8472", "drop")
    network.run("ana", "nft", "add", "rule", *rule)

    found = examine(network, "ana", tmp_path)

    assert found["firewall"]["text"] == "UDP to port 8472 does not arrive"
    assert "allow UDP to port 8472" in found["firewall"]["advice"]
