"""Socket pairs: the unicast and the multicast socket of a node at one address of an interface.

An IPv6 address of one link has a scope, the name of the interface: `fe80::1%wlan0`. Entry points:
`SocketPair`, `split_scope`. Receiving and choosing a pair are up to `sockets`.
Clauses: M21, D4.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct

import msgspec

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
