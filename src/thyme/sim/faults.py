"""Faults: what goes wrong in a run, and when, as data.

A schedule is a sequence of faults in order of time. `merge` makes one from parts and refuses what
cannot happen, such as the restart of a node that is up; `thyme.sim.fate` carries faults out.
Nodes are numbers; a station that fails is a node that crashes. Schedules can be drawn from a seed
(`thyme.sim.churn`).
Clauses: S7, S8.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import assert_never

import msgspec

from thyme.model.errors import InputError

Nodes = tuple[int, ...]


class FaultError(InputError):
    """A fault that cannot happen, or not when the schedule says so (S7, S8)."""

    code = "bad_fault"


class Memory(StrEnum):
    """What a node still knows when it restarts."""

    LOST = "lost"
    KEPT = "kept"


class Crash(msgspec.Struct, frozen=True, tag="crash"):
    """A node falls silent without a word; its memory is lost or kept."""

    at_us: int
    node: int
    memory: Memory = Memory.LOST


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """A node says goodbye and goes; it may come back by a restart."""

    at_us: int
    node: int


class Restart(msgspec.Struct, frozen=True, tag="restart"):
    """A node that crashed or left comes up again."""

    at_us: int
    node: int


class Partition(msgspec.Struct, frozen=True, tag="partition"):
    """From now on only nodes of the same group hear each other; the unnamed form a last group."""

    at_us: int
    groups: tuple[Nodes, ...]


class Heal(msgspec.Struct, frozen=True, tag="heal"):
    """The partition ends."""

    at_us: int


class LossBurst(msgspec.Struct, frozen=True, tag="loss"):
    """For a while, each reception fails with a probability, at the nodes named or at all."""

    start_us: int
    end_us: int
    loss: float
    nodes: Nodes | None = None

    @property
    def at_us(self) -> int:
        """When it begins."""
        return self.start_us


class Duplication(msgspec.Struct, frozen=True, tag="duplication"):
    """For a while, each message arrives twice with a probability, at the nodes named or at all."""

    start_us: int
    end_us: int
    probability: float
    nodes: Nodes | None = None

    @property
    def at_us(self) -> int:
        """When it begins."""
        return self.start_us


class Reordering(msgspec.Struct, frozen=True, tag="reordering"):
    """For a while, each message is held back with a probability, for up to `delay_us_max`."""

    start_us: int
    end_us: int
    probability: float
    delay_us_max: int
    nodes: Nodes | None = None

    @property
    def at_us(self) -> int:
        """When it begins."""
        return self.start_us


class ClockSkew(msgspec.Struct, frozen=True, tag="skew"):
    """From now on a node's clock is ahead by `skew_us`, or behind if that is negative."""

    at_us: int
    node: int
    skew_us: int


Window = LossBurst | Duplication | Reordering
Fault = ClockSkew | Heal | Partition | Leave | Crash | Restart | Window
Schedule = tuple[Fault, ...]

# Of what happens at one instant, ends come before beginnings: a partition can follow another, and
# a node that crashes and restarts at once has rebooted.
_RANK: dict[type[object], int] = {
    kind: rank
    for rank, kind in enumerate(
        (ClockSkew, Heal, Partition, Leave, Crash, Restart, LossBurst, Duplication, Reordering)
    )
}


def merge(*schedules: Iterable[Fault], nodes: int) -> Schedule:
    """All faults in order of time, checked as a whole for so many nodes.

    The order of the parts does not matter: faults of one instant are ordered by kind, then node.
    """
    merged = tuple(sorted((fault for part in schedules for fault in part), key=_order))
    check = _Check(nodes)
    for fault in merged:
        check.take(fault)
    return merged


def _order(fault: Fault) -> tuple[int, int, int, bytes]:
    match fault:
        case ClockSkew() | Leave() | Crash() | Restart():
            node = fault.node
        case _:
            node = -1
    return fault.at_us, _RANK[type(fault)], node, msgspec.json.encode(fault)


class _Check:
    """The state of the nodes as a schedule goes on, as far as it decides what can happen."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._down: dict[int, str] = {}
        self._partitioned = False
        self._windows: dict[tuple[type[Window], int], Window] = {}

    def take(self, fault: Fault) -> None:
        """Refuses a fault that cannot happen now."""
        if fault.at_us < 0:
            raise FaultError(f"nothing happens before 0 µs: {fault}")
        match fault:
            case Crash() | Leave() | Restart():
                self._up_or_down(fault)
            case ClockSkew():
                self._known([fault.node], fault)
            case Partition() | Heal():
                self._divide(fault)
            case LossBurst() | Duplication() | Reordering():
                self._window(fault)
            case _:
                assert_never(fault)

    def _up_or_down(self, fault: Crash | Leave | Restart) -> None:
        self._known([fault.node], fault)
        state = self._down.get(fault.node)
        if isinstance(fault, Restart):
            if state is None:
                raise FaultError(f"node {fault.node} is up and cannot restart: {fault}")
            del self._down[fault.node]
        else:
            if state is not None:
                raise FaultError(f"node {fault.node} has {state} before: {fault}")
            self._down[fault.node] = "crashed" if isinstance(fault, Crash) else "left"

    def _divide(self, fault: Partition | Heal) -> None:
        partitions = isinstance(fault, Partition)
        if partitions == self._partitioned:
            state = "already divided" if partitions else "whole"
            raise FaultError(f"the network is {state}: {fault}")
        self._partitioned = partitions
        if isinstance(fault, Partition):
            if not fault.groups or not all(fault.groups):
                raise FaultError(f"a partition has groups, and a group has nodes: {fault}")
            self._known([node for group in fault.groups for node in group], fault)

    def _window(self, fault: Window) -> None:
        probability = fault.loss if isinstance(fault, LossBurst) else fault.probability
        if not 0.0 <= probability <= 1.0:
            raise FaultError(f"a probability is between 0 and 1: {fault}")
        if fault.start_us >= fault.end_us:
            raise FaultError(f"a window ends after it starts: {fault}")
        if isinstance(fault, Reordering) and fault.delay_us_max <= 0:
            raise FaultError(f"to be overtaken, a message waits longer than 0 µs: {fault}")
        if fault.nodes is not None:
            self._known(fault.nodes, fault)
            if not fault.nodes:
                raise FaultError(f"a window for no node: {fault}")
        for node in range(self._nodes) if fault.nodes is None else fault.nodes:
            before = self._windows.get((type(fault), node))
            if before is not None and before.end_us > fault.start_us:
                raise FaultError(f"{fault} overlaps {before} at node {node}")
            self._windows[type(fault), node] = fault

    def _known(self, nodes: Iterable[int], fault: Fault) -> None:
        seen: set[int] = set()
        for node in nodes:
            if not 0 <= node < self._nodes:
                raise FaultError(f"node {node} is unknown, there are {self._nodes}: {fault}")
            if node in seen:
                raise FaultError(f"node {node} is named twice: {fault}")
            seen.add(node)
