"""Sockets: send and receive UDP datagrams by unicast and multicast, on one or more interfaces.

A node sends everything from the unicast sockets of its interfaces. A broadcast goes to the group on
every interface; a datagram for one address goes out where datagrams of that address arrive.
Multicast datagrams stay on the local link (IP TTL 1). A datagram that arrives on several interfaces
is processed once. Entry point: `Sockets`. The content of the datagrams is up to `thyme.transport`.
Clauses: M21, D4.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

import msgspec

from thyme.live.limits.socket_filter import attach, make_program
from thyme.model.errors import InputError
from thyme.transport.link_config import Address

MULTICAST_GROUP = "239.84.72.89"
MULTICAST_GROUP_V6 = "ff12::7468:796d"
MULTICAST_PORT = 8472
BUFFER_BYTES = 4 * 2**20

SocketAddress = tuple[str, int] | tuple[str, int, int, int]
"""An address as sockets take it: with the number of the interface for IPv6."""


class NetworkError(InputError):
    """The network settings cannot be used; the message says what to change."""

    code = "network"


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Network settings of a node."""

    interfaces: tuple[str, ...] = ("127.0.0.1",)
    """Addresses of the network interfaces: IPv4, or IPv6 with its scope (`fe80::1%wlan0`)."""
    port: int = 0
    """Unicast port of the node; 0 for any free port."""
    group: str = MULTICAST_GROUP
    """Multicast group of the nodes in range; or a unicast address whose owner forwards datagrams to
    them, like the virtual radio of a lab. Interfaces of the other IP version use the default
    group."""
    group_port: int = MULTICAST_PORT
    peers: tuple[Address, ...] = ()
    """Nodes out of reach of multicast, which get a unicast copy of each broadcast; they must list
    this node, too."""


def is_ipv6(host: str) -> bool:
    """Whether an address is one of IPv6."""
    return ":" in host


def split_scope(host: str) -> tuple[str, str]:
    """An address without its scope, and the scope, or an empty text."""
    address, _, scope = host.partition("%")
    return address, scope


def format_address(address: Address) -> str:
    """An address and its port as text; IPv6 addresses in brackets."""
    host, port = address
    return f"[{host}]:{port}" if is_ipv6(host) else f"{host}:{port}"


def to_socket_address(address: Address) -> SocketAddress:
    """The form of an address that sockets take."""
    host, port = address
    if not is_ipv6(host):
        return host, port
    bare, scope = split_scope(host)
    return bare, port, 0, socket.if_nametoindex(scope) if scope else 0


class SocketPair:
    """The two sockets of a node at one address: for unicast, and for the multicast group."""

    def __init__(self, interface: str, config: NetworkConfig) -> None:
        self.interface = interface
        bare, self.scope = split_scope(_check_address(interface))
        self.is_ipv6 = is_ipv6(bare)
        self._index = _interface_index(interface, self.scope) if self.is_ipv6 else 0
        group = config.group
        if is_ipv6(group) != self.is_ipv6:
            group = MULTICAST_GROUP_V6 if self.is_ipv6 else MULTICAST_GROUP
        self.group: SocketAddress = (
            (group, config.group_port, 0, self._index)
            if self.is_ipv6
            else (group, config.group_port)
        )
        self.unicast = self._open_unicast(bare, config.port)
        self.multicast = self._open_multicast(bare) if _is_multicast(group) else None

    @property
    def address(self) -> Address:
        """Unicast address and port."""
        return self.read_address((self.interface, int(self.unicast.getsockname()[1])))

    def read_address(self, received: SocketAddress) -> Address:
        """The address of a sender, with the scope if it is valid on this link only."""
        host, port = split_scope(received[0])[0], received[1]
        if self.is_ipv6 and host.startswith("fe80:"):
            host = f"{host}%{self.scope}"
        return host, port

    def close(self) -> None:
        """Closes both sockets."""
        self.unicast.close()
        if self.multicast is not None:
            self.multicast.close()

    def _open_unicast(self, host: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if self.is_ipv6 else socket.AF_INET
        unicast = socket.socket(family, socket.SOCK_DGRAM)
        try:
            unicast.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            unicast.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            if self.is_ipv6:
                unicast.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                unicast.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
                unicast.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
                unicast.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, self._index)
                unicast.bind((host, port, 0, self._index))
            else:
                unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
                unicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
                unicast.setsockopt(
                    socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(host)
                )
                unicast.bind((host, port))
        except OSError as error:
            unicast.close()
            raise NetworkError(_error_text(error, self.interface, port)) from error
        unicast.setblocking(False)
        return unicast

    def _open_multicast(self, host: str) -> socket.socket:
        family = socket.AF_INET6 if self.is_ipv6 else socket.AF_INET
        group, port = self.group[0], self.group[1]
        multicast = socket.socket(family, socket.SOCK_DGRAM)
        try:
            multicast.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "SO_REUSEPORT"):
                multicast.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            multicast.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            if self.is_ipv6:
                multicast.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                multicast.bind((group, port, 0, self._index))
                joined = socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", self._index)
                multicast.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, joined)
            else:
                multicast.bind((group, port))
                joined = socket.inet_aton(group) + socket.inet_aton(host)
                multicast.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
                if hasattr(socket, "IP_MULTICAST_ALL"):
                    multicast.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_ALL, 0)
        except OSError as error:
            self.unicast.close()
            multicast.close()
            raise NetworkError(_error_text(error, self.interface, port)) from error
        multicast.setblocking(False)
        return multicast


