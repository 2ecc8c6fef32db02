"""The medium: frames on the air, and who gets them.

One object per transmission, whatever the number of receivers. When a frame starts, the nodes that
hear its header lock on to it; when it ends, those of them that decoded its payload have it. Frames
that overlap disturb each other at the receivers that hear both. A node locked on to one frame is
deaf to the next (no capture), except that of preambles that start together the strongest wins.
Clauses: S1, S2, S5.
"""

from __future__ import annotations

import itertools
import math
from random import Random

from thyme.sim.disk import DiskLinks
from thyme.sim.links import Chances, Links, Row
from thyme.sim.phy import Phy


class Air:
    """A frame on the air."""

    __slots__ = (
        "bits", "end_us", "lock", "locked", "notice", "others", "payload", "payload_us", "sense",
        "source", "start_us",
    )  # fmt: skip

    def __init__(
        self,
        source: int,
        row: Row,
        start_us: int,
        end_us: int,
        payload_us: int,
        bits: int,
        payload: object,
    ) -> None:
        self.source = source
        self.lock = row.lock
        """The nodes that could listen to it."""
        self.notice = row.notice
        """The nodes that it may disturb."""
        self.start_us = start_us
        self.end_us = end_us
        self.payload_us = payload_us
        """When the payload starts."""
        self.bits = bits
        self.payload = payload
        """Whatever the sender's MAC wants to find again."""
        self.locked = 0
        """The nodes that got the header and listen to the end."""
        self.sense = 0
        """The nodes that know the medium to be busy, the sender among them."""
        self.others: list[Air] = []
        """The frames that overlap this one, in time and at some listener."""


