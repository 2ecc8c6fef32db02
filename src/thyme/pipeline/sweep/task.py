"""The task of a sweep: simulates one planned run and writes its result file.

A planned run is a scenario and a trace file; its id describes the run and ends in a digest of
everything that its result depends on. Entry point: `run_task`, executed on a Spark worker.
`simulate` returns the result as one row with the logs as nested tables, and the measures of the run
(`thyme.sim.results.measures`). Each result and its measures are files of their own, written
atomically.
Clauses: P5, S14–S16, S18.
"""

from __future__ import annotations

import io
import time
import traceback
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from thyme.pipeline.sweep.cost_model import RunSize
from thyme.sim.results.measures import first_cells, measures_of, model_parts
from thyme.sim.results.summary import NotificationChecker, RunSummary, summarise_run
from thyme.sim.run import Run, run
from thyme.sim.scenario import Scenario, Series, Substrate
from thyme.traces.files import write_atomically
from thyme.traces.operations import InsertOperation
from thyme.traces.trace_files import read_trace

RESULT_FORMAT = 2
"""Format of a result row. It is part of run ids, so results in older formats are ignored."""


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a sweep (P5)."""

    scenario: Scenario
    trace_file: str
    """Path of the trace file."""
    trace_digest: str
    """Digest of the contents of the trace file; independent of its path."""
    version: str
    """Version of Thyme: another version may give other results."""

    @property
    def run_id(self) -> str:
        """The id of the run: equal for equal inputs, wherever the files are."""
        it = self.scenario
        inputs = msgspec.json.encode((RESULT_FORMAT, self.version, it, self.trace_digest))
        digest = blake2b(inputs, digest_size=5).hexdigest()
        return (
            f"{it.kind}-{it.nodes:03}-{it.substrate}-{it.profile}-{self.parameter:g}"
            f"-t{it.topology}-r{it.seed}-{digest}"
        )

    @property
    def parameter(self) -> float:
        """The value that varies in the series: nodes, failing share, or speed."""
        return series_parameter(self.scenario)


def series_parameter(scenario: Scenario) -> float:
    """The value that varies in the series of a scenario: nodes, failing share, or speed."""
    match scenario.kind:
        case Series.STATIC:
            return float(scenario.nodes)
        case Series.CRASH | Series.TRANSIENT:
            return scenario.failing
        case Series.MOBILE:
            return scenario.speed_m_s


def file_digest(file: Path) -> str:
    """Digest of the contents of a file."""
    return blake2b(file.read_bytes(), digest_size=16).hexdigest()


# The result of a run

ResultRow = dict[str, Any]


class TaskResult(msgspec.Struct, frozen=True):
    """The result of one run."""

    row: ResultRow
    """A row of RESULT."""
    measures: dict[str, float]
    """The measures of the run, by name."""


def simulate(planned: PlannedRun) -> TaskResult:
    """Simulates one planned run and returns its result."""
    trace = read_trace(planned.trace_file, planned.scenario.nodes)
    started_s = time.process_time()
    found = run(planned.scenario, trace)
    cpu_s = time.process_time() - started_s
    summary = summarise_run(found)
    row = _result_row(planned, found, summary) | {"cpu_s": cpu_s}
    return TaskResult(row, measures_of(found, summary))


def _result_row(planned: PlannedRun, found: Run, summary: RunSummary) -> ResultRow:
    """Makes the row of a run; `cpu_s` is left to the caller."""
    scenario, traffic = planned.scenario, summary.traffic
    return {
        "run_id": planned.run_id,
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
        "phy_frames": traffic.phy_frames,
        "phy_bytes": traffic.phy_bytes,
        "mac_retransmissions": traffic.mac_retransmissions,
        "forwarded_bytes": traffic.forwarded_bytes,
        "control_bytes": traffic.control_bytes,
        "drops": [{"cause": cause, "messages": count} for cause, count in traffic.dropped.items()],
        "model": msgspec.to_builtins(model_parts(summary)),
        **_log_tables(found),
    }


def _log_tables(found: Run) -> ResultRow:
    checker = NotificationChecker(found)
    ttls_us = {
        op.oid: op.life_us for op in found.trace.operations if isinstance(op, InsertOperation)
    }
    return {
        "operations": [
            msgspec.to_builtins(attempt) | {"life_us": ttls_us.get(attempt.name)}
            for attempt in found.attempts
        ],
        "notifications": [
            msgspec.to_builtins(received) | {"right": checker.is_valid(received)}
            for received in found.notifications
        ],
        "expected": [
            {"at_us": due.at_us, "user": due.user, "sid": due.sid, "oid": due.oid}
            for due in found.expected
        ],
        "downtimes": [
            {"user": user, "since_us": since_us, "until_us": until_us}
            for user, spans in found.downtimes.items()
            for since_us, until_us in spans
        ],
        "loads": [
            {"node": number, "type": kind} | msgspec.to_builtins(load)
            for number, node in enumerate(found.measurements.nodes)
            for kind, load in node.loads.items()
        ],
        "devices": list(_device_rows(found)),
    }


def _device_rows(found: Run) -> Iterator[ResultRow]:
    """Traffic, energy and final storage of each device, and the cell in which it started."""
    rows = zip(first_cells(found), found.measurements.nodes, found.samples.stored, strict=True)
    for number, (cell, node, stored) in enumerate(rows):
        yield {
            "node": number,
            "server": number >= found.scenario.nodes,
            "cell": cell,
            "frames": node.frames,
            "frame_bytes": node.frame_bytes,
            "retransmissions": node.retransmissions,
            "joules": node.energy.joules,
            "battery_share": node.energy.battery_share,
            "objects": stored.objects,
            "object_bytes": stored.bytes,
            "metadata": stored.metadata,
            "subscriptions": stored.subscriptions,
        }


# Files

RESULT_SUFFIX, MEASURES_SUFFIX, FAILURE_SUFFIX = ".parquet", ".measures.jsonl", ".failed.json"


class RunFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended with an exception."""

    run_id: str
    error: str
    trace_back: str


