"""Medium: the transmissions on the air, and the nodes that decode them.

Entry points: `Medium.start_transmission` and `Medium.end_transmission`. There is one object per
transmission, whatever the number of receivers. Nodes that decode the header lock on to a frame;
nodes that also decode its payload receive it. Overlapping frames interfere at the receivers that
are in reach of both. A node locked on to one frame does not receive the next one (no capture); of
preambles that start together, the strongest wins. The lock-on draws of a frame are made when it
ends, unless another frame overlaps it before. `link_table` has the powers and probabilities.
Clauses: S1, S2, S5.
"""

from __future__ import annotations

import itertools
from math import exp
from random import Random
from typing import Any

from thyme.sim.disk import DiskLinks
from thyme.sim.links import Links
from thyme.sim.phy import Phy
from thyme.sim.rows import Clean, Row
from thyme.sim.sets import numbers


class Air:
    """One transmission: a frame on the air, and its receivers. Sets of nodes are bit sets."""

    __slots__ = (
        "alone", "bits", "clean", "end_us", "got", "locked", "maybe", "others", "payload",
        "payload_us", "row", "sense", "source", "start_us",
    )  # fmt: skip

    def __init__(
        self,
        source: int,
        row: Row,
        clean: Clean,
        start_us: int,
        end_us: int,
        payload_us: int,
        bits: int,
        payload: Any,
    ) -> None:
        self.source = source
        self.row = row
        self.clean = clean
        self.start_us = start_us
        self.end_us = end_us
        self.payload_us = payload_us
        """The start of the payload."""
        self.bits = bits
        self.payload = payload
        """A value of the sender's MAC, returned with the transmission."""
        self.alone = False
        """Whether no other frame has overlapped it and its lock-on draws are still to be made."""
        self.locked = 0
        """The nodes that decoded the header and are locked on."""
        self.maybe = 0
        """The nodes that may be locked on (not drawn yet), but cannot decode the payload."""
        self.got = 0
        """The nodes that decoded the frame, once it has ended."""
        self.sense = 0
        """The nodes for which this frame makes the medium busy, the sender included."""
        self.others: list[Air] = []
        """The transmissions that overlap this one in time and at some receiver."""


