"""Lab plan: the number, positions and start order of a lab's nodes, and its radio settings.

Entry points: `LabPlan`, `choose_positions`, `start_order`.
Clauses: D2.
"""

from __future__ import annotations

import math
from random import Random

import msgspec

from thyme.model.errors import OptionError
from thyme.model.positions import Position
from thyme.model.worlds import ENCOUNTERS, INFRA, NAMED_SUBSTRATES

NODES_MAX = 250
STATIONS_MAX = 20
VENUE_GAP_RANGES = 2
"""The distance between two venues, in ranges of the radio."""
CELL_M = 40.0
NAMESPACE_HTTP_PORT = 8484
"""HTTP port of each node if nodes have network namespaces of their own."""


class LabPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a lab."""

    nodes: int = 12
    width_m: float = 120.0
    height_m: float = 80.0
    cell_m: float = CELL_M
    substrate: str = "dcs"
    range_m: float = 0.0
    """Range of the virtual radio; 0 for the range that the cells need (D2)."""
    loss: float = 0.0
    """Probability that a receiver in range misses a datagram."""
    delay_ms: float = 0.0
    namespaces: bool = False
    """Whether each node runs in a network namespace of its own; needs root."""
    seed: int = 1
    world: str = "lab"
    stations: int = 0
    """Number of base stations, each in a venue of its own (I1)."""
    speed_m_s: float = 0.0
    """Speed at which nodes of a world of encounters walk to random positions; 0: they stay."""

    map_port: int | None = None
    """Port of the live map on loopback, 0 for a free one; None: there is no map."""

    def __post_init__(self) -> None:
        if self.map_port is not None and not 0 <= self.map_port < 65_536:
            raise OptionError(f"a port is a number from 0 to 65535, not {self.map_port}")
        if not 1 <= self.nodes <= NODES_MAX:
            raise OptionError(f"a lab has 1 to {NODES_MAX} nodes, not {self.nodes}")
        if not 0 <= self.loss < 1:
            raise OptionError(f"the loss must be from 0% to below 100%, not {self.loss:.0%}")
        lengths = (self.width_m, self.height_m, self.cell_m)
        if not all(math.isfinite(length) and length > 0 for length in lengths):
            raise OptionError("the sides of the area and of its cells must be longer than 0 m")
        if min(self.range_m, self.delay_ms) < 0:
            raise OptionError("range and delay must not be negative")
        if not (math.isfinite(self.speed_m_s) and self.speed_m_s >= 0):
            raise OptionError(f"the speed must be 0 m/s or more, not {self.speed_m_s}")
        if self.speed_m_s and not self.has_encounters:
            raise OptionError("only nodes of mobuser move in a lab: use --substrate mobuser")
        self._check_stations()

    def _check_stations(self) -> None:
        if not 0 <= self.stations <= STATIONS_MAX:
            raise OptionError(f"a lab has 0 to {STATIONS_MAX} stations, not {self.stations}")
        if self.stations and self.substrate != INFRA:
            raise OptionError(f"only nodes of {INFRA} use stations: use --substrate {INFRA}")
        if self.stations and self.namespaces:
            raise OptionError("the stations of a lab run on loopback: leave out --namespaces")
        if self.substrate == INFRA and self.range_m:
            raise OptionError("all nodes of a venue hear each other: leave out --range")

    @property
    def has_encounters(self) -> bool:
        """Whether nodes exchange events when they meet, without a network to join."""
        return self.substrate == ENCOUNTERS

    @property
    def has_named_world(self) -> bool:
        """Whether the name alone makes the world, so that nobody creates it."""
        return self.substrate in NAMED_SUBSTRATES

    @property
    def venues(self) -> int:
        """The number of places that are out of range of each other."""
        return max(1, self.stations)

    @property
    def effective_range_m(self) -> float:
        """Range of the virtual radio in metres."""
        if self.substrate == INFRA:
            return math.hypot(self.width_m, self.height_m)
        return self.range_m or math.sqrt(8) * self.cell_m


def choose_positions(plan: LabPlan) -> list[Position]:
    """Places nodes in the cells in turn, near the cell centres, so that a range slightly longer
    than a cell reaches the neighbour cells."""
    rng = Random(plan.seed)
    if plan.substrate == INFRA:
        return _choose_in_venues(plan, rng)
    columns = max(1, math.ceil(plan.width_m / plan.cell_m))
    rows = max(1, math.ceil(plan.height_m / plan.cell_m))
    jitter_m = min(plan.cell_m / 4, max(0.0, (plan.effective_range_m - plan.cell_m) / 2.6))
    positions = []
    for number in range(plan.nodes):
        row, column = divmod(number % (columns * rows), columns)
        x = (column + 0.5) * plan.cell_m + rng.uniform(-jitter_m, jitter_m)
        y = (row + 0.5) * plan.cell_m + rng.uniform(-jitter_m, jitter_m)
        positions.append((round(min(x, plan.width_m), 1), round(min(y, plan.height_m), 1)))
    return positions


def _choose_in_venues(plan: LabPlan, rng: Random) -> list[Position]:
    """Places the nodes in the venues in turn; the stations, last, are in the centres."""
    step_m = plan.width_m + VENUE_GAP_RANGES * plan.effective_range_m
    positions = [
        (
            round(number % plan.venues * step_m + rng.uniform(0, plan.width_m), 1),
            round(rng.uniform(0, plan.height_m), 1),
        )
        for number in range(plan.nodes)
    ]
    centre = plan.width_m / 2, plan.height_m / 2
    stations = [(venue * step_m + centre[0], centre[1]) for venue in range(plan.stations)]
    return [*positions, *stations]


def start_order(positions: list[Position], range_m: float) -> list[list[int]]:
    """Groups nodes by their hops from the first node, which creates the world; raises `OptionError`
    if a node is out of range of all others."""
    groups, remaining = [[0]], set(range(1, len(positions)))
    while remaining:
        group = sorted(
            number
            for number in remaining
            if any(
                math.dist(positions[number], positions[reached]) <= range_m
                for reached in groups[-1]
            )
        )
        if not group:
            unreachable = ", ".join(str(number + 1) for number in sorted(remaining))
            raise OptionError(
                f"with a range of {range_m:.0f} m, nodes {unreachable} are out of range of the "
                f"others: "
                "use more nodes, a longer range, or a smaller area"
            )
        groups.append(group)
        remaining -= set(group)
    return groups


class Walkers:
    """Nodes that walk to random positions, one after the other, at a constant speed."""

    def __init__(self, plan: LabPlan, positions: list[Position]) -> None:
        self._plan = plan
        self._rng = Random(f"walkers {plan.seed}")
        self.positions = list(positions)
        self._targets = [self._draw_target() for _ in positions]

    def walk(self, seconds: float) -> None:
        """Moves all nodes."""
        for number, here in enumerate(self.positions):
            target, step_m = self._targets[number], self._plan.speed_m_s * seconds
            distance_m = math.dist(here, target)
            if distance_m <= step_m:
                self.positions[number] = target
                self._targets[number] = self._draw_target()
            else:
                share = step_m / distance_m
                x, y = (a + (b - a) * share for a, b in zip(here, target, strict=True))
                self.positions[number] = (x, y)

    def _draw_target(self) -> Position:
        rng, plan = self._rng, self._plan
        return rng.uniform(0.0, plan.width_m), rng.uniform(0.0, plan.height_m)
