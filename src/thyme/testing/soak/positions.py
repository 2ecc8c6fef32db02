"""Soak positions: draws positions of nodes that form a connected network.

Entry points: `draw_positions`, `is_connected`.
Clause: B12.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from thyme.model.positions import Position
from thyme.routing.cells import Grid
from thyme.routing.cells.grid import CELL_M

T = TypeVar("T")


def draw_positions(
    rng: Random, nodes: int, usable_range_m: Callable[[float], float] = lambda range_m: range_m
) -> tuple[Grid, list[Position]]:
    """Draws a grid, and positions on it that form a connected network, with links of a usable
    length."""
    grid = Grid(columns=rng.randint(2, 6), rows=rng.randint(1, 3))
    link_m = usable_range_m(grid.range_m)
    while True:
        positions = [
            (rng.uniform(0, grid.columns * CELL_M), rng.uniform(0, grid.rows * CELL_M))
            for _ in range(nodes)
        ]
        if is_connected(positions, lambda one, other: math.dist(one, other) <= link_m):
            return grid, positions


def is_connected(items: Sequence[T], in_range: Callable[[T, T], bool]) -> bool:
    """Whether there are items, and each reaches every other one over items in range."""
    if not items:
        return False
    unreached, frontier = list(items[1:]), [items[0]]
    while frontier and unreached:
        current = frontier.pop()
        frontier += [other for other in unreached if in_range(current, other)]
        unreached = [other for other in unreached if not in_range(current, other)]
    return not unreached
