"""Nodes on links with IPv6 alone, and nodes with several interfaces, in network namespaces."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.namespaces import Network, made_network
from thyme.live.interfaces import resolve_addresses
from thyme.live.sockets import NetworkConfig, NetworkError, Sockets, format_address, split_scope


@pytest.fixture
def network() -> Iterator[Network]:
    with made_network() as made:
        yield made


@contextmanager
def node(network: Network, device: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a node on a device until the block ends; it is ready when the block begins."""
    command = [*network.command(device), sys.executable, "-m", "thyme.cli", "node", "--memory"]
    with subprocess.Popen(
        [*command, "--world", "lisbon", "--log-json", *words], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for(process, "ready")
            yield process
        finally:
            process.terminate()


def wait_for(process: subprocess.Popen[str], event: str) -> dict[str, Any]:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("{") and (entry := json.loads(line))["event"] == event:
            return dict(entry)
    raise AssertionError(f"no {event!r} in the log: {''.join(lines)}")


def publish_and_search(network: Network, publisher: str, reader: str, file: Path) -> list[str]:
    """Publishes a file on one device; returns the summaries that a search on another prints."""
    done = network.thyme(publisher, "publish", str(file), "--tags", "goal", "--summary", publisher)
    assert done.returncode == 0, done.stderr
    done = network.thyme(reader, "subscribe", "goal", "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["summary"] for line in done.stdout.splitlines()]


def test_nodes_find_each_other_on_a_link_with_ipv6_alone(network: Network, tmp_path: Path) -> None:
    """M21, D4: no IPv4 address anywhere, no option given."""
    (tmp_path / "photo").write_bytes(b"photo")
    network.add_device("ana")
    network.add_device("rui")
    with node(network, "ana", "--create", "--wid", "w"), node(network, "rui") as rui:
        wait_for(rui, "neighbour_came")

        assert publish_and_search(network, "ana", "rui", tmp_path / "photo") == ["ana"]
        status = json.loads(network.thyme("rui", "status", "--json").stdout)
    assert status["neighbours"][0]["address"].startswith("[fe80::")
    assert "%eth0]:" in status["neighbours"][0]["address"]


def test_a_node_with_several_interfaces_joins_two_links(network: Network, tmp_path: Path) -> None:
    """M21: one link has IPv4, the other IPv6 alone; the node between hears both, and routes."""
    (tmp_path / "photo").write_bytes(b"photo")
    network.add_bridge("br1")
    network.add_device("ana", "10.9.0.1/24")
    network.add_device("mia", "10.9.0.2/24")
    network.add_interface("mia", "eth1", ipv6=True, bridge="br1")
    network._add("rui")
    network.ip("rui", "link set lo up")
    network.add_interface("rui", "eth0", ipv6=True, bridge="br1")
    with (
        node(network, "mia", "--create", "--wid", "w", "--interface", "all"),
        node(network, "ana") as ana,
        node(network, "rui") as rui,
    ):
        wait_for(ana, "neighbour_came")
        wait_for(rui, "neighbour_came")
        status = json.loads(network.thyme("mia", "status", "--json").stdout)

        assert len(status["addresses"]) == 2
        assert len(status["neighbours"]) == 2
        assert publish_and_search(network, "ana", "mia", tmp_path / "photo") == ["ana"]
        assert publish_and_search(network, "rui", "mia", tmp_path / "photo") == ["rui", "ana"]


def test_a_datagram_that_arrives_on_two_interfaces_is_processed_once(network: Network) -> None:
    """Both interfaces of each device are on the same link."""
    network.add_device("ana", "10.9.0.1/24", ipv6=True)
    program = """
import asyncio
from thyme.live.interfaces import resolve_addresses
from thyme.live.sockets import NetworkConfig
from thyme.live.sockets import Sockets

async def main():
    both = NetworkConfig(interfaces=resolve_addresses("all"))
    receiver, sender = Sockets(both), Sockets(both)
    heard = []
    receiver.on_datagram = lambda datagram, address: heard.append(datagram)
    await receiver.open()
    await sender.open()
    sender.send(b"to all", None)
    for address in receiver.addresses:
        sender.send(address[0].encode(), address)
    while len(heard) < 3:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    print(sorted(datagram.decode() for datagram in heard), sender.datagrams["out"])

asyncio.run(main())
"""
    found = network.run("ana", sys.executable, "-c", program).stdout

    assert "'10.9.0.1', 'fe80::" in found
    assert found.count("to all") == 1
    assert found.endswith(" 4\n")


@given(st.ip_addresses(v=6), st.integers(0, 65_535))
def test_the_text_of_an_ipv6_address_has_brackets_and_keeps_its_scope(
    address: ipaddress.IPv6Address, port: int
) -> None:
    scoped = f"{address}%wlan0"

    assert format_address((scoped, port)) == f"[{scoped}]:{port}"
    assert split_scope(scoped) == (str(address), "wlan0")


def test_a_link_address_without_its_interface_is_refused_with_the_remedy() -> None:
    with pytest.raises(NetworkError, match="fe80::1%wlan0"):
        resolve_addresses("fe80::1")
    with pytest.raises(NetworkError, match="no interface here has the address 2001:db8::7"):
        resolve_addresses("2001:db8::7")


def test_an_address_that_no_interface_reaches_is_counted() -> None:
    async def send() -> dict[str, int]:
        sockets = Sockets(NetworkConfig())
        await sockets.open()
        sockets.send(b"datagram", ("fe80::1%wlan9", 8472))
        sockets.close()
        return dict(sockets.unsent)

    assert asyncio.run(send()) == {"no interface": 1}
