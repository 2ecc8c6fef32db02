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

TUN_DEVICE = "air0"
_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_PR_SET_PDEATHSIG = 1
_SIGTERM = 15
_libc = ctypes.CDLL(None, use_errno=True)


class NetworkNamespace:
    """A network namespace with one TUN device."""

    def __init__(self, number: int) -> None:
        self.address = f"10.84.{(number + 1) // 250}.{(number + 1) % 250 + 1}"
        outer = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check_call(_libc.unshare, _CLONE_NEWNET)
            try:
                self._namespace_fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                self.tun_fd = self._configure()
            finally:
                _check_call(_libc.setns, outer, _CLONE_NEWNET)
        finally:
            os.close(outer)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Enters the namespace: processes and sockets created inside the block belong to it."""
        outer = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check_call(_libc.setns, self._namespace_fd, _CLONE_NEWNET)
            yield
        finally:
            _check_call(_libc.setns, outer, _CLONE_NEWNET)
            os.close(outer)

    def close(self) -> None:
        """Closes the file descriptor of the namespace."""
        os.close(self._namespace_fd)

    def _configure(self) -> int:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        request = struct.pack("16sH22x", TUN_DEVICE.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(device, _TUNSETIFF, request)
        for command in (
            "link set lo up",
            f"addr add {self.address}/16 dev {TUN_DEVICE}",
            f"link set {TUN_DEVICE} txqueuelen 2000 multicast on up",
            f"route add 224.0.0.0/4 dev {TUN_DEVICE}",
        ):
            subprocess.run(["ip", *command.split()], check=True, capture_output=True)
        return device


class PortForwarder:
    """Forwards loopback ports to the HTTP ports of nodes in namespaces."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def forward(self, namespace: NetworkNamespace, port: int, inner_port: int) -> None:
        """Forwards a loopback port to a loopback port inside a namespace."""

        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _forward_connection(namespace, inner_port, reader, writer)

        self._servers.append(await asyncio.start_server(on_connection, "127.0.0.1", port))

    def close(self) -> None:
        """Stops accepting connections."""
        for server in self._servers:
            server.close()


async def _forward_connection(
    namespace: NetworkNamespace,
    port: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    with namespace.entered():
        inner = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    inner.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(inner, ("127.0.0.1", port))
        inner_reader, inner_writer = await asyncio.open_connection(sock=inner)
    except OSError:
        inner.close()
        writer.close()
        return
    await asyncio.gather(_copy_stream(reader, inner_writer), _copy_stream(inner_reader, writer))


async def _copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


def check_namespaces() -> None:
    """Raises `OptionError` if network namespaces cannot be created, with the reason."""
    if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise OptionError("network namespaces need root: use sudo, or leave out --namespaces")
    try:
        namespace = NetworkNamespace(0)
        os.close(namespace.tun_fd)
        namespace.close()
    except FileNotFoundError as error:
        raise OptionError(f"network namespaces need /dev/net/tun and `ip`: {error}") from error
    except (OSError, subprocess.CalledProcessError) as error:
        raise OptionError(f"cannot create a network namespace: {error}") from error


def die_with_parent() -> None:
    """Makes a child process end with its parent (Linux); call it in the child before exec."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_PDEATHSIG, _SIGTERM)


def _check_call(function: ctypes._NamedFuncPointer, *arguments: int) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