def _is_multicast(group: str) -> bool:
    try:
        return ipaddress.ip_address(group).is_multicast
    except ValueError:
        return True  # the operating system reports the invalid address


def _check_address(interface: str) -> str:
    try:
        ipaddress.ip_address(interface)
    except ValueError:
        raise NetworkError(
            f"the interface must be an IPv4 or IPv6 address (see `ip addr`), not {interface!r}"
        ) from None
    return interface


def _interface_index(address: str, scope: str) -> int:
    try:
        return socket.if_nametoindex(scope)
    except OSError:
        raise NetworkError(
            f"{address!r} needs the name of its interface, as in fe80::1%wlan0"
        ) from None


def _error_text(error: OSError, interface: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} is in use on {interface}: choose another"
        case errno.EADDRNOTAVAIL:
            return f"no interface here has the address {interface}"
        case errno.ENODEV:
            return f"the interface {interface} has no multicast: choose another"
        case errno.EACCES | errno.EPERM:
            return f"no permission for port {port}: choose one above 1023"
    return f"cannot use {interface}, port {port}: {error.strerror or error}"


ROUTES_MAX = 4_096
COPIES_MAX = 1_024
WAITING_MAX = 256
WAITING_S_MAX = 0.003
"""Maximum number of datagrams that are read from a socket at once, and how long that may take: they
are handled as they are read."""
DATAGRAM_BYTES = 65_536
COPY_S_MAX = 0.5
"""Within this time, the same multicast datagram from another interface is a copy."""

Route = tuple[asyncio.DatagramTransport, SocketAddress]


