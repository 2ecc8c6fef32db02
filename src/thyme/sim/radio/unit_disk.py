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

from thyme.sim.engine.bitsets import members_of
from thyme.sim.radio.reception import ClearReception, ReceptionRow


class UnitDisk(msgspec.Struct, frozen=True, kw_only=True):
    """The radii of unit-disk propagation."""

    range_m: float = 113.0
    interference_m: float = 210.0
    """The interference range; also the range of carrier sense."""


class UnitDiskLinkTable:
    """The link table of unit-disk propagation; has the methods of `LinkTable`."""

    def __init__(self, unit_disk: UnitDisk, positions: Sequence[tuple[float, float]]) -> None:
        self._unit_disk = unit_disk
        self._positions = list(positions)
        self._rows: list[ReceptionRow | None] = [None] * len(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def position_of(self, number: int) -> tuple[float, float]:
        """The position of a node."""
        return self._positions[number]

    def row(self, number: int) -> ReceptionRow:
        """The reception of a node's frames; its powers only rank receivers by distance."""
        row = self._rows[number]
        if row is None:
            row = self._rows[number] = ReceptionRow(number)
            for other, position in enumerate(self._positions):
                distance_m = math.dist(self._positions[number], position)
                if other == number or distance_m > self._unit_disk.interference_m:
                    continue
                row.power_mw[other] = 1 / max(1.0, distance_m)
                row.in_reach |= 1 << other
                if distance_m <= self._unit_disk.range_m:
                    row.detecting |= 1 << other
            row.sensing = row.in_reach
            row.in_reach_or_self |= row.in_reach
        return row

    def move(self, number: int, position: tuple[float, float]) -> None:
        """Moves a node."""
        self._positions[number] = position
        self._rows = [None] * len(self._positions)

    def clear_reception(self, row: ReceptionRow, bits: int) -> ClearReception:
        """The reception without interference: every node within range decodes the frame."""
        return ClearReception(row.detecting)

    def classify_interference(
        self,
        row: ReceptionRow,
        others: Sequence[ReceptionRow],
        among: int,
        bits_max: int,
        bits_min: int = 0,
    ) -> tuple[int, int]:
        """All receivers under interference lose the frame."""
        return among, 0

    def classify_header(
        self, row: ReceptionRow, other: ReceptionRow, among: int
    ) -> tuple[int, list[tuple[int, float]]]:
        """All receivers in reach of the other sender lose the header."""
        return row.detecting & other.in_reach, []

    def stronger_at(self, row: ReceptionRow, other: ReceptionRow, among: int) -> int:
        """The receivers within range of both senders that are nearer to the first."""
        both = members_of(row.detecting & other.detecting & among)
        return sum(1 << number for number in both if row.power_mw[number] > other.power_mw[number])

    def header_probabilities(
        self, row: ReceptionRow, others: Sequence[ReceptionRow], receivers: int
    ) -> Iterator[tuple[int, float]]:
        """No receiver is uncertain."""
        return iter(())

    def payload_probabilities(
        self, row: ReceptionRow, chunks: Sequence[tuple[float, list[ReceptionRow]]], receivers: int
    ) -> Iterator[tuple[int, float]]:
        """No receiver is uncertain."""
        return iter(())
