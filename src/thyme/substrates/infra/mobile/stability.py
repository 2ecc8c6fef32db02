"""Stability: how likely a node is to stay, and what its beacons say about it.

Entry points: `stability_index` and `StabilityPart`. The nodes of a cell compare their indices; the
highest one speaks for the cell, without an election. After a report to the station succeeded, the
beacons of its sender also name the confirmed cycles. Beacons name the venue, too: nodes of two
venues that meet have nothing in common, whatever the numbers of their cells are.
Clauses: I1, I6, I7.
"""

from __future__ import annotations

import struct
from zlib import crc32

import msgspec

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US

INDEX_MAX = 65_535
_UPTIME_STEP_US = 60 * SECOND_US
_UPTIME_STEPS = 60
"""A node that runs for an hour, or longer, has the full share for its uptime. It counts in minutes,
the battery in percent: nodes compare their own index with indices that are some seconds old."""
_BATTERY_STEPS = 100
_BATTERY_SHARE = 0.5
CYCLES_MAX = 12
"""How many confirmed cycles a beacon names."""
_HEADER = struct.Struct(">HBI")
_CYCLE = struct.Struct(">I")
_VENUE = slice(3, 7)
"""Where the venue is in the part of a beacon."""
NO_VENUE = bytes(4)


def stability_index(uptime_us: int, battery: float) -> int:
    """The stability index from the time in the system and the battery level, 0 to 1 (I6)."""
    uptime = min(max(uptime_us, 0) // _UPTIME_STEP_US, _UPTIME_STEPS) / _UPTIME_STEPS
    level = round(min(max(battery, 0.0), 1.0) * _BATTERY_STEPS) / _BATTERY_STEPS
    return round(INDEX_MAX * (_BATTERY_SHARE * level + (1 - _BATTERY_SHARE) * uptime))


class StabilityPart(msgspec.Struct, frozen=True):
    """The part of a beacon about stability and confirmed cycles."""

    index: int
    is_candidate: bool
    """Whether the node has listened long enough to report for its cell (I6)."""
    confirmed: tuple[int, ...] = ()
    venue: int = 0
    """The number of the node's venue (`venue_number`); 0 if it never had a station."""

    def encode(self) -> bytes:
        """The bytes of the part: 7, and 4 for each cycle."""
        cycles = self.confirmed[-CYCLES_MAX:]
        header = _HEADER.pack(self.index, self.is_candidate, self.venue)
        return header + b"".join(map(_CYCLE.pack, cycles))

    @classmethod
    def decode(cls, part: bytes) -> StabilityPart | None:
        """Decodes a received part; None if it is malformed."""
        body = part[_HEADER.size :]
        if len(part) < _HEADER.size or len(body) % _CYCLE.size:
            return None
        index, is_candidate, venue = _HEADER.unpack_from(part)
        confirmed = tuple(n for (n,) in _CYCLE.iter_unpack(body))
        return cls(index, bool(is_candidate), confirmed, venue)


def venue_in(part: bytes, start: int = 0) -> bytes:
    """The venue of a part that starts at an index, as bytes: for each beacon that is received,
    so nothing else is decoded."""
    return part[start + _VENUE.start : start + _VENUE.stop]


def venue_number(station: NodeId | None) -> int:
    """The number of a station's venue: a hash of the station's id that is not 0; 0 without one."""
    return 0 if station is None else 1 + crc32(station) % 0xFFFFFFFF
