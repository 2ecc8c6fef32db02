"""Path walker: moves nodes along their paths and keeps the link table up to date.

Entry point: `PathWalker`. A node's position in the link table is updated after every step of
`STEP_M`, so its error is at most one step, and a pause costs nothing. Instants of paths count from
the start of the run. `paths` has the paths.
Clause: S6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from thyme.model.positions import Position
from thyme.sim.engine.kernel import Kernel
from thyme.sim.mobility.paths import Leg
from thyme.sim.radio.radio import Links

STEP_M = 1.0
"""The distance after which a node's position is updated."""

OnLeg = Callable[[int, Leg], None]
"""Called at the start of each leg, with the node number and the leg."""
OnStep = Callable[[int, Position], None]
"""Called after each step, with the node number and its new position."""


class PathWalker:
    """Moves nodes along their paths."""

    def __init__(
        self,
        kernel: Kernel,
        links: Links,
        paths: Mapping[int, Iterable[Leg]],
        step_m: float = STEP_M,
        on_leg: OnLeg | None = None,
        on_step: OnStep | None = None,
    ) -> None:
        self._kernel = kernel
        self._start_us = kernel.now_us
        self._links = links
        self._step_m = step_m
        self._on_leg = on_leg
        self._on_step = on_step
        self._current_legs: dict[int, Leg] = {}
        self.steps_taken = 0
        for number, path in paths.items():
            self._start_next_leg((number, iter(path)))

    def position_of(self, number: int) -> Position | None:
        """The exact position of a node, also between steps; None if it has no path."""
        leg = self._current_legs.get(number)
        return None if leg is None else leg.position_at(self._kernel.now_us - self._start_us)

    def _start_next_leg(self, remaining: tuple[int, Iterator[Leg]]) -> None:
        number, legs = remaining
        leg = next(legs, None)
        if leg is None:
            return
        if number not in self._current_legs:
            self._links.move(number, leg.start)
        self._current_legs[number] = leg
        if self._on_leg is not None:
            self._on_leg(number, leg)
        self._kernel.schedule(self._start_us + leg.end_us, self._start_next_leg, remaining)
        if leg.is_moving:
            at_us = max(self._kernel.now_us, self._start_us + leg.start_us)
            self._kernel.schedule(at_us, self._take_step, (number, leg))

    def _take_step(self, current: tuple[int, Leg]) -> None:
        number, leg = current
        now_us = self._kernel.now_us - self._start_us
        position = leg.position_at(now_us)
        self._links.move(number, position)
        self.steps_taken += 1
        if self._on_step is not None:
            self._on_step(number, position)
        if now_us < leg.end_us:
            step_us = max(1, int(self._step_m / leg.speed_m_s * 1e6))
            at_us = self._start_us + min(leg.end_us, now_us + step_us)
            self._kernel.schedule(at_us, self._take_step, current)
