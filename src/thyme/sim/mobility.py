"""Mobility: how nodes come to move as they do.

A model is a record of settings; its `path` draws a path leg by leg from a generator of its own, so
a path costs nothing before it is walked, and a longer run begins like a shorter one. The last leg
may end after the instant asked for. Streets have their own module (`manhattan`), and so has the
reading of recorded paths (`mobility_files`).
Clauses: S6, U9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Protocol

import msgspec

from thyme.model.choice import check_share, choose
from thyme.model.errors import InputError
from thyme.model.frames import SECOND_US
from thyme.model.streams import stream
from thyme.model.worlds import Area
from thyme.sim.paths import Leg, Point, Walk, pause, position_at, way

__all__ = [
    "MOBILE_SHARE",
    "MOVE_PROBABILITY",
    "PAUSE_US",
    "SPEEDS_MAX_M_S",
    "AreasOfInterest",
    "Leg",
    "Mobility",
    "MobilityError",
    "Point",
    "RandomWaypoint",
    "Spot",
    "Static",
    "Walk",
    "crowd",
    "place",
    "position_at",
    "random_waypoint",
]

# The mobile scenario of F, 9.3.3 and Fig. 15.
MOBILE_SHARE = 0.6
MOVE_PROBABILITY = 0.8
PAUSE_US = 120 * SECOND_US
SPEEDS_MAX_M_S = {"stroll": 0.6, "walk": 1.4, "jog": 2.5}

SPEED_M_S_MIN = 0.001
"""Slower is standing still: such a way would take longer than any run."""
GRAIN_M = 0.001
"""Nodes are placed on a grid this fine, so that a file with three decimals holds their places."""


class MobilityError(InputError):
    """Settings of a mobility model that make no sense (S6)."""

    code = "bad_mobility"


class Mobility(Protocol):
    """A way of moving."""

    def path(self, rng: Random, until_us: int, start: Point | None = None) -> Iterator[Leg]:
        """The legs of one node from instant 0 on, from a given place or one that the model draws.

        The last leg ends at `until_us` or later.
        """
        ...


class Static(msgspec.Struct, frozen=True):
    """Nodes that stay where they are."""

    area: Area

    def path(self, rng: Random, until_us: int, start: Point | None = None) -> Iterator[Leg]:
        """One long pause."""
        yield pause(0, max(1, until_us), start or uniform(rng, self.area))


class RandomWaypoint(msgspec.Struct, frozen=True, kw_only=True):
    """Pause, toss a coin, and either pause again or go straight to a place drawn at random.

    Speeds are drawn uniformly for each way. They stay clear of zero: otherwise ever more nodes
    would be found on endless slow ways, and the mean speed would fall as long as the run lasts.
    The first pause is a random part of a whole one, so that nodes do not all toss at once.
    """

    area: Area
    speed_m_s_max: float
    speed_m_s_min: float = 0.1
    pause_us: int = PAUSE_US
    move_probability: float = MOVE_PROBABILITY

    def __post_init__(self) -> None:
        check_speeds(self.speed_m_s_min, self.speed_m_s_max)
        check_span(self.pause_us, "a pause")
        check_share(self.move_probability, "the probability to move")
        if self.pause_us == 0 and self.move_probability == 0:
            raise MobilityError("a node that never moves needs pauses to stay in")

    def path(self, rng: Random, until_us: int, start: Point | None = None) -> Iterator[Leg]:
        """Pauses and ways by turns."""
        here = _inside(start, self.area) if start else uniform(rng, self.area)
        now_us, pause_us = 0, rng.randint(min(1, self.pause_us), self.pause_us)
        while True:
            if pause_us:
                yield pause(now_us, now_us + pause_us, here)
                now_us += pause_us
            if now_us >= until_us:
                return
            pause_us = self.pause_us
            if rng.random() >= self.move_probability:
                continue
            speed_m_s = rng.uniform(self.speed_m_s_min, self.speed_m_s_max)
            leg = way(now_us, here, uniform(rng, self.area), speed_m_s)
            yield leg
            now_us, here = leg.end_us, leg.end
            if now_us >= until_us:
                return


def random_waypoint(pace: str, area: Area) -> RandomWaypoint:
    """The mobile nodes of F by their pace: `stroll`, `walk` or `jog` (S6)."""
    if pace not in SPEEDS_MAX_M_S:
        raise MobilityError(f"a pace is one of {', '.join(SPEEDS_MAX_M_S)}, not {pace!r}")
    return RandomWaypoint(area=area, speed_m_s_max=SPEEDS_MAX_M_S[pace])


class Spot(msgspec.Struct, frozen=True, array_like=True):
    """A rectangle somewhere in the area."""

    x_m: float
    y_m: float
    width_m: float
    height_m: float

    def holds(self, at: Point) -> bool:
        """Whether a place lies in it, its rim included."""
        return (
            self.x_m <= at[0] <= self.x_m + self.width_m
            and self.y_m <= at[1] <= self.y_m + self.height_m
        )


class AreasOfInterest(msgspec.Struct, frozen=True, kw_only=True):
    """Random waypoint by turns over the whole area and inside one of a node's favourite spots.

    Each turn lasts `turn_us`, counted from the arrival at its first waypoint; the spot is drawn
    anew each time. The paper says that both turns last equally long, not how long, and gives no
    speeds; the default speeds have the mean and the minimum of its street scenarios (U9).
    """

    area: Area
    spots: tuple[Spot, ...]
    turn_us: int = 300 * SECOND_US
    speed_m_s_min: float = 0.5
    speed_m_s_max: float = 2.5
    pause_us: int = 0

    def __post_init__(self) -> None:
        check_speeds(self.speed_m_s_min, self.speed_m_s_max)
        check_span(self.pause_us, "a pause")
        check_span(self.turn_us, "a turn")
        if not self.spots:
            raise MobilityError("a node with areas of interest has at least one")
        for spot in self.spots:
            inside = (
                0 <= spot.x_m <= spot.x_m + spot.width_m <= self.area.width_m
                and 0 <= spot.y_m <= spot.y_m + spot.height_m <= self.area.height_m
            )
            if not inside or spot.width_m <= 0 or spot.height_m <= 0:
                raise MobilityError(f"{spot} has no size or does not lie in {self.area}")

    def path(self, rng: Random, until_us: int, start: Point | None = None) -> Iterator[Leg]:
        """Ways through the whole area, then through a spot, and so on."""
        here = _inside(start, self.area) if start else uniform(rng, self.area)
        everywhere = Spot(0.0, 0.0, self.area.width_m, self.area.height_m)
        now_us, roaming = 0, True
        while now_us < until_us:
            spot = everywhere if roaming else rng.choice(self.spots)
            for leg in self._turn(rng, now_us, here, spot):
                yield leg
                now_us, here = leg.end_us, leg.end
                if now_us >= until_us:
                    return
            roaming = not roaming

    def _turn(self, rng: Random, now_us: int, here: Point, spot: Spot) -> Iterator[Leg]:
        ends_us: int | None = None
        while ends_us is None or now_us < ends_us:
            there = _draw(rng, spot)
            leg = way(now_us, here, there, rng.uniform(self.speed_m_s_min, self.speed_m_s_max))
            yield leg
            now_us, here = leg.end_us, there
            ends_us = now_us + self.turn_us if ends_us is None else ends_us
            if self.pause_us:
                yield pause(now_us, now_us + self.pause_us, here)
                now_us += self.pause_us


def crowd(
    model: Mobility,
    seed: int,
    starts: Sequence[Point],
    until_us: int,
    mobile_share: float = MOBILE_SHARE,
) -> list[Iterator[Leg]]:
    """The paths of nodes at given places, of which a share moves and the rest stays."""
    mobile = set(choose(seed, "mobility", range(len(starts)), mobile_share))
    return [
        model.path(stream(seed, "mobility", node), until_us, start)
        if node in mobile
        else iter([pause(0, max(1, until_us), start)])
        for node, start in enumerate(starts)
    ]


def place(rng: Random, nodes: int, area: Area) -> list[Point]:
    """Places for nodes, uniform over an area, no two the same."""
    columns, rows = int(area.width_m / GRAIN_M) + 1, int(area.height_m / GRAIN_M) + 1
    if nodes < 0 or 2 * nodes > columns * rows:
        raise MobilityError(f"there is no room for {nodes} nodes in {area}")
    places: dict[Point, None] = {}
    while len(places) < nodes:
        at = rng.randrange(columns) / 1000, rng.randrange(rows) / 1000
        places.setdefault(at)
    return list(places)


def uniform(rng: Random, area: Area) -> Point:
    """A place drawn uniformly from an area."""
    return rng.uniform(0.0, area.width_m), rng.uniform(0.0, area.height_m)


def _draw(rng: Random, spot: Spot) -> Point:
    return (
        min(spot.x_m + rng.random() * spot.width_m, spot.x_m + spot.width_m),
        min(spot.y_m + rng.random() * spot.height_m, spot.y_m + spot.height_m),
    )


def _inside(start: Point, area: Area) -> Point:
    if not (0 <= start[0] <= area.width_m and 0 <= start[1] <= area.height_m):
        raise MobilityError(f"a node cannot start at {start}, outside {area}")
    return start


def check_speeds(low_m_s: float, high_m_s: float) -> None:
    """Refuses speeds that are no range of possible speeds."""
    if not (SPEED_M_S_MIN <= low_m_s <= high_m_s and math.isfinite(high_m_s)):
        raise MobilityError(
            f"speeds go from at least {SPEED_M_S_MIN} m/s to something not slower, "
            f"not from {low_m_s} to {high_m_s} m/s"
        )


def check_span(span_us: int, what: str) -> None:
    """Refuses a negative duration."""
    if span_us < 0:
        raise MobilityError(f"{what} takes 0 µs or more, not {span_us}")