def run_task(planned: PlannedRun, folder: Path) -> None:
    """Simulates one planned run and writes its measures and its result, or its failure."""
    result_file, measures_file, failure_file = (
        folder / f"{planned.run_id}{suffix}"
        for suffix in (RESULT_SUFFIX, MEASURES_SUFFIX, FAILURE_SUFFIX)
    )
    try:
        result = simulate(planned)
        row, measures = results_to_parquet([result.row]), measures_to_json(planned.run_id, result)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        failure = RunFailure(
            run_id=planned.run_id, error=message, trace_back="".join(traceback.format_exc())
        )
        write_atomically(failure_file, msgspec.json.encode(failure))
        return
    write_atomically(measures_file, measures)
    write_atomically(result_file, row)
    failure_file.unlink(missing_ok=True)


def results_to_parquet(rows: list[ResultRow]) -> bytes:
    """Encodes result rows as a Parquet file."""
    from thyme.pipeline.schemas import RESULT

    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, RESULT), buffer, compression="zstd")
    return buffer.getvalue()


def measures_to_json(run_id: str, result: TaskResult) -> bytes:
    """Encodes the measures of a run as rows of MEASURES, one JSON object per line."""
    rows = (
        {"run_id": run_id, "measure": name, "value": value}
        for name, value in result.measures.items()
    )
    return msgspec.json.Encoder().encode_lines(rows)


def completed_runs(folder: Path) -> set[str]:
    """The ids of runs with a result and its measures in a folder."""
    with_result, with_measures = (
        {file.name.removesuffix(suffix) for file in folder.glob(f"[!.]*{suffix}")}
        for suffix in (RESULT_SUFFIX, MEASURES_SUFFIX)
    )
    return with_result & with_measures


class RunDuration(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a run and its duration, in wall-clock and CPU time."""

    size: RunSize
    wall_s: float
    cpu_s: float


def read_duration(file: Path) -> RunDuration:
    """Reads the duration of a run from its result file."""
    columns = ["series", "substrate", "nodes", "end_us", "wall_s", "cpu_s"]
    [row] = pq.read_table(file, columns=columns).to_pylist()
    size = RunSize(Series(row["series"]), Substrate(row["substrate"]), row["nodes"], row["end_us"])
    return RunDuration(size=size, wall_s=row["wall_s"], cpu_s=row["cpu_s"])


def read_failures(folder: Path) -> list[RunFailure]:
    """The failed runs of a folder, sorted by run id."""
    files = sorted(folder.glob(f"[!.]*{FAILURE_SUFFIX}"))
    return [msgspec.json.decode(file.read_bytes(), type=RunFailure) for file in files]
