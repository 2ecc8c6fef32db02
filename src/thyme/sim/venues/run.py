"""Venue runs: simulates a venue scenario.

Entry points: `run_venues`, and `simulate_venues`, which also summarises. The users, the radio and
the measurements are those of the other substrates.
Clauses: S11, S14, C30, C31.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec

from thyme.model.ids import Key, NodeId, ObjectId
from thyme.sim.event_export import SimulationEvents
from thyme.sim.faults.availability import downtimes, feasible_trace
from thyme.sim.faults.devices import Devices
from thyme.sim.faults.injector import FaultInjector
from thyme.sim.measurement.phones import NEXUS_6
from thyme.sim.measurement.sampler import NodeSampler
from thyme.sim.networks.wired_links import WiredLinks
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.progress import RunProgress, run_with_progress
from thyme.sim.radio.modes import get_mode
from thyme.sim.radio.phy import Phy
from thyme.sim.radio.radio import RadioConfig
from thyme.sim.run import SAMPLE_US, Run, rare_gc
from thyme.sim.scenario import check_trace, synthetic_trace
from thyme.sim.users import Attempt, Users
from thyme.sim.venues.deployment import VenueDeployment, world_name
from thyme.sim.venues.scenario import VenueScenario, VenueSeries
from thyme.sim.venues.stable_node_failures import CellDataAudit, CellDataFound
from thyme.sim.venues.summary import (
    StationSummary,
    VenueSummary,
    summarise_station,
    summarise_venues,
)
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.infra.mobile.extension import MobileExtension
from thyme.substrates.infra.world_numbers import world_number
from thyme.traces.oracle import expected_notifications
from thyme.traces.trace import Trace

ShowProgress = Callable[[RunProgress, Users], None]


class PastItems(msgspec.Struct, frozen=True):
    """The past objects that new subscriptions received until an instant."""

    at_us: int
    from_cells: int
    from_stations: int


class VenueRun(msgspec.Struct, frozen=True, kw_only=True):
    """The logs and measurements of a venue run, and what was looked up in the nodes at its end."""

    scenario: VenueScenario
    run: Run
    stations: tuple[StationSummary, ...]
    deletes: int
    """Deletes that succeeded."""
    deletes_left: int
    """Those whose objects a station still has, or whose metadata a node (C30)."""
    cell_data: CellDataFound | None
    """None unless there is one station (C31)."""
    division_cpu_s: float
    """CPU time of the batch inserts into local popularity caches (C29)."""
    past_items: tuple[PastItems, ...]
    """Past objects that subscribers have received, over time (C36)."""


def simulate_venues(
    scenario: VenueScenario,
    trace: Trace | None = None,
    *,
    on_progress: ShowProgress | None = None,
    events: SimulationEvents | None = None,
) -> VenueSummary:
    """Simulates a scenario and summarises it; without a trace, with the synthetic one."""
    found = run_venues(scenario, trace, on_progress=on_progress, events=events)
    return summarise_venues(scenario, found.run, found.stations)


def run_venues(
    scenario: VenueScenario,
    trace: Trace | None = None,
    *,
    on_progress: ShowProgress | None = None,
    events: SimulationEvents | None = None,
) -> VenueRun:
    """Simulates a scenario; without a trace, with the synthetic trace of the scenario. `events`
    gets the events of users and stations."""
    base = scenario.without_stations()
    if trace is None:
        trace = synthetic_trace(base)
    check_trace(base, trace)
    with rare_gc():
        return _Simulation(scenario, trace, events).run(on_progress)


class _Simulation:
    """The network, the devices and the users of one run."""

    def __init__(
        self, scenario: VenueScenario, trace: Trace, events: SimulationEvents | None
    ) -> None:
        self._scenario = scenario
        self._events = events
        self._deployment = deployment = VenueDeployment(scenario, self._on_download)
        timeline = scenario.timeline
        self._trace = feasible_trace(trace, deployment.fault_schedule, timeline.origin_us)
        self._started_s = time.perf_counter()
        self._wires = WiredLinks(deployment.station_ids, scenario.wires, scenario.seed)
        self._network = network = WirelessNetwork(
            dict(zip(deployment.node_ids, deployment.positions, strict=True)),
            seed=scenario.seed,
            config=RadioConfig(phy=Phy(mode=get_mode("802.11g", scenario.rate_mbps))),
            paths=deployment.make_paths(),
            wires=self._wires,
        )
        self._users = Users(
            network,
            deployment.node_ids,
            self._trace,
            origin_us=timeline.origin_us,
            reaction=scenario.reaction,
            seed=scenario.seed,
            events=events,
        )
        self._devices = Devices(
            network,
            deployment.node_ids,
            deployment.make_node,
            on_event=self._users.on_event,
            on_power=self._users.on_power,
        )
        if events is not None:
            events.attach(self._devices, deployment.node_ids, network.traffic)
        FaultInjector(network, self._devices, deployment.fault_schedule)
        self._past_items: list[PastItems] = []
        self._audit: CellDataAudit | None = None
        if scenario.stations == 1:
            failures = scenario.kind is VenueSeries.FAILOVER
            self._audit = CellDataAudit(
                network, self._devices, deployment.mobiles, failures=failures
            )
            self._audit.start(timeline.origin_us, timeline.end_us - timeline.quiet_us)

    def run(self, on_progress: ShowProgress | None) -> VenueRun:
        timeline, deployment = self._scenario.timeline, self._deployment
        self._users.schedule_operations()
        for number in range(len(deployment.node_ids)):
            self._devices.start(number)
        sampler = NodeSampler(self._devices)
        kernel = self._network.kernel
        for progress in run_with_progress(kernel, timeline.end_us, every_us=SAMPLE_US):
            sampler.sample()
            self._sample_past_items()
            if self._events is not None:
                self._events.sample_load(self._network.now_us)
            if on_progress is not None:
                on_progress(progress, self._users)
        run = Run(
            scenario=self._scenario.without_stations(),
            trace=self._trace,
            downtimes=downtimes(deployment.fault_schedule),
            positions=deployment.positions,
            attempts=self._users.attempts,
            notifications=self._users.notifications(),
            expected=expected_notifications(self._trace),
            measurements=self._network.collect_measurements(NEXUS_6),
            samples=sampler.build_samples(),
            events=kernel.events_processed,
            wall_s=time.perf_counter() - self._started_s,
        )
        return self._with_end_state(run)

    def _on_download(self, station: NodeId, key: Key, cache: str | None) -> None:
        if self._events is not None:
            self._events.on_download(station, key, cache, self._network.now_us)

    def _sample_past_items(self) -> None:
        brokers = [extension.brokers for _, extension in self._mobile_nodes()]
        from_cells = sum(each.items_from_cells for each in brokers)
        from_stations = sum(each.items_from_station for each in brokers)
        sample = PastItems(self._network.now_us, from_cells, from_stations)
        self._past_items.append(sample)

    def _with_end_state(self, run: Run) -> VenueRun:
        deployment, users = self._deployment, self._deployment.users
        end_us = self._scenario.timeline.end_us
        deletes = [each for each in run.attempts if each.kind == "delete" and each.code == "ok"]
        return VenueRun(
            scenario=self._scenario,
            run=run,
            stations=tuple(
                summarise_station(node_id.hex(), self._devices.node_of(users + number), self._wires)
                for number, node_id in enumerate(deployment.station_ids)
            ),
            deletes=len(deletes),
            deletes_left=sum(self._is_left(each) for each in deletes),
            cell_data=None if self._audit is None else self._audit.result(end_us),
            division_cpu_s=sum(
                content.division_cpu_s
                for contents in deployment.contents.values()
                for content in contents
            ),
            past_items=tuple(self._past_items),
        )

    def _mobile_nodes(self) -> Iterator[tuple[DcsNode, MobileExtension]]:
        """The mobile nodes that are up, and their extensions."""
        for number, mobile in self._deployment.mobiles.items():
            if self._devices.node_of(number) is not None:
                yield mobile

    def _is_left(self, delete: Attempt) -> bool:
        """Whether a station still has a deleted object, or a node its metadata (I23). Replicas on
        the devices of users who downloaded it do not count: nobody finds them."""
        key = Key(ObjectId(delete.name), self._deployment.node_ids[delete.user])
        world = world_number(world_name(self._scenario.world_of(delete.user)))
        latest = [contents[-1] for contents in self._deployment.contents.values()]
        if any(content.caches.metadata(str(world), key) is not None for content in latest):
            return True
        return any(node.index.get_object(key) is not None for node, _ in self._mobile_nodes())