class Sockets:
    """The sockets of a node: a pair for each of its interfaces."""

    def __init__(self, config: NetworkConfig) -> None:
        self._peers = config.peers
        self.on_datagram: Callable[[bytes, Address], None] = lambda datagram, address: None
        self.unsent: Counter[str] = Counter()
        """Number of datagrams that the operating system refused, by reason."""
        self.datagrams: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        """Number of datagrams and bytes, by direction: "in" or "out"."""
        self._pairs: list[SocketPair] = []
        self._transports: list[asyncio.DatagramTransport] = []
        try:
            for interface in config.interfaces:
                self._pairs.append(SocketPair(interface, config))
        except BaseException:
            self.close()
            raise
        self._senders: dict[str, asyncio.DatagramTransport] = {}
        """The transport of the unicast socket of each interface."""
        self._routes: dict[Address, Route] = {}
        self._copies: dict[bytes, tuple[SocketPair, float]] = {}
        self._broadcast_routes: list[Route] = []

    @property
    def address(self) -> Address:
        """Unicast address and port of the node, on its first interface."""
        return self._pairs[0].address

    @property
    def addresses(self) -> list[Address]:
        """Unicast addresses and ports of the node, one for each interface."""
        return [pair.address for pair in self._pairs]

    async def open(self, *, own_copies: bool = False) -> None:
        """Starts receiving, with `own_copies` also what is sent to the group here."""
        loop = asyncio.get_running_loop()
        for pair in self._pairs:
            transport, _ = await loop.create_datagram_endpoint(
                partial(_UnicastReceiver, self, pair), sock=pair.unicast
            )
            self._transports.append(transport)
            self._senders[pair.interface] = transport
            self._broadcast_routes.append((transport, pair.group))
            if pair.multicast is not None:
                multicast, _ = await loop.create_datagram_endpoint(
                    partial(_MulticastReceiver, self, pair), sock=pair.multicast
                )
                self._transports.append(multicast)
        if not own_copies:
            self.filter_senders([], [], 1.0)
        for peer in self._peers:
            if (route := self._find_route(peer)) is not None:
                self._broadcast_routes.append(route)

    def send(self, datagram: bytes, to: Address | None) -> None:
        """Sends a datagram to one address, or to all devices in range if `to` is None."""
        if not self._senders:
            return
        if to is None:
            routes = self._broadcast_routes
        else:
            route = self._routes.get(to) or self._find_route(to)
            if route is None:
                self.unsent["no interface"] += 1
                return
            routes = [route]
        for transport, address in routes:
            self.datagrams["out"] += 1
            self.bytes["out"] += len(datagram)
            transport.sendto(datagram, address)

    def filter_senders(
        self, banned: list[Address], known: list[Address], stranger_share: float
    ) -> None:
        """Lets the kernel drop datagrams of banned addresses, all but a share of those of unknown
        ones, and what this node itself sends to the group, which it would receive, too; without
        effect where the system cannot do it."""
        for pair in self._pairs:
            program = make_program(banned, known, stranger_share, is_ipv6=pair.is_ipv6)
            attach([pair.unicast], program)
            if pair.multicast is not None:
                unwanted = [*self.addresses, *banned]
                program = make_program(unwanted, known, stranger_share, is_ipv6=pair.is_ipv6)
                attach([pair.multicast], program)

    def close(self) -> None:
        """Closes all sockets."""
        for transport in self._transports:
            transport.close()
        for pair in self._pairs:
            pair.close()

    def receive_unicast(self, pair: SocketPair, datagram: bytes, received: SocketAddress) -> None:
        """Processes a datagram that arrived at the unicast socket of an interface."""
        self.datagrams["in"] += 1
        self.bytes["in"] += len(datagram)
        address = pair.read_address(received)
        if len(self._pairs) > 1:
            self._add_route(address, (self._senders[pair.interface], to_socket_address(address)))
        self.on_datagram(datagram, address)

    def receive_multicast(self, pair: SocketPair, datagram: bytes, received: SocketAddress) -> None:
        """Processes a datagram to the group, unless it is a copy from another interface."""
        if len(self._pairs) > 1:
            now_s = time.monotonic()
            first, at_s = self._copies.get(datagram, (pair, 0.0))
            if first is not pair and now_s - at_s < COPY_S_MAX:
                return
            if len(self._copies) >= COPIES_MAX:
                self._copies.clear()
            self._copies[datagram] = pair, now_s
        self.receive_unicast(pair, datagram, received)

    def receive_waiting(self) -> None:
        """Reads datagrams that wait in the kernel now, up to a limit."""
        for pair in self._pairs if self._transports else ():
            self._read(pair, pair.unicast, self.receive_unicast)
            if pair.multicast is not None:
                self._read(pair, pair.multicast, self.receive_multicast)

    def _read(
        self,
        pair: SocketPair,
        source: socket.socket,
        receive: Callable[[SocketPair, bytes, SocketAddress], None],
    ) -> None:
        until_s = time.monotonic() + WAITING_S_MAX
        for _ in range(WAITING_MAX):
            try:
                datagram, address = source.recvfrom(DATAGRAM_BYTES)
            except OSError:  # nothing waits, or an earlier datagram could not be delivered
                return
            receive(pair, datagram, address)
            if time.monotonic() > until_s:
                return

    def _add_route(self, address: Address, route: Route) -> None:
        if len(self._routes) >= ROUTES_MAX and address not in self._routes:
            self._routes.clear()
        self._routes[address] = route

    def _find_route(self, to: Address) -> Route | None:
        """Chooses the interface for an address from which nothing was received yet."""
        pair = self._find_pair(to)
        if pair is None:
            return None
        try:
            route = self._senders[pair.interface], to_socket_address(to)
        except OSError:  # the interface of the address is gone
            return None
        self._add_route(to, route)
        return route

    def _find_pair(self, to: Address) -> SocketPair | None:
        fitting = [pair for pair in self._pairs if pair.is_ipv6 == is_ipv6(to[0])]
        scope = split_scope(to[0])[1]
        if scope:
            return next((pair for pair in fitting if pair.scope == scope), None)
        if len(fitting) < 2:
            return next(iter(fitting), None)
        source = _source_address(to)
        return next((pair for pair in fitting if pair.interface == source), fitting[0])


def _source_address(to: Address) -> str | None:
    """The own address from which the operating system would send to an address."""
    family = socket.AF_INET6 if is_ipv6(to[0]) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(to)  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return None


class _UnicastReceiver(asyncio.DatagramProtocol):
    """Passes the datagrams of a unicast socket on."""

    def __init__(self, sockets: Sockets, pair: SocketPair) -> None:
        self._sockets = sockets
        self._pair = pair

    def datagram_received(self, data: bytes, addr: SocketAddress) -> None:
        self._sockets.receive_unicast(self._pair, data, addr)

    def error_received(self, exc: Exception) -> None:
        # An unreachable neighbour or a full buffer: the link retransmits if needed.
        self._sockets.unsent[type(exc).__name__] += 1


class _MulticastReceiver(_UnicastReceiver):
    """Passes the datagrams of a multicast socket on."""

    def datagram_received(self, data: bytes, addr: SocketAddress) -> None:
        self._sockets.receive_multicast(self._pair, data, addr)
