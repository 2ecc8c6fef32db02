"""Soak faults: draws the faults and movements of a soak run from a seed.

Entry points: `draw_faults`, `draw_moves`. Devices crash with or without their store, leave, restart
or stay down, and move; the network is partitioned; messages are lost, duplicated and reordered;
clocks differ. `FaultLimits` excludes the faults that a profile is not designed to survive.
`thyme.testing.soak.runner` applies the faults.
Clauses: S7, S8, B12.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import dist
from random import Random

import msgspec

from thyme.model.frames import SECOND_US
from thyme.sim.faults import (
    ClockSkew,
    Crash,
    Duplication,
    Fault,
    Heal,
    Leave,
    LossBurst,
    Memory,
    Partition,
    Reordering,
    Restart,
    Schedule,
    merge,
)
from thyme.sim.paths import Point

SKEW_US_MAX = 2 * SECOND_US
HELD_BACK_US_MAX = SECOND_US * 3 // 10
LOSSES_MAX = 3
APART_US = 20 * SECOND_US
"""Time allowed for the other nodes to replicate again the records that one device lost."""
STEP_US = SECOND_US // 2
STEP_M = 4.0
"""Distance per step; nodes run, so that they arrive before the faults end."""


class Mercy(msgspec.Struct, frozen=True, kw_only=True):
    """Faults that are excluded from a soak run."""

    spared: frozenset[int] = frozenset()
    """Nodes that never stop and never move."""
    keeps_memory: frozenset[int] = frozenset()
    """Nodes that may stop, but always restart with their store."""
    loses_messages: bool = True
    divides: bool = True
    one_by_one: bool = False
    """Whether devices lose their stores one at a time, after all other faults: records of which
    only two replicas exist are lost if both devices fail."""
    destinations: tuple[Point, ...] = ()
    """Positions to which nodes may move; empty: anywhere."""


def draw_faults(
    rng: Random, places: Sequence[Point], from_us: int, until_us: int, mercy: Mercy
) -> Schedule:
    """Draws the faults of one soak run between two instants; some nodes may never restart."""
    faults: list[Fault] = []
    until_us = _at_once_until_us(until_us, mercy)
    for node in range(len(places)):
        if node not in mercy.spared and rng.random() < 0.5:
            kept = mercy.one_by_one or node in mercy.keeps_memory
            faults += _restless(rng, node, from_us, until_us, always_kept=kept)
        if rng.random() < 0.3:
            skew_us = rng.randint(-SKEW_US_MAX // 2, SKEW_US_MAX // 2)
            faults.append(ClockSkew(rng.randint(from_us, until_us), node, skew_us))
    if mercy.divides and len(places) > 1 and rng.random() < 0.5:
        faults += _divided(rng, places, from_us, until_us)
    if mercy.loses_messages and rng.random() < 0.7:
        faults.append(LossBurst(*_span(rng, from_us, until_us), rng.uniform(0.05, 0.4)))
    if rng.random() < 0.5:
        faults.append(Duplication(*_span(rng, from_us, until_us), rng.uniform(0.05, 0.5)))
    if rng.random() < 0.5:
        probability = rng.uniform(0.05, 0.5)
        span = _span(rng, from_us, until_us)
        faults.append(Reordering(*span, probability, HELD_BACK_US_MAX))
    if mercy.one_by_one:
        faults += _one_by_one(rng, len(places), until_us, mercy)
    return merge(faults, nodes=len(places))


def _restless(
    rng: Random, node: int, from_us: int, until_us: int, *, always_kept: bool
) -> Iterator[Fault]:
    """Draws one to three stops and restarts of a node; after the last stop it may stay down."""
    now_us = from_us
    for _ in range(rng.randint(1, 3)):
        now_us += rng.randint(SECOND_US, (until_us - from_us) // 2)
        back_us = now_us + rng.randint(SECOND_US, (until_us - from_us) // 3)
        if back_us >= until_us:
            return
        yield _going(rng, node, now_us, always_kept=always_kept)
        if not always_kept and rng.random() < 0.15:
            return  # the node never restarts
        yield Restart(back_us, node)
        now_us = back_us


def _going(rng: Random, node: int, at_us: int, *, always_kept: bool) -> Fault:
    how = rng.choice(["leave", "kept", "lost"])
    if how == "leave":
        return Leave(at_us, node)
    kept = always_kept or how == "kept"
    return Crash(at_us, node, Memory.KEPT if kept else Memory.LOST)


def _at_once_until_us(until_us: int, mercy: Mercy) -> int:
    """Returns the end of the phase in which faults may overlap."""
    return until_us - LOSSES_MAX * APART_US if mercy.one_by_one else until_us


def _one_by_one(rng: Random, nodes: int, from_us: int, mercy: Mercy) -> Iterator[Fault]:
    """Draws crashes that lose the store, with time to recover between two of them."""
    able = [node for node in range(nodes) if node not in mercy.spared]
    chosen = rng.sample(able, min(LOSSES_MAX, len(able)))
    for number, node in enumerate(chosen):
        at_us = from_us + APART_US // 2 + number * APART_US
        yield Crash(at_us, node, Memory.LOST)
        yield Restart(at_us + rng.randint(SECOND_US, APART_US // 2 - 1), node)


def _divided(rng: Random, places: Sequence[Point], from_us: int, until_us: int) -> Iterator[Fault]:
    """Draws a partition between the nodes in the west and the nodes in the east."""
    west_first = sorted(range(len(places)), key=lambda node: places[node])
    cut = rng.randint(1, len(places) - 1)
    start_us, end_us = _span(rng, from_us, until_us)
    yield Partition(start_us, (tuple(sorted(west_first[:cut])),))
    yield Heal(end_us)


def _span(rng: Random, from_us: int, until_us: int) -> tuple[int, int]:
    """Draws a time span, between one second and a third of the available time."""
    length_us = rng.randint(SECOND_US, (until_us - from_us) // 3)
    start_us = rng.randint(from_us, until_us - length_us)
    return start_us, start_us + length_us


class Step(msgspec.Struct, frozen=True):
    """One step of a moving node: its new position."""

    at_us: int
    node: int
    place: Point


def draw_walks(
    rng: Random, places: Sequence[Point], area: Point, from_us: int, until_us: int, mercy: Mercy
) -> list[Step]:
    """Draws the movements of some nodes over an area; all of them arrive before the end."""
    steps: list[Step] = []
    until_us = _at_once_until_us(until_us, mercy)
    for node, start in enumerate(places):
        if node in mercy.spared or rng.random() >= 0.3:
            continue
        here, now_us = start, from_us
        for _ in range(rng.randint(1, 2)):
            now_us += rng.randint(SECOND_US, (until_us - from_us) // 2)
            there = _destination(rng, area, mercy)
            count = max(1, round(dist(here, there) / STEP_M))
            if now_us + count * STEP_US >= until_us:
                break
            for number in range(1, count + 1):
                now_us += STEP_US
                steps.append(Step(now_us, node, _between(here, there, number / count)))
            here = there
    return steps


def _destination(rng: Random, area: Point, mercy: Mercy) -> Point:
    if mercy.destinations:
        return rng.choice(mercy.destinations)
    return rng.uniform(0, area[0]), rng.uniform(0, area[1])


def _between(start: Point, end: Point, share: float) -> Point:
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share