class Medium:
    """All that is on the air."""

    def __init__(self, phy: Phy, links: Links | DiskLinks, rng: Random) -> None:
        self._phy = phy
        self._links = links
        self._rng = rng
        self._times: dict[int, tuple[int, int]] = {}
        self._deaf = 0
        self.off = 0
        """The nodes whose radio is switched off."""
        self.on_air: list[Air] = []

    def busy(self, number: int) -> bool:
        """Whether a node senses a frame, or is sending one."""
        return any(air.sense >> number & 1 for air in self.on_air)

    def start(self, source: int, mpdu_bytes: int, now_us: int, payload: object) -> Air:
        """Puts a frame on the air."""
        row = self._links.row(source)
        duration_us, bits = self._times.get(mpdu_bytes) or self._time(mpdu_bytes)
        payload_us = now_us + self._phy.preamble_us
        air = Air(source, row, now_us, now_us + duration_us, payload_us, bits, payload)
        bit = 1 << source
        others = self._meet(air, bit) if self.on_air else None
        if not others:
            header = self._links.header(source)
        elif len(others) == 1:
            header = self._links.overlap(source, others[0].source).header
        else:
            header = self._header_among(air, others)
        air.locked = self._drawn(header, ~(self._deaf | self.off))
        air.sense = row.sense | air.locked | bit
        self._deaf |= air.locked | bit
        self.on_air.append(air)
        return air

    def _time(self, mpdu_bytes: int) -> tuple[int, int]:
        """How long a frame of this size is on the air, and how many bits its payload has."""
        phy = self._phy
        duration_us = phy.duration_us(mpdu_bytes)
        bits = (duration_us - phy.preamble_us - phy.extension_us) * phy.bits_per_us
        self._times[mpdu_bytes] = duration_us, bits
        return duration_us, bits

    def _meet(self, air: Air, bit: int) -> list[Air]:
        """Lets a new frame and those on the air disturb each other; returns those that disturb the
        new one. Frames too far apart for anybody to hear both do not meet."""
        disturbing: list[Air] = []
        for other in self.on_air:
            if other.notice & air.lock:
                air.others.append(other)
                disturbing.append(other)
            if other.locked & bit:
                other.locked &= ~bit
            if air.notice & other.lock:
                other.others.append(air)
                age_us = air.start_us - other.start_us
                if age_us < self._phy.preamble_us and other.locked:
                    self._disturb_header(other, air, age_us)
        return disturbing

    def _disturb_header(self, other: Air, air: Air, age_us: int) -> None:
        """A frame starts during the preamble of another: some listeners turn to the stronger one,
        some lose the header."""
        links = self._links
        lost = 0
        if age_us <= self._phy.detect_us:
            mine, theirs = links.row(air.source).power, links.row(other.source).power
            common = other.locked & links.row(air.source).lock
            for receiver in numbers(common):
                if mine[receiver] > theirs[receiver]:
                    lost |= 1 << receiver
        kept = other.locked & ~lost
        header = links.overlap(other.source, air.source).header
        lost |= kept & ~self._drawn(header, kept)
        other.locked &= ~lost
        self._deaf &= ~lost

    def _header_among(self, air: Air, others: list[Air]) -> Chances:
        """The header's chances while several others are sending."""
        sources = [other.source for other in others]
        doubtful = []
        for receiver in numbers(air.lock & ~self._deaf):
            log_bit = self._links.log_bit(air.source, receiver, sources)
            doubtful.append((1 << receiver, math.exp(self._phy.header_bits * log_bit)))
        return Chances(0, doubtful)

    def end(self, air: Air) -> int:
        """Takes a frame off the air; returns the nodes that decoded it."""
        self.on_air.remove(air)
        self._deaf &= ~(air.locked | 1 << air.source)
        air.locked &= ~self.off
        locked = air.locked
        if not locked:
            return 0
        # Whoever overlapped this frame may still be on the air and must not keep it alive.
        others, air.others = air.others, []
        if others:
            locked = (
                self._among_one(air, others[0], locked)
                if len(others) == 1
                else self._among_many(air, others, locked)
            )
        return self._drawn(self._links.payload(air.source, air.bits), locked)

    def _among_one(self, air: Air, other: Air, locked: int) -> int:
        """Who of the locked survives the overlap with one other frame."""
        bits = self._shared_bits(air, other)
        if bits <= 0:
            return locked
        overlap = self._links.overlap(air.source, other.source)
        if not locked & overlap.touched:
            return locked
        if bits >= 200:
            locked &= ~overlap.doomed
            doubtful = overlap.doubtful
        else:
            doubtful = [
                *overlap.doubtful,
                *(
                    (1 << receiver, self._links.log_bit(air.source, receiver, [other.source]))
                    for receiver in numbers(locked & overlap.doomed)
                ),
            ]
        random = self._rng.random
        for bit, log_bit in doubtful:
            if locked & bit and random() >= math.exp(bits * log_bit):
                locked ^= bit
        return locked

    def _shared_bits(self, air: Air, other: Air) -> int:
        start_us = max(air.payload_us, other.start_us)
        end_us = min(air.end_us - self._phy.extension_us, other.end_us)
        return (end_us - start_us) * self._phy.bits_per_us

    def _among_many(self, air: Air, others: list[Air], locked: int) -> int:
        """Who of the locked survives several others: chunk by chunk, receiver by receiver."""
        noticed = 0
        for other in others:
            noticed |= other.notice
        chunks = self._chunks(air, others)
        for receiver in numbers(locked & noticed):
            log = 0.0
            for bits, sources in chunks:
                log += bits * self._links.log_bit(air.source, receiver, sources)
            if log < 0 and self._rng.random() >= math.exp(log):
                locked &= ~(1 << receiver)
        return locked

    def _chunks(self, air: Air, others: list[Air]) -> list[tuple[int, list[int]]]:
        """The stretches of the payload during which the same others are sending."""
        last_us = air.end_us - self._phy.extension_us
        cuts = {air.payload_us, last_us}
        for other in others:
            cuts |= {min(max(at, air.payload_us), last_us) for at in (other.start_us, other.end_us)}
        edges = sorted(cuts)
        chunks = []
        for start_us, end_us in itertools.pairwise(edges):
            sources = [
                other.source
                for other in others
                if other.start_us < end_us and other.end_us > start_us
            ]
            if sources:
                chunks.append(((end_us - start_us) * self._phy.bits_per_us, sources))
        return chunks

    def _drawn(self, chances: Chances, among: int) -> int:
        """Draws who gets something."""
        got = chances.sure
        random = self._rng.random
        for bit, chance in chances.doubtful:
            if random() < chance:
                got |= bit
        return got & among


def numbers(nodes: int) -> list[int]:
    """The members of a set of nodes, in order."""
    found = []
    while nodes:
        low = nodes & -nodes
        found.append(low.bit_length() - 1)
        nodes ^= low
    return found
