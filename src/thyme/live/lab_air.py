"""The air of a lab: carries datagrams between nodes as far as their virtual radios reach.

`Air` says who hears whom. `Voices` and `Tunnels` carry: on loopback, where every node has a voice,
an address that stands for it to all others; or between network namespaces, packet by packet.
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
"""How many datagrams of one node are carried before it is another's turn."""


class Air:
    """Who hears whom, and what is lost on the way."""

    def __init__(self, places: list[Point], reach_m: float, loss: float, rng: Random) -> None:
        self._loss = loss
        self._rng = rng
        self.reached = [
            [
                other
                for other, there in enumerate(places)
                if other != number and math.dist(here, there) <= reach_m
            ]
            for number, here in enumerate(places)
        ]
        """Who is in reach of each node."""
        self.carried = 0
        self.lost = 0

    def to_all(self, sender: int) -> list[int]:
        """Who gets a datagram for everybody."""
        return [other for other in self.reached[sender] if self._arrives()]

    def to_one(self, sender: int, receiver: int) -> bool:
        """Whether a datagram for one node gets there."""
        return receiver in self.reached[sender] and self._arrives()

    def _arrives(self) -> bool:
        arrives = not self._loss or self._rng.random() >= self._loss
        self.carried += arrives
        self.lost += not arrives
        return arrives


class Delay:
    """Does things at once, or a little later."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def call(self, work: Callable[..., None], *arguments: object) -> None:
        if self._delay_s:
            asyncio.get_running_loop().call_later(self._delay_s, work, *arguments)
        else:
            work(*arguments)


class Voices:
    """The air on loopback.

    Each node sends what is for all to its own voice, and what is for one to that one's voice; what
    it hears comes from the voices of others.
    """

    def __init__(self, air: Air, ports: list[int], delay: Delay, host: str = "127.0.0.1") -> None:
        """`ports` are those of the nodes themselves."""
        self._air = air
        self._delay = delay
        self._nodes: list[Address] = [(host, port) for port in ports]
        self._numbers = {address: number for number, address in enumerate(self._nodes)}
        self._voices = [_udp_socket(host) for _ in ports]

    @property
    def addresses(self) -> list[Address]:
        """The voices, node by node."""
        return [voice.getsockname() for voice in self._voices]

    def open(self) -> None:
        """Starts to carry."""
        loop = asyncio.get_running_loop()
        for number, voice in enumerate(self._voices):
            loop.add_reader(voice, self._on_datagrams, number, voice)

    def close(self) -> None:
        """Carries no more."""
        loop = asyncio.get_running_loop()
        for voice in self._voices:
            loop.remove_reader(voice)
            voice.close()

    def _on_datagrams(self, owner: int, voice: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                datagram, address = voice.recvfrom(PACKET_BYTES_MAX)
            except OSError:
                return  # no more, or word that somebody is gone
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
    """The air between network namespaces: packets from one tunnel device to others."""

    def __init__(self, air: Air, delay: Delay, devices: list[int], addresses: list[str]) -> None:
        """`devices` are open tunnel devices, one in each namespace."""
        self._air = air
        self._delay = delay
        self._devices = devices
        self._numbers = {
            socket.inet_aton(address): number for number, address in enumerate(addresses)
        }

    def open(self) -> None:
        """Starts to carry."""
        loop = asyncio.get_running_loop()
        for number, device in enumerate(self._devices):
            os.set_blocking(device, False)
            loop.add_reader(device, self._on_packets, number, device)

    def close(self) -> None:
        """Carries no more; the devices go with it."""
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
            return []  # only IPv4 goes through this air
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
    voice = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    voice.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    voice.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    voice.bind((host, 0))
    voice.setblocking(False)
    return voice
