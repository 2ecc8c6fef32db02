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

from thyme.model.positions import Position
from thyme.transport.link_config import Address

BUFFER_BYTES = 4 * 2**20
PACKET_BYTES_MAX = 65_536
DATAGRAMS_PER_TURN = 64
"""Maximum number of datagrams of one node forwarded before the next node is served."""


class VirtualRadio:
    """Decides by distance and random loss which nodes receive a datagram."""

    def __init__(self, positions: list[Position], range_m: float, loss: float, rng: Random) -> None:
        self._range_m = range_m
        self._loss = loss
        self._rng = rng
        self.neighbours: list[list[int]] = []
        """Numbers of the nodes in range, for each node."""
        self.move_to(positions)
        self.delivered = 0
        self.lost = 0

    def move_to(self, positions: list[Position]) -> None:
        """Sets the positions of all nodes."""
        self.neighbours = [
            [
                other
                for other, position in enumerate(positions)
                if other != number and math.dist(own, position) <= self._range_m
            ]
            for number, own in enumerate(positions)
        ]

    def broadcast_receivers(self, sender: int) -> list[int]:
        """The nodes that receive a broadcast datagram."""
        return [other for other in self.neighbours[sender] if self._draw_delivery()]

    def is_delivered(self, sender: int, receiver: int) -> bool:
        """Whether a unicast datagram is received."""
        return receiver in self.neighbours[sender] and self._draw_delivery()

    def _draw_delivery(self) -> bool:
        delivered = not self._loss or self._rng.random() >= self._loss
        self.delivered += delivered
        self.lost += not delivered
        return delivered


class DelayLine:
    """Calls functions at once, or after a fixed delay."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def schedule(self, function: Callable[..., None], *arguments: object) -> None:
        if self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s, function, *arguments)
        else:
            function(*arguments)


class LoopbackRadio:
    """Virtual radio on loopback, with one proxy socket for each node.

    A node sends broadcasts to its own proxy address and unicasts to the proxy address of the
    receiver; it receives datagrams from the proxy address of the sender.
    """

    def __init__(
        self, radio: VirtualRadio, ports: list[int], delay: DelayLine, host: str = "127.0.0.1"
    ) -> None:
        """`ports` are the UDP ports of the nodes."""
        self._radio = radio
        self._delay = delay
        self._node_addresses: list[Address] = [(host, port) for port in ports]
        self._node_numbers = {
            address: number for number, address in enumerate(self._node_addresses)
        }
        self._proxies = [_udp_socket(host) for _ in ports]

    @property
    def addresses(self) -> list[Address]:
        """The proxy addresses, by node number."""
        return [proxy.getsockname() for proxy in self._proxies]

    def open(self) -> None:
        """Starts forwarding."""
        loop = asyncio.get_running_loop()
        for number, proxy in enumerate(self._proxies):
            loop.add_reader(proxy, self._on_datagrams, number, proxy)

    def close(self) -> None:
        """Stops forwarding and closes the proxy sockets."""
        loop = asyncio.get_running_loop()
        for proxy in self._proxies:
            loop.remove_reader(proxy)
            proxy.close()

    def _on_datagrams(self, owner: int, proxy: socket.socket) -> None:
        for _ in range(DATAGRAMS_PER_TURN):
            try:
                datagram, address = proxy.recvfrom(PACKET_BYTES_MAX)
            except OSError:
                return  # no more datagrams, or an ICMP error for a closed port
            sender = self._node_numbers.get(address)
            if sender is None:
                continue
            if sender == owner:
                receivers = self._radio.broadcast_receivers(sender)
            else:
                receivers = [owner] if self._radio.is_delivered(sender, owner) else []
            for receiver in receivers:
                self._delay.schedule(self._deliver, sender, receiver, datagram)

    def _deliver(self, sender: int, receiver: int, datagram: bytes) -> None:
        try:
            self._proxies[sender].sendto(datagram, self._node_addresses[receiver])
        except OSError:
            self._radio.lost += 1


class TunRadio:
    """Virtual radio between network namespaces: forwards packets between their TUN devices."""

    def __init__(
        self, radio: VirtualRadio, delay: DelayLine, devices: list[int], addresses: list[str]
    ) -> None:
        """`devices` are file descriptors of TUN devices, one in each namespace."""
        self._radio = radio
        self._delay = delay
        self._devices = devices
        self._node_numbers = {
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
        for _ in range(DATAGRAMS_PER_TURN):
            try:
                packet = os.read(device, PACKET_BYTES_MAX)
            except OSError:
                return
            for receiver in self._receivers(sender, packet):
                self._delay.schedule(self._deliver, receiver, packet)

    def _receivers(self, sender: int, packet: bytes) -> list[int]:
        if len(packet) < 20 or packet[0] >> 4 != 4:
            return []  # only IPv4 packets are forwarded
        if 224 <= packet[16] < 240:
            return self._radio.broadcast_receivers(sender)
        receiver = self._node_numbers.get(packet[16:20])
        if receiver is None or not self._radio.is_delivered(sender, receiver):
            return []
        return [receiver]

    def _deliver(self, receiver: int, packet: bytes) -> None:
        try:
            os.write(self._devices[receiver], packet)
        except OSError:
            self._radio.lost += 1


def _udp_socket(host: str) -> socket.socket:
    proxy = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    proxy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    proxy.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    proxy.bind((host, 0))
    proxy.setblocking(False)
    return proxy
