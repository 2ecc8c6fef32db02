"""The task of a sweep: simulates one planned run and returns its result.

Entry point: `simulate_any`, called in a process of its own (`sweep.simulation_worker`). A result is
one row of RUN_PART, with the logs as lists.
Clauses: P5, S14–S16, S18.
"""

from __future__ import annotations

import time

import msgspec

from thyme.pipeline.sweep.any_run import AnyRun
from thyme.pipeline.sweep.infra_run import InfraRun
from thyme.pipeline.sweep.infra_task import simulate_infra
from thyme.pipeline.sweep.planned_run import ENDED, PlannedRun, ResultRow
from thyme.pipeline.sweep.run_rows import device_rows, log_tables, traffic_facts
from thyme.sim.results.measures import first_cells, measures_of, model_parts
from thyme.sim.results.summary import RunSummary, summarise_run
from thyme.sim.run import Run, run
from thyme.traces.files import FilePath
from thyme.traces.trace_files import read_trace


def simulate_any(planned: AnyRun, trace_file: FilePath | None = None) -> ResultRow:
    """Simulates one run of any kind; the trace may be in another file here."""
    if isinstance(planned, InfraRun):
        return simulate_infra(planned, trace_file)
    return simulate(planned, trace_file)


def simulate(planned: PlannedRun, trace_file: FilePath | None = None) -> ResultRow:
    """Simulates one planned run and returns its result; the trace may be in another file here."""
    trace = read_trace(trace_file or planned.trace_file, planned.scenario.nodes)
    started_s = time.process_time()
    found = run(planned.scenario, trace)
    cpu_s = time.process_time() - started_s
    summary = summarise_run(found)
    measures = measures_of(found, summary)
    return {
        "state": ENDED,
        "run_id": planned.run_id,
        **_run_facts(planned, found, summary),
        "cpu_s": cpu_s,
        "measures": [{"measure": name, "value": value} for name, value in measures.items()],
    }


def _run_facts(planned: PlannedRun, found: Run, summary: RunSummary) -> ResultRow:
    """Makes the row of a run, without its measures and CPU time."""
    scenario = planned.scenario
    return {
        "series": scenario.kind.value,
        "substrate": scenario.substrate.value,
        "profile": scenario.profile.value,
        "nodes": scenario.nodes,
        "parameter": planned.parameter,
        "topology": scenario.topology,
        "repetition": scenario.seed,
        "origin_us": scenario.timeline.origin_us,
        "end_us": scenario.timeline.end_us,
        "events": found.events,
        "wall_s": found.wall_s,
        **traffic_facts(summary.traffic),
        "model": msgspec.to_builtins(model_parts(summary)),
        **log_tables(found),
        "devices": list(device_rows(found, first_cells(found))),
    }
