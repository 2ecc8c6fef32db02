"""Unit disk: the simplest propagation model, for tests and for reasoning.

Entry points: `UnitDisk` and `UnitDiskLinkTable`. A frame is decoded within a range and interferes
within a larger one; there are no probabilities and no capture. A node within range of one frame and
within the interference range of an overlapping one decodes neither. `link_table` has log-distance
propagation instead.
Clause: S2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from thyme.sim.rows import Clean, Row
from thyme.sim.sets import numbers


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """The radii of unit-disk propagation."""

    range_m: float = 113.0
    interference_m: float = 210.0
    """The interference range; also the range of carrier sense."""


class DiskLinks:
    """The link table of unit-disk propagation; has the methods of `LinkTable`."""

    def __init__(self, disk: Disk, positions: Sequence[tuple[float, float]]) -> None:
        self._disk = disk
        self._positions = list(positions)
        self._rows: list[Row | None] = [None] * len(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def position(self, number: int) -> tuple[float, float]:
        """The position of a node."""
        return self._positions[number]

    def row(self, number: int) -> Row:
        """The reception of a node's frames; its powers only rank receivers by distance."""
        row = self._rows[number]
        if row is None:
            row = self._rows[number] = Row(number)
            for other, position in enumerate(self._positions):
                distance_m = math.dist(self._positions[number], position)
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
        """Moves a node."""
        self._positions[number] = position
        self._rows = [None] * len(self._positions)

    def clean(self, row: Row, bits: int) -> Clean:
        """The reception without interference: every node within range decodes the frame."""
        return Clean(row.lock)

    def contest(
        self, row: Row, others: Sequence[Row], among: int, bits_most: int, bits_least: int = 0
    ) -> tuple[int, int]:
        """All receivers under interference lose the frame."""
        return among, 0

    def header_contest(
        self, row: Row, other: Row, among: int
    ) -> tuple[int, list[tuple[int, float]]]:
        """All receivers in reach of the other sender lose the header."""
        return row.lock & other.notice, []

    def louder(self, row: Row, other: Row, among: int) -> int:
        """The receivers within range of both senders that are nearer to the first."""
        both = numbers(row.lock & other.lock & among)
        return sum(1 << number for number in both if row.power[number] > other.power[number])

    def header_chances(
        self, row: Row, others: Sequence[Row], receivers: int
    ) -> Iterator[tuple[int, float]]:
        """No receiver is uncertain."""
        return iter(())

    def payload_chances(
        self, row: Row, chunks: Sequence[tuple[float, list[Row]]], receivers: int
    ) -> Iterator[tuple[int, float]]:
        """No receiver is uncertain."""
        return iter(())