class Medium:
    """The shared radio channel: all transmissions on the air. Sets of nodes are bit sets."""

    def __init__(self, phy: Phy, links: Links | DiskLinks, rng: Random) -> None:
        self._phy = phy
        self._preamble_us, self._extension_us = phy.preamble_us, phy.extension_us
        self._bits_per_us = phy.bits_per_us
        self._links = links
        self._random = rng.random
        self._times: dict[int, tuple[int, int]] = {}
        self.patient = phy.sense_dbm <= phy.lock_dbm
        """Whether every node that detects a preamble also senses the frame by its energy. Then
        lock-on draws may be deferred, and `end_header` need not be called."""
        self._deaf = 0
        self.off = 0
        """The nodes whose radio is switched off."""
        self.busy = 0
        """The nodes that sense or send a frame."""
        self.on_air: list[Air] = []

    def start(self, source: int, mpdu_bytes: int, now_us: int, payload: Any) -> Air:
        """Starts a transmission."""
        row = self._links.row(source)
        duration_us, bits = self._times.get(mpdu_bytes) or self._time(mpdu_bytes)
        payload_us = now_us + self._preamble_us
        clean = self._links.clean(row, bits)
        air = Air(source, row, clean, now_us, now_us + duration_us, payload_us, bits, payload)
        bit = 1 << source
        if self.on_air:
            self._meet(air, bit)
        self._deaf |= bit
        sense = row.sense | bit
        if not self.patient:
            sense |= row.lock & ~(self._deaf | self.off)
        if air.others:
            self._listen_among(air, air.others)
        elif self.patient:
            air.alone = True
        else:
            self._listen(air)
        air.sense = sense
        self.busy |= sense
        self.on_air.append(air)
        return air

    def end_header(self, air: Air) -> int:
        """Ends the header: nodes that lost it no longer sense the frame, if it is too weak for
        carrier sense. Returns the nodes for which the medium becomes idle."""
        known = air.sense & (air.row.sense | air.locked | 1 << air.source)
        lost, air.sense = air.sense ^ known, known
        self.busy = 0
        for other in self.on_air:
            self.busy |= other.sense
        return lost & ~self.busy

    def end(self, air: Air) -> int:
        """Ends a transmission; returns the nodes that decoded it."""
        on_air = self.on_air
        on_air.remove(air)
        self.busy = 0
        for other in on_air:
            self.busy |= other.sense
        if air.alone:
            self._deaf ^= 1 << air.source
            air.got = got = self._got_alone(air)
            return got
        self._deaf &= ~(air.locked | 1 << air.source)
        if self.off:
            air.locked &= ~self.off
        # Drops the references: an overlapping frame that goes on must not keep this one in memory.
        others, air.others = air.others, []
        if air.locked:
            air.got = self._got_among(air, others)
        return air.got

    def listened(self, air: Air, bit: int) -> bool:
        """Whether a node was locked on to a transmission that has ended."""
        if air.maybe & bit:
            air.maybe ^= bit
            if self._random() < air.clean.chances.get(bit.bit_length() - 1, 0.0):
                air.locked |= bit
        return bool(air.locked & bit)

    def _time(self, mpdu_bytes: int) -> tuple[int, int]:
        """The air time of a frame of this size, and the bits of its payload; both are cached."""
        phy = self._phy
        duration_us = phy.duration_us(mpdu_bytes)
        bits = round((duration_us - phy.preamble_us - phy.extension_us) * phy.bits_per_us)
        self._times[mpdu_bytes] = duration_us, bits
        return duration_us, bits

    def _meet(self, air: Air, bit: int) -> None:
        """Registers a new transmission and those on the air as interference of each other, where
        some node is in reach of both."""
        row = air.row
        for other in self.on_air:
            other_row = other.row
            if not row.reach & other_row.reach:
                continue
            if other.alone:
                other.alone = False
                self._listen(other)
            if other.locked & bit:
                other.locked ^= bit
            if other_row.reach & row.lock:  # the sender of the other frame cannot receive
                air.others.append(other)
            if row.notice & other_row.lock:
                other.others.append(air)
                age_us = air.start_us - other.start_us
                if age_us < self._preamble_us and other.locked:
                    self._disturb_header(other, air, age_us)

    # Header

    def _listen(self, air: Air) -> None:
        """Draws the nodes that lock on to a frame without interference."""
        air.locked = self._headers(air, ~(self._deaf | self.off))
        self._deaf |= air.locked

    def _listen_among(self, air: Air, others: list[Air]) -> None:
        """Draws the nodes that lock on to a frame that starts during others."""
        free = air.row.lock & ~(self._deaf | self.off)
        if not free:
            return
        rows = [other.row for other in others]
        lost, got = self._contest_header(air.row, rows, free)
        air.locked = self._headers(air, free & ~lost) | got
        self._deaf |= air.locked

    def _disturb_header(self, other: Air, air: Air, age_us: int) -> None:
        """Applies a frame that starts during the preamble of another: some nodes lock on to the
        stronger one, some lose the header."""
        lost = 0
        if age_us <= self._phy.detect_us:
            lost = self._links.louder(air.row, other.row, other.locked)
        beaten, got = self._contest_header(other.row, [air.row], other.locked & ~lost)
        lost |= beaten & ~got
        other.locked &= ~lost
        self._deaf &= ~lost

    def _headers(self, air: Air, among: int) -> int:
        """Draws the nodes that decode a frame's header without interference."""
        clean = air.clean
        got = clean.locked & among
        random = self._random
        for bit, header, _ in clean.doubtful.values():
            if among & bit and random() < header:
                got |= bit
        for number in numbers(clean.far & among):
            if random() < clean.chances[number]:
                got |= 1 << number
        return got

    def _contest_header(self, row: Row, others: list[Row], among: int) -> tuple[int, int]:
        """The nodes for which other frames make a header uncertain, and those of them drawn to
        decode it."""
        if len(others) == 1:
            lost, chances = self._links.header_contest(row, others[0], among)
        else:
            touched = 0
            for other in others:
                touched |= other.notice
            beaten, unsure = self._links.contest(
                row, others, touched & among, self._phy.header_bits
            )
            lost = beaten | unsure
            chances = self._links.header_chances(row, others, unsure)
        if not lost & among:
            return 0, 0
        got = 0
        random = self._random
        for bit, chance in chances:
            if among & bit and random() < chance:
                got |= bit
        return lost & among, got

    # Payload

    def _got_alone(self, air: Air) -> int:
        """Draws lock-on and reception of a frame without interference."""
        clean = air.clean
        locked, got, bits = clean.locked, clean.got, air.bits
        random = self._random
        for bit, header, log_bit in clean.doubtful.values():
            chance = random()
            if chance < header:
                locked |= bit
                if chance < header * exp(bits * log_bit):
                    got |= bit
        air.locked, air.maybe = locked, clean.far
        if self.off:
            air.locked &= ~self.off
            air.maybe &= ~self.off
            got &= ~self.off
        return got

    def _got_among(self, air: Air, others: list[Air]) -> int:
        """Draws the locked-on nodes that decode a frame despite interference."""
        clean = air.clean
        locked = air.locked
        lost = won = 0
        if others:
            lost, won = self._contest_payload(air, others, locked & clean.possible)
        locked &= ~lost
        got = locked & clean.got
        random, bits = self._random, air.bits
        for bit, _, log_bit in clean.doubtful.values():
            if locked & bit and random() < exp(bits * log_bit):
                got |= bit
        return got | won

    def _contest_payload(self, air: Air, others: list[Air], among: int) -> tuple[int, int]:
        """The nodes for which other frames make a payload uncertain, and those of them drawn to
        decode it."""
        touched = most = least = 0
        meeting: list[Air] = []
        for other in others:
            common = among & other.row.notice
            if common and (bits := self._shared_bits(air, other)) > 0:
                touched |= common
                meeting.append(other)
                most += bits
                least = min(bits, least or bits)
        if not meeting:
            return 0, 0
        rows = [other.row for other in meeting]
        lost, unsure = self._links.contest(air.row, rows, touched, min(most, air.bits), least)
        return lost | unsure, self._worked_out(air, meeting, unsure) if unsure else 0

    def _shared_bits(self, air: Air, other: Air) -> int:
        start_us = max(air.payload_us, other.start_us)
        end_us = min(air.end_us - self._extension_us, other.end_us)
        return round((end_us - start_us) * self._bits_per_us)

    def _worked_out(self, air: Air, others: list[Air], receivers: int) -> int:
        """Draws the reception of uncertain nodes from the SINR in each chunk of the payload."""
        chunks = self._chunks(air, others)
        got = 0
        for bit, chance in self._links.payload_chances(air.row, chunks, receivers):
            if self._random() < chance:
                got |= bit
        return got

    def _chunks(self, air: Air, others: list[Air]) -> list[tuple[float, list[Row]]]:
        """The chunks of a payload, in each of which the interferers stay the same: their bits and
        the interferers' rows."""
        first_us, last_us = air.payload_us, air.end_us - self._extension_us
        cuts = {first_us, last_us}
        for other in others:
            if first_us < other.start_us < last_us:
                cuts.add(other.start_us)
            if first_us < other.end_us < last_us:
                cuts.add(other.end_us)
        return [
            (
                (end_us - start_us) * self._bits_per_us,
                [o.row for o in others if o.start_us < end_us and o.end_us > start_us],
            )
            for start_us, end_us in itertools.pairwise(sorted(cuts))
        ]
