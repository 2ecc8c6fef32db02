"""Interfaces: which address to use, when somebody names an interface or none."""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys

from thyme.live.sockets import GROUP, PORT, NetworkError

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915


def address_of(interface: str | None) -> str:
    """The IPv4 address of an interface: given itself, by name, or where the group is reached."""
    if interface is None:
        return _default()
    try:
        return str(ipaddress.IPv4Address(interface))
    except ValueError:
        return _named(interface)


def _default() -> str:
    """Where a datagram to the group would leave; loopback where there is no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((GROUP, PORT))  # sends nothing
            address = str(probe.getsockname()[0])
        except OSError:
            return LOOPBACK
    return LOOPBACK if address == "0.0.0.0" else address


def _named(name: str) -> str:
    names = [known for _, known in socket.if_nameindex()]
    if name not in names:
        raise NetworkError(f"no interface is called {name!r}; there is {', '.join(names)}")
    if not sys.platform.startswith("linux"):
        raise NetworkError(f"name the interface by its IPv4 address, not {name!r}")
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("256s", name.encode()[:15])
        try:
            found = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, asked)
        except OSError as error:
            raise NetworkError(f"the interface {name!r} has no IPv4 address") from error
    return socket.inet_ntoa(found[20:24])
