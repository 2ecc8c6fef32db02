"""Soak faults: draws the faults and movements of a soak run from a seed.

Entry points: `draw_faults`, `draw_moves`, `draw_sleeps`, `draw_burst`. Devices crash with or
without their store, leave, restart or stay down, sleep, and move; one may insert more than the
others can take; the network is partitioned; messages are lost, duplicated and reordered;
clocks differ. `FaultLimits` excludes the faults that a profile is not designed to survive.
`thyme.testing.soak.runner` applies the faults.
Clauses: S7, S8, B12.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import dist
from random import Random

import msgspec

from thyme.model.positions import Position
from thyme.model.time_frames import SECOND_US
from thyme.sim.faults.schedule import (
    ClockSkew,
    Crash,
    CrashMemory,
    Duplication,
    Fault,
    FaultSchedule,
    Heal,
    Leave,
    LossBurst,
    Partition,
    Reordering,
    Restart,
    make_schedule,
)

SKEW_US_MAX = 2 * SECOND_US
REORDER_DELAY_US_MAX = SECOND_US * 3 // 10
MEMORY_LOSSES_MAX = 3
MEMORY_LOSS_SPACING_US = 20 * SECOND_US
"""Time allowed for the other nodes to replicate again the records that one device lost."""
STEP_US = SECOND_US // 2
STEP_M = 4.0
"""Distance per step; nodes run, so that they arrive before the faults end."""
SLEEP_SHARE = 0.15
"""Share of the devices that sleep once."""
BURST_SHARE = 0.05


class FaultLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Faults that are excluded from a soak run."""

    always_up: frozenset[int] = frozenset()
    """Nodes that never stop and never move."""
    memory_kept: frozenset[int] = frozenset()
    """Nodes that may stop, but always restart with their store."""
    message_loss: bool = True
    partitions: bool = True
    separate_memory_losses: bool = False
    """Whether devices lose their stores one at a time, after all other faults: records of which
    only two replicas exist are lost if both devices fail."""
    destinations: tuple[Position, ...] = ()
    """Positions to which nodes may move; empty: anywhere."""


