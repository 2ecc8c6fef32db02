"""Mobility models: random waypoint, areas of interest, constant positions.

Entry points: `MobilityModel.path`, `crowd_paths` and `random_positions`. A model is a record of
settings; `path` draws a path leg by leg from a random generator, so a path costs nothing until it
is read, and a longer run begins like a shorter one. The last leg may end after `until_us`.
`manhattan` has the street grid, `movement_files` reads recorded paths.
Clauses: S6, U9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Protocol

import msgspec

from thyme.model.errors import InputError
from thyme.model.positions import Position
from thyme.model.rng import derive_rng
from thyme.model.sampling import check_share, sample_nodes
from thyme.model.time_frames import SECOND_US
from thyme.model.worlds import Area
from thyme.sim.mobility.paths import Leg, PathCursor, pause_leg, position_at, straight_leg

__all__ = [
    "MOBILE_SHARE",
    "MOVE_PROBABILITY",
    "PAUSE_US",
    "SPEEDS_MAX_M_S",
    "AreasOfInterest",
    "ConstantPosition",
    "Leg",
    "MobilityError",
    "MobilityModel",
    "PathCursor",
    "Position",
    "RandomWaypoint",
    "Rect",
    "crowd_paths",
    "position_at",
    "random_positions",
    "random_waypoint_at_pace",
]

# The mobile scenario of Thyme (journal article), section 9.3.3 and figure 15.
MOBILE_SHARE = 0.6
MOVE_PROBABILITY = 0.8
PAUSE_US = 120 * SECOND_US
SPEEDS_MAX_M_S = {"stroll": 0.6, "walk": 1.4, "jog": 2.5}

SPEED_M_S_MIN = 0.001
"""The lowest speed: at a lower one, a leg would take longer than any run."""
POSITION_STEP_M = 0.001
"""The resolution of random positions, so that files with three decimals keep them exactly."""


class MobilityError(InputError):
    """Invalid settings of a mobility model (S6)."""

    code = "bad_mobility"


class MobilityModel(Protocol):
    """A model from which the paths of nodes are drawn."""

    def path(self, rng: Random, until_us: int, start: Position | None = None) -> Iterator[Leg]:
        """The legs of one node from instant 0 on; without `start`, the model draws the position.

        The last leg ends at `until_us` or later.
        """
        ...


class ConstantPosition(msgspec.Struct, frozen=True):
    """Nodes that do not move."""

    area: Area

    def path(self, rng: Random, until_us: int, start: Position | None = None) -> Iterator[Leg]:
        """A path of one pause."""
        yield pause_leg(0, max(1, until_us), start or random_position(rng, self.area))


class RandomWaypoint(msgspec.Struct, frozen=True, kw_only=True):
    """Random waypoint: after each pause a node either pauses again or, with `move_probability`,
    moves straight to a random position.

    Speeds are drawn uniformly for each leg. The minimum is above zero: otherwise more and more
    nodes would be on very slow legs, and the mean speed would fall during the run. The first pause
    is a random part of a full one, so that the nodes' pauses do not end together.
    """

    area: Area
    speed_m_s_max: float
    speed_m_s_min: float = 0.1
    pause_us: int = PAUSE_US
    move_probability: float = MOVE_PROBABILITY

    def __post_init__(self) -> None:
        check_speeds(self.speed_m_s_min, self.speed_m_s_max)
        check_duration(self.pause_us, "a pause")
        check_share(self.move_probability, "the probability to move")
        if self.pause_us == 0 and self.move_probability == 0:
            raise MobilityError("a node that never moves needs pauses: set pause_us above 0")

    def path(self, rng: Random, until_us: int, start: Position | None = None) -> Iterator[Leg]:
        """Pauses and moves, drawn one by one."""
        here = _check_inside(start, self.area) if start else random_position(rng, self.area)
        now_us, pause_us = 0, rng.randint(min(1, self.pause_us), self.pause_us)
        while True:
            if pause_us:
                yield pause_leg(now_us, now_us + pause_us, here)
                now_us += pause_us
            if now_us >= until_us:
                return
            pause_us = self.pause_us
            if rng.random() >= self.move_probability:
                continue
            speed_m_s = rng.uniform(self.speed_m_s_min, self.speed_m_s_max)
            leg = straight_leg(now_us, here, random_position(rng, self.area), speed_m_s)
            yield leg
            now_us, here = leg.end_us, leg.end
            if now_us >= until_us:
                return


def random_waypoint_at_pace(pace: str, area: Area) -> RandomWaypoint:
    """The mobile nodes of Thyme (journal article), by pace: `stroll`, `walk` or `jog` (S6)."""
    if pace not in SPEEDS_MAX_M_S:
        raise MobilityError(f"pace must be one of {', '.join(SPEEDS_MAX_M_S)}, not {pace!r}")
    return RandomWaypoint(area=area, speed_m_s_max=SPEEDS_MAX_M_S[pace])


class Rect(msgspec.Struct, frozen=True, array_like=True):
    """A rectangle in the area of a run."""

    x_m: float
    y_m: float
    width_m: float
    height_m: float

    def contains(self, at: Position) -> bool:
        """Whether a position lies in the rectangle, its edges included."""
        return (
            self.x_m <= at[0] <= self.x_m + self.width_m
            and self.y_m <= at[1] <= self.y_m + self.height_m
        )


class AreasOfInterest(msgspec.Struct, frozen=True, kw_only=True):
    """Random waypoint alternately over the whole area and inside one of a node's spots.

    Each phase lasts `phase_us` from the arrival at its first waypoint; the spot is drawn for each
    phase. The MobUser paper says that both phases last equally long, but not how long, and gives no
    speeds; the default speeds have the mean and the minimum of its street scenarios (U9).
    """

    area: Area
    spots: tuple[Rect, ...]
    phase_us: int = 300 * SECOND_US
    speed_m_s_min: float = 0.5
    speed_m_s_max: float = 2.5
    pause_us: int = 0

    def __post_init__(self) -> None:
        check_speeds(self.speed_m_s_min, self.speed_m_s_max)
        check_duration(self.pause_us, "a pause")
        check_duration(self.phase_us, "a phase")
        if not self.spots:
            raise MobilityError("areas of interest need at least one spot")
        for spot in self.spots:
            inside = (
                0 <= spot.x_m <= spot.x_m + spot.width_m <= self.area.width_m
                and 0 <= spot.y_m <= spot.y_m + spot.height_m <= self.area.height_m
            )
            if not inside or spot.width_m <= 0 or spot.height_m <= 0:
                raise MobilityError(f"{spot} must have a positive size and lie inside {self.area}")

    def path(self, rng: Random, until_us: int, start: Position | None = None) -> Iterator[Leg]:
        """Legs through the whole area, then through a spot, and so on alternately."""
        here = _check_inside(start, self.area) if start else random_position(rng, self.area)
        whole = Rect(0.0, 0.0, self.area.width_m, self.area.height_m)
        now_us, in_whole = 0, True
        while now_us < until_us:
            spot = whole if in_whole else rng.choice(self.spots)
            for leg in self._phase_legs(rng, now_us, here, spot):
                yield leg
                now_us, here = leg.end_us, leg.end
                if now_us >= until_us:
                    return
            in_whole = not in_whole

    def _phase_legs(self, rng: Random, now_us: int, here: Position, spot: Rect) -> Iterator[Leg]:
        phase_end_us: int | None = None
        while phase_end_us is None or now_us < phase_end_us:
            there = _random_position_in(rng, spot)
            leg = straight_leg(
                now_us, here, there, rng.uniform(self.speed_m_s_min, self.speed_m_s_max)
            )
            yield leg
            now_us, here = leg.end_us, there
            phase_end_us = now_us + self.phase_us if phase_end_us is None else phase_end_us
            if self.pause_us:
                yield pause_leg(now_us, now_us + self.pause_us, here)
                now_us += self.pause_us


def crowd_paths(
    model: MobilityModel,
    seed: int,
    starts: Sequence[Position],
    until_us: int,
    mobile_share: float = MOBILE_SHARE,
) -> list[Iterator[Leg]]:
    """The paths of nodes from their first positions; a random share moves, the rest stays."""
    mobile = set(sample_nodes(seed, "mobility", range(len(starts)), mobile_share))
    return [
        model.path(derive_rng(seed, "mobility", node), until_us, start)
        if node in mobile
        else iter([pause_leg(0, max(1, until_us), start)])
        for node, start in enumerate(starts)
    ]


def random_positions(rng: Random, nodes: int, area: Area) -> list[Position]:
    """Random positions, uniform over an area, no two the same."""
    columns, rows = (
        int(area.width_m / POSITION_STEP_M) + 1,
        int(area.height_m / POSITION_STEP_M) + 1,
    )
    if nodes < 0 or 2 * nodes > columns * rows:
        raise MobilityError(f"there is no room for {nodes} nodes in {area}")
    positions: dict[Position, None] = {}
    while len(positions) < nodes:
        position = rng.randrange(columns) / 1000, rng.randrange(rows) / 1000
        positions.setdefault(position)
    return list(positions)


def random_position(rng: Random, area: Area) -> Position:
    """A random position, uniform over an area."""
    return rng.uniform(0.0, area.width_m), rng.uniform(0.0, area.height_m)


def _random_position_in(rng: Random, spot: Rect) -> Position:
    return (
        min(spot.x_m + rng.random() * spot.width_m, spot.x_m + spot.width_m),
        min(spot.y_m + rng.random() * spot.height_m, spot.y_m + spot.height_m),
    )


def _check_inside(start: Position, area: Area) -> Position:
    if not (0 <= start[0] <= area.width_m and 0 <= start[1] <= area.height_m):
        raise MobilityError(f"a node cannot start at {start}, outside {area}")
    return start


def check_speeds(low_m_s: float, high_m_s: float) -> None:
    """Checks the minimum and the maximum of a range of speeds."""
    if not (SPEED_M_S_MIN <= low_m_s <= high_m_s and math.isfinite(high_m_s)):
        raise MobilityError(
            f"speeds must be at least {SPEED_M_S_MIN} m/s, and the maximum finite and not below "
            f"the minimum; these go from {low_m_s} to {high_m_s} m/s"
        )


def check_duration(duration_us: int, subject: str) -> None:
    """Checks that a duration is not negative."""
    if duration_us < 0:
        raise MobilityError(f"{subject} must last 0 µs or more, not {duration_us}")
