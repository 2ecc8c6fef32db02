"""Radio counters: frames and bytes sent by each node, and times spent sending and receiving.

Entry point: `RadioCounters`. Counting is always on and must be cheap. The receivers of a frame are
a bit set, and sets are counted all at once with bit-sliced counters (one integer for the ones of
all nodes, one for the twos, and so on).
Clauses: S9, S14.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from thyme.sim.sets import numbers

BATCH = 63
"""The number of sets that are counted at once."""
SENT_BATCH = 4096
"""The number of sent frames that are counted at once."""


class Tally:
    """Counters of all nodes' radios."""

    def __init__(self, duration_us: Callable[[int], int]) -> None:
        self._duration_us = duration_us
        self._frames: Counter[tuple[int, str, int]] = Counter()
        self._sent: list[tuple[int, str, int]] = []
        self._heard: dict[int, SetCounter] = {}
        self.retransmissions: Counter[int] = Counter()
        """Frames sent again, by node."""

    def sent(self, source: int, kind: str, size: int) -> None:
        """Counts a frame sent by a node."""
        self._sent.append((source, kind, size))
        if len(self._sent) >= SENT_BATCH:
            self._count()

    def _count(self) -> None:
        self._frames.update(self._sent)
        self._sent.clear()

    def heard(self, nodes: int, duration_us: int) -> None:
        """Counts the time of a frame for the nodes that received it, decoded or not."""
        counter = self._heard.get(duration_us)
        if counter is None:
            counter = self._heard[duration_us] = SetCounter()
        counter.add(nodes)

    def frames(self) -> Counter[int]:
        """Frames sent by each node, of every kind, retransmissions included."""
        return self._sum(lambda kind, size: 1)

    def bytes(self) -> Counter[int]:
        """Bytes sent by each node, MAC headers included."""
        return self._sum(lambda kind, size: size)

    def sending_us(self) -> Counter[int]:
        """Time spent sending by each node."""
        return self._sum(lambda kind, size: self._duration_us(size))

    def kinds(self) -> Counter[str]:
        """Frames sent by all nodes, by kind."""
        self._count()
        kinds: Counter[str] = Counter()
        for (_, kind, _), count in self._frames.items():
            kinds[kind] += count
        return kinds

    def receiving_us(self, size: int) -> list[int]:
        """Time spent receiving by each of the first `nodes` nodes."""
        sums = [0] * size
        for duration_us, counter in self._heard.items():
            for number, count in enumerate(counter.counts(size)):
                sums[number] += duration_us * count
        return sums

    def _sum(self, worth: Callable[[str, int], int]) -> Counter[int]:
        self._count()
        sums: Counter[int] = Counter()
        for (source, kind, size), count in self._frames.items():
            sums[source] += count * worth(kind, size)
        return sums


class SetCounter:
    """Counts for each node how many of the added sets contain it."""

    __slots__ = ("_digits", "_waiting")

    def __init__(self) -> None:
        self._digits: list[int] = []
        self._waiting: list[int] = []

    def add(self, nodes: int) -> None:
        """Adds a set of nodes."""
        waiting = self._waiting
        waiting.append(nodes)
        if len(waiting) == BATCH:
            self._add_up()

    def counts(self, size: int) -> list[int]:
        """The counts of the first `nodes` nodes."""
        self._add_up()
        found = [0] * size
        for place, digit in enumerate(self._digits):
            for number in numbers(digit):
                found[number] += 1 << place
        return found

    def _add_up(self) -> None:
        """Adds the pending sets, three numbers to two at a time, from the lowest digit up."""
        column, self._waiting = self._waiting, []
        place = 0
        while column:
            if place < len(self._digits):
                column.append(self._digits[place])
            else:
                self._digits.append(0)
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
            self._digits[place] = column[0]
            column = carried
            place += 1
