"""Link table: received power and probability of reception for every pair of nodes.

Entry points: `LinkTable.row`, `LinkTable.clear_reception` and `LinkTable.classify_interference`.
Sets of nodes are bit sets. Most receptions are certain, one way or the other: the table keeps these
as sets, which are handled at once, and lists the uncertain ones with their probabilities. For each
power level, a row has the set of the nodes that receive the sender with at least that power; so a
few set operations classify receivers as decoding, lost or uncertain under interference. Rows are
made when first needed and are kept exact while nodes move.
Clauses: S2, S5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from thyme.sim.phy import Phy, milliwatts
from thyme.sim.rows import Clean, Row
from thyme.sim.sets import numbers
from thyme.sim.steps import LEVEL_DB, LEVELS, Steps

CELLS_PER_REACH = 4
"""The size of the buckets in which nodes are found by position: this many per reach."""

REMEMBERED_MAX = 150
"""Up to this number of nodes, the effect of each sender on another's header is cached."""
STEPS_PER_DECADE = 1_000
"""The resolution of SINR values: a hundredth of a decibel."""


class Links:
    """Reception of every node's frames at every other node, with log-distance propagation."""

    def __init__(self, phy: Phy, positions: Sequence[tuple[float, float]]) -> None:
        self._phy = phy
        self._positions = list(positions)
        self._noise_mw = milliwatts(phy.noise_dbm)
        self._lock_mw = milliwatts(phy.lock_dbm)
        self._sense_mw = milliwatts(phy.sense_dbm)
        self._notice_mw = milliwatts(phy.notice_dbm)
        self._near_mw = phy.received_mw(1.0)
        self._fading = -phy.loss_exponent / 2
        self._notice_m = phy.reach_m(phy.notice_dbm)
        self._steps = Steps(phy)
        levels = [milliwatts(phy.notice_dbm + LEVEL_DB * level) for level in range(LEVELS)]
        self._stairs = sorted({*levels, self._lock_mw, self._sense_mw}, reverse=True)
        self._level_places = [self._stairs.index(level_mw) for level_mw in levels]
        self._lock_place = self._stairs.index(self._lock_mw)
        self._sense_place = self._stairs.index(self._sense_mw)
        self._pairs: dict[tuple[int, int], tuple[int, list[tuple[int, float]]]] = {}
        # Caches by quantised SINR: a few thousand values at most.
        self._header_logs: dict[int, float] = {}
        self._payload_logs: dict[int, float] = {}
        self._rows: list[Row | None] = [None] * len(self._positions)
        self._cell_m = self._notice_m / CELLS_PER_REACH
        self._around = _around(CELLS_PER_REACH)
        self._cells: dict[tuple[int, int], list[int]] = {}
        for number, position in enumerate(self._positions):
            self._cells.setdefault(self._cell(position), []).append(number)

    def __len__(self) -> int:
        return len(self._positions)

    def position(self, number: int) -> tuple[float, float]:
        """The position of a node."""
        return self._positions[number]

    def row(self, number: int) -> Row:
        """The reception of a node's frames at the other nodes."""
        row = self._rows[number]
        if row is None:
            row = self._rows[number] = self._make_row(number)
        return row

    def clean(self, row: Row, bits: int) -> Clean:
        """The reception of a node's frames of about this many bits without interference."""
        size = bits.bit_length()
        clean = row.clean.get(size)
        if clean is None:
            clean = row.clean[size] = self._make_clean(row, size)
        return clean

    def _make_clean(self, row: Row, size: int) -> Clean:
        least_mw = max(self._lock_mw, self._steps.header[0])
        sure_mw = max(self._steps.header[1], self._steps.payload(size)[1])
        near: list[int] = []
        fringe: list[tuple[int, float]] = []
        for number, power_mw in row.power.items():
            if power_mw >= sure_mw:
                near.append(number)
            elif power_mw >= least_mw:
                fringe.append((number, power_mw))
        clean = Clean(self._mask(near))
        for number, power_mw in fringe:
            header, log_bit = self._prospects(power_mw, size)
            clean.place(number, header, log_bit)
        return clean

    def _prospects(self, power_mw: float, size: int) -> tuple[float, float]:
        """The probability of a header and the logarithm of the probability of a payload bit at a
        received power; values close to certainty are rounded to it."""
        header, (some_mw, sure_mw) = self._steps.header, self._steps.payload(size)
        step = round(STEPS_PER_DECADE * math.log10(power_mw / self._noise_mw))
        chance, log_bit = 1.0, -math.inf
        if power_mw < header[1]:
            chance = math.exp(self._phy.header_bits * self._header_log(step))
        elif power_mw >= sure_mw:
            return 1.0, 0.0
        if power_mw >= some_mw:
            log_bit = self._payload_log(step)
        return chance, log_bit

    def contest(
        self, row: Row, others: Sequence[Row], among: int, bits_most: int, bits_least: int = 0
    ) -> tuple[int, int]:
        """Classifies receivers under interference: those that certainly lose the frame, and those
        that are uncertain. The other receivers certainly decode it.

        `among` are receivers in reach of at least one of the interferers `others`, which overlap
        the payload by between `bits_min` and `bits_max` bits. `bits_min` of 0 stands for the
        header.
        """
        own = row.levels
        first, *rest = [other.levels for other in others]
        marks = self._steps.marks(bits_most.bit_length(), bits_least.bit_length(), len(others))
        lost = unsure = 0
        for level, (immune, doomed) in enumerate(marks, start=1):
            stronger = first[level]
            if rest:
                for levels in rest:
                    stronger |= levels[level]
            above = among & stronger
            if above != among:
                here = (among ^ above) & ~own[immune]
                if here:
                    bad = here & ~own[doomed]
                    lost |= bad
                    unsure |= here ^ bad
                if not above:
                    break
                among = above
        return lost, unsure

    def header_contest(
        self, row: Row, other: Row, among: int
    ) -> tuple[int, Iterable[tuple[int, float]]]:
        """The receivers for which one other sender makes a header uncertain or lost, and the
        probabilities of the uncertain ones. Receivers outside `among` may be included.

        In small networks the result is cached for each pair of senders."""
        if len(self._positions) > REMEMBERED_MAX:
            return self._header_contest(row, other, among & other.notice)
        key = row.number, other.number
        known = self._pairs.get(key)
        if known is None:
            known = self._pairs[key] = self._header_contest(row, other, row.lock & other.notice)
        return known

    def _header_contest(
        self, row: Row, other: Row, touched: int
    ) -> tuple[int, list[tuple[int, float]]]:
        lost, unsure = self.contest(row, [other], touched, self._phy.header_bits)
        return lost | unsure, list(self.header_chances(row, [other], unsure)) if unsure else []

    def louder(self, row: Row, other: Row, among: int) -> int:
        """The receivers that detect both senders and receive `row` with more power than `other`."""
        own_mw, other_mw = row.power, other.power
        both = numbers(row.lock & other.lock & among)
        return self._mask([number for number in both if own_mw[number] > other_mw[number]])

    def header_chances(
        self, row: Row, others: Sequence[Row], receivers: int
    ) -> Iterator[tuple[int, float]]:
        """For each receiver, its bit and its probability to decode a header under interference."""
        noise_mw, bits = self._noise_mw, self._phy.header_bits
        while receivers:
            bit = receivers & -receivers
            receivers ^= bit
            number = bit.bit_length() - 1
            disturbed_mw = noise_mw
            for other in others:
                disturbed_mw += other.power.get(number, 0.0)
            step = round(STEPS_PER_DECADE * math.log10(row.power[number] / disturbed_mw))
            yield bit, math.exp(bits * self._header_log(step))

    def payload_chances(
        self, row: Row, chunks: Sequence[tuple[float, list[Row]]], receivers: int
    ) -> Iterator[tuple[int, float]]:
        """For each receiver, its bit and its probability to decode a payload under interference.
        `chunks` are the bits of each chunk and its interferers."""
        noise_mw, known = self._noise_mw, self._payload_logs
        while receivers:
            bit = receivers & -receivers
            receivers ^= bit
            number = bit.bit_length() - 1
            power_mw = row.power[number]
            sum_of_logs = 0.0
            for bits, others in chunks:
                disturbed_mw = noise_mw
                for other in others:
                    disturbed_mw += other.power.get(number, 0.0)
                step = round(STEPS_PER_DECADE * math.log10(power_mw / disturbed_mw))
                log = known.get(step)
                sum_of_logs += bits * (self._payload_log(step) if log is None else log)
            yield bit, math.exp(sum_of_logs)

    def _header_log(self, step: int) -> float:
        """The logarithm of the probability of a header bit at a quantised SINR."""
        log = self._header_logs.get(step)
        if log is None:
            sinr = 10 ** (step / STEPS_PER_DECADE)
            log = self._header_logs[step] = self._phy.log_header_bit_success(sinr)
        return log

    def _payload_log(self, step: int) -> float:
        """The logarithm of the probability of a payload bit at a quantised SINR."""
        log = self._payload_logs.get(step)
        if log is None:
            log = self._payload_logs[step] = self._phy.log_bit_success(
                10 ** (step / STEPS_PER_DECADE)
            )
        return log

    def move(self, number: int, position: tuple[float, float]) -> None:
        """Moves a node; updates its entries in the rows of nearby nodes."""
        before, after = self._cell(self._positions[number]), self._cell(position)
        near = set(self._near(before)) | set(self._near(after))
        self._positions[number] = position
        if before != after:
            self._cells[before].remove(number)
            self._cells.setdefault(after, []).append(number)
        self._rows[number] = None
        self._pairs.clear()
        for other in sorted(near - {number}):
            row = self._rows[other]
            if row is not None:
                self._note(row, number, self._received_mw(position, self._positions[other]))

    def _received_mw(self, here: tuple[float, float], there: tuple[float, float]) -> float:
        dx, dy = here[0] - there[0], here[1] - there[1]
        square = dx * dx + dy * dy
        return self._near_mw * square**self._fading if square > 1.0 else self._near_mw

    def _near(self, cell: tuple[int, int]) -> Iterator[int]:
        """The nodes that may be in reach of a node in a bucket."""
        column, line = cell
        for dx, dy in self._around:
            yield from self._cells.get((column + dx, line + dy), ())

    def _note(self, row: Row, other: int, power_mw: float) -> None:
        """Sets the power with which another node, which has moved, receives the node of a row."""
        before_mw = row.power.get(other, 0.0)
        if power_mw < self._notice_mw:
            if not before_mw:
                return
            del row.power[other]
            power_mw = 0.0
        else:
            row.power[other] = power_mw
        bit = 1 << other
        row.notice = row.notice | bit if power_mw else row.notice & ~bit
        row.reach = row.reach | bit if power_mw else row.reach & ~bit
        row.sense = row.sense | bit if power_mw >= self._sense_mw else row.sense & ~bit
        row.lock = row.lock | bit if power_mw >= self._lock_mw else row.lock & ~bit
        self._shift(row.levels, bit, self._level(before_mw), self._level(power_mw))
        least_mw = max(self._lock_mw, self._steps.header[0])
        for size, clean in row.clean.items():
            if not self._steps.same(before_mw, power_mw, size):
                clean.remove(other)
                if power_mw >= least_mw:
                    header, log_bit = self._prospects(power_mw, size)
                    clean.place(other, header, log_bit)

    def _level(self, power_mw: float) -> int:
        """The highest power level that a power reaches; −1 for none."""
        if power_mw < self._notice_mw:
            return -1
        steps = 10 / LEVEL_DB * math.log10(power_mw / self._notice_mw)
        return min(LEVELS - 1, int(steps))

    def _shift(self, levels: list[int], bit: int, before: int, after: int) -> None:
        for level in range(before + 1, after + 1):
            levels[level] |= bit
        for level in range(after + 1, before + 1):
            levels[level] &= ~bit

    def _cell(self, position: tuple[float, float]) -> tuple[int, int]:
        return int(position[0] // self._cell_m), int(position[1] // self._cell_m)

    def _make_row(self, number: int) -> Row:
        here = self._positions[number]
        x, y = here
        row = Row(number)
        positions, power = self._positions, row.power
        near_mw, fading, reach_square = self._near_mw, self._fading, self._notice_m**2
        column, line = self._cell(here)
        cells = self._cells
        for step_x, step_y in self._around:
            for other in cells.get((column + step_x, line + step_y), ()):
                there = positions[other]
                dx, dy = x - there[0], y - there[1]
                square = dx * dx + dy * dy
                if square <= reach_square and other != number:
                    power[other] = near_mw * square**fading if square > 1.0 else near_mw
        self._fill(row)
        return row

    def _fill(self, row: Row) -> None:
        """Makes the sets of a row from its powers: adds receivers from the strongest to the
        weakest, and saves the set at every power level."""
        octets = bytearray(len(self._positions) // 8 + 1)
        saved: list[int] = []
        steps = self._stairs
        step_mw = steps[0]
        ranked = sorted(((mw, other) for other, mw in row.power.items()), reverse=True)
        for power_mw, number in ranked:
            while power_mw < step_mw:
                saved.append(int.from_bytes(octets, "little"))
                step_mw = steps[len(saved)]
            octets[number >> 3] |= 1 << (number & 7)
        row.notice = int.from_bytes(octets, "little")
        row.reach |= row.notice
        saved += [row.notice] * (len(steps) - len(saved))
        row.levels = [saved[index] for index in self._level_places]
        row.levels.append(0)  # no node reaches the level above the highest
        row.sense = saved[self._sense_place]
        row.lock = saved[self._lock_place]

    def _mask(self, members: list[int]) -> int:
        """The bit set of some node numbers."""
        octets = bytearray(len(self._positions) // 8 + 1)
        for number in members:
            octets[number >> 3] |= 1 << (number & 7)
        return int.from_bytes(octets, "little")


def _around(reach: int) -> list[tuple[int, int]]:
    """The offsets of the buckets that may hold a node within a reach, given in buckets."""
    steps = range(-reach - 1, reach + 2)
    return [
        (dx, dy)
        for dx in steps
        for dy in steps
        if max(0, abs(dx) - 1) ** 2 + max(0, abs(dy) - 1) ** 2 <= reach**2
    ]
