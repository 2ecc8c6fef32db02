"""Sockets: send and receive UDP datagrams by unicast and multicast, on one network interface.

A node sends everything from its unicast socket, and receives on this one and on a socket that has
joined the multicast group. Multicast datagrams stay on the local link (IP TTL 1).
Entry point: `Sockets`. The content of the datagrams is up to `thyme.transport`.
Clauses: M21, D4.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections import Counter
from collections.abc import Callable

import msgspec

from thyme.model.errors import InputError
from thyme.transport.link_config import Address

MULTICAST_GROUP = "239.84.72.89"
MULTICAST_PORT = 8472
BUFFER_BYTES = 4 * 2**20


class NetworkError(InputError):
    """The network settings cannot be used; the message says what to change."""

    code = "network"


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Network settings of a node."""

    interface: str = "127.0.0.1"
    """IPv4 address of the network interface."""
    port: int = 0
    """Unicast port of the node; 0 for any free port."""
    group: str = MULTICAST_GROUP
    """Multicast group of the nodes in range; or a unicast address whose owner forwards datagrams to
    them, like the virtual radio of a lab."""
    group_port: int = MULTICAST_PORT
    peers: tuple[Address, ...] = ()
    """Nodes out of reach of multicast, which get a unicast copy of each broadcast; they must list
    this node, too."""


class Sockets:
    """The unicast and the multicast socket of a node."""

    def __init__(self, config: NetworkConfig) -> None:
        self._broadcast_addresses = (config.group, config.group_port), *config.peers
        self.on_datagram: Callable[[bytes, Address], None] = lambda datagram, address: None
        self.unsent: Counter[str] = Counter()
        """Number of datagrams that the operating system refused, by reason."""
        self.datagrams: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        """Number of datagrams and bytes, by direction: "in" or "out"."""
        self._unicast = _open_unicast(config)
        self._multicast = (
            _open_multicast(config, self._unicast) if _is_multicast(config.group) else None
        )
        self._transports: list[asyncio.DatagramTransport] = []

    @property
    def address(self) -> Address:
        """Unicast address and port of the node."""
        host, port = self._unicast.getsockname()[:2]
        return str(host), int(port)

    async def open(self) -> None:
        """Starts receiving."""
        loop = asyncio.get_running_loop()
        for sock in (self._unicast, self._multicast):
            if sock is not None:
                transport, _ = await loop.create_datagram_endpoint(
                    lambda: _DatagramReceiver(self), sock=sock
                )
                self._transports.append(transport)

    def send(self, datagram: bytes, to: Address | None) -> None:
        """Sends a datagram to one address, or to all devices in range if `to` is None."""
        if not self._transports:
            return
        for address in self._broadcast_addresses if to is None else (to,):
            self.datagrams["out"] += 1
            self.bytes["out"] += len(datagram)
            self._transports[0].sendto(datagram, address)

    def close(self) -> None:
        """Closes both sockets."""
        for transport in self._transports:
            transport.close()
        self._unicast.close()
        if self._multicast is not None:
            self._multicast.close()


class _DatagramReceiver(asyncio.DatagramProtocol):
    """Passes received datagrams to `Sockets.on_datagram`."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._sockets.datagrams["in"] += 1
        self._sockets.bytes["in"] += len(data)
        self._sockets.on_datagram(data, (addr[0], addr[1]))

    def error_received(self, exc: Exception) -> None:
        # An unreachable neighbour or a full buffer: the link retransmits if needed.
        self._sockets.unsent[type(exc).__name__] += 1


def _open_unicast(config: NetworkConfig) -> socket.socket:
    unicast = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        unicast.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        unicast.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        unicast.setsockopt(
            socket.IPPROTO_IP,
            socket.IP_MULTICAST_IF,
            socket.inet_aton(_check_ipv4(config.interface)),
        )
        unicast.bind((config.interface, config.port))
    except OSError as error:
        unicast.close()
        raise NetworkError(_error_text(error, config, config.port)) from error
    unicast.setblocking(False)
    return unicast


def _open_multicast(config: NetworkConfig, unicast: socket.socket) -> socket.socket:
    multicast = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        multicast.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            multicast.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        multicast.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        multicast.bind((config.group, config.group_port))
        membership = struct.pack(
            "4s4s", socket.inet_aton(config.group), socket.inet_aton(config.interface)
        )
        multicast.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError as error:
        unicast.close()
        multicast.close()
        raise NetworkError(_error_text(error, config, config.group_port)) from error
    multicast.setblocking(False)
    return multicast


def _is_multicast(group: str) -> bool:
    try:
        return ipaddress.IPv4Address(group).is_multicast
    except ValueError:
        return True  # the operating system reports the invalid address


def _check_ipv4(interface: str) -> str:
    try:
        return str(ipaddress.IPv4Address(interface))
    except ValueError:
        raise NetworkError(
            f"the interface must be an IPv4 address (see `ip addr`), not {interface!r}"
        ) from None


def _error_text(error: OSError, config: NetworkConfig, port: int) -> str:
    import errno

    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} is in use on {config.interface}: choose another"
        case errno.EADDRNOTAVAIL:
            return f"no interface here has the address {config.interface}"
        case errno.ENODEV:
            return f"the interface {config.interface} has no multicast: choose another"
        case errno.EACCES | errno.EPERM:
            return f"no permission for port {port}: choose one above 1023"
    return f"cannot use {config.interface}, port {port}: {error.strerror or error}"
