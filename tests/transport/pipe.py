"""Links in virtual time, over a channel that loses, duplicates and delays datagrams."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo
from thyme.protocol.messages.common import Message
from thyme.transport.link import Link
from thyme.transport.link_config import (
    Address,
    LinkConfig,
    MessageReceived,
    MessageUndelivered,
    SendDatagram,
)

WORLD = WorldInfo("lisbon", "w1")
ALICE, BOB, CAROL = (NodeId(name) for name in (b"alice", b"bob", b"carol"))


class Pipe:
    """Links that all reach each other over a shared channel. The channel carries a number of bytes
    per second, and drops datagrams when its queue is full."""

    def __init__(
        self,
        *names: NodeId,
        seed: int = 1,
        loss: float = 0.0,
        doubled: float = 0.0,
        late_us: int = 0,
        delay_us: int = 200,
        bytes_per_s: float = 0.0,
        queue_bytes: int = 0,
        config: LinkConfig | None = None,
    ) -> None:
        self.now_us = 0
        self._rng = Random(seed)
        self._loss, self._doubled, self._late_us = loss, doubled, late_us
        self._bytes_per_s, self._queue_bytes = bytes_per_s, queue_bytes
        self._busy_until_us = 0.0
        self._delay_us = delay_us
        self._config = config or LinkConfig()
        self._queue: list[tuple[int, int, Address, Address, bytes]] = []
        self._serial = 0
        self.links: dict[NodeId, Link] = {}
        self.came: list[tuple[NodeId, NodeId, Message]] = []
        """The messages received, by receiver, sender and message."""
        self.given_up: list[tuple[NodeId, NodeId, Message]] = []
        self.datagrams = 0
        self._stopped: dict[NodeId, list[tuple[Address, bytes]]] = {}
        """Nodes whose process is stopped, and the datagrams that wait in their sockets."""
        for name in names:
            self.add(name)

    def add(self, name: NodeId, world: WorldInfo = WORLD, config: LinkConfig | None = None) -> Link:
        incarnation = self._rng.randbytes(8)
        link = self.links[name] = Link(name, world, incarnation, config or self._config)
        return link

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        self.links[sender].send(to, message, self.now_us)
        self.carry(sender)

    def broadcast(self, sender: NodeId, message: Message) -> None:
        self.links[sender].broadcast(message, self.now_us)
        self.carry(sender)

    def inject(self, to: NodeId, datagram: bytes, address: Address = ("ff", 1)) -> None:
        self.links[to].receive_datagram(datagram, address, self.now_us)
        self.carry(to)

    def stop(self, name: NodeId) -> None:
        """Stops a node, as a phone that sleeps: datagrams wait in its socket."""
        self._stopped[name] = []

    def go_on(self, name: NodeId, *, tick_first: bool) -> None:
        """Lets a stopped node continue. It reads its socket, before or after its timers: the
        operating system decides."""
        waiting = self._stopped.pop(name)
        if tick_first:
            self.tick(name)
        for address, datagram in waiting:
            self.links[name].receive_datagram(datagram, address, self.now_us)
        self.carry(name)

    def run(self, for_s: float) -> None:
        until_us = self.now_us + round(1e6 * for_s)
        while True:
            at_us = min(self.next_tick_us(name) for name in self.links if name not in self._stopped)
            if self._queue:
                at_us = min(at_us, self._queue[0][0])
            if at_us > until_us:
                break
            self.now_us = max(self.now_us, at_us)
            while self._queue and self._queue[0][0] <= self.now_us:
                _, _, address, to, datagram = heappop(self._queue)
                name = NodeId(bytes.fromhex(to[0]))
                if name in self._stopped:
                    self._stopped[name].append((address, datagram))
                elif name in self.links:
                    self.links[name].receive_datagram(datagram, address, self.now_us)
                    self.carry(name)
            for name in list(self.links):
                if name not in self._stopped:
                    self.tick(name)
        self.now_us = until_us

    def next_tick_us(self, name: NodeId) -> int:
        return self.links[name].next_tick_us()

    def tick(self, name: NodeId) -> None:
        self.links[name].tick(self.now_us)
        self.carry(name)

    def carry(self, name: NodeId) -> None:
        for effect in self.links[name].drain_events():
            match effect:
                case MessageReceived():
                    self.came.append((name, effect.sender, effect.message))
                case MessageUndelivered():
                    self.given_up.append((name, effect.to, effect.message))
        for transmit in self.links[name].drain_datagrams():
            self._transmit(name, transmit)

    def _transmit(self, sender: NodeId, effect: SendDatagram) -> None:
        self.datagrams += 1
        others = [(name.hex(), 0) for name in self.links if name != sender]
        for to in others if effect.to is None else [effect.to]:
            copies = 2 if self._rng.random() < self._doubled else 1
            for _ in range(copies):
                if self._rng.random() >= self._loss and self._fits(len(effect.datagram)):
                    sent_us = max(self.now_us, round(self._busy_until_us))
                    at_us = sent_us + self._delay_us + self._rng.randint(0, self._late_us)
                    self._serial += 1
                    entry = at_us, self._serial, (sender.hex(), 0), to, effect.datagram
                    heappush(self._queue, entry)

    def _fits(self, size: int) -> bool:
        """Queues a datagram if there is space."""
        if not self._bytes_per_s:
            return True
        begin_us = max(self.now_us, self._busy_until_us)
        if (begin_us - self.now_us) * self._bytes_per_s / 1e6 > self._queue_bytes:
            return False
        self._busy_until_us = begin_us + 1e6 * size / self._bytes_per_s
        return True