def draw_faults(
    rng: Random, positions: Sequence[Position], from_us: int, until_us: int, limits: FaultLimits
) -> FaultSchedule:
    """Draws the faults of one soak run between two instants; some nodes may never restart."""
    faults: list[Fault] = []
    until_us = _concurrent_faults_end_us(until_us, limits)
    for node in range(len(positions)):
        if node not in limits.always_up and rng.random() < 0.5:
            kept = limits.separate_memory_losses or node in limits.memory_kept
            faults += _draw_churn(rng, node, from_us, until_us, memory_kept=kept)
        if rng.random() < 0.3:
            skew_us = rng.randint(-SKEW_US_MAX // 2, SKEW_US_MAX // 2)
            faults.append(ClockSkew(rng.randint(from_us, until_us), node, skew_us))
    if limits.partitions and len(positions) > 1 and rng.random() < 0.5:
        faults += _draw_partition(rng, positions, from_us, until_us)
    if limits.message_loss and rng.random() < 0.7:
        faults.append(LossBurst(*_draw_span(rng, from_us, until_us), rng.uniform(0.05, 0.4)))
    if rng.random() < 0.5:
        faults.append(Duplication(*_draw_span(rng, from_us, until_us), rng.uniform(0.05, 0.5)))
    if rng.random() < 0.5:
        probability = rng.uniform(0.05, 0.5)
        span = _draw_span(rng, from_us, until_us)
        faults.append(Reordering(*span, probability, REORDER_DELAY_US_MAX))
    if limits.separate_memory_losses:
        faults += _draw_memory_losses(rng, len(positions), until_us, limits)
    return make_schedule(faults, nodes=len(positions))


def draw_sleeps(
    rng: Random, nodes: int, from_us: int, until_us: int, limits: FaultLimits
) -> dict[int, tuple[int, int]]:
    """Draws when devices sleep, by node. A sleeping device loses the messages to it, and its timers
    fire late."""
    if not limits.message_loss:
        return {}
    until_us = _concurrent_faults_end_us(until_us, limits)
    return {
        node: _draw_span(rng, from_us, until_us)
        for node in range(nodes)
        if node not in limits.always_up and rng.random() < SLEEP_SHARE
    }


def draw_burst(rng: Random, nodes: int, from_us: int, until_us: int) -> tuple[int, int] | None:
    """Draws the node and the instant of an overload by inserts; most runs have none."""
    if not nodes or rng.random() >= BURST_SHARE:
        return None
    return rng.randrange(nodes), rng.randint(from_us, until_us)


def _draw_churn(
    rng: Random, node: int, from_us: int, until_us: int, *, memory_kept: bool
) -> Iterator[Fault]:
    """Draws one to three stops and restarts of a node; after the last stop it may stay down."""
    now_us = from_us
    for _ in range(rng.randint(1, 3)):
        now_us += rng.randint(SECOND_US, (until_us - from_us) // 2)
        back_us = now_us + rng.randint(SECOND_US, (until_us - from_us) // 3)
        if back_us >= until_us:
            return
        yield _draw_departure(rng, node, now_us, memory_kept=memory_kept)
        if not memory_kept and rng.random() < 0.15:
            return  # the node never restarts
        yield Restart(back_us, node)
        now_us = back_us


def _draw_departure(rng: Random, node: int, at_us: int, *, memory_kept: bool) -> Fault:
    kind = rng.choice(["leave", "kept", "lost"])
    if kind == "leave":
        return Leave(at_us, node)
    kept = memory_kept or kind == "kept"
    return Crash(at_us, node, CrashMemory.KEPT if kept else CrashMemory.LOST)


def _concurrent_faults_end_us(until_us: int, limits: FaultLimits) -> int:
    """Returns the end of the phase in which faults may overlap."""
    return (
        until_us - MEMORY_LOSSES_MAX * MEMORY_LOSS_SPACING_US
        if limits.separate_memory_losses
        else until_us
    )


def _draw_memory_losses(
    rng: Random, nodes: int, from_us: int, limits: FaultLimits
) -> Iterator[Fault]:
    """Draws crashes that lose the store, with time to recover between two of them."""
    candidates = [node for node in range(nodes) if node not in limits.always_up]
    chosen = rng.sample(candidates, min(MEMORY_LOSSES_MAX, len(candidates)))
    for number, node in enumerate(chosen):
        at_us = from_us + MEMORY_LOSS_SPACING_US // 2 + number * MEMORY_LOSS_SPACING_US
        yield Crash(at_us, node, CrashMemory.LOST)
        yield Restart(at_us + rng.randint(SECOND_US, MEMORY_LOSS_SPACING_US // 2 - 1), node)


def _draw_partition(
    rng: Random, positions: Sequence[Position], from_us: int, until_us: int
) -> Iterator[Fault]:
    """Draws a partition between the nodes in the west and the nodes in the east."""
    west_first = sorted(range(len(positions)), key=lambda node: positions[node])
    west_count = rng.randint(1, len(positions) - 1)
    start_us, end_us = _draw_span(rng, from_us, until_us)
    yield Partition(start_us, (tuple(sorted(west_first[:west_count])),))
    yield Heal(end_us)


def _draw_span(rng: Random, from_us: int, until_us: int) -> tuple[int, int]:
    """Draws a time span, between one second and a third of the available time."""
    length_us = rng.randint(SECOND_US, (until_us - from_us) // 3)
    start_us = rng.randint(from_us, until_us - length_us)
    return start_us, start_us + length_us


class MoveStep(msgspec.Struct, frozen=True):
    """One step of a moving node: its new position."""

    at_us: int
    node: int
    position: Position


def draw_moves(
    rng: Random,
    positions: Sequence[Position],
    area: Position,
    from_us: int,
    until_us: int,
    limits: FaultLimits,
) -> list[MoveStep]:
    """Draws the movements of some nodes over an area; all of them arrive before the end."""
    steps: list[MoveStep] = []
    until_us = _concurrent_faults_end_us(until_us, limits)
    for node, start in enumerate(positions):
        if node in limits.always_up or rng.random() >= 0.3:
            continue
        position, now_us = start, from_us
        for _ in range(rng.randint(1, 2)):
            now_us += rng.randint(SECOND_US, (until_us - from_us) // 2)
            destination = _draw_destination(rng, area, limits)
            count = max(1, round(dist(position, destination) / STEP_M))
            if now_us + count * STEP_US >= until_us:
                break
            for number in range(1, count + 1):
                now_us += STEP_US
                steps.append(
                    MoveStep(now_us, node, _interpolate(position, destination, number / count))
                )
            position = destination
    return steps


def _draw_destination(rng: Random, area: Position, limits: FaultLimits) -> Position:
    if limits.destinations:
        return rng.choice(limits.destinations)
    return rng.uniform(0, area[0]), rng.uniform(0, area[1])


def _interpolate(start: Position, end: Position, share: float) -> Position:
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share
