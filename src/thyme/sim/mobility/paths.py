"""Paths: the positions of a moving node over time.

Entry points: `Leg`, `position_at` and `PathCursor`. A path is a sequence of legs without gaps: each
leg begins at the instant and position at which the leg before it ended. A pause is a leg that ends
where it begins. Positions are in metres, instants in microseconds. `models` draws paths,
`movement_files` reads them, `walker` moves nodes along them.
Clause: S6.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from thyme.model.errors import InputError
from thyme.model.positions import Position


class Leg(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A straight movement at constant speed, or a pause."""

    start_us: int
    end_us: int
    x0: float
    y0: float
    x1: float
    y1: float

    def __post_init__(self) -> None:
        if not 0 <= self.start_us < self.end_us:
            raise InputError(
                f"a leg must start at 0 µs or later and end after its start, not go from "
                f"{self.start_us} to {self.end_us} µs"
            )
        if not math.isfinite(self.x0 + self.y0 + self.x1 + self.y1):
            raise InputError(f"a leg needs finite coordinates, not {self.start} and {self.end}")

    @property
    def start(self) -> Position:
        """The first position."""
        return self.x0, self.y0

    @property
    def end(self) -> Position:
        """The last position."""
        return self.x1, self.y1

    @property
    def is_moving(self) -> bool:
        """Whether the node moves on this leg, rather than pauses."""
        return self.x0 != self.x1 or self.y0 != self.y1

    @property
    def length_m(self) -> float:
        """The distance from start to end."""
        return math.hypot(self.x1 - self.x0, self.y1 - self.y0)

    @property
    def speed_m_s(self) -> float:
        """The speed of the node on this leg."""
        return self.length_m * 1e6 / (self.end_us - self.start_us)

    def position_at(self, at_us: int) -> Position:
        """The position at an instant; before and after the leg, its first and last position."""
        if at_us >= self.end_us:
            return self.x1, self.y1
        if at_us <= self.start_us:
            return self.x0, self.y0
        done = (at_us - self.start_us) / (self.end_us - self.start_us)
        return self.x0 + (self.x1 - self.x0) * done, self.y0 + (self.y1 - self.y0) * done


def pause_leg(start_us: int, end_us: int, at: Position) -> Leg:
    """A leg on which the node stays at one position."""
    return Leg(start_us, end_us, *at, *at)


def straight_leg(start_us: int, start: Position, end: Position, speed_m_s: float) -> Leg:
    """A leg between two positions, at the given speed or, by rounding, slightly slower."""
    distance_m = math.hypot(end[0] - start[0], end[1] - start[1])
    duration_us = max(1, math.ceil(distance_m / speed_m_s * 1e6))
    return Leg(start_us, start_us + duration_us, *start, *end)


def position_at(path: Sequence[Leg], at_us: int) -> Position:
    """The position at an instant; after the end of the path, its last position."""
    if not path:
        raise InputError("a path without legs has no position; give at least one leg")
    if at_us < path[0].start_us:
        raise InputError(f"no position at {at_us} µs: the path begins at {path[0].start_us} µs")
    return path[bisect_right(path, at_us, key=_start_us) - 1].position_at(at_us)


def _start_us(leg: Leg) -> int:
    return leg.start_us


class PathCursor:
    """Reads a path in order of time and keeps only the current leg.

    After the end of the path the node stays at its last position.
    """

    __slots__ = ("_legs", "leg")

    def __init__(self, path: Iterable[Leg]) -> None:
        self._legs = iter(path)
        first = next(self._legs, None)
        if first is None:
            raise InputError("a path without legs has no position; give at least one leg")
        self.leg = first

    def leg_at(self, at_us: int) -> Leg:
        """The leg at an instant; instants must not decrease from call to call."""
        while at_us >= self.leg.end_us:
            following = next(self._legs, None)
            if following is None:
                break
            self.leg = following
        return self.leg

    def position_at(self, at_us: int) -> Position:
        """The position at an instant; instants must not decrease from call to call."""
        return self.leg_at(at_us).position_at(at_us)
