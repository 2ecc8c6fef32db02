"""Link table: received power and probability of reception for every pair of nodes.

Entry points: `LinkTable.row`, `LinkTable.clear_reception` and `LinkTable.classify_interference`.
Sets of nodes are bit sets. Most receptions are certain, one way or the other: the table keeps these
as sets, which are handled at once, and lists the uncertain ones with their probabilities. For each
power level, a row has the set of the nodes that receive the sender with at least that power; so a
few set operations classify receivers as decoding, lost or uncertain under interference. Rows are
made when first needed and are kept exact while nodes move. The twin in C, `native/links.c`, has the
same results.
Clauses: S2, S5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from thyme.sim.engine.bitsets import members_of
from thyme.sim.radio.link_model import SINR_STEPS_PER_DECADE, LinkModel
from thyme.sim.radio.phy import Phy
from thyme.sim.radio.power_levels import LEVELS
from thyme.sim.radio.reception import ClearReception, ReceptionRow

PAIR_CACHE_NODES_MAX = 150
"""Up to this number of nodes, the effect of each sender on another's header is cached."""


class LinkTable:
    """Reception of every node's frames at every other node, with log-distance propagation."""

    def __init__(self, phy: Phy, positions: Sequence[tuple[float, float]]) -> None:
        self._phy = phy
        self._positions = list(positions)
        model = LinkModel(phy)
        self._noise_mw = model.noise_mw
        self._preamble_detection_mw = model.preamble_detection_mw
        self._carrier_sense_mw = model.carrier_sense_mw
        self._rx_sensitivity_mw = model.rx_sensitivity_mw
        self._reference_mw = model.reference_mw
        self._square_exponent = model.square_exponent
        self._reach_square = model.reach_square
        self._level_scale = model.level_scale
        self._thresholds = model.thresholds
        levels = model.levels_mw
        self._levels_mw = sorted(
            {*levels, self._preamble_detection_mw, self._carrier_sense_mw}, reverse=True
        )
        self._level_indexes = [self._levels_mw.index(level_mw) for level_mw in levels]
        self._detection_index = self._levels_mw.index(self._preamble_detection_mw)
        self._sense_index = self._levels_mw.index(self._carrier_sense_mw)
        self._header_cache: dict[tuple[int, int], tuple[int, list[tuple[int, float]]]] = {}
        # Caches by quantised SINR: a few thousand values at most.
        self._header_bit_cache: dict[int, float] = {}
        self._payload_bit_cache: dict[int, float] = {}
        self._rows: list[ReceptionRow | None] = [None] * len(self._positions)
        self._bucket_m = model.bucket_m
        self._bucket_offsets = model.bucket_offsets
        self._buckets: dict[tuple[int, int], list[int]] = {}
        for number, position in enumerate(self._positions):
            self._buckets.setdefault(self._bucket_of(position), []).append(number)

    def __len__(self) -> int:
        return len(self._positions)

    def position_of(self, number: int) -> tuple[float, float]:
        """The position of a node."""
        return self._positions[number]

    def row(self, number: int) -> ReceptionRow:
        """The reception of a node's frames at the other nodes."""
        row = self._rows[number]
        if row is None:
            row = self._rows[number] = self._make_row(number)
        return row

    def clear_reception(self, row: ReceptionRow, bits: int) -> ClearReception:
        """The reception of a node's frames of about this many bits without interference."""
        size_class = bits.bit_length()
        clear = row.clear.get(size_class)
        if clear is None:
            clear = row.clear[size_class] = self._make_clear_reception(row, size_class)
        return clear

    def _make_clear_reception(self, row: ReceptionRow, size_class: int) -> ClearReception:
        detectable_mw = max(self._preamble_detection_mw, self._thresholds.header_mw[0])
        sure_mw = max(self._thresholds.header_mw[1], self._thresholds.payload_mw(size_class)[1])
        sure: list[int] = []
        uncertain: list[tuple[int, float]] = []
        for number, power_mw in row.power_mw.items():
            if power_mw >= sure_mw:
                sure.append(number)
            elif power_mw >= detectable_mw:
                uncertain.append((number, power_mw))
        clear = ClearReception(self._bitset_of(sure))
        for number, power_mw in uncertain:
            header, log_bit = self._reception_odds(power_mw, size_class)
            clear.add(number, header, log_bit)
        return clear

    def _reception_odds(self, power_mw: float, size_class: int) -> tuple[float, float]:
        """The probability of a header and the logarithm of the probability of a payload bit at a
        received power; values close to certainty are rounded to it."""
        header, (some_mw, sure_mw) = (
            self._thresholds.header_mw,
            self._thresholds.payload_mw(size_class),
        )
        sinr_step = round(SINR_STEPS_PER_DECADE * math.log10(power_mw / self._noise_mw))
        header_probability, log_bit = 1.0, -math.inf
        if power_mw < header[1]:
            header_probability = math.exp(self._phy.header_bits * self._log_header_bit(sinr_step))
        elif power_mw >= sure_mw:
            return 1.0, 0.0
        if power_mw >= some_mw:
            log_bit = self._log_payload_bit(sinr_step)
        return header_probability, log_bit

    def classify_interference(
        self,
        row: ReceptionRow,
        others: Sequence[ReceptionRow],
        among: int,
        bits_max: int,
        bits_min: int = 0,
    ) -> tuple[int, int]:
        """Classifies receivers under interference: those that certainly lose the frame, and those
        that are uncertain. The other receivers certainly decode it.

        `among` are receivers in reach of at least one of the interferers `others`, which overlap
        the payload by between `bits_min` and `bits_max` bits. `bits_min` of 0 stands for the
        header.
        """
        own = row.levels
        first, *rest = [other.levels for other in others]
        thresholds = self._thresholds.level_thresholds(
            bits_max.bit_length(), bits_min.bit_length(), len(others)
        )
        lost = uncertain = 0
        for level, (level_sure, level_possible) in enumerate(thresholds, start=1):
            stronger = first[level]
            if rest:
                for levels in rest:
                    stronger |= levels[level]
            above = among & stronger
            if above != among:
                exposed = (among ^ above) & ~own[level_sure]
                if exposed:
                    bad = exposed & ~own[level_possible]
                    lost |= bad
                    uncertain |= exposed ^ bad
                if not above:
                    break
                among = above
        return lost, uncertain

    def classify_header(
        self, row: ReceptionRow, other: ReceptionRow, among: int
    ) -> tuple[int, Iterable[tuple[int, float]]]:
        """The receivers for which one other sender makes a header uncertain or lost, and the
        probabilities of the uncertain ones. Receivers outside `among` may be included.

        In small networks the result is cached for each pair of senders."""
        if len(self._positions) > PAIR_CACHE_NODES_MAX:
            return self._classify_header(row, other, among & other.in_reach)
        key = row.number, other.number
        cached = self._header_cache.get(key)
        if cached is None:
            cached = self._header_cache[key] = self._classify_header(
                row, other, row.detecting & other.in_reach
            )
        return cached

    def _classify_header(
        self, row: ReceptionRow, other: ReceptionRow, affected: int
    ) -> tuple[int, list[tuple[int, float]]]:
        lost, uncertain = self.classify_interference(row, [other], affected, self._phy.header_bits)
        return lost | uncertain, list(
            self.header_probabilities(row, [other], uncertain)
        ) if uncertain else []

    def stronger_at(self, row: ReceptionRow, other: ReceptionRow, among: int) -> int:
        """The receivers that detect both senders and receive `row` with more power than `other`."""
        own_mw, other_mw = row.power_mw, other.power_mw
        both = members_of(row.detecting & other.detecting & among)
        return self._bitset_of([number for number in both if own_mw[number] > other_mw[number]])

    def header_probabilities(
        self, row: ReceptionRow, others: Sequence[ReceptionRow], receivers: int
    ) -> Iterator[tuple[int, float]]:
        """For each receiver, its bit and its probability to decode a header under interference."""
        noise_mw, bits = self._noise_mw, self._phy.header_bits
        while receivers:
            bit = receivers & -receivers
            receivers ^= bit
            number = bit.bit_length() - 1
            interference_mw = noise_mw
            for other in others:
                interference_mw += other.power_mw.get(number, 0.0)
            sinr_step = round(
                SINR_STEPS_PER_DECADE * math.log10(row.power_mw[number] / interference_mw)
            )
            yield bit, math.exp(bits * self._log_header_bit(sinr_step))

    def payload_probabilities(
        self, row: ReceptionRow, chunks: Sequence[tuple[float, list[ReceptionRow]]], receivers: int
    ) -> Iterator[tuple[int, float]]:
        """For each receiver, its bit and its probability to decode a payload under interference.
        `chunks` are the bits of each chunk and its interferers."""
        noise_mw, cache = self._noise_mw, self._payload_bit_cache
        while receivers:
            bit = receivers & -receivers
            receivers ^= bit
            number = bit.bit_length() - 1
            power_mw = row.power_mw[number]
            sum_of_logs = 0.0
            for bits, others in chunks:
                interference_mw = noise_mw
                for other in others:
                    interference_mw += other.power_mw.get(number, 0.0)
                sinr_step = round(SINR_STEPS_PER_DECADE * math.log10(power_mw / interference_mw))
                log = cache.get(sinr_step)
                sum_of_logs += bits * (self._log_payload_bit(sinr_step) if log is None else log)
            yield bit, math.exp(sum_of_logs)

    def _log_header_bit(self, sinr_step: int) -> float:
        """The logarithm of the probability of a header bit at a quantised SINR."""
        log = self._header_bit_cache.get(sinr_step)
        if log is None:
            sinr = 10 ** (sinr_step / SINR_STEPS_PER_DECADE)
            log = self._header_bit_cache[sinr_step] = self._phy.log_header_bit_success(sinr)
        return log

    def _log_payload_bit(self, sinr_step: int) -> float:
        """The logarithm of the probability of a payload bit at a quantised SINR."""
        log = self._payload_bit_cache.get(sinr_step)
        if log is None:
            log = self._payload_bit_cache[sinr_step] = self._phy.log_bit_success(
                10 ** (sinr_step / SINR_STEPS_PER_DECADE)
            )
        return log

    def move(self, number: int, position: tuple[float, float]) -> None:
        """Moves a node; updates its entries in the rows of nearby nodes."""
        before, after = self._bucket_of(self._positions[number]), self._bucket_of(position)
        near = set(self._nodes_near(before)) | set(self._nodes_near(after))
        self._positions[number] = position
        if before != after:
            self._buckets[before].remove(number)
            self._buckets.setdefault(after, []).append(number)
        self._rows[number] = None
        self._header_cache.clear()
        for other in sorted(near - {number}):
            row = self._rows[other]
            if row is not None:
                self._update_power(row, number, self._received_mw(position, self._positions[other]))

    def _received_mw(self, here: tuple[float, float], there: tuple[float, float]) -> float:
        dx, dy = here[0] - there[0], here[1] - there[1]
        square = dx * dx + dy * dy
        return (
            self._reference_mw * square**self._square_exponent
            if square > 1.0
            else self._reference_mw
        )

    def _nodes_near(self, bucket: tuple[int, int]) -> Iterator[int]:
        """The nodes that may be in reach of a node in a bucket."""
        column, line = bucket
        for dx, dy in self._bucket_offsets:
            yield from self._buckets.get((column + dx, line + dy), ())

    def _update_power(self, row: ReceptionRow, other: int, power_mw: float) -> None:
        """Sets the power with which another node, which has moved, receives the node of a row."""
        before_mw = row.power_mw.get(other, 0.0)
        if power_mw < self._rx_sensitivity_mw:
            if not before_mw:
                return
            del row.power_mw[other]
            power_mw = 0.0
        else:
            row.power_mw[other] = power_mw
        bit = 1 << other
        row.in_reach = row.in_reach | bit if power_mw else row.in_reach & ~bit
        row.in_reach_or_self = (
            row.in_reach_or_self | bit if power_mw else row.in_reach_or_self & ~bit
        )
        row.sensing = (
            row.sensing | bit if power_mw >= self._carrier_sense_mw else row.sensing & ~bit
        )
        row.detecting = (
            row.detecting | bit if power_mw >= self._preamble_detection_mw else row.detecting & ~bit
        )
        self._update_levels(row.levels, bit, self._level_of(before_mw), self._level_of(power_mw))
        detectable_mw = max(self._preamble_detection_mw, self._thresholds.header_mw[0])
        for size_class, clear in row.clear.items():
            if not self._thresholds.is_same_outcome(before_mw, power_mw, size_class):
                clear.remove(other)
                if power_mw >= detectable_mw:
                    header, log_bit = self._reception_odds(power_mw, size_class)
                    clear.add(other, header, log_bit)

    def _level_of(self, power_mw: float) -> int:
        """The highest power level that a power reaches; −1 for none."""
        if power_mw < self._rx_sensitivity_mw:
            return -1
        steps = self._level_scale * math.log10(power_mw / self._rx_sensitivity_mw)
        return min(LEVELS - 1, int(steps))

    def _update_levels(self, levels: list[int], bit: int, before: int, after: int) -> None:
        for level in range(before + 1, after + 1):
            levels[level] |= bit
        for level in range(after + 1, before + 1):
            levels[level] &= ~bit

    def _bucket_of(self, position: tuple[float, float]) -> tuple[int, int]:
        return int(position[0] // self._bucket_m), int(position[1] // self._bucket_m)

    def _make_row(self, number: int) -> ReceptionRow:
        here = self._positions[number]
        x, y = here
        row = ReceptionRow(number)
        positions, power = self._positions, row.power_mw
        reference_mw, square_exponent, reach_square = (
            self._reference_mw,
            self._square_exponent,
            self._reach_square,
        )
        column, line = self._bucket_of(here)
        buckets = self._buckets
        for step_x, step_y in self._bucket_offsets:
            for other in buckets.get((column + step_x, line + step_y), ()):
                there = positions[other]
                dx, dy = x - there[0], y - there[1]
                square = dx * dx + dy * dy
                if square <= reach_square and other != number:
                    power[other] = (
                        reference_mw * square**square_exponent if square > 1.0 else reference_mw
                    )
        self._fill_sets(row)
        return row

    def _fill_sets(self, row: ReceptionRow) -> None:
        """Makes the sets of a row from its powers: adds receivers from the strongest to the
        weakest, and saves the set at every power level."""
        octets = bytearray(len(self._positions) // 8 + 1)
        saved: list[int] = []
        levels_mw = self._levels_mw
        level_mw = levels_mw[0]
        ranked = sorted(((mw, other) for other, mw in row.power_mw.items()), reverse=True)
        for power_mw, number in ranked:
            while power_mw < level_mw:
                saved.append(int.from_bytes(octets, "little"))
                level_mw = levels_mw[len(saved)]
            octets[number >> 3] |= 1 << (number & 7)
        row.in_reach = int.from_bytes(octets, "little")
        row.in_reach_or_self |= row.in_reach
        saved += [row.in_reach] * (len(levels_mw) - len(saved))
        row.levels = [saved[index] for index in self._level_indexes]
        row.levels.append(0)  # no node reaches the level above the highest
        row.sensing = saved[self._sense_index]
        row.detecting = saved[self._detection_index]

    def _bitset_of(self, numbers: list[int]) -> int:
        """The bit set of some node numbers."""
        octets = bytearray(len(self._positions) // 8 + 1)
        for number in numbers:
            octets[number >> 3] |= 1 << (number & 7)
        return int.from_bytes(octets, "little")
