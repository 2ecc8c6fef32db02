"""Sockets: datagrams to one device and to all in reach, on a chosen interface.

A device has a socket of its own, from which it sends everything, and listens to the multicast group
that all share. What goes to the group stays on the link (time to live 1).
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

from thyme.live.terms import Address
from thyme.model.errors import InputError

GROUP = "239.84.72.89"
PORT = 8472
BUFFER_BYTES = 4 * 2**20


class NetworkError(InputError):
    """The network cannot be used as asked; the message says what would help."""

    code = "network"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where on the network a node is."""

    interface: str = "127.0.0.1"
    """The address of the interface to use."""
    port: int = 0
    """The node's own port; 0 for any that is free."""
    group: str = GROUP
    """Where everybody in reach listens; or, where it is no multicast address, somebody who passes
    on to them what it gets, as the air of a lab does."""
    group_port: int = PORT
    peers: tuple[Address, ...] = ()
    """Nodes that are told everything that is for all, where multicast does not reach them; they
    must do the same."""


class Sockets:
    """The two sockets of a node."""

    def __init__(self, place: Place) -> None:
        self._all = (place.group, place.group_port), *place.peers
        self.on_datagram: Callable[[bytes, Address], None] = lambda datagram, address: None
        self.unsent: Counter[str] = Counter()
        """Datagrams that the system did not take, by cause."""
        self.datagrams: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        """How much went, by way: "in" or "out"."""
        self._own = _own_socket(place)
        self._shared = _shared_socket(place, self._own) if _is_multicast(place.group) else None
        self._transports: list[asyncio.DatagramTransport] = []

    @property
    def address(self) -> Address:
        """Where the node is reached."""
        host, port = self._own.getsockname()[:2]
        return str(host), int(port)

    async def open(self) -> None:
        """Starts to listen."""
        loop = asyncio.get_running_loop()
        for ears in (self._own, self._shared):
            if ears is not None:
                transport, _ = await loop.create_datagram_endpoint(lambda: _Ear(self), sock=ears)
                self._transports.append(transport)

    def send(self, datagram: bytes, to: Address | None) -> None:
        """Sends a datagram, to one address or to all in reach."""
        if not self._transports:
            return
        for address in self._all if to is None else (to,):
            self.datagrams["out"] += 1
            self.bytes["out"] += len(datagram)
            self._transports[0].sendto(datagram, address)

    def close(self) -> None:
        """Listens no more."""
        for transport in self._transports:
            transport.close()
        self._own.close()
        if self._shared is not None:
            self._shared.close()


class _Ear(asyncio.DatagramProtocol):
    """Hears for both sockets."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._sockets.datagrams["in"] += 1
        self._sockets.bytes["in"] += len(data)
        self._sockets.on_datagram(data, (addr[0], addr[1]))

    def error_received(self, exc: Exception) -> None:
        # A neighbour that is gone, or a full buffer: what matters is sent again.
        self._sockets.unsent[type(exc).__name__] += 1


def _own_socket(place: Place) -> socket.socket:
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
        own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        own.setsockopt(
            socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(_checked(place.interface))
        )
        own.bind((place.interface, place.port))
    except OSError as error:
        own.close()
        raise NetworkError(_words(error, place, place.port)) from error
    own.setblocking(False)
    return own


def _shared_socket(place: Place, own: socket.socket) -> socket.socket:
    shared = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "SO_REUSEPORT"):
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        shared.bind((place.group, place.group_port))
        member = struct.pack(
            "4s4s", socket.inet_aton(place.group), socket.inet_aton(place.interface)
        )
        shared.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    except OSError as error:
        own.close()
        shared.close()
        raise NetworkError(_words(error, place, place.group_port)) from error
    shared.setblocking(False)
    return shared


def _is_multicast(group: str) -> bool:
    try:
        return ipaddress.IPv4Address(group).is_multicast
    except ValueError:
        return True  # the system says what is wrong with it


def _checked(interface: str) -> str:
    try:
        return str(ipaddress.IPv4Address(interface))
    except ValueError:
        raise NetworkError(
            f"an interface is named by its IPv4 address (see `ip addr`), not {interface!r}"
        ) from None


def _words(error: OSError, place: Place, port: int) -> str:
    import errno

    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} is in use on {place.interface}: choose another"
        case errno.EADDRNOTAVAIL:
            return f"no interface here has the address {place.interface}"
        case errno.ENODEV:
            return f"the interface {place.interface} takes no multicast: choose another"
        case errno.EACCES | errno.EPERM:
            return f"no permission for port {port}: choose one above 1023"
    return f"cannot use {place.interface}, port {port}: {error.strerror or error}"
