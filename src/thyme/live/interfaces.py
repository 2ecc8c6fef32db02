"""Interfaces: finds the addresses of network interfaces, given by name, address or default.

Entry points: `resolve_addresses`, `interface_name`.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from thyme.live.sockets import (
    MULTICAST_GROUP,
    MULTICAST_PORT,
    NetworkError,
    is_ipv6,
    split_scope,
)

LOOPBACK = "127.0.0.1"
ALL = "all"
"""Stands for every interface with multicast, by IPv4 and by IPv6."""
_SIOCGIFADDR = 0x8915
_IFF_UP, _IFF_LOOPBACK, _IFF_MULTICAST = 0x1, 0x8, 0x1000
_LINK_SCOPE, _TENTATIVE_OR_FAILED = 0x20, 0x48
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_NETWORKS = Path("/sys/class/net")


def resolve_addresses(interfaces: str | Sequence[str] | None) -> tuple[str, ...]:
    """The addresses of interfaces, each given by name or address, or all; by default the address of
    the multicast route, or that of an interface with IPv6 alone."""
    if interfaces is None or len(interfaces) == 0:
        return (_default_address(),)
    given = [interfaces] if isinstance(interfaces, str) else interfaces
    found = [address for interface in given for address in _resolve(interface)]
    return tuple(dict.fromkeys(found))


def interface_name(address: str) -> str | None:
    """The name of the interface with an address; None if there is none, or it cannot be known."""
    if is_ipv6(address):
        bare, scope = split_scope(address)
        wanted = ipaddress.IPv6Address(bare)
        named = (name for found, name, _ in _ipv6_addresses() if found == wanted)
        return scope or next(named, None)
    names = (name for _, name in socket.if_nameindex())
    return next((name for name in names if _ipv4_address(name) == address), None)


def interface_flags(name: str) -> int | None:
    """The flags of an interface in Linux; None elsewhere."""
    try:
        return int((_NETWORKS / name / "flags").read_text(), 16)
    except (OSError, ValueError):
        return None


def _resolve(interface: str) -> tuple[str, ...]:
    if interface == ALL:
        addresses = [
            address
            for name in _multicast_interfaces()
            for address in (_ipv4_address(name), _link_address(name))
            if address is not None
        ]
        return tuple(addresses) or (LOOPBACK,)
    try:
        address = ipaddress.ip_address(interface)
    except ValueError:
        return (_named_address(interface),)
    if address.version == 6 and address.is_link_local and "%" not in interface:
        raise NetworkError(
            f"{interface} is valid on one link only: add the interface, as in {interface}%wlan0"
        )
    if address.version == 6 and "%" not in interface:
        name = interface_name(interface)
        if name is None:
            raise NetworkError(f"no interface here has the address {interface}")
        return (f"{address}%{name}",)
    return (str(address),)


def _default_address() -> str:
    """Address of the interface that reaches the multicast group; without IPv4, the IPv6 address of
    the first interface with multicast; loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((MULTICAST_GROUP, MULTICAST_PORT))  # sends nothing
            address = str(probe.getsockname()[0])
        except OSError:
            address = "0.0.0.0"
    if address not in ("0.0.0.0", LOOPBACK):
        return address
    links = (_link_address(name) for name in _multicast_interfaces())
    return next((link for link in links if link is not None), LOOPBACK)


def _multicast_interfaces() -> Iterator[str]:
    """The interfaces that are up, have multicast and are not loopback."""
    needed = _IFF_UP | _IFF_MULTICAST
    for _, name in socket.if_nameindex():
        flags = interface_flags(name) or 0
        if flags & needed == needed and not flags & _IFF_LOOPBACK:
            yield name


def _named_address(name: str) -> str:
    names = [known for _, known in socket.if_nameindex()]
    if name not in names:
        raise NetworkError(f"no interface is called {name!r}; available: {', '.join(names)}")
    if not sys.platform.startswith("linux"):
        raise NetworkError(f"give the address of the interface, not its name {name!r}")
    address = _ipv4_address(name) or _link_address(name)
    if address is None:
        raise NetworkError(f"the interface {name!r} has no IPv4 address and no IPv6 address")
    return address


def _ipv4_address(name: str) -> str | None:
    if not sys.platform.startswith("linux"):
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", name.encode()[:15])
        try:
            reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return None
    return socket.inet_ntoa(reply[20:24])


def _link_address(name: str) -> str | None:
    """The link-local IPv6 address of an interface, with its scope."""
    for address, known, is_link in _ipv6_addresses():
        if known == name and is_link:
            return f"{address}%{name}"
    return None


def _ipv6_addresses() -> Iterator[tuple[ipaddress.IPv6Address, str, bool]]:
    """The IPv6 addresses in use: address, interface, whether it is valid on one link only."""
    try:
        lines = _IPV6_ADDRESSES.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        digits, _, _, scope, flags, name = line.split()
        if not int(flags, 16) & _TENTATIVE_OR_FAILED:
            yield ipaddress.IPv6Address(bytes.fromhex(digits)), name, int(scope, 16) == _LINK_SCOPE
