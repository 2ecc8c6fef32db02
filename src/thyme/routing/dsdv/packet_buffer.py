"""Packet buffer: packets that wait for a route, bounded in number and time.

Entry point: `PacketBuffer`, used by `thyme.routing.dsdv.protocol`.
Clauses: R1.
"""

from __future__ import annotations

from collections import deque

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Packet


class PacketBuffer:
    """Packets of one node without a route, by destination."""

    def __init__(self, *, packets_max: int, per_destination_max: int, wait_us_max: int) -> None:
        self._packets_max = packets_max
        self._per_destination_max = per_destination_max
        self._wait_us_max = wait_us_max
        self._queues: dict[NodeId, deque[tuple[int, Packet]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, destination: NodeId) -> bool:
        return destination in self._queues

    @property
    def destinations(self) -> list[NodeId]:
        """Destinations with buffered packets, in the order of their first packet."""
        return list(self._queues)

    def add(self, packet: Packet, now_us: int) -> bool:
        """Buffers a packet; returns False if the buffer is full."""
        queue = self._queues.get(packet.destination, ())
        if len(queue) >= self._per_destination_max or self._count >= self._packets_max:
            return False
        entry = (now_us + self._wait_us_max, packet)
        self._queues.setdefault(packet.destination, deque()).append(entry)
        self._count += 1
        return True

    def pop(self, destination: NodeId) -> Packet:
        """Removes and returns the first buffered packet for a destination."""
        queue = self._queues[destination]
        _, packet = queue.popleft()
        self._count -= 1
        if not queue:
            del self._queues[destination]
        return packet

    def drop_expired(self, now_us: int) -> int:
        """Drops packets that waited too long; returns their number."""
        before = self._count
        for destination in self.destinations if self._count else ():
            queue = self._queues[destination]
            while queue and queue[0][0] < now_us:
                queue.popleft()
                self._count -= 1
            if not queue:
                del self._queues[destination]
        return before - self._count

    def check(self) -> None:
        """Asserts that the count and the limits hold."""
        assert self._count == sum(map(len, self._queues.values())) <= self._packets_max
        for queue in self._queues.values():
            assert 0 < len(queue) <= self._per_destination_max
