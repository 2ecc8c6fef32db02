"""The task of an infra run: simulates it and returns its result, one row of RUN_PART.

Entry point: `simulate`.
Clauses: P5, S14–S16, C23–C37.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from thyme.pipeline.sweep.runs.infra_run import InfraRun
from thyme.pipeline.sweep.runs.planned_run import ENDED, ResultRow
from thyme.pipeline.sweep.runs.task import NO_TRAFFIC, device_rows, log_tables, traffic_facts
from thyme.sim.results.measures import Measure, first_cells, measures_of
from thyme.sim.results.summary import TrafficSummary, summarise_run
from thyme.sim.run import Run, run
from thyme.sim.scenario import Scenario
from thyme.sim.venues.download_times import measure_download
from thyme.sim.venues.measures import (
    hot_node_measures,
    mobile_measures,
    past_item_measures,
    venue_measures,
)
from thyme.sim.venues.move_costs import measure_move
from thyme.sim.venues.operation_times import measure_operations
from thyme.sim.venues.run import run_venues
from thyme.sim.venues.scenario import VenueScenario
from thyme.sim.venues.summary import summarise_venues
from thyme.traces.files import FilePath
from thyme.traces.trace_files import read_trace


def simulate(planned: InfraRun, trace_file: FilePath | None = None) -> ResultRow:
    """Simulates one run and returns its result; the trace may be in another file here."""
    started_s, wall_s = time.process_time(), time.perf_counter()
    experiment, file = planned.experiment, trace_file or planned.trace_file or ""
    if experiment.venues is not None:
        row = _with_stations(planned, experiment.venues, file)
    elif experiment.without_stations is not None:
        row = _without_stations(planned, experiment.without_stations, file)
    else:
        row = _without_run(dict(_single_operations(planned)))
    return {
        **row,
        "state": ENDED,
        "run_id": planned.run_id,
        "series": planned.series,
        "substrate": planned.variant,
        "profile": "paper",
        "nodes": experiment.nodes,
        "parameter": planned.parameter,
        "topology": planned.seed,
        "repetition": planned.seed,
        "origin_us": 0,
        "end_us": experiment.lasts_us,
        "estimated_s": planned.cost.seconds,
        "wall_s": time.perf_counter() - wall_s,
        "cpu_s": time.process_time() - started_s,
    }


def _with_stations(planned: InfraRun, scenario: VenueScenario, file: FilePath) -> ResultRow:
    found = run_venues(scenario, read_trace(file, scenario.nodes))
    summary = summarise_venues(scenario, found.run, found.stations)
    cells = [0] * len(found.run.measurements.nodes)
    measures = venue_measures(found, summary)
    if planned.experiment.has_hot_tag:
        measures |= _values(hot_node_measures(found.run)) | _values(past_item_measures(found))
    return _row_of_run(found.run, summary.traffic, cells, measures)


def _without_stations(planned: InfraRun, scenario: Scenario, file: FilePath) -> ResultRow:
    found = run(scenario, read_trace(file, scenario.nodes))
    summary = summarise_run(found)
    cells = first_cells(found)
    measures = measures_of(found, summary) | _values(mobile_measures(found))
    if planned.experiment.has_hot_tag:
        measures |= _values(hot_node_measures(found))
    return _row_of_run(found, summary.traffic, cells, measures)


def _values(measures: Iterable[Measure]) -> dict[str, float]:
    return {name: float(value) for name, value in measures if value is not None}


def _row_of_run(
    found: Run, traffic: TrafficSummary, cells: list[int], measures: dict[str, float]
) -> ResultRow:
    return {
        "events": found.events,
        **traffic_facts(traffic),
        "model": [],
        **log_tables(found),
        "devices": list(device_rows(found, cells)),
        "measures": [{"measure": name, "value": value} for name, value in measures.items()],
    }


def _single_operations(planned: InfraRun) -> Iterator[Measure]:
    experiment = planned.experiment
    if experiment.downloads is not None:
        yield "download_ms", measure_download(experiment.downloads)
    if experiment.operations is not None:
        for kind, took_ms in measure_operations(experiment.operations).items():
            yield f"latency_ms_mean.{kind}", took_ms
    if experiment.move is not None:
        cost = measure_move(experiment.move)
        yield "move.sent", cost.sent
        yield "move.received", cost.received


def _without_run(measures: dict[str, float | None]) -> ResultRow:
    """The row of a measurement without users, and so without logs."""
    return {
        "events": 0,
        **traffic_facts(NO_TRAFFIC),
        "model": [],
        **{name: [] for name in ("operations", "notifications", "expected", "downtimes")},
        "loads": [],
        "devices": [],
        "measures": [{"measure": name, "value": value} for name, value in measures.items()],
    }
