"""Spark task: carries out planned runs on a worker, each in a process of its own.

Entry point: `simulate_runs`, a function for `DataFrame.mapInArrow`.
Clauses: P5, P11.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa

from thyme.pipeline.sweep.simulation_process import RunLimits, SimulationSlot

_slot: SimulationSlot | None = None
"""The simulation process of this worker; Spark starts a worker for each task at the same time."""


class PackedRun(msgspec.Struct, frozen=True):
    """A planned run, as a task gets it."""

    run_id: str
    planned: bytes
    """The planned run, as JSON."""
    trace: str
    """Name of the trace among the files that Spark has fetched; empty if there is none."""
    limits: RunLimits


def simulate_runs(
    batches: Iterable[pa.RecordBatch], packed: Sequence[PackedRun]
) -> Iterator[pa.RecordBatch]:
    """Simulates the runs with the numbers in the batches; returns rows of RUN_PART, with the run
    id once more in the column `run`."""
    from pyspark import SparkFiles

    slot = worker_slot()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            run = packed[number]
            trace_file = SparkFiles.get(run.trace) if run.trace else ""
            row = slot.run(run.planned, run.run_id, trace_file, run.limits)
            yield from row.append_column("run", row.column("run_id")).to_batches()


def warm_worker(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Starts the simulation process of this worker; returns no rows."""
    worker_slot().start()
    for _ in batches:
        yield from ()


def worker_slot() -> SimulationSlot:
    """The slot of this worker."""
    from pyspark import SparkFiles

    global _slot
    if _slot is None:
        _slot = SimulationSlot(SparkFiles.getRootDirectory())
    return _slot
