"""Fault injector: applies a fault schedule to the devices and messages of a simulated network.

Entry point: `FaultInjector`. Works with the ideal and with the wireless network. Instants of the
schedule count from the start of the network. `thyme.sim.faults.schedule.make_schedule` checks
whether a schedule is possible; `thyme.sim.faults.devices` checks that the nodes to stop are up.
Clauses: S7, S8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import assert_never

from thyme.model.ids import NodeId
from thyme.sim.faults import (
    ClockSkew,
    Crash,
    Duplication,
    Fault,
    Heal,
    Leave,
    LossBurst,
    Partition,
    Reordering,
    Restart,
    Schedule,
    Window,
)
from thyme.sim.residents import Residents, World

OnFault = Callable[[Fault, bool], None]
"""Called for each fault when it begins (True), and for each timed fault when it ends (False)."""


class Fate:
    """Schedules the faults of a run in the kernel and applies them."""

    def __init__(
        self,
        world: World,
        residents: Residents,
        schedule: Schedule,
        on_fault: OnFault | None = None,
    ) -> None:
        self._residents = residents
        self._trouble = world.trouble
        self._on_fault = on_fault
        self.befell: Counter[type[object]] = Counter()
        """Number of faults that have begun, by kind."""
        for fault in schedule:
            world.kernel.at(world.start_us + fault.at_us, self._befall, fault)
            if isinstance(fault, LossBurst | Duplication | Reordering):
                world.kernel.at(world.start_us + fault.end_us, self._end, fault)

    def _befall(self, fault: Fault) -> None:
        self.befell[type(fault)] += 1
        if self._on_fault is not None:
            self._on_fault(fault, True)
        match fault:
            case Crash():
                self._residents.crash(fault.node, fault.memory)
            case Leave():
                self._residents.leave(fault.node)
            case Restart():
                self._residents.start(fault.node)
            case Partition():
                self._trouble.partition(*map(self._named, fault.groups))
            case Heal():
                self._trouble.heal()
            case ClockSkew():
                self._residents.set_skew(fault.node, fault.skew_us)
            case LossBurst() | Duplication() | Reordering():
                self._trouble.begin(fault, self._where(fault))
            case _:
                assert_never(fault)

    def _end(self, window: Window) -> None:
        self._trouble.end(window, self._where(window))
        if self._on_fault is not None:
            self._on_fault(window, False)

    def _where(self, window: Window) -> list[NodeId] | None:
        return None if window.nodes is None else self._named(window.nodes)

    def _named(self, nodes: Iterable[int]) -> list[NodeId]:
        return [self._residents.name(number) for number in nodes]
