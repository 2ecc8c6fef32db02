"""The disk: the simplest propagation. A frame is heard within a range, and disturbs within another.

For reasoning and for tests: no probability, no capture. Whoever hears two overlapping frames, one
within range and the other within the interference range, decodes neither.
Clause: S2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from thyme.sim.links import Chances, Overlap, Row


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

    def row(self, number: int) -> Row:
        """Who hears a node, and whom it disturbs; power falls with distance, if only to compare."""
        row = self._rows[number]
        if row is None:
            power: dict[int, float] = {}
            lock = sense = 0
            for other, place in enumerate(self._positions):
                distance_m = math.dist(self._positions[number], place)
                if other == number or distance_m > self._disk.interference_m:
                    continue
                power[other] = 1 / max(1.0, distance_m)
                sense |= 1 << other
                if distance_m <= self._disk.range_m:
                    lock |= 1 << other
            row = self._rows[number] = Row(power, lock, sense, sense)
        return row

    def move(self, number: int, position: tuple[float, float]) -> None:
        """Puts a node elsewhere."""
        self._positions[number] = position
        self._rows = [None] * len(self._positions)

    def header(self, number: int) -> Chances:
        """Everybody within range hears a frame on a silent medium."""
        return Chances(self.row(number).lock, [])

    def payload(self, number: int, bits: int) -> Chances:
        """And hears it to the end."""
        return self.header(number)

    def overlap(self, number: int, other: int) -> Overlap:
        """Whoever the other one disturbs hears nothing."""
        disturbed = self.row(number).lock & self.row(other).sense
        return Overlap(Chances(self.row(number).lock & ~disturbed, []), disturbed, disturbed, [])

    def log_bit(self, number: int, receiver: int, others: Sequence[int]) -> float:
        """All or nothing."""
        return -math.inf if any(self.row(other).sense >> receiver & 1 for other in others) else 0.0
