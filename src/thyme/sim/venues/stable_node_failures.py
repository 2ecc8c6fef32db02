"""Stable node failures: switches off stable nodes just before they report, and looks for lost data.

Entry point: `CellDataAudit`. It notes the cycles in which the nodes of a cell counted something,
and compares them with those that the station has processed. If failures are wanted, the node that
would report for the most populated cell fails at the end of each cycle.
Clauses: I6, I7, C31.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from thyme.model.time_frames import SECOND_US
from thyme.sim.faults.devices import Devices
from thyme.sim.faults.schedule import CrashMemory
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.infra.mobile.cell_data import CellDataConfig
from thyme.substrates.infra.mobile.extension import MobileExtension
from thyme.substrates.infra.station.node import StationNode
from thyme.substrates.infra.station.records import CellOfCount

_PERIOD_US = CellDataConfig().period_us
_BEFORE_REPORT_US = 2 * SECOND_US // 5
"""Nodes are looked at so long after the end of a cycle: shortly before they report it."""
_SETTLED_CYCLES = 3
"""The last cycles of a run may still be on their way."""

CycleOfCell = tuple[CellOfCount, int]


class CellDataFound(msgspec.Struct, frozen=True):
    """The cycles of cell data that nodes counted, and those that no station processed."""

    cycles: int
    lost: int
    failed_nodes: int


class CellDataAudit:
    """Notes the cell data of all mobile nodes, cycle by cycle."""

    def __init__(
        self,
        network: WirelessNetwork,
        devices: Devices,
        mobiles: Mapping[int, tuple[DcsNode, MobileExtension]],
        *,
        failures: bool,
    ) -> None:
        """`mobiles` are the latest nodes of the users, by number."""
        self._network = network
        self._devices = devices
        self._mobiles = mobiles
        self._failures = failures
        self._failed_nodes = 0
        self._counted: dict[CycleOfCell, None] = {}

    def start(self, begins_us: int, ends_us: int) -> None:
        """Schedules the looks at the nodes, and the failures, between two instants."""
        first = begins_us // _PERIOD_US + 1
        for cycle in range(first, ends_us // _PERIOD_US):
            at_us = cycle * _PERIOD_US + _BEFORE_REPORT_US
            self._network.kernel.schedule(at_us, self._look, cycle - 1)

    def _look(self, cycle: int) -> None:
        nodes = self._nodes_by_cell()
        for cell, members in nodes.items():
            if any(extension.cell_data.is_counting for _, extension in members):
                self._counted[cell, cycle] = None
        if self._failures and nodes:
            self._fail_stable_node(max(nodes.values(), key=len))

    def _nodes_by_cell(self) -> dict[CellOfCount, list[tuple[int, MobileExtension]]]:
        found: dict[CellOfCount, list[tuple[int, MobileExtension]]] = {}
        for number, (_, extension) in self._mobiles.items():
            if self._devices.node_of(number) is not None:
                found.setdefault(extension.cell_name, []).append((number, extension))
        return dict(sorted(found.items()))

    def _fail_stable_node(self, members: list[tuple[int, MobileExtension]]) -> None:
        now_us = self._network.now_us
        for number, extension in members if len(members) > 1 else ():
            if extension.cell_data.is_stable_node(now_us):
                self._devices.crash(number, CrashMemory.LOST)
                self._failed_nodes += 1
                return

    def result(self, ends_us: int) -> CellDataFound:
        """Compares what nodes counted with what stations processed."""
        processed: set[CycleOfCell] = set()
        for number in range(len(self._devices)):
            node = self._devices.node_of(number)
            if isinstance(node, StationNode):
                processed |= node.popular_items.processed_cycles()
        last = ends_us // _PERIOD_US - _SETTLED_CYCLES
        counted = {each for each in self._counted if each[1] < last}
        return CellDataFound(len(counted), len(counted - processed), self._failed_nodes)
