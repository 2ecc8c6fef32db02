"""Checks of the network: interface, multicast and firewall, and whether other devices are in reach.

A datagram to the multicast group comes back to its sender unless multicast is off or a firewall
drops it. A datagram to a closed port of another device brings an ICMP error back if the device is
in reach; if even its link address cannot be found, the access point separates its clients.
Entry points: `listen`, `check_interface`, `check_multicast`, `check_devices`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from thyme.doctor.check_results import CheckResult, failed, ok, skipped, warning
from thyme.live.interfaces import interface_flags
from thyme.live.sockets import NetworkConfig, NetworkError, Sockets, to_socket_address
from thyme.model.errors import DecodeError
from thyme.transport.datagrams import ClockReading, decode
from thyme.transport.link_config import Address

PROBE_PREFIX = b"thyme doctor "
_CLOSED_PORT = 9  # discard
REACH_TIMEOUT_S = 4.0
"""Longer than the operating system searches for a link address."""
_IP_RECVERR, _IPV6_RECVERR = 11, 25
_IFF_UP, _IFF_MULTICAST = 0x1, 0x1000

Reach = Literal["reached", "unreachable", "silent"]


class ListenResult(msgspec.Struct, kw_only=True):
    """What a machine hears on its interface."""

    own_copy: bool = False
    """Whether a datagram to the multicast group came back."""
    own_unicast: bool = False
    """Whether a datagram to the own address arrived."""
    clocks_ahead_us: list[int] = []
    """How far the clocks of the nodes in range are ahead."""
    hosts: dict[str, int] = {}
    """Addresses of other devices, with the number of datagrams from each."""
    error: str | None = None
    """Why the sockets cannot be opened."""


async def listen(network: NetworkConfig, seconds: float) -> ListenResult:
    """Sends a datagram to the group and to the own address, and collects what arrives."""
    received = ListenResult()
    try:
        sockets = Sockets(network)
    except NetworkError as error:
        received.error = str(error)
        return received
    own_host = sockets.address[0]
    multicast, unicast = (PROBE_PREFIX + os.urandom(8) for _ in range(2))

    def on_datagram(datagram: bytes, address: Address) -> None:
        if datagram == multicast:
            received.own_copy = True
        elif datagram == unicast:
            received.own_unicast = True
        elif address[0] != own_host:
            received.hosts[address[0]] = received.hosts.get(address[0], 0) + 1
        _read_clock(datagram, received)

    sockets.on_datagram = on_datagram
    await sockets.open(own_copies=True)
    try:
        for _ in range(3):
            sockets.send(multicast, None)
            sockets.send(unicast, sockets.address)
            await asyncio.sleep(seconds / 3)
    finally:
        sockets.close()
    return received


def _read_clock(datagram: bytes, received: ListenResult) -> None:
    try:
        content = decode(datagram).content
    except DecodeError:
        return
    if isinstance(content, ClockReading):
        received.clocks_ahead_us.append(content.now_us - time.time_ns() // 1_000)


def check_interface(name: str | None, address: str) -> CheckResult:
    """Whether the interface is up, and has multicast and other devices."""
    shown = address if name is None else f"{name}, {address}"
    if address.startswith(("127.", "::1")):
        return warning(
            "interface",
            f"{shown}: only nodes on this machine are in range",
            "connect to a network, or choose an interface with --interface",
        )
    flags = None if name is None else interface_flags(name)
    if flags is not None and not flags & _IFF_UP:
        return failed("interface", f"{shown} is down", f"ip link set {name} up")
    if flags is not None and not flags & _IFF_MULTICAST:
        return failed(
            "interface",
            f"{shown} has multicast switched off",
            f"ip link set {name} multicast on, or name the other nodes with --peer",
        )
    return ok("interface", shown)


def check_multicast(network: NetworkConfig, received: ListenResult) -> list[CheckResult]:
    """Whether multicast works on this machine, and whether a firewall drops datagrams."""
    port = network.group_port
    if received.error is not None:
        return [failed("multicast", received.error, "see thyme node --help: --interface, --port")]
    if received.own_copy:
        return [
            ok("multicast", f"datagrams to the group, port {port}, come back"),
            _check_unicast(received),
        ]
    return [
        failed(
            "multicast",
            f"a datagram to the group, port {port}, does not come back",
            "the multicast route is missing, or a firewall drops the datagrams: name the other "
            "nodes with --peer, or see the next lines",
        ),
        failed(
            "firewall",
            f"UDP to port {port} does not arrive",
            f"allow UDP to port {port}: ufw allow {port}/udp, or nft add rule inet filter input "
            f"udp dport {port} accept",
        )
        if received.own_unicast
        else _check_unicast(received),
    ]


def _check_unicast(received: ListenResult) -> CheckResult:
    if received.own_unicast:
        return ok("firewall", "UDP datagrams arrive on this machine")
    return failed(
        "firewall",
        "UDP datagrams to this machine's own address do not arrive",
        "allow UDP to the port of the node, which --port N fixes",
    )


async def probe_hosts(hosts: Iterable[str]) -> dict[str, Reach]:
    """Tries to reach devices by a datagram to a closed port of each."""
    names = list(dict.fromkeys(hosts))
    reached = await asyncio.gather(*(_probe(host) for host in names))
    return dict(zip(names, reached, strict=True))


async def _probe(host: str) -> Reach:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    loop = asyncio.get_running_loop()
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        try:
            _report_all_errors(probe, family)
            probe.connect(to_socket_address((host, _CLOSED_PORT)))
            probe.send(PROBE_PREFIX)
            await asyncio.wait_for(loop.sock_recv(probe, 64), REACH_TIMEOUT_S)
        except TimeoutError:
            return "silent"
        except OSError as error:
            return "reached" if error.errno == errno.ECONNREFUSED else "unreachable"
    return "reached"


def _report_all_errors(probe: socket.socket, family: int) -> None:
    """Makes Linux report also that a link address was not found."""
    if sys.platform.startswith("linux"):
        if family == socket.AF_INET:
            probe.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        else:
            probe.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)


def check_devices(
    received_hosts: Mapping[str, int], peers: Iterable[str], reach: Mapping[str, Reach]
) -> list[CheckResult]:
    """Whether other devices are received and in reach; client isolation of the access point."""
    findings = [
        _judge_device(host, is_received=host in received_hosts, reach=reach[host])
        for host in dict.fromkeys([*received_hosts, *peers])
    ]
    return findings or [
        skipped(
            "isolation",
            "no node on another device was heard",
            "start a node on another device and run this again; or name the device: "
            "thyme doctor --peer 192.168.1.7:8472",
        )
    ]


def _judge_device(host: str, *, is_received: bool, reach: Reach) -> CheckResult:
    if reach == "unreachable" and is_received:
        return failed(
            "isolation",
            f"the multicast of {host} arrives, but datagrams to it do not",
            "the access point separates its clients: switch off client isolation (AP isolation), "
            "or use another network than the one for guests",
        )
    if reach == "unreachable":
        return failed(
            "isolation",
            f"{host} cannot be reached",
            "is it switched on and in this network, and not in the one for guests? Client "
            "isolation of the access point separates devices, too: switch it off",
        )
    if not is_received:
        return warning(
            "isolation",
            f"{host} is in reach, but its multicast is not heard",
            "if a node runs there: multicast is filtered on the way; name the nodes to each "
            "other with --port N and --peer A:PORT",
        )
    if reach == "silent":
        return ok("isolation", f"{host} is heard; it answers no probe, as with a firewall")
    return ok("isolation", f"{host} is heard and in reach")
