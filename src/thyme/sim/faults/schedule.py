"""Fault schedules: the faults of a run and their instants, as data.

Entry point: `make_schedule`, which sorts faults by time and rejects impossible schedules, such as
the restart of a node that is up. `thyme.sim.faults.injector` applies a schedule;
`thyme.sim.faults.churn` draws crashes and restarts from a seed. Faults refer to nodes by number; a
failing base station is a node that crashes.
Clauses: S7, S8.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import assert_never

import msgspec

from thyme.model.errors import InputError

NodeNumbers = tuple[int, ...]


class FaultError(InputError):
    """A fault is impossible, or impossible at its scheduled instant (S7, S8)."""

    code = "bad_fault"


class CrashMemory(StrEnum):
    """Whether the store of a node survives a crash."""

    LOST = "lost"
    KEPT = "kept"


class Crash(msgspec.Struct, frozen=True, tag="crash"):
    """A node stops without warning; its store is lost or kept."""

    at_us: int
    node: int
    memory: CrashMemory = CrashMemory.LOST


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """A node leaves gracefully and stops; it may restart later."""

    at_us: int
    node: int


class Restart(msgspec.Struct, frozen=True, tag="restart"):
    """A node that crashed or left starts again."""

    at_us: int
    node: int


class Partition(msgspec.Struct, frozen=True, tag="partition"):
    """Only nodes of the same group reach each other; nodes in no group form one more group."""

    at_us: int
    groups: tuple[NodeNumbers, ...]


class Heal(msgspec.Struct, frozen=True, tag="heal"):
    """The partition ends."""

    at_us: int


class LossBurst(msgspec.Struct, frozen=True, tag="loss"):
    """Between two instants, each reception fails with a probability, at all or some nodes."""

    start_us: int
    end_us: int
    loss: float
    nodes: NodeNumbers | None = None

    @property
    def at_us(self) -> int:
        """The instant at which the loss begins."""
        return self.start_us


class Duplication(msgspec.Struct, frozen=True, tag="duplication"):
    """Between two instants, messages arrive twice with a probability, at all or some nodes."""

    start_us: int
    end_us: int
    probability: float
    nodes: NodeNumbers | None = None

    @property
    def at_us(self) -> int:
        """The instant at which the duplication begins."""
        return self.start_us


class Reordering(msgspec.Struct, frozen=True, tag="reordering"):
    """Between two instants, messages are delayed with a probability, by up to `delay_us_max`."""

    start_us: int
    end_us: int
    probability: float
    delay_us_max: int
    nodes: NodeNumbers | None = None

    @property
    def at_us(self) -> int:
        """The instant at which the reordering begins."""
        return self.start_us


class ClockSkew(msgspec.Struct, frozen=True, tag="skew"):
    """A node's clock is set ahead by `skew_us`, or back if `skew_us` is negative."""

    at_us: int
    node: int
    skew_us: int


TimedFault = LossBurst | Duplication | Reordering
Fault = ClockSkew | Heal | Partition | Leave | Crash | Restart | TimedFault
FaultSchedule = tuple[Fault, ...]

# Order of faults at one instant. Ends come before beginnings: a partition can directly follow
# another one, and a node that crashes and restarts at the same instant has rebooted.
_KIND_ORDER: dict[type[object], int] = {
    kind: rank
    for rank, kind in enumerate(
        (ClockSkew, Heal, Partition, Leave, Crash, Restart, LossBurst, Duplication, Reordering)
    )
}


def make_schedule(*schedules: Iterable[Fault], nodes: int) -> FaultSchedule:
    """Merges faults into one schedule in order of time, and checks it for a number of nodes.

    The order of the arguments does not matter: faults at the same instant are ordered by kind, then
    by node.
    """
    schedule = tuple(sorted((fault for part in schedules for fault in part), key=_sort_key))
    checker = _ScheduleChecker(nodes)
    for fault in schedule:
        checker.check(fault)
    return schedule


def _sort_key(fault: Fault) -> tuple[int, int, int, bytes]:
    match fault:
        case ClockSkew() | Leave() | Crash() | Restart():
            node = fault.node
        case _:
            node = -1
    return fault.at_us, _KIND_ORDER[type(fault)], node, msgspec.json.encode(fault)


class _ScheduleChecker:
    """Checks the faults of a schedule in order, against the node states they lead to."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._down: dict[int, str] = {}
        self._partitioned = False
        self._last_timed_faults: dict[tuple[type[TimedFault], int], TimedFault] = {}

    def check(self, fault: Fault) -> None:
        """Raises an error if the next fault is impossible."""
        if fault.at_us < 0:
            raise FaultError(f"a fault cannot begin before 0 µs: {fault}")
        match fault:
            case Crash() | Leave() | Restart():
                self._check_power(fault)
            case ClockSkew():
                self._check_nodes([fault.node], fault)
            case Partition() | Heal():
                self._check_partition(fault)
            case LossBurst() | Duplication() | Reordering():
                self._check_timed_fault(fault)
            case _:
                assert_never(fault)

    def _check_power(self, fault: Crash | Leave | Restart) -> None:
        self._check_nodes([fault.node], fault)
        state = self._down.get(fault.node)
        if isinstance(fault, Restart):
            if state is None:
                raise FaultError(f"node {fault.node} is up and cannot restart: {fault}")
            del self._down[fault.node]
        else:
            if state is not None:
                raise FaultError(f"node {fault.node} has already {state}: {fault}")
            self._down[fault.node] = "crashed" if isinstance(fault, Crash) else "left"

    def _check_partition(self, fault: Partition | Heal) -> None:
        partitions = isinstance(fault, Partition)
        if partitions == self._partitioned:
            state = "already partitioned" if partitions else "not partitioned"
            raise FaultError(f"the network is {state}: {fault}")
        self._partitioned = partitions
        if isinstance(fault, Partition):
            if not fault.groups or not all(fault.groups):
                raise FaultError(
                    f"a partition needs at least one group, and each group a node: {fault}"
                )
            self._check_nodes([node for group in fault.groups for node in group], fault)

    def _check_timed_fault(self, fault: TimedFault) -> None:
        probability = fault.loss if isinstance(fault, LossBurst) else fault.probability
        if not 0.0 <= probability <= 1.0:
            raise FaultError(f"a probability must be between 0 and 1: {fault}")
        if fault.start_us >= fault.end_us:
            raise FaultError(f"a fault must end after it starts: {fault}")
        if isinstance(fault, Reordering) and fault.delay_us_max <= 0:
            raise FaultError(f"the longest delay must be longer than 0 µs: {fault}")
        if fault.nodes is not None:
            self._check_nodes(fault.nodes, fault)
            if not fault.nodes:
                raise FaultError(f"the list of nodes is empty; use None for all nodes: {fault}")
        for node in range(self._nodes) if fault.nodes is None else fault.nodes:
            previous = self._last_timed_faults.get((type(fault), node))
            if previous is not None and previous.end_us > fault.start_us:
                raise FaultError(f"{fault} overlaps {previous} at node {node}")
            self._last_timed_faults[type(fault), node] = fault

    def _check_nodes(self, nodes: Iterable[int], fault: Fault) -> None:
        seen: set[int] = set()
        for node in nodes:
            if not 0 <= node < self._nodes:
                raise FaultError(f"node {node} is unknown, there are {self._nodes}: {fault}")
            if node in seen:
                raise FaultError(f"node {node} is named twice: {fault}")
            seen.add(node)
