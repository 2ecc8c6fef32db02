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

from thyme.model.frames import SECOND_US
from thyme.sim.casting import Cast
from thyme.sim.census import Census, Keepers, Surveyor
from thyme.sim.fate import Fate
from thyme.sim.lives import Span, downtimes, lived
from thyme.sim.measure import Measurements
from thyme.sim.phones import NEXUS_6
from thyme.sim.recorder import Recorder, Writable
from thyme.sim.residents import Residents
from thyme.sim.scenario import Scenario, check_trace, synthetic_trace
from thyme.sim.users import Attempt, Heard, Users
from thyme.sim.watch import Progress, watched
from thyme.sim.world import WirelessWorld
from thyme.traces.oracle import Expected, expected_notifications
from thyme.traces.trace import Trace

LOOK_US = 10 * SECOND_US
"""Interval between two samples of the nodes' state."""
COLLECT_AFTER = 100_000
"""Number of new objects after which Python's cyclic garbage collector runs."""
KEEPERS_US = 2 * SECOND_US
"""Interval between two samples of the replicas, in runs that are recorded."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs, logs and measurements of one simulation run."""

    scenario: Scenario
    trace: Trace
    """The feasible trace: without the operations of users whose devices were down."""
    downtimes: dict[int, list[Span]]
    """Down times by device number; devices that were always up are left out."""
    attempts: list[Attempt]
    heard: list[Heard]
    expected: list[Expected]
    """The notifications of a perfect execution; instants count from the first operation."""
    measurements: Measurements
    census: Census
    """The objects and records stored by the nodes, and the cells in which the nodes were."""
    events: int
    wall_s: float


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Raises the threshold of Python's cyclic garbage collector for the duration of a block.

    A run allocates millions of objects that exist until its end. With the default threshold,
    collections take a tenth of the time and free almost nothing.
    """
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def run(
    scenario: Scenario,
    trace: Trace | None = None,
    *,
    on_progress: Callable[[Progress, Users], None] | None = None,
    record: Writable | None = None,
) -> Run:
    """Simulates a scenario; without a trace, with the synthetic trace of the scenario."""
    if trace is None:
        trace = synthetic_trace(scenario)
    check_trace(scenario, trace)
    with collecting_rarely():
        return _run(scenario, trace, on_progress, record)


def _run(
    scenario: Scenario,
    trace: Trace,
    on_progress: Callable[[Progress, Users], None] | None,
    record: Writable | None,
) -> Run:
    cast = Cast(scenario, trace)
    trace = lived(trace, cast.schedule, scenario.timeline.origin_us)
    started = time.perf_counter()
    recorder = None if record is None else Recorder(record)
    world = WirelessWorld(
        dict(zip(cast.names, cast.places, strict=True)),
        seed=scenario.seed,
        paths=cast.paths(),
        recorder=recorder,
    )
    users = Users(
        world,
        cast.names,
        trace,
        origin_us=scenario.timeline.origin_us,
        reaction=scenario.reaction,
        seed=scenario.seed,
    )
    residents = Residents(
        world, cast.names, cast.make, on_told=users.on_told, on_life=users.on_life
    )
    Fate(world, residents, cast.schedule, on_fault=world.note)
    users.begin()
    for number in range(len(cast.names)):
        residents.start(number)
    surveyor = Surveyor(residents)
    keepers = None if recorder is None else Keepers(residents, recorder)
    every_us = LOOK_US if keepers is None else KEEPERS_US
    for progress in watched(world.kernel, scenario.timeline.end_us, every_us=every_us):
        if keepers is not None:
            keepers.look(progress.done_us)
        if progress.done_us % LOOK_US and progress.done_us < progress.span_us:
            continue
        surveyor.look()
        if on_progress is not None:
            on_progress(progress, users)
    return Run(
        scenario=scenario,
        trace=trace,
        downtimes=downtimes(cast.schedule),
        attempts=users.attempts,
        heard=users.heard(),
        expected=expected_notifications(trace),
        measurements=world.measured(NEXUS_6),
        census=surveyor.census(),
        events=world.kernel.events,
        wall_s=time.perf_counter() - started,
    )
