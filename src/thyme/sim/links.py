"""Links: what is known beforehand of every pair of nodes, as sets of nodes in bit masks.

Nodes are numbered; a set of nodes is an integer with a bit for each. Most receptions are certain
one way or the other, so the tables keep the certain ones as sets, handled all at once, and list
only the doubtful ones with their probability. Rows are made when first needed, and kept exact
while nodes move.
Clauses: S2, S5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from thyme.sim.phy import Phy, log_bit_success, milliwatts

CERTAIN = 5e-4
"""A probability this close to 0 or 1 is taken for it."""
OVERLAPS_MAX = 100_000
"""How many pairs of senders are remembered."""
DOOM_LOG = -0.05
"""A bit that fails with about this probability: a few dozen of them spoil any frame."""


class Chances:
    """How a frame fares at its receivers: those that surely get it, and the doubtful ones."""

    __slots__ = ("doubtful", "sure")

    def __init__(self, sure: int, doubtful: list[tuple[int, float]]) -> None:
        self.sure = sure
        self.doubtful = doubtful


class Row:
    """What one node's frames do to the others."""

    __slots__ = ("header", "lock", "notice", "payload", "power", "sense", "version")

    def __init__(self, power: dict[int, float], lock: int, sense: int, notice: int) -> None:
        self.power = power
        """Received power by node number, for those that notice it."""
        self.lock = lock
        self.sense = sense
        self.notice = notice
        self.header: Chances | None = None
        self.payload: dict[int, Chances] = {}
        self.version = 0
        """Grows with every change."""


class Overlap:
    """How frames of one node fare while another is sending: header, and each bit of payload."""

    __slots__ = ("doomed", "doubtful", "header", "touched")

    def __init__(
        self, header: Chances, touched: int, doomed: int, doubtful: list[tuple[int, float]]
    ) -> None:
        self.header = header
        self.touched = touched
        """Receivers at which the interference matters at all."""
        self.doomed = doomed
        """Those of them that lose the frame to any overlap worth the name."""
        self.doubtful = doubtful
        """The rest, with the logarithm of a bit's chance."""


