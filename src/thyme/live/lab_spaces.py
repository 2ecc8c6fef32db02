"""Network namespaces for labs: each node has one TUN device, connected to the virtual radio.

Namespaces and devices have no names, so nothing remains after a lab: the kernel removes a namespace
with its last process and a device with its last file descriptor. Needs Linux and root.
Entry points: `check_namespaces`, `NetworkNamespace`, `PortForwarder`.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from thyme.model.errors import OptionError

DEVICE = "air0"
_NEW_NET = 0x40000000
_SET_DEVICE = 0x400454CA
_TUNNEL, _BARE = 0x0001, 0x1000
_DIES_WITH_PARENT = 1
_TERMINATE = 15
_libc = ctypes.CDLL(None, use_errno=True)


class Space:
    """A network namespace with one TUN device."""

    def __init__(self, number: int) -> None:
        self.address = f"10.84.{(number + 1) // 250}.{(number + 1) % 250 + 1}"
        outer = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call(_libc.unshare, _NEW_NET)
            try:
                self._space = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                self.device = self._furnish()
            finally:
                _call(_libc.setns, outer, _NEW_NET)
        finally:
            os.close(outer)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Enters the namespace: processes and sockets created inside the block belong to it."""
        outer = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call(_libc.setns, self._space, _NEW_NET)
            yield
        finally:
            _call(_libc.setns, outer, _NEW_NET)
            os.close(outer)

    def close(self) -> None:
        """Closes the file descriptor of the namespace."""
        os.close(self._space)

    def _furnish(self) -> int:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        request = struct.pack("16sH22x", DEVICE.encode(), _TUNNEL | _BARE)
        fcntl.ioctl(device, _SET_DEVICE, request)
        for command in (
            "link set lo up",
            f"addr add {self.address}/16 dev {DEVICE}",
            f"link set {DEVICE} txqueuelen 2000 multicast on up",
            f"route add 224.0.0.0/4 dev {DEVICE}",
        ):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
        return device


class Doors:
    """Forwards loopback ports to the HTTP ports of nodes in namespaces."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, space: Space, port: int, inner_port: int) -> None:
        """Forwards a loopback port to a loopback port inside a namespace."""

        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _connect(space, inner_port, reader, writer)

        self._servers.append(await asyncio.start_server(on_connection, "127.0.0.1", port))

    def close(self) -> None:
        """Stops accepting connections."""
        for server in self._servers:
            server.close()


async def _connect(
    space: Space, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    with space.inside():
        inner = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    inner.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(inner, ("127.0.0.1", port))
        inner_reader, inner_writer = await asyncio.open_connection(sock=inner)
    except OSError:
        inner.close()
        writer.close()
        return
    await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


def check_spaces() -> None:
    """Raises `OptionError` if network namespaces cannot be created, with the reason."""
    if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise OptionError("network namespaces need root: use sudo, or leave out --namespaces")
    try:
        space = Space(0)
        os.close(space.device)
        space.close()
    except FileNotFoundError as error:
        raise OptionError(f"network namespaces need /dev/net/tun and `ip`: {error}") from error
    except (OSError, subprocess.CalledProcessError) as error:
        raise OptionError(f"cannot create a network namespace: {error}") from error


def die_with_parent() -> None:
    """Makes a child process end with its parent (Linux); call it in the child before exec."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_DIES_WITH_PARENT, _TERMINATE)


def _call(function: ctypes._NamedFuncPointer, *arguments: int) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
