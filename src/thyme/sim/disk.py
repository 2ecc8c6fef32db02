"""The disk: the simplest propagation. A frame is heard within a range, and disturbs within another.

For reasoning and for tests: no probability, no capture. Whoever hears two overlapping frames, one
within range and the other within the interference range, decodes neither.
Clause: S2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from thyme.sim.rows import Clean, Row
from thyme.sim.sets import numbers


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """The two radii."""

    range_m: float = 113.0
    interference_m: float = 210.0
    """Also how far a frame is sensed."""


class DiskLinks:
    """What `Links` is for a radio that fades, for one that does not."""

    def __init__(self, disk: Disk, positions: Sequence[tuple[float, float]]) -> None:
        self._disk = disk
        self._positions = list(positions)
        self._rows: list[Row | None] = [None] * len(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def position(self, number: int) -> tuple[float, float]:
        """Where a node is."""
        return self._positions[number]

    def row(self, number: int) -> Row:
        """Who hears a node, and whom it disturbs; power falls with distance, if only to compare."""
        row = self._rows[number]
        if row is None:
            row = self._rows[number] = Row(number)
            for other, place in enumerate(self._positions):
                distance_m = math.dist(self._positions[number], place)
                if other == number or distance_m > self._disk.interference_m:
                    continue
                row.power[other] = 1 / max(1.0, distance_m)
                row.notice |= 1 << other
                if distance_m <= self._disk.range_m:
                    row.lock |= 1 << other
            row.sense = row.notice
            row.reach |= row.notice
        return row

    def move(self, number: int, position: tuple[float, float]) -> None:
        """Puts a node elsewhere."""
        self._positions[number] = position
        self._rows = [None] * len(self._positions)

    def clean(self, row: Row, bits: int) -> Clean:
        """Everybody within range gets a frame on a silent medium."""
        return Clean(row.lock)

    def contest(
        self, row: Row, others: Sequence[Row], among: int, bits_most: int, bits_least: int = 0
    ) -> tuple[int, int]:
        """Whoever others disturb gets nothing."""
        return among, 0

    def header_contest(
        self, row: Row, other: Row, among: int
    ) -> tuple[int, list[tuple[int, float]]]:
        """Whoever the other disturbs gets nothing."""
        return row.lock & other.notice, []

    def louder(self, row: Row, other: Row, among: int) -> int:
        """Who of some receivers that could listen to both is nearer to the first."""
        both = numbers(row.lock & other.lock & among)
        return sum(1 << number for number in both if row.power[number] > other.power[number])

    def header_chances(
        self, row: Row, others: Sequence[Row], receivers: int
    ) -> Iterator[tuple[int, float]]:
        """Nobody is unsure."""
        return iter(())

    def payload_chances(
        self, row: Row, chunks: Sequence[tuple[float, list[Row]]], receivers: int
    ) -> Iterator[tuple[int, float]]:
        """Nobody is unsure."""
        return iter(())
