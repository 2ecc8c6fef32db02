"""Sockets: send and receive UDP datagrams by unicast and multicast, on one or more interfaces.

A node sends everything from the unicast sockets of its interfaces. A broadcast goes to the group on
every interface; a datagram for one address goes out where datagrams of that address arrive.
Multicast datagrams stay on the local link (IP TTL 1). A datagram that arrives on several interfaces
is processed once. Entry point: `Sockets`. The content of the datagrams is up to `thyme.transport`.
Clauses: M21, D4.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from thyme.live.socket_pairs import (
    NetworkConfig,
    SocketAddress,
    SocketPair,
    is_ipv6,
    split_scope,
    to_socket_address,
)
from thyme.transport.link_config import Address

ROUTES_MAX = 4_096
COPIES_MAX = 1_024
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

    async def open(self) -> None:
        """Starts receiving."""
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
