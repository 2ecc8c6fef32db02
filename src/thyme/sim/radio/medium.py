"""Medium: the transmissions on the air, and the nodes that decode them.

Entry points: `Medium.start_transmission` and `Medium.end_transmission`. There is one object per
transmission, whatever the number of receivers. Nodes that decode the header lock on to a frame;
nodes that also decode its payload receive it. Overlapping frames interfere at the receivers that
are in reach of both. A node locked on to one frame does not receive the next one (no capture); of
preambles that start together, the strongest wins. The lock-on draws of a frame are made when it
ends, unless another frame overlaps it before. `link_table` has the powers and probabilities.
The twin in C, `native/medium.c`, has the same results.
Clauses: S1, S2, S5.
"""

from __future__ import annotations

import itertools
from math import exp
from random import Random
from typing import Any

from thyme.sim.engine.bitsets import members_of
from thyme.sim.radio.link_table import LinkTable
from thyme.sim.radio.phy import Phy
from thyme.sim.radio.reception import ClearReception, ReceptionRow
from thyme.sim.radio.unit_disk import UnitDiskLinkTable


class Transmission:
    """One transmission: a frame on the air, and its receivers. Sets of nodes are bit sets."""

    __slots__ = (
        "clear",
        "decoded",
        "end_us",
        "locked",
        "locks_deferred",
        "maybe_locked",
        "overlapping",
        "payload_bits",
        "payload_start_us",
        "row",
        "sensing",
        "source",
        "start_us",
        "token",
    )  # fmt: skip

    def __init__(
        self,
        source: int,
        row: ReceptionRow,
        clear: ClearReception,
        start_us: int,
        end_us: int,
        payload_start_us: int,
        payload_bits: int,
        token: Any,
    ) -> None:
        self.source = source
        self.row = row
        self.clear = clear
        self.start_us = start_us
        self.end_us = end_us
        self.payload_start_us = payload_start_us
        """The start of the payload."""
        self.payload_bits = payload_bits
        self.token = token
        """A value of the sender's MAC, returned with the transmission."""
        self.locks_deferred = False
        """Whether no other frame has overlapped it and its lock-on draws are still to be made."""
        self.locked = 0
        """The nodes that decoded the header and are locked on."""
        self.maybe_locked = 0
        """The nodes that may be locked on (not drawn yet), but cannot decode the payload."""
        self.decoded = 0
        """The nodes that decoded the frame, once it has ended."""
        self.sensing = 0
        """The nodes for which this frame makes the medium busy, the sender included."""
        self.overlapping: list[Transmission] = []
        """The transmissions that overlap this one in time and at some receiver."""


