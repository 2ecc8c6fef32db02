"""Tally: what each node's radio has sent, and for how long it has listened.

Always on, so it must cost next to nothing: who listened to a frame is a set of nodes, and sets are
counted all at once, as binary numbers written across integers (one integer for the ones of every
node, one for the twos, and so on).
Clauses: S9, S14.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from thyme.sim.sets import numbers

BATCH = 63
"""How many sets wait before they are counted."""
SENT_BATCH = 4096
"""The same for frames put on the air."""


class Tally:
    """Counters by node."""

    def __init__(self, duration_us: Callable[[int], int]) -> None:
        self._duration_us = duration_us
        self._frames: Counter[tuple[int, str, int]] = Counter()
        self._sent: list[tuple[int, str, int]] = []
        self._heard: dict[int, SetCounter] = {}
        self.retransmissions: Counter[int] = Counter()
        """Frames sent again, by node."""

    def sent(self, source: int, kind: str, size: int) -> None:
        """A node puts a frame on the air."""
        self._sent.append((source, kind, size))
        if len(self._sent) >= SENT_BATCH:
            self._count()

    def _count(self) -> None:
        self._frames.update(self._sent)
        self._sent.clear()

    def heard(self, nodes: int, duration_us: int) -> None:
        """Some nodes have listened to a frame."""
        counter = self._heard.get(duration_us)
        if counter is None:
            counter = self._heard[duration_us] = SetCounter()
        counter.add(nodes)

    def frames(self) -> Counter[int]:
        """Frames put on the air by node, of every kind, repetitions included."""
        return self._sum(lambda kind, size: 1)

    def bytes(self) -> Counter[int]:
        """Their bytes by node, MAC headers included."""
        return self._sum(lambda kind, size: size)

    def sending_us(self) -> Counter[int]:
        """How long each node was sending."""
        return self._sum(lambda kind, size: self._duration_us(size))

    def kinds(self) -> Counter[str]:
        """Frames by kind, of all nodes."""
        self._count()
        kinds: Counter[str] = Counter()
        for (_, kind, _), count in self._frames.items():
            kinds[kind] += count
        return kinds

    def receiving_us(self, size: int) -> list[int]:
        """How long each of so many nodes has listened."""
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
    """How often each node was in a set."""

    __slots__ = ("_digits", "_waiting")

    def __init__(self) -> None:
        self._digits: list[int] = []
        self._waiting: list[int] = []

    def add(self, nodes: int) -> None:
        """Counts a set."""
        waiting = self._waiting
        waiting.append(nodes)
        if len(waiting) == BATCH:
            self._add_up()

    def counts(self, size: int) -> list[int]:
        """The counts of so many nodes."""
        self._add_up()
        found = [0] * size
        for place, digit in enumerate(self._digits):
            for number in numbers(digit):
                found[number] += 1 << place
        return found

    def _add_up(self) -> None:
        """Adds what waits, three numbers to two at a time, from the ones to the higher digits."""
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
