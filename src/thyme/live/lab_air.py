"""Virtual radio: forwards datagrams between the nodes of a lab that are in range of each other.

`VirtualRadio` decides which nodes receive a datagram. `LoopbackRadio` forwards on loopback, where
each node has a proxy address that stands for it to all others; `TunRadio` forwards IP packets
between the TUN devices of network namespaces.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Callable
from random import Random

from thyme.live.lab_plan import Point
from thyme.live.terms import Address

BUFFER_BYTES = 4 * 2**20
PACKET_BYTES_MAX = 65_536
AT_ONCE = 64
"""Maximum number of datagrams of one node forwarded before the next node is served."""


class Air:
    """Decides by distance and random loss which nodes receive a datagram."""

    def __init__(self, places: list[Point], reach_m: float, loss: float, rng: Random) -> None:
        self._loss = loss
        self._rng = rng
        self.reached = [
            [
                other
                for other, position in enumerate(places)
                if other != number and math.dist(own, position) <= reach_m
            ]
            for number, own in enumerate(places)
        ]
        """Numbers of the nodes in range, for each node."""
        self.carried = 0
        self.lost = 0

    def to_all(self, sender: int) -> list[int]:
        """The nodes that receive a broadcast datagram."""
        return [other for other in self.reached[sender] if self._arrives()]

    def to_one(self, sender: int, receiver: int) -> bool:
        """Whether a unicast datagram is received."""
        return receiver in self.reached[sender] and self._arrives()

    def _arrives(self) -> bool:
        arrives = not self._loss or self._rng.random() >= self._loss
        self.carried += arrives
        self.lost += not arrives
        return arrives


class Delay:
    """Calls functions at once, or after a fixed delay."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def call(self, work: Callable[..., None], *arguments: object) -> None:
        if self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s, work, *arguments)
        else:
            work(*arguments)


class Voices:
    """Virtual radio on loopback, with one proxy socket for each node.

    A node sends broadcasts to its own proxy address and unicasts to the proxy address of the
    receiver; it receives datagrams from the proxy address of the sender.
    """

    def __init__(self, air: Air, ports: list[int], delay: Delay, host: str = "127.0.0.1") -> None:
        """`ports` are the UDP ports of the nodes."""
        self._air = air
        self._delay = delay
        self._nodes: list[Address] = [(host, port) for port in ports]
        self._numbers = {address: number for number, address in enumerate(self._nodes)}
        self._voices = [_udp_socket(host) for _ in ports]

    @property
    def addresses(self) -> list[Address]:
        """The proxy addresses, by node number."""
        return [proxy.getsockname() for proxy in self._voices]

    def open(self) -> None:
        """Starts forwarding."""
        loop = asyncio.get_running_loop()
        for number, proxy in enumerate(self._voices):
            loop.add_reader(proxy, self._on_datagrams, number, proxy)

    def close(self) -> None:
        """Stops forwarding and closes the proxy sockets."""
        loop = asyncio.get_running_loop()
        for proxy in self._voices:
            loop.remove_reader(proxy)
            proxy.close()

    def _on_datagrams(self, owner: int, voice: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                datagram, address = voice.recvfrom(PACKET_BYTES_MAX)
            except OSError:
                return  # no more datagrams, or an ICMP error for a closed port
            sender = self._numbers.get(address)
            if sender is None:
                continue
            if sender == owner:
                receivers = self._air.to_all(sender)
            else:
                receivers = [owner] if self._air.to_one(sender, owner) else []
            for receiver in receivers:
                self._delay.call(self._say, sender, receiver, datagram)

    def _say(self, sender: int, receiver: int, datagram: bytes) -> None:
        try:
            self._voices[sender].sendto(datagram, self._nodes[receiver])
        except OSError:
            self._air.lost += 1


class Tunnels:
    """Virtual radio between network namespaces: forwards packets between their TUN devices."""

    def __init__(self, air: Air, delay: Delay, devices: list[int], addresses: list[str]) -> None:
        """`devices` are file descriptors of TUN devices, one in each namespace."""
        self._air = air
        self._delay = delay
        self._devices = devices
        self._numbers = {
            socket.inet_aton(address): number for number, address in enumerate(addresses)
        }

    def open(self) -> None:
        """Starts forwarding."""
        loop = asyncio.get_running_loop()
        for number, device in enumerate(self._devices):
            os.set_blocking(device, False)
            loop.add_reader(device, self._on_packets, number, device)

    def close(self) -> None:
        """Stops forwarding and closes the devices."""
        loop = asyncio.get_running_loop()
        for device in self._devices:
            loop.remove_reader(device)
            os.close(device)

    def _on_packets(self, sender: int, device: int) -> None:
        for _ in range(AT_ONCE):
            try:
                packet = os.read(device, PACKET_BYTES_MAX)
            except OSError:
                return
            for receiver in self._receivers(sender, packet):
                self._delay.call(self._pass, receiver, packet)

    def _receivers(self, sender: int, packet: bytes) -> list[int]:
        if len(packet) < 20 or packet[0] >> 4 != 4:
            return []  # only IPv4 packets are forwarded
        if 224 <= packet[16] < 240:
            return self._air.to_all(sender)
        receiver = self._numbers.get(packet[16:20])
        if receiver is None or not self._air.to_one(sender, receiver):
            return []
        return [receiver]

    def _pass(self, receiver: int, packet: bytes) -> None:
        try:
            os.write(self._devices[receiver], packet)
        except OSError:
            self._air.lost += 1


def _udp_socket(host: str) -> socket.socket:
    proxy = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    proxy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    proxy.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    proxy.bind((host, 0))
    proxy.setblocking(False)
    return proxy
