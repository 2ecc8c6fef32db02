"""Paths: where a node is, and when.

A path is a sequence of legs without gaps: each begins when and where the one before it ended. A
pause is a leg that ends where it began. Positions are in metres, instants in microseconds.
Clause: S6.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from thyme.model.errors import InputError

Point = tuple[float, float]


class Leg(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A straight way at a constant speed, or a pause."""

    start_us: int
    end_us: int
    x0: float
    y0: float
    x1: float
    y1: float

    def __post_init__(self) -> None:
        if not 0 <= self.start_us < self.end_us:
            raise InputError(
                f"a leg starts at 0 or later and ends after it starts, not from {self.start_us} to "
                f"{self.end_us} µs"
            )
        if not math.isfinite(self.x0 + self.y0 + self.x1 + self.y1):
            raise InputError(f"a leg joins two places, not {self.start} and {self.end}")

    @property
    def start(self) -> Point:
        """Where it begins."""
        return self.x0, self.y0

    @property
    def end(self) -> Point:
        """Where it ends."""
        return self.x1, self.y1

    @property
    def moves(self) -> bool:
        """Whether it is a way and not a pause."""
        return self.x0 != self.x1 or self.y0 != self.y1

    @property
    def length_m(self) -> float:
        """How long the way is."""
        return math.hypot(self.x1 - self.x0, self.y1 - self.y0)

    @property
    def speed_m_s(self) -> float:
        """How fast the node is on it."""
        return self.length_m * 1e6 / (self.end_us - self.start_us)

    def at(self, at_us: int) -> Point:
        """Where the node is at an instant; before and after the leg, at its ends."""
        if at_us >= self.end_us:
            return self.x1, self.y1
        if at_us <= self.start_us:
            return self.x0, self.y0
        done = (at_us - self.start_us) / (self.end_us - self.start_us)
        return self.x0 + (self.x1 - self.x0) * done, self.y0 + (self.y1 - self.y0) * done


def pause(start_us: int, end_us: int, at: Point) -> Leg:
    """A leg that goes nowhere."""
    return Leg(start_us, end_us, *at, *at)


def way(start_us: int, start: Point, end: Point, speed_m_s: float) -> Leg:
    """A leg from one place to another, never faster than the speed asked for."""
    distance_m = math.hypot(end[0] - start[0], end[1] - start[1])
    duration_us = max(1, math.ceil(distance_m / speed_m_s * 1e6))
    return Leg(start_us, start_us + duration_us, *start, *end)


def position_at(path: Sequence[Leg], at_us: int) -> Point:
    """Where a node is at an instant; after the end of its path, where the path ended."""
    if not path:
        raise InputError("a path without legs leads nowhere")
    if at_us < path[0].start_us:
        raise InputError(f"the path begins at {path[0].start_us} µs, after {at_us} µs")
    return path[bisect_right(path, at_us, key=_start_us) - 1].at(at_us)


def _start_us(leg: Leg) -> int:
    return leg.start_us


class Walk:
    """A path while it is being walked: takes legs as time goes on and keeps only the present one.

    At the end of its path the node stays.
    """

    __slots__ = ("_legs", "leg")

    def __init__(self, path: Iterable[Leg]) -> None:
        self._legs = iter(path)
        first = next(self._legs, None)
        if first is None:
            raise InputError("a path without legs leads nowhere")
        self.leg = first

    def leg_at(self, at_us: int) -> Leg:
        """The leg of an instant, which must not be earlier than the one asked for before."""
        while at_us >= self.leg.end_us:
            following = next(self._legs, None)
            if following is None:
                break
            self.leg = following
        return self.leg

    def at(self, at_us: int) -> Point:
        """Where the node is at an instant, not earlier than the one asked for before."""
        return self.leg_at(at_us).at(at_us)
