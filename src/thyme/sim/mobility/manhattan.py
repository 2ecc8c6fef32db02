"""Manhattan grid: a mobility model in which nodes walk along streets and turn at crossings.

Entry point: `ManhattanGrid.path`. Streets run along both axes at equal distances, the edges of the
area included. Every few metres a node may change its speed; at a crossing it may turn, and at the
end of a street it must. This is the model of BonnMotion, as in the street scenarios of the MobUser
paper. `models` has the other mobility models.
Clauses: S6, U9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

import msgspec

from thyme.model.positions import Position
from thyme.model.sampling import check_share
from thyme.sim.mobility.models import MobilityError, check_speeds
from thyme.sim.mobility.paths import Leg, straight_leg


class ManhattanGrid(msgspec.Struct, frozen=True, kw_only=True):
    """A square grid of streets; the default is the scenario of U9.

    Blocks are at least `block_m` long: the side is divided into as many as fit, so 450 m give 22
    blocks of 20.45 m. The deviation of speeds and the distance between changes are BonnMotion's
    defaults, because the paper gives neither.
    """

    side_m: float = 450.0
    block_m: float = 20.0
    speed_m_s_min: float = 0.5
    speed_m_s_mean: float = 1.5
    speed_m_s_deviation: float = 0.2
    speed_change_probability: float = 0.2
    speed_change_every_m: float = 5.0
    turn_probability: float = 0.5

    def __post_init__(self) -> None:
        check_speeds(self.speed_m_s_min, self.speed_m_s_mean)
        check_share(self.speed_change_probability, "the probability of another speed")
        check_share(self.turn_probability, "the probability of a turn")
        if not (math.isfinite(self.side_m) and 0 < self.block_m <= self.side_m):
            raise MobilityError(
                f"blocks must be longer than 0 m and fit into the side, not {self.block_m} m in "
                f"{self.side_m} m"
            )
        if not (self.speed_m_s_deviation >= 0 and math.isfinite(self.speed_m_s_deviation)):
            raise MobilityError(
                f"the deviation of speeds must be 0 m/s or more, not {self.speed_m_s_deviation}"
            )
        if not 0 < self.speed_change_every_m < math.inf:
            raise MobilityError(
                f"the distance between changes of speed must be above 0 m, "
                f"not {self.speed_change_every_m}"
            )

    @property
    def blocks(self) -> int:
        """The number of blocks along each side."""
        # For example, 2.1 m hold 3 blocks of 0.7 m, although 2.1 / 0.7 is below 3 as floats.
        return int(self.side_m / self.block_m + 1e-9)

    def street_m(self, number: int) -> float:
        """The coordinate of a street; streets are numbered from 0 to `blocks`."""
        return self.side_m if number == self.blocks else number * (self.side_m / self.blocks)

    def path(self, rng: Random, until_us: int, start: Position | None = None) -> Iterator[Leg]:
        """Legs along streets; a leg ends where the node turns or changes its speed."""
        walker = _StreetWalker(self, rng, start)
        now_us, here = 0, walker.position
        while now_us < until_us:
            speed_m_s = walker.speed_m_s
            while not walker.advance():
                pass
            if walker.position != here:
                leg = straight_leg(now_us, here, walker.position, speed_m_s)
                yield leg
                now_us, here = leg.end_us, leg.end

    def draw_speed(self, rng: Random) -> float:
        """A random speed of a node."""
        drawn = rng.normalvariate(self.speed_m_s_mean, self.speed_m_s_deviation)
        return max(self.speed_m_s_min, drawn)


class _StreetWalker:
    """A node on a street: its street, its position along it, and its next crossing."""

    def __init__(self, grid: ManhattanGrid, rng: Random, start: Position | None) -> None:
        self._grid = grid
        self._rng = rng
        self._axis, self._street, self._along_m = (
            _find_street(grid, start) if start else self._random_street_position()
        )
        self._direction = rng.choice((-1, 1))
        if (self._along_m, self._direction) in ((0.0, -1), (grid.side_m, 1)):
            self._direction = -self._direction
        self._crossing = self._next_crossing()
        self._to_speed_change_m = grid.speed_change_every_m
        self.speed_m_s = grid.draw_speed(rng)

    @property
    def position(self) -> Position:
        """The position of the node."""
        street_m = self._grid.street_m(self._street)
        return (self._along_m, street_m) if self._axis == 0 else (street_m, self._along_m)

    def advance(self) -> bool:
        """Moves to the next crossing or change of speed; returns whether a leg ends there."""
        crossing_m = self._grid.street_m(self._crossing)
        to_crossing_m = abs(crossing_m - self._along_m)
        if self._to_speed_change_m < to_crossing_m:
            self._along_m += self._direction * self._to_speed_change_m
            self._to_speed_change_m = self._grid.speed_change_every_m
            return self._maybe_change_speed()
        self._along_m = crossing_m
        self._to_speed_change_m -= to_crossing_m
        return self._pass_crossing()

    def _maybe_change_speed(self) -> bool:
        if self._rng.random() >= self._grid.speed_change_probability:
            return False
        self.speed_m_s = self._grid.draw_speed(self._rng)
        return True

    def _pass_crossing(self) -> bool:
        """Turns at a crossing or goes straight on; returns whether a leg ends there."""
        at_the_end = not 0 <= self._crossing + self._direction <= self._grid.blocks
        if not at_the_end and self._rng.random() >= self._grid.turn_probability:
            self._crossing += self._direction
            return False
        self._axis, self._street, self._crossing = 1 - self._axis, self._crossing, self._street
        self._along_m = self._grid.street_m(self._crossing)
        options = [step for step in (-1, 1) if 0 <= self._crossing + step <= self._grid.blocks]
        self._direction = self._rng.choice(options)
        self._crossing += self._direction
        return True

    def _random_street_position(self) -> tuple[int, int, float]:
        """A random position, uniform over all streets: axis, street, coordinate along it."""
        rng, grid = self._rng, self._grid
        return rng.randrange(2), rng.randrange(grid.blocks + 1), rng.uniform(0.0, grid.side_m)

    def _next_crossing(self) -> int:
        numbers = range(self._grid.blocks + 1)
        if self._direction > 0:
            return next(n for n in numbers if self._grid.street_m(n) > self._along_m)
        return next(n for n in reversed(numbers) if self._grid.street_m(n) < self._along_m)


def _find_street(grid: ManhattanGrid, start: Position) -> tuple[int, int, float]:
    """The street of a position: axis, street, coordinate along it."""
    for axis, (along_m, across_m) in enumerate((start, start[::-1])):
        if 0 <= along_m <= grid.side_m and 0 <= across_m <= grid.side_m:
            street = round(across_m / (grid.side_m / grid.blocks))
            if math.isclose(grid.street_m(street), across_m, abs_tol=1e-6):
                return axis, street, along_m
    raise MobilityError(f"{start} is not on a street of {grid}")
