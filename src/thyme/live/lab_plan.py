"""Plans of labs: how many nodes, where each stands, and what the air between them does.

Clauses: D2.
"""

from __future__ import annotations

import math
from random import Random

import msgspec

from thyme.model.errors import OptionError

Point = tuple[float, float]
NODES_MAX = 250
CELL_M = 40.0
HTTP_PORT = 8484
"""Where a node in a network namespace of its own serves HTTP."""


class LabPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A lab, as asked for."""

    nodes: int = 12
    width_m: float = 120.0
    height_m: float = 80.0
    cell_m: float = CELL_M
    substrate: str = "dcs"
    range_m: float = 0.0
    """How far the virtual radios reach; 0 for as far as cells need (D2)."""
    loss: float = 0.0
    """The share of datagrams that each receiver in reach does not get."""
    delay_ms: float = 0.0
    namespaces: bool = False
    """Whether each node has a network namespace of its own, which needs root."""
    seed: int = 1
    world: str = "lab"

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= NODES_MAX:
            raise OptionError(f"a lab has 1 to {NODES_MAX} nodes, not {self.nodes}")
        if not 0 <= self.loss < 1:
            raise OptionError(f"a loss is from 0% to below 100%, not {self.loss:.0%}")
        lengths = (self.width_m, self.height_m, self.cell_m)
        if not all(math.isfinite(length) and length > 0 for length in lengths):
            raise OptionError("an area and its cells are longer than 0 m")
        if min(self.range_m, self.delay_ms) < 0:
            raise OptionError("a range and a delay are not negative")

    @property
    def reach_m(self) -> float:
        """How far the virtual radios reach."""
        return self.range_m or math.sqrt(8) * self.cell_m


def places_of(plan: LabPlan) -> list[Point]:
    """Where the nodes stand: cell by cell in turn, near the middles, so that a radio that reaches
    a little further than a cell is long reaches the cells beside."""
    rng = Random(plan.seed)
    columns = max(1, math.ceil(plan.width_m / plan.cell_m))
    rows = max(1, math.ceil(plan.height_m / plan.cell_m))
    stray_m = min(plan.cell_m / 4, max(0.0, (plan.reach_m - plan.cell_m) / 2.6))
    places = []
    for number in range(plan.nodes):
        row, column = divmod(number % (columns * rows), columns)
        x = (column + 0.5) * plan.cell_m + rng.uniform(-stray_m, stray_m)
        y = (row + 0.5) * plan.cell_m + rng.uniform(-stray_m, stray_m)
        places.append((round(min(x, plan.width_m), 1), round(min(y, plan.height_m), 1)))
    return places


def waves_of(places: list[Point], reach_m: float) -> list[list[int]]:
    """The nodes by their number of hops from the first, which makes the world; raises for a lab
    that falls apart."""
    waves, left = [[0]], set(range(1, len(places)))
    while left:
        wave = sorted(
            number
            for number in left
            if any(math.dist(places[number], places[near]) <= reach_m for near in waves[-1])
        )
        if not wave:
            apart = ", ".join(str(number + 1) for number in sorted(left))
            raise OptionError(
                f"with a range of {reach_m:.0f} m, nodes {apart} are out of reach of the others: "
                "more nodes, a longer range, or a smaller area"
            )
        waves.append(wave)
        left -= set(wave)
    return waves
