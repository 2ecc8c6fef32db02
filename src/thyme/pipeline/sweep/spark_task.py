"""Spark task: carries out planned runs on a worker, in a simulation process.

Entry points: `simulate_runs`, which returns results to Spark, and `simulate_into_folder`, which
writes them itself; both are functions for `DataFrame.mapInArrow`.
Clauses: P5, P11.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from thyme.pipeline.storage import LocalStorage
from thyme.pipeline.sweep.simulation_process import RunLimits, SimulationSlot

_slot: SimulationSlot | None = None
"""The simulation process of this worker; Spark starts a worker for each task at the same time."""


class PackedRun(msgspec.Struct, frozen=True):
    """A planned run, as a task gets it."""

    run_id: str
    planned: bytes
    """The planned run, as JSON."""
    trace: str | None
    """Name of the trace among the files that Spark has fetched; None: the run has none."""
    limits: RunLimits
    estimated_s: float


Tasks = Sequence[Sequence[PackedRun]]
"""The runs of each task, by its number."""


def simulate_runs(batches: Iterable[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
    """Simulates the runs of the tasks with the numbers in the batches; returns rows of RUN_PART,
    with the run id once more in the column `run`."""
    for row in _simulate(batches, tasks):
        yield from row.append_column("run", row.column("run_id")).to_batches()


def simulate_into_folder(
    batches: Iterable[pa.RecordBatch], tasks: Tasks, folder: str
) -> Iterator[pa.RecordBatch]:
    """Simulates the runs of the tasks with the numbers in the batches; writes each into the folder
    of its job, as Spark's writer would, and returns no rows."""
    for row in _simulate(batches, tasks):
        write_part(Path(folder), row)
        yield from ()


def write_part(folder: Path, row: pa.Table) -> None:
    """Writes the file of a run; leaves it if a task that was repeated has written it before."""
    [state], [run_id] = (row.column(name).to_pylist() for name in ("state", "run_id"))
    sink = io.BytesIO()
    pq.write_table(row.drop_columns(["state"]), sink, compression="zstd")
    with suppress(FileExistsError):
        LocalStorage(folder).create(f"state={state}/run={run_id}/part-0.parquet", sink.getvalue())


def _simulate(batches: Iterable[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.Table]:
    """The results of runs, each a row of RUN_PART."""
    from pyspark import SparkFiles

    slot = worker_slot()
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    for run in (run for number in numbers for run in tasks[number]):
        trace_file = SparkFiles.get(run.trace) if run.trace is not None else None
        yield slot.run(run.planned, run.run_id, trace_file, run.limits)


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
