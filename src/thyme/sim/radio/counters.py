"""Radio counters: frames and bytes sent by each node, and times spent sending and receiving.

Entry point: `RadioCounters`. Counting is always on and must be cheap. The receivers of a frame are
a bit set, and sets are counted all at once with bit-sliced counters (one integer for the ones of
all nodes, one for the twos, and so on).
Clauses: S9, S14.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from thyme.sim.engine.bitsets import members_of

SETS_PER_BATCH = 63
"""The number of sets that are counted at once."""
FRAMES_PER_BATCH = 4096
"""The number of sent frames that are counted at once."""


class RadioCounters:
    """Counters of all nodes' radios."""

    def __init__(self, nodes: int, duration_us: Callable[[int], int]) -> None:
        self._nodes = nodes
        self._duration_us = duration_us
        self._frame_counts: Counter[tuple[int, str, int]] = Counter()
        self._pending_frames: list[tuple[int, str, int]] = []
        self._received: dict[int, BitSlicedCounter] = {}
        self._retransmissions = [0] * nodes

    def count_retransmission(self, source: int) -> None:
        """Counts a frame sent again by a node."""
        self._retransmissions[source] += 1

    def count_sent(self, source: int, kind: str, size: int) -> None:
        """Counts a frame sent by a node."""
        self._pending_frames.append((source, kind, size))
        if len(self._pending_frames) >= FRAMES_PER_BATCH:
            self._flush_sent()

    def _flush_sent(self) -> None:
        self._frame_counts.update(self._pending_frames)
        self._pending_frames.clear()

    def count_received(self, nodes: int, duration_us: int) -> None:
        """Counts the time of a frame for the nodes that received it, decoded or not."""
        counter = self._received.get(duration_us)
        if counter is None:
            counter = self._received[duration_us] = BitSlicedCounter()
        counter.add(nodes)

    def retransmissions_by_node(self) -> list[int]:
        """Frames sent again by each node."""
        return list(self._retransmissions)

    def frames_by_node(self) -> list[int]:
        """Frames sent by each node, of every kind, retransmissions included."""
        return self._sum_by_node(lambda kind, size: 1)

    def bytes_by_node(self) -> list[int]:
        """Bytes sent by each node, MAC headers included."""
        return self._sum_by_node(lambda kind, size: size)

    def sending_us_by_node(self) -> list[int]:
        """Time spent sending by each node."""
        return self._sum_by_node(lambda kind, size: self._duration_us(size))

    def frames_by_kind(self) -> dict[str, int]:
        """Frames sent by all nodes, by kind."""
        self._flush_sent()
        kinds: Counter[str] = Counter()
        for (_, kind, _), count in self._frame_counts.items():
            kinds[kind] += count
        return kinds

    def receiving_us_by_node(self) -> list[int]:
        """Time spent receiving by each node."""
        sums = [0] * self._nodes
        for duration_us, counter in self._received.items():
            for number, count in enumerate(counter.counts(self._nodes)):
                sums[number] += duration_us * count
        return sums

    def _sum_by_node(self, value_of: Callable[[str, int], int]) -> list[int]:
        self._flush_sent()
        sums = [0] * self._nodes
        for (source, kind, size), count in self._frame_counts.items():
            sums[source] += count * value_of(kind, size)
        return sums


class BitSlicedCounter:
    """Counts for each node how many of the added sets contain it."""

    __slots__ = ("_bit_planes", "_pending")

    def __init__(self) -> None:
        self._bit_planes: list[int] = []
        self._pending: list[int] = []

    def add(self, nodes: int) -> None:
        """Adds a set of nodes."""
        waiting = self._pending
        waiting.append(nodes)
        if len(waiting) == SETS_PER_BATCH:
            self._flush()

    def counts(self, nodes: int) -> list[int]:
        """The counts of the first `nodes` nodes."""
        self._flush()
        found = [0] * nodes
        for exponent, plane in enumerate(self._bit_planes):
            for number in members_of(plane):
                found[number] += 1 << exponent
        return found

    def _flush(self) -> None:
        """Adds the pending sets, three numbers to two at a time, from the lowest digit up."""
        column, self._pending = self._pending, []
        exponent = 0
        while column:
            if exponent < len(self._bit_planes):
                column.append(self._bit_planes[exponent])
            else:
                self._bit_planes.append(0)
            carried: list[int] = []
            while len(column) > 2:
                whole = len(column) // 3 * 3
                left = column[whole:]
                for one, two, three in zip(
                    column[0:whole:3], column[1:whole:3], column[2:whole:3], strict=True
                ):
                    both = one ^ two
                    left.append(both ^ three)
                    if carry := one & two | both & three:
                        carried.append(carry)
                column = left
            if len(column) == 2:
                one, two = column
                if carry := one & two:
                    carried.append(carry)
                column = [one ^ two]
            self._bit_planes[exponent] = column[0]
            column = carried
            exponent += 1
