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
from thyme.sim.faults.devices import Devices, FaultableNetwork
from thyme.sim.faults.schedule import (
    ClockSkew,
    Crash,
    Duplication,
    Fault,
    FaultSchedule,
    Heal,
    Leave,
    LossBurst,
    Partition,
    Reordering,
    Restart,
    TimedFault,
)

OnFault = Callable[[Fault, bool], None]
"""Called for each fault when it begins (True), and for each timed fault when it ends (False)."""


class FaultInjector:
    """Schedules the faults of a run in the kernel and applies them."""

    def __init__(
        self,
        network: FaultableNetwork,
        devices: Devices,
        schedule: FaultSchedule,
        on_fault: OnFault | None = None,
    ) -> None:
        self._devices = devices
        self._network_faults = network.faults
        self._on_fault = on_fault
        self.applied: Counter[type[object]] = Counter()
        """Number of faults that have begun, by kind."""
        for fault in schedule:
            network.kernel.schedule(network.start_us + fault.at_us, self._apply, fault)
            if isinstance(fault, LossBurst | Duplication | Reordering):
                network.kernel.schedule(
                    network.start_us + fault.end_us, self._end_timed_fault, fault
                )

    def _apply(self, fault: Fault) -> None:
        self.applied[type(fault)] += 1
        if self._on_fault is not None:
            self._on_fault(fault, True)
        match fault:
            case Crash():
                self._devices.crash(fault.node, fault.memory)
            case Leave():
                self._devices.leave(fault.node)
            case Restart():
                self._devices.start(fault.node)
            case Partition():
                self._network_faults.partition(*map(self._node_ids, fault.groups))
            case Heal():
                self._network_faults.heal()
            case ClockSkew():
                self._devices.set_skew(fault.node, fault.skew_us)
            case LossBurst() | Duplication() | Reordering():
                self._network_faults.begin_fault(fault, self._affected_nodes(fault))
            case _:
                assert_never(fault)

    def _end_timed_fault(self, fault: TimedFault) -> None:
        self._network_faults.end_fault(fault, self._affected_nodes(fault))
        if self._on_fault is not None:
            self._on_fault(fault, False)

    def _affected_nodes(self, fault: TimedFault) -> list[NodeId] | None:
        return None if fault.nodes is None else self._node_ids(fault.nodes)

    def _node_ids(self, nodes: Iterable[int]) -> list[NodeId]:
        return [self._devices.node_id_of(number) for number in nodes]
