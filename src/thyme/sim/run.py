"""Run: simulates one scenario with its trace and returns everything that was measured.

Entry point: `run`. Connects the deployment, the wireless network, the simulated users and the fault
injector. `thyme.sim.results.summary` computes success, latency and recall from the returned `Run`.
The same scenario and trace give the same results on every machine.
Clauses: S11, S14, S15.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from thyme.map.recording import Recorder, Writable
from thyme.model.positions import Position
from thyme.model.time_frames import SECOND_US
from thyme.sim.deployment import Deployment
from thyme.sim.event_export import SimulationEvents
from thyme.sim.faults.availability import DownSpan, downtimes, feasible_trace
from thyme.sim.faults.devices import Devices
from thyme.sim.faults.injector import FaultInjector
from thyme.sim.measurement.measurements import Measurements
from thyme.sim.measurement.phones import NEXUS_6
from thyme.sim.measurement.sampler import NodeSampler, StateSamples
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.playback.replica_recorder import ReplicaRecorder
from thyme.sim.progress import RunProgress, run_with_progress
from thyme.sim.scenario import Scenario, check_trace, synthetic_trace
from thyme.sim.users import Attempt, ReceivedNotification, Users
from thyme.substrates.dcs.config import DcsConfig
from thyme.traces.oracle import Expected, expected_notifications
from thyme.traces.trace import Trace

SAMPLE_US = 10 * SECOND_US
"""Interval between two samples of the nodes' state."""
GC_THRESHOLD = 100_000
"""Number of new objects after which Python's cyclic garbage collector runs."""
REPLICA_SAMPLE_US = 2 * SECOND_US
"""Interval between two samples of the replicas, in runs that are recorded."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs, logs and measurements of one simulation run."""

    scenario: Scenario
    trace: Trace
    """The feasible trace: without the operations of users whose devices were down."""
    downtimes: dict[int, list[DownSpan]]
    """Down times by device number; devices that were always up are left out."""
    positions: list[Position]
    """First positions by device number."""
    attempts: list[Attempt]
    notifications: list[ReceivedNotification]
    expected: list[Expected]
    """The notifications of a perfect execution; instants count from the first operation."""
    measurements: Measurements
    samples: StateSamples
    """The objects and records stored by the nodes, and the cells in which the nodes were."""
    events: int
    wall_s: float


@contextmanager
def rare_gc() -> Iterator[None]:
    """Raises the threshold of Python's cyclic garbage collector for the duration of a block.

    A run allocates millions of objects that exist until its end. With the default threshold,
    collections take a tenth of the time and free almost nothing.
    """
    before = gc.get_threshold()
    gc.set_threshold(GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run(
    scenario: Scenario,
    trace: Trace | None = None,
    *,
    on_progress: Callable[[RunProgress, Users], None] | None = None,
    recording_file: Writable | None = None,
    events: SimulationEvents | None = None,
    dcs_config: DcsConfig | None = None,
) -> Run:
    """Simulates a scenario; without a trace, with the synthetic trace of the scenario.

    With `dcs_config`, nodes of Thyme-DCS have these settings instead of those of the profile.
    """
    if trace is None:
        trace = synthetic_trace(scenario)
    check_trace(scenario, trace)
    with rare_gc():
        deployment = Deployment(scenario, trace, dcs_config)
        return _run(scenario, trace, deployment, on_progress, recording_file, events)


def _run(
    scenario: Scenario,
    trace: Trace,
    deployment: Deployment,
    on_progress: Callable[[RunProgress, Users], None] | None,
    recording_file: Writable | None,
    events: SimulationEvents | None,
) -> Run:
    trace = feasible_trace(trace, deployment.fault_schedule, scenario.timeline.origin_us)
    started_s = time.perf_counter()
    recorder = None if recording_file is None else Recorder(recording_file)
    network = _make_network(scenario, deployment, recorder)
    users = Users(
        network,
        deployment.node_ids,
        trace,
        origin_us=scenario.timeline.origin_us,
        reaction=scenario.reaction,
        seed=scenario.seed,
        events=events,
    )
    devices = Devices(
        network,
        deployment.node_ids,
        deployment.make_node,
        on_event=users.on_event,
        on_power=users.on_power,
    )
    if events is not None:
        events.attach(devices, deployment.node_ids, network.traffic)
    FaultInjector(network, devices, deployment.fault_schedule, on_fault=network.record_fault)
    users.schedule_operations()
    for number in range(len(deployment.node_ids)):
        devices.start(number)
    sampler = NodeSampler(devices)
    replica_recorder = None if recorder is None else ReplicaRecorder(devices, recorder)
    every_us = SAMPLE_US if replica_recorder is None else REPLICA_SAMPLE_US
    for progress in run_with_progress(network.kernel, scenario.timeline.end_us, every_us=every_us):
        if replica_recorder is not None:
            replica_recorder.record_changes(progress.done_us)
        if progress.done_us % SAMPLE_US and progress.done_us < progress.span_us:
            continue
        sampler.sample()
        if events is not None:
            events.sample_load(network.now_us)
        if on_progress is not None:
            on_progress(progress, users)
    return Run(
        scenario=scenario,
        trace=trace,
        downtimes=downtimes(deployment.fault_schedule),
        positions=deployment.positions,
        attempts=users.attempts,
        notifications=users.notifications(),
        expected=expected_notifications(trace),
        measurements=network.collect_measurements(NEXUS_6),
        samples=sampler.build_samples(),
        events=network.kernel.events_processed,
        wall_s=time.perf_counter() - started_s,
    )


def _make_network(
    scenario: Scenario, deployment: Deployment, recorder: Recorder | None
) -> WirelessNetwork:
    return WirelessNetwork(
        dict(zip(deployment.node_ids, deployment.positions, strict=True)),
        seed=scenario.seed,
        paths=deployment.make_paths(),
        recorder=recorder,
    )
