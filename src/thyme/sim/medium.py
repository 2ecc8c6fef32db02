"""The medium: frames on the air, and who gets them.

One object per transmission, whatever the number of receivers. When a frame starts, the nodes that
hear its header lock on to it; when it ends, those of them that decoded its payload have it. Frames
that overlap disturb each other at the receivers that hear both. A node locked on to one frame is
deaf to the next (no capture), except that of preambles that start together the strongest wins.
Who locks on to a frame is drawn only when it ends, unless another one meets it before.
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
    """A frame on the air."""

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
        """When the payload starts."""
        self.bits = bits
        self.payload = payload
        """Whatever the sender's MAC wants to find again."""
        self.alone = False
        """Whether no other frame has met it, and who listens is still to be drawn."""
        self.locked = 0
        """The nodes that got the header and listen to the end."""
        self.maybe = 0
        """Nodes of which nobody has asked yet whether they did; they surely get no more."""
        self.got = 0
        """The nodes that decoded it, once it has ended."""
        self.sense = 0
        """The nodes that know the medium to be busy, the sender among them."""
        self.others: list[Air] = []
        """The frames that overlap this one, in time and at some listener."""


class Medium:
    """All that is on the air."""

    def __init__(self, phy: Phy, links: Links | DiskLinks, rng: Random) -> None:
        self._phy = phy
        self._preamble_us, self._extension_us = phy.preamble_us, phy.extension_us
        self._bits_per_us = phy.bits_per_us
        self._links = links
        self._random = rng.random
        self._times: dict[int, tuple[int, int]] = {}
        self.patient = phy.sense_dbm <= phy.lock_dbm
        """Whether who gets a header does not change who senses the frame: then it may be drawn
        late, and nobody needs to call `end_header`."""
        self._deaf = 0
        self.off = 0
        """The nodes whose radio is switched off."""
        self.busy = 0
        """The nodes that sense a frame, or are sending one."""
        self.on_air: list[Air] = []

    def start(self, source: int, mpdu_bytes: int, now_us: int, payload: Any) -> Air:
        """Puts a frame on the air."""
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
        """Whoever heard a frame begin but did not get its header knows no longer of it, if it is
        too weak to be sensed as such; returns for whom the medium is idle now."""
        known = air.sense & (air.row.sense | air.locked | 1 << air.source)
        lost, air.sense = air.sense ^ known, known
        self.busy = 0
        for other in self.on_air:
            self.busy |= other.sense
        return lost & ~self.busy

    def end(self, air: Air) -> int:
        """Takes a frame off the air; returns the nodes that decoded it."""
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
        # Whoever overlapped this frame may still be on the air and must not keep it alive.
        others, air.others = air.others, []
        if air.locked:
            air.got = self._got_among(air, others)
        return air.got

    def listened(self, air: Air, bit: int) -> bool:
        """Whether a node listened to a frame that has ended."""
        if air.maybe & bit:
            air.maybe ^= bit
            if self._random() < air.clean.chances.get(bit.bit_length() - 1, 0.0):
                air.locked |= bit
        return bool(air.locked & bit)

    def _time(self, mpdu_bytes: int) -> tuple[int, int]:
        """How long a frame of this size is on the air, and how many bits its payload has."""
        phy = self._phy
        duration_us = phy.duration_us(mpdu_bytes)
        bits = round((duration_us - phy.preamble_us - phy.extension_us) * phy.bits_per_us)
        self._times[mpdu_bytes] = duration_us, bits
        return duration_us, bits

    def _meet(self, air: Air, bit: int) -> None:
        """Lets a new frame and those on the air disturb each other. Frames too far apart for
        anybody to hear both do not meet."""
        row = air.row
        for other in self.on_air:
            theirs = other.row
            if not row.reach & theirs.reach:
                continue
            if other.alone:
                other.alone = False
                self._listen(other)
            if other.locked & bit:
                other.locked ^= bit
            if theirs.reach & row.lock:  # its own sender, too, cannot listen
                air.others.append(other)
            if row.notice & theirs.lock:
                other.others.append(air)
                age_us = air.start_us - other.start_us
                if age_us < self._preamble_us and other.locked:
                    self._disturb_header(other, air, age_us)

    # The header

    def _listen(self, air: Air) -> None:
        """Draws who locks on to a frame that nobody disturbs."""
        air.locked = self._headers(air, ~(self._deaf | self.off))
        self._deaf |= air.locked

    def _listen_among(self, air: Air, others: list[Air]) -> None:
        """Draws who locks on to a frame that starts while others are sending."""
        free = air.row.lock & ~(self._deaf | self.off)
        if not free:
            return
        rows = [other.row for other in others]
        lost, got = self._contest_header(air.row, rows, free)
        air.locked = self._headers(air, free & ~lost) | got
        self._deaf |= air.locked

    def _disturb_header(self, other: Air, air: Air, age_us: int) -> None:
        """A frame starts during the preamble of another: some listeners turn to the stronger one,
        some lose the header."""
        lost = 0
        if age_us <= self._phy.detect_us:
            lost = self._links.louder(air.row, other.row, other.locked)
        beaten, got = self._contest_header(other.row, [air.row], other.locked & ~lost)
        lost |= beaten & ~got
        other.locked &= ~lost
        self._deaf &= ~lost

    def _headers(self, air: Air, among: int) -> int:
        """Draws who gets a frame's header on a silent medium."""
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
        """Who cannot count on a header while others are sending, and who of them gets it."""
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

    # The payload

    def _got_alone(self, air: Air) -> int:
        """Draws who locked on to a frame that nobody met, and who got it."""
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
        """Draws who of a frame's listeners got it in spite of others."""
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
        """Who cannot count on a payload that overlaps others, and who of them gets it."""
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
        """Draws receiver by receiver, chunk by chunk."""
        chunks = self._chunks(air, others)
        got = 0
        for bit, chance in self._links.payload_chances(air.row, chunks, receivers):
            if self._random() < chance:
                got |= bit
        return got

    def _chunks(self, air: Air, others: list[Air]) -> list[tuple[float, list[Row]]]:
        """The stretches of the payload during which the same others are sending."""
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