class Medium:
    """The shared radio channel: all transmissions on the air. Sets of nodes are bit sets."""

    def __init__(self, phy: Phy, links: LinkTable | UnitDiskLinkTable, rng: Random) -> None:
        self._phy = phy
        self._preamble_us, self._signal_extension_us = phy.preamble_us, phy.signal_extension_us
        self._bits_per_us = phy.bits_per_us
        self._links = links
        self._random = rng.random
        self._durations: dict[int, tuple[int, int]] = {}
        self.can_defer_locks = phy.carrier_sense_dbm <= phy.preamble_detection_dbm
        """Whether every node that detects a preamble also senses the frame by its energy. Then
        lock-on draws may be deferred, and `end_header` need not be called."""
        self._occupied = 0
        self.off = 0
        """The nodes whose radio is switched off."""
        self.busy = 0
        """The nodes that sense or send a frame."""
        self.on_air: list[Transmission] = []

    def start_transmission(
        self, source: int, mpdu_bytes: int, now_us: int, token: Any
    ) -> Transmission:
        """Starts a transmission."""
        row = self._links.row(source)
        duration_us, bits = self._durations.get(mpdu_bytes) or self._compute_duration(mpdu_bytes)
        payload_start_us = now_us + self._preamble_us
        clear = self._links.clear_reception(row, bits)
        tx = Transmission(
            source, row, clear, now_us, now_us + duration_us, payload_start_us, bits, token
        )
        bit = 1 << source
        if self.on_air:
            self._overlap(tx, bit)
        self._occupied |= bit
        sensing = row.sensing | bit
        if not self.can_defer_locks:
            sensing |= row.detecting & ~(self._occupied | self.off)
        if tx.overlapping:
            self._draw_locks_interfered(tx, tx.overlapping)
        elif self.can_defer_locks:
            tx.locks_deferred = True
        else:
            self._draw_locks(tx)
        tx.sensing = sensing
        self.busy |= sensing
        self.on_air.append(tx)
        return tx

    def end_header(self, tx: Transmission) -> int:
        """Ends the header: nodes that lost it no longer sense the frame, if it is too weak for
        carrier sense. Returns the nodes for which the medium becomes idle."""
        known = tx.sensing & (tx.row.sensing | tx.locked | 1 << tx.source)
        lost, tx.sensing = tx.sensing ^ known, known
        self.busy = 0
        for other in self.on_air:
            self.busy |= other.sensing
        return lost & ~self.busy

    def end_transmission(self, tx: Transmission) -> int:
        """Ends a transmission; returns the nodes that decoded it."""
        on_air = self.on_air
        on_air.remove(tx)
        self.busy = 0
        for other in on_air:
            self.busy |= other.sensing
        if tx.locks_deferred:
            self._occupied ^= 1 << tx.source
            tx.decoded = decoded = self._receive_clear(tx)
            return decoded
        self._occupied &= ~(tx.locked | 1 << tx.source)
        if self.off:
            tx.locked &= ~self.off
        # Drops the references: an overlapping frame that goes on must not keep this one in memory.
        others, tx.overlapping = tx.overlapping, []
        if tx.locked:
            tx.decoded = self._receive_interfered(tx, others)
        return tx.decoded

    def was_locked(self, tx: Transmission, bit: int) -> bool:
        """Whether a node was locked on to a transmission that has ended."""
        if tx.maybe_locked & bit:
            tx.maybe_locked ^= bit
            if self._random() < tx.clear.header_probability.get(bit.bit_length() - 1, 0.0):
                tx.locked |= bit
        return bool(tx.locked & bit)

    def _compute_duration(self, mpdu_bytes: int) -> tuple[int, int]:
        """The air time of a frame of this size, and the bits of its payload; both are cached."""
        phy = self._phy
        duration_us = phy.duration_us(mpdu_bytes)
        bits = round((duration_us - phy.preamble_us - phy.signal_extension_us) * phy.bits_per_us)
        self._durations[mpdu_bytes] = duration_us, bits
        return duration_us, bits

    def _overlap(self, tx: Transmission, bit: int) -> None:
        """Registers a new transmission and those on the air as interference of each other, where
        some node is in reach of both."""
        row = tx.row
        for other in self.on_air:
            other_row = other.row
            if not row.in_reach_or_self & other_row.in_reach_or_self:
                continue
            if other.locks_deferred:
                other.locks_deferred = False
                self._draw_locks(other)
            if other.locked & bit:
                other.locked ^= bit
            if (
                other_row.in_reach_or_self & row.detecting
            ):  # the sender of the other frame cannot receive
                tx.overlapping.append(other)
            if row.in_reach & other_row.detecting:
                other.overlapping.append(tx)
                age_us = tx.start_us - other.start_us
                if age_us < self._preamble_us and other.locked:
                    self._interfere_with_header(other, tx, age_us)

    # Header

    def _draw_locks(self, tx: Transmission) -> None:
        """Draws the nodes that lock on to a frame without interference."""
        tx.locked = self._draw_headers(tx, ~(self._occupied | self.off))
        self._occupied |= tx.locked

    def _draw_locks_interfered(self, tx: Transmission, others: list[Transmission]) -> None:
        """Draws the nodes that lock on to a frame that starts during others."""
        free = tx.row.detecting & ~(self._occupied | self.off)
        if not free:
            return
        rows = [other.row for other in others]
        lost, decoded = self._resolve_header(tx.row, rows, free)
        tx.locked = self._draw_headers(tx, free & ~lost) | decoded
        self._occupied |= tx.locked

    def _interfere_with_header(self, other: Transmission, tx: Transmission, age_us: int) -> None:
        """Applies a frame that starts during the preamble of another: some nodes lock on to the
        stronger one, some lose the header."""
        lost = 0
        if age_us <= self._phy.preamble_detection_us:
            lost = self._links.stronger_at(tx.row, other.row, other.locked)
        sure_lost, decoded = self._resolve_header(other.row, [tx.row], other.locked & ~lost)
        lost |= sure_lost & ~decoded
        other.locked &= ~lost
        self._occupied &= ~lost

    def _draw_headers(self, tx: Transmission, among: int) -> int:
        """Draws the nodes that decode a frame's header without interference."""
        clear = tx.clear
        decoded = clear.header_sure & among
        random = self._random
        for bit, header, _ in clear.uncertain.values():
            if among & bit and random() < header:
                decoded |= bit
        for number in members_of(clear.header_only & among):
            if random() < clear.header_probability[number]:
                decoded |= 1 << number
        return decoded

    def _resolve_header(
        self, row: ReceptionRow, others: list[ReceptionRow], among: int
    ) -> tuple[int, int]:
        """The nodes for which other frames make a header uncertain, and those of them drawn to
        decode it."""
        if len(others) == 1:
            lost, probabilities = self._links.classify_header(row, others[0], among)
        else:
            affected = 0
            for other in others:
                affected |= other.in_reach
            sure_lost, uncertain = self._links.classify_interference(
                row, others, affected & among, self._phy.header_bits
            )
            lost = sure_lost | uncertain
            probabilities = self._links.header_probabilities(row, others, uncertain)
        if not lost & among:
            return 0, 0
        decoded = 0
        random = self._random
        for bit, probability in probabilities:
            if among & bit and random() < probability:
                decoded |= bit
        return lost & among, decoded

    # Payload

    def _receive_clear(self, tx: Transmission) -> int:
        """Draws lock-on and reception of a frame without interference."""
        clear = tx.clear
        locked, decoded, bits = clear.header_sure, clear.sure, tx.payload_bits
        random = self._random
        for bit, header, log_bit in clear.uncertain.values():
            draw = random()
            if draw < header:
                locked |= bit
                if draw < header * exp(bits * log_bit):
                    decoded |= bit
        tx.locked, tx.maybe_locked = locked, clear.header_only
        if self.off:
            tx.locked &= ~self.off
            tx.maybe_locked &= ~self.off
            decoded &= ~self.off
        return decoded

    def _receive_interfered(self, tx: Transmission, others: list[Transmission]) -> int:
        """Draws the locked-on nodes that decode a frame despite interference."""
        clear = tx.clear
        locked = tx.locked
        lost = won = 0
        if others:
            lost, won = self._resolve_payload(tx, others, locked & clear.possible)
        locked &= ~lost
        decoded = locked & clear.sure
        random, bits = self._random, tx.payload_bits
        for bit, _, log_bit in clear.uncertain.values():
            if locked & bit and random() < exp(bits * log_bit):
                decoded |= bit
        return decoded | won

    def _resolve_payload(
        self, tx: Transmission, others: list[Transmission], among: int
    ) -> tuple[int, int]:
        """The nodes for which other frames make a payload uncertain, and those of them drawn to
        decode it."""
        affected = bits_max = bits_min = 0
        interferers: list[Transmission] = []
        for other in others:
            common = among & other.row.in_reach
            if common and (bits := self._overlapping_bits(tx, other)) > 0:
                affected |= common
                interferers.append(other)
                bits_max += bits
                bits_min = min(bits, bits_min or bits)
        if not interferers:
            return 0, 0
        rows = [other.row for other in interferers]
        lost, uncertain = self._links.classify_interference(
            tx.row, rows, affected, min(bits_max, tx.payload_bits), bits_min
        )
        return lost | uncertain, self._draw_exact(tx, interferers, uncertain) if uncertain else 0

    def _overlapping_bits(self, tx: Transmission, other: Transmission) -> int:
        start_us = max(tx.payload_start_us, other.start_us)
        end_us = min(tx.end_us - self._signal_extension_us, other.end_us)
        return round((end_us - start_us) * self._bits_per_us)

    def _draw_exact(self, tx: Transmission, others: list[Transmission], receivers: int) -> int:
        """Draws the reception of uncertain nodes from the SINR in each chunk of the payload."""
        chunks = self._chunks(tx, others)
        decoded = 0
        for bit, probability in self._links.payload_probabilities(tx.row, chunks, receivers):
            if self._random() < probability:
                decoded |= bit
        return decoded

    def _chunks(
        self, tx: Transmission, others: list[Transmission]
    ) -> list[tuple[float, list[ReceptionRow]]]:
        """The chunks of a payload, in each of which the interferers stay the same: their bits and
        the interferers' rows."""
        first_us, last_us = tx.payload_start_us, tx.end_us - self._signal_extension_us
        boundaries = {first_us, last_us}
        for other in others:
            if first_us < other.start_us < last_us:
                boundaries.add(other.start_us)
            if first_us < other.end_us < last_us:
                boundaries.add(other.end_us)
        return [
            (
                (end_us - start_us) * self._bits_per_us,
                [o.row for o in others if o.start_us < end_us and o.end_us > start_us],
            )
            for start_us, end_us in itertools.pairwise(sorted(boundaries))
        ]
