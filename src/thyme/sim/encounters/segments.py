"""Segments: the movement of all nodes as arrays, for the computation of contacts.

Entry points: `SegmentSource`, `PathSegments` for paths of any mobility model, and `StreetSegments`,
which draws the Manhattan grid for all nodes at once: the model of `thyme.sim.mobility.manhattan`,
but instead of asking at every few metres and every crossing whether something changes, it draws the
distance to the next change, which has a geometric distribution.
Clauses: S6, U9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from thyme.model.rng import derive_rng
from thyme.sim.mobility.manhattan import ManhattanGrid
from thyme.sim.mobility.paths import Leg

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segments:
    """Straight movements at constant speed, one per entry; instants in µs, positions in metres."""

    node: Ints
    start_us: Ints
    end_us: Ints
    x0: Floats
    y0: Floats
    x1: Floats
    y1: Floats

    def __len__(self) -> int:
        return len(self.node)

    def select(self, chosen: NDArray[Any]) -> Segments:
        """The segments of a mask or of indices."""
        return Segments(*(getattr(self, name)[chosen] for name in _FIELDS))


_FIELDS = ("node", "start_us", "end_us", "x0", "y0", "x1", "y1")


def join_segments(parts: Sequence[Segments]) -> Segments:
    """All segments of several groups, in order."""
    return Segments(*(np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS))


class SegmentSource(Protocol):
    """A source of the movement of all nodes, in order of time."""

    @property
    def nodes(self) -> int:
        """The number of nodes, which are numbered from 0."""
        ...

    def read_until(self, until_us: int) -> Segments:
        """The segments that start before an instant and were not returned before."""
        ...


class PathSegments:
    """The movement of nodes along paths; a `SegmentSource`."""

    def __init__(self, paths: Sequence[Iterable[Leg]]) -> None:
        self._paths: list[Iterator[Leg] | None] = [iter(path) for path in paths]
        self._next: list[Leg | None] = [None] * len(paths)

    @property
    def nodes(self) -> int:
        return len(self._paths)

    def read_until(self, until_us: int) -> Segments:
        rows: list[tuple[float, ...]] = []
        for node, path in enumerate(self._paths):
            leg = self._next[node]
            while path is not None:
                if leg is None:
                    leg = next(path, None)
                    if leg is None:
                        self._paths[node] = path = None
                        break
                if leg.start_us >= until_us:
                    break
                rows.append((node, leg.start_us, leg.end_us, leg.x0, leg.y0, leg.x1, leg.y1))
                leg = None
            self._next[node] = leg
        table = np.array(rows, dtype=np.float64).reshape(len(rows), len(_FIELDS))
        whole = table[:, :3].astype(np.int64)
        return Segments(
            whole[:, 0], whole[:, 1], whole[:, 2], *(table[:, n].copy() for n in range(3, 7))
        )


class StreetSegments:
    """Nodes that walk on a Manhattan grid, drawn together; a `SegmentSource`."""

    def __init__(self, grid: ManhattanGrid, nodes: int, seed: int) -> None:
        self._grid = grid
        # Of numpy's generators only uniform doubles are used: their values never change.
        self._rng = np.random.Generator(
            np.random.PCG64(derive_rng(seed, "streets").getrandbits(128))
        )
        rng, blocks = self._rng, grid.blocks
        self._block_m = grid.side_m / blocks
        self._axis = (rng.random(nodes) * 2).astype(np.int64)
        self._street = (rng.random(nodes) * (blocks + 1)).astype(np.int64)
        self._along_m = rng.random(nodes) * grid.side_m
        self._direction = np.where(rng.random(nodes) < 0.5, -1, 1)
        self._speed_m_s = self._draw_speeds(nodes)
        self._to_change_m = grid.speed_change_every_m * self._draw_waits(
            nodes, grid.speed_change_probability
        )
        self._now_us = np.zeros(nodes, dtype=np.int64)

    @property
    def nodes(self) -> int:
        return len(self._now_us)

    def read_until(self, until_us: int) -> Segments:
        parts: list[Segments] = []
        while len(active := np.flatnonzero(self._now_us < until_us)):
            parts.append(self._advance(active))
        return join_segments(parts) if parts else _NO_SEGMENTS

    def _advance(self, active: Ints) -> Segments:
        """Moves nodes along one segment each: to a turn or to a change of speed."""
        grid, block_m = self._grid, self._block_m
        along, direction = self._along_m[active], self._direction[active]
        turn = self._draw_turns(along, direction)
        turn_m = np.where(turn == grid.blocks, grid.side_m, turn * block_m)
        to_turn_m = np.abs(turn_m - along)
        to_change_m = self._to_change_m[active]
        turns = to_turn_m <= to_change_m
        moved_m = np.where(turns, to_turn_m, to_change_m)
        end = np.where(turns, turn_m, along + direction * to_change_m)
        start_us = self._now_us[active]
        duration_us = np.ceil(moved_m / self._speed_m_s[active] * 1e6).astype(np.int64)
        end_us = start_us + np.maximum(duration_us, 1)
        axis, street = self._axis[active], self._street[active]
        street_m = np.where(street == grid.blocks, grid.side_m, street * block_m)
        horizontal = axis == 0
        segments = Segments(
            active,
            start_us,
            end_us,
            np.where(horizontal, along, street_m),
            np.where(horizontal, street_m, along),
            np.where(horizontal, end, street_m),
            np.where(horizontal, street_m, end),
        )
        self._now_us[active] = end_us
        self._along_m[active] = end
        self._to_change_m[active] = to_change_m - moved_m
        self._turn(active[turns], turn[turns], street_m[turns])
        self._change_speed(active[~turns])
        return segments

    def _draw_turns(self, along: Floats, direction: Ints) -> Ints:
        """The crossings at which nodes turn: each one with a probability, the last for sure."""
        steps = along / self._block_m
        ahead = np.where(direction > 0, np.floor(steps + 1e-9) + 1, np.ceil(steps - 1e-9) - 1)
        waits = self._draw_waits(len(along), self._grid.turn_probability) - 1
        return np.clip(ahead + direction * waits, 0, self._grid.blocks).astype(np.int64)

    def _turn(self, nodes: Ints, crossing: Ints, along_m: Floats) -> None:
        street = self._street[nodes]
        self._axis[nodes] = 1 - self._axis[nodes]
        self._street[nodes] = crossing
        self._along_m[nodes] = along_m
        drawn = np.where(self._rng.random(len(nodes)) < 0.5, -1, 1)
        last = self._grid.blocks
        self._direction[nodes] = np.where(street == 0, 1, np.where(street == last, -1, drawn))

    def _change_speed(self, nodes: Ints) -> None:
        self._speed_m_s[nodes] = self._draw_speeds(len(nodes))
        self._to_change_m[nodes] = self._grid.speed_change_every_m * self._draw_waits(
            len(nodes), self._grid.speed_change_probability
        )

    def _draw_speeds(self, count: int) -> Floats:
        """Normal speeds by the method of Box and Muller, not below the minimum."""
        radius = np.sqrt(-2.0 * np.log1p(-self._rng.random(count)))
        normal = radius * np.cos(2.0 * np.pi * self._rng.random(count))
        grid = self._grid
        drawn: Floats = grid.speed_m_s_mean + grid.speed_m_s_deviation * normal
        return np.maximum(grid.speed_m_s_min, drawn)

    def _draw_waits(self, count: int, probability: float) -> Floats:
        """How many trials the first success takes, at least 1; geometric."""
        if probability >= 1:
            return np.ones(count)
        if probability <= 0:
            return np.full(count, 1e9)
        drawn = np.log1p(-self._rng.random(count)) / np.log1p(-probability)
        waits: Floats = np.floor(drawn) + 1.0
        return waits


_NO_SEGMENTS = PathSegments(()).read_until(0)