class Links:
    """The tables for a set of positions."""

    def __init__(self, phy: Phy, positions: Sequence[tuple[float, float]]) -> None:
        self._phy = phy
        self._positions = list(positions)
        self._noise_mw = milliwatts(phy.noise_dbm)
        self._lock_mw = milliwatts(phy.lock_dbm)
        self._sense_mw = milliwatts(phy.sense_dbm)
        self._notice_m = phy.reach_m(phy.notice_dbm)
        self._rows: list[Row | None] = [None] * len(self._positions)
        self._overlaps: dict[tuple[int, int], tuple[int, int, Overlap]] = {}
        self._cells: dict[tuple[int, int], list[int]] = {}
        for number, position in enumerate(self._positions):
            self._cells.setdefault(self._cell(position), []).append(number)

    def __len__(self) -> int:
        return len(self._positions)

    def position(self, number: int) -> tuple[float, float]:
        """Where a node is."""
        return self._positions[number]

    def row(self, number: int) -> Row:
        """What a node's frames do to the others."""
        row = self._rows[number]
        if row is None:
            row = self._rows[number] = self._make_row(number)
        return row

    def header(self, number: int) -> Chances:
        """Who gets the header of a node's frame, with nobody else on the air."""
        row = self.row(number)
        if row.header is None:
            row.header = self._chances(row, self._phy.header_bits)
        return row.header

    def payload(self, number: int, bits: int) -> Chances:
        """Who gets the payload of a node's frame, with nobody else on the air."""
        row = self.row(number)
        chances = row.payload.get(bits)
        if chances is None:
            chances = row.payload[bits] = self._chances(row, bits)
        return chances

    def overlap(self, number: int, other: int) -> Overlap:
        """How a node's frames fare while another node is sending."""
        mine, theirs = self.row(number).version, self.row(other).version
        known = self._overlaps.get((number, other))
        if known is not None and known[0] == mine and known[1] == theirs:
            return known[2]
        if len(self._overlaps) >= OVERLAPS_MAX:
            self._overlaps.clear()
        overlap = self._make_overlap(number, other)
        self._overlaps[number, other] = mine, theirs, overlap
        return overlap

    def log_bit(self, number: int, receiver: int, others: Sequence[int]) -> float:
        """The logarithm of a bit's chance from a node to a receiver while others are sending."""
        noise_mw = self._noise_mw
        for other in others:
            noise_mw += self.row(other).power.get(receiver, 0.0)
        return log_bit_success(self.row(number).power[receiver] / noise_mw)

    def move(self, number: int, position: tuple[float, float]) -> None:
        """Puts a node elsewhere; only what its neighbours know of it changes."""
        before, after = self._cell(self._positions[number]), self._cell(position)
        near = set(self._near(before)) | set(self._near(after))
        self._positions[number] = position
        if before != after:
            self._cells[before].remove(number)
            self._cells.setdefault(after, []).append(number)
        row = self._rows[number]
        if row is not None:
            moved = self._rows[number] = self._make_row(number)
            moved.version = row.version + len(self._positions)  # more than its making counted
        for other in sorted(near - {number}):
            known = self._rows[other]
            if known is not None:
                self._note(known, number, math.dist(position, self._positions[other]))

    def _near(self, cell: tuple[int, int]) -> Iterator[int]:
        """The nodes in a cell and around it."""
        column, line = cell
        for dx in (-1, 0, 1):
            for dy in (-1, 0, 1):
                yield from self._cells.get((column + dx, line + dy), ())

    def _note(self, row: Row, other: int, distance_m: float) -> None:
        """Writes down how well another node hears the node of a row."""
        bit = 1 << other
        if distance_m > self._notice_m:
            if not row.notice & bit:
                return
            del row.power[other]
            received_mw = 0.0
        else:
            received_mw = row.power[other] = self._phy.received_mw(distance_m)
        row.notice = row.notice | bit if received_mw else row.notice & ~bit
        row.sense = row.sense | bit if received_mw >= self._sense_mw else row.sense & ~bit
        row.lock = row.lock | bit if received_mw >= self._lock_mw else row.lock & ~bit
        row.header = None
        row.payload = {}
        row.version += 1

    def _cell(self, position: tuple[float, float]) -> tuple[int, int]:
        return int(position[0] // self._notice_m), int(position[1] // self._notice_m)

    def _make_row(self, number: int) -> Row:
        here = self._positions[number]
        row = Row({}, 0, 0, 0)
        for other in sorted(self._near(self._cell(here))):
            if other != number:
                self._note(row, other, math.dist(here, self._positions[other]))
        return row

    def _chances(self, row: Row, bits: int) -> Chances:
        sure = 0
        doubtful: list[tuple[int, float]] = []
        for other, power_mw in row.power.items():
            if row.lock >> other & 1:
                chance = math.exp(bits * log_bit_success(power_mw / self._noise_mw))
                if chance > 1 - CERTAIN:
                    sure |= 1 << other
                elif chance > CERTAIN:
                    doubtful.append((1 << other, chance))
        return Chances(sure, doubtful)

    def _make_overlap(self, number: int, other: int) -> Overlap:
        """Goes through the receivers that hear both."""
        row, noise = self.row(number), self.row(other).power
        clean = self.header(number)
        sure, touched, doomed = clean.sure, 0, 0
        header = [pair for pair in clean.doubtful if pair[0].bit_length() - 1 not in noise]
        doubtful: list[tuple[int, float]] = []
        for receiver, power_mw in row.power.items():
            bit = 1 << receiver
            if receiver not in noise or not row.lock & bit:
                continue
            log_bit = log_bit_success(power_mw / (self._noise_mw + noise[receiver]))
            chance = math.exp(self._phy.header_bits * log_bit)
            if chance <= 1 - CERTAIN:
                sure &= ~bit
                if chance > CERTAIN:
                    header.append((bit, chance))
            if log_bit < -1e-10:
                touched |= bit
                if log_bit < DOOM_LOG:
                    doomed |= bit
                else:
                    doubtful.append((bit, log_bit))
        return Overlap(Chances(sure, header), touched, doomed, doubtful)
