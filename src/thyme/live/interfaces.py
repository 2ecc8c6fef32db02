"""Interfaces: finds the IPv4 address of a network interface, given by name, address or default.

Entry point: `resolve_address`.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys

from thyme.live.sockets import MULTICAST_GROUP, MULTICAST_PORT, NetworkError

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915


def resolve_address(interface: str | None) -> str:
    """The IPv4 address of an interface (name or address); default: that of the multicast route."""
    if interface is None:
        return _default_address()
    try:
        return str(ipaddress.IPv4Address(interface))
    except ValueError:
        return _interface_address(interface)


def _default_address() -> str:
    """Address of the interface that reaches the multicast group; loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((MULTICAST_GROUP, MULTICAST_PORT))  # sends nothing
            address = str(probe.getsockname()[0])
        except OSError:
            return LOOPBACK
    return LOOPBACK if address == "0.0.0.0" else address


def _interface_address(name: str) -> str:
    names = [known for _, known in socket.if_nameindex()]
    if name not in names:
        raise NetworkError(f"no interface is called {name!r}; available: {', '.join(names)}")
    if not sys.platform.startswith("linux"):
        raise NetworkError(f"give the IPv4 address of the interface, not its name {name!r}")
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", name.encode()[:15])
        try:
            reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            raise NetworkError(f"the interface {name!r} has no IPv4 address") from error
    return socket.inet_ntoa(reply[20:24])
