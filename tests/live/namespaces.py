"""Network namespaces with devices on a common link, for tests that need real networks.

A test that uses `network` is skipped, with the reason, where namespaces cannot be made.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Network:
    """A bridge in a namespace of its own, to which devices in other namespaces are connected."""

    def __init__(self) -> None:
        self._prefix = f"thyme-{secrets.token_hex(3)}"
        self._names: list[str] = []
        self._add("bridge")
        self.ip("bridge", "link add br0 type bridge mcast_snooping 0")
        self.ip("bridge", "link set br0 up")

    def _add(self, name: str) -> None:
        subprocess.run(["ip", "netns", "add", self._full(name)], check=True, capture_output=True)
        self._names.append(name)

    def _full(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def add_device(self, name: str, *addresses: str, ipv6: bool = False) -> None:
        """Adds a device with an interface `eth0`; without addresses it has IPv6 alone."""
        self._add(name)
        self.ip(name, "link set lo up")
        self.add_interface(name, "eth0", *addresses, ipv6=ipv6 or not addresses)

    def add_interface(
        self, name: str, interface: str, *addresses: str, ipv6: bool, bridge: str = "br0"
    ) -> None:
        """Connects another interface of a device to a bridge."""
        port = f"{name}-{interface}"
        self.ip(
            "bridge", f"link add {port} type veth peer name {interface} netns {self._full(name)}"
        )
        self.ip("bridge", f"link set {port} master {bridge} up")
        flag = "0" if ipv6 else "1"
        for setting in (f"disable_ipv6={flag}", "accept_dad=0"):
            self.run(name, "sysctl", "-qw", f"net.ipv6.conf.{interface}.{setting}")
        for address in addresses:
            self.ip(name, f"addr add {address} dev {interface}")
        self.ip(name, f"link set {interface} up")
        if addresses:
            self.ip(name, f"route add 224.0.0.0/4 dev {interface} metric {len(interface)}")

    def add_bridge(self, bridge: str) -> None:
        """Adds another link."""
        self.ip("bridge", f"link add {bridge} type bridge mcast_snooping 0")
        self.ip("bridge", f"link set {bridge} up")

    def ip(self, name: str, command: str) -> None:
        """Runs `ip` in a namespace."""
        self.run(name, "ip", *command.split())

    def command(self, name: str) -> list[str]:
        """The words that run a program in the namespace of a device."""
        return ["ip", "netns", "exec", self._full(name)]

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a program in the namespace of a device; it must succeed."""
        done = subprocess.run([*self.command(name), *words], capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
        return done

    def thyme(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a `thyme` command on a device."""
        return subprocess.run(
            [*self.command(name), sys.executable, "-m", "thyme.cli", *words],
            capture_output=True,
            text=True,
        )

    def close(self) -> None:
        """Removes all namespaces."""
        for name in self._names:
            subprocess.run(["ip", "netns", "del", self._full(name)], capture_output=True)


@contextmanager
def made_network() -> Iterator[Network]:
    """A network without devices; skips the test where there are no namespaces."""
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None or shutil.which("sysctl") is None:
        pytest.skip("network namespaces need iproute2 and sysctl")
    try:
        network = Network()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not available: {error.stderr.decode().strip()}")
    try:
        yield network
    finally:
        network.close()
