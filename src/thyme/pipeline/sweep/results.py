"""Results of runs: how they are stored while a sweep runs, and afterwards.

A task writes its run as one row (RUN_PART) into a file of its own: a part. The folder of a part
tells its state and run: `sweep/JOB/state=ended/run=RUN_ID/`. So a listing tells which runs have
ended, also after an interruption. `RunResults.compact` moves the parts into the stage `runs`, with
few files and one flat table for each log. Spark writes these, by Hadoop's file systems, and parts
where the warehouse is not a folder; only small files are read here, on the driver.
Clauses: P5, P10, P11.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow.parquet as pq

from thyme.distribution import VERSION
from thyme.pipeline.storage import Storage, storage_at
from thyme.pipeline.sweep.run_schemas import RUN_FACTS, RUN_PART, RUN_TABLES
from thyme.pipeline.sweep.runs.cost_model import RunCost
from thyme.pipeline.sweep.runs.planned_run import ENDED, FAILED, RESULT_FORMAT
from thyme.pipeline.warehouse import Draft, Stage, Warehouse, stage_fingerprint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SWEEP_FOLDER, RUNS_STAGE = "sweep", "runs"
RUNS_PER_FILE = 128
"""A run has up to some megabytes of logs; a file of a table has those of this many runs."""
FILES_MORE = 7
"""Files that a table may have beyond those it needs, before it is written anew."""
_FINISHED = "_SUCCESS"
"""The file that Spark's writer leaves in the folder of a finished job."""
ABANDONED_S = 24 * 3600
"""A job that has written nothing for so long has been killed."""


class RunFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A run that failed."""

    run_id: str
    error: str
    trace_back: str


class RunDuration(msgspec.Struct, frozen=True, kw_only=True):
    """The estimated cost of a run and its duration, in wall-clock and CPU time."""

    cost: RunCost
    wall_s: float
    cpu_s: float
    compiled: bool


class Part(NamedTuple):
    """The file of a run that is not in the stage `runs` yet."""

    run_id: str
    folder: str
    file: str


class JobNews(NamedTuple):
    """Runs that a job has finished since it was last asked."""

    ended: dict[str, RunDuration]
    failed: set[str]


class RunResults:
    """The results of runs in a warehouse: the stage `runs`, and parts."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._storage: Storage = storage_at(warehouse.uri)

    @property
    def uri(self) -> str:
        """The folder of the warehouse, for people."""
        return self._storage.uri

    def completed(self) -> set[str]:
        """The ids of all runs with a result."""
        return {*self._stored_durations(), *self.parts(ENDED)}

    def durations(self) -> dict[str, RunDuration]:
        """The durations of all runs with a result."""
        parts = self.parts(ENDED)
        new = {run_id: self.read_duration(part) for run_id, part in parts.items()}
        return self._stored_durations() | new

    def failures(self) -> list[RunFailure]:
        """The failed runs, sorted by run id."""
        columns = ["run_id", "error", "trace_back"]
        parts = self.parts(FAILED)
        return [RunFailure(**self._read_part(parts[run_id], columns)) for run_id in sorted(parts)]

    def forget_failures(self, run_ids: Collection[str]) -> None:
        """Removes failures: these runs are tried again."""
        for run_id, part in self.parts(FAILED).items():
            if run_id in run_ids:
                self._storage.delete(part.folder)

    # Parts

    def new_job(self) -> str:
        """Names a job, whose parts go to a folder of its own."""
        return f"{SWEEP_FOLDER}/{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{token_hex(4)}"

    def spark_path(self, job: str) -> str:
        """The folder of a job, for Spark's writer."""
        return self._storage.spark_path(job)

    def local_folder(self, job: str) -> Path | None:
        """The folder of a job, if all machines reach it as a path."""
        folder = self._storage.folder
        return None if folder is None else folder.absolute() / job

    def mark_finished(self, job: str) -> None:
        """Notes that a job has ended, as Spark's writer does."""
        self._storage.create(f"{job}/{_FINISHED}", b"")

    def parts(
        self, state: str, jobs: Collection[str] | None = None, known: Collection[str] = ()
    ) -> dict[str, Part]:
        """The parts in a state by run, of all jobs or some, without runs that are known already."""
        if jobs is None:
            jobs = [f"{SWEEP_FOLDER}/{name}" for name in self._storage.names(SWEEP_FOLDER)]
        found = (part for job in jobs for part in self._job_parts(job, state, known))
        return {part.run_id: part for part in found}

    def _job_parts(self, job: str, state: str, known: Collection[str]) -> Iterator[Part]:
        above = f"{job}/state={state}"
        for name in self._storage.names(above):
            run_id = name.removeprefix("run=")
            if run_id in known:
                continue
            # The folder is created a moment before the file is moved into it.
            for file in self._storage.names(f"{above}/{name}"):
                if file.startswith("part-") and file.endswith(".parquet"):
                    yield Part(run_id, f"{above}/{name}", f"{above}/{name}/{file}")

    def poll_job(self, job: str, known: Collection[str]) -> JobNews:
        """The runs of a job that have ended or failed, without those that are known."""
        ended = self.parts(ENDED, [job], known).values()
        return JobNews(
            ended={part.run_id: self.read_duration(part) for part in ended},
            failed=set(self.parts(FAILED, [job], known)),
        )

    def read_duration(self, part: Part) -> RunDuration:
        """Reads the duration of a run."""
        columns = ["substrate", "estimated_s", "wall_s", "cpu_s", "compiled"]
        return _duration(self._read_part(part, columns))

    def _read_part(self, part: Part, columns: list[str]) -> dict[str, Any]:
        with self._storage.open(part.file) as file:
            [row] = pq.read_table(file, columns=columns).to_pylist()
        found: dict[str, Any] = row
        return found

    # The stage

    def stage(self) -> Stage | None:
        """The stage `runs`; None if there is none, or of another format or version."""
        stage = self._warehouse.find_stage(RUNS_STAGE)
        return stage if stage and stage.manifest.config == _stage_config() else None

    def compact(self, spark: SparkSession) -> Stage | None:
        """Moves all parts of ended runs into the stage `runs`; None if no run has a result."""
        before, parts = self.stage(), self.parts(ENDED)
        if not parts:
            return before
        durations = self._stored_durations() | {
            run_id: self.read_duration(part) for run_id, part in parts.items()
        }

        def build(draft: Draft) -> None:
            files = [self._storage.spark_path(parts[name].file) for name in sorted(parts)]
            rows = read_parts(spark, files)
            for name in RUN_TABLES:
                _write_table(spark, draft, before, name, flat_table(rows, name), len(durations))
            draft.add_notes(durations=msgspec.to_builtins(durations))

        config, inputs = _stage_config(), {"runs": digest_of_runs(durations)}
        fingerprint = stage_fingerprint(RUNS_STAGE, config, inputs)
        stage = self._warehouse.commit(RUNS_STAGE, fingerprint, config, inputs, build, base=before)
        self._remove_parts(parts)
        return stage

    def _stored_durations(self) -> dict[str, RunDuration]:
        stage = self.stage()
        notes = {} if stage is None else stage.manifest.notes["durations"]
        return msgspec.convert(notes, dict[str, RunDuration])

    def _remove_parts(self, parts: Mapping[str, Part]) -> None:
        """Removes parts, and jobs of which nothing is left but temporary files."""
        for part in parts.values():
            self._storage.delete(part.folder)
        for name in self._storage.names(SWEEP_FOLDER):
            job = f"{SWEEP_FOLDER}/{name}"
            if not (self.parts(ENDED, [job]) or self.parts(FAILED, [job])) and self._is_over(job):
                self._storage.delete(job)

    def _is_over(self, job: str) -> bool:
        if _FINISHED in self._storage.names(job):
            return True
        newest_s = max((file.modified_s for file in self._storage.files(job)), default=0.0)
        return time.time() - newest_s > ABANDONED_S


def _stage_config() -> dict[str, Any]:
    return {"format": RESULT_FORMAT, "version": VERSION}


def _duration(row: dict[str, Any]) -> RunDuration:
    return RunDuration(
        cost=RunCost(row["substrate"], row["estimated_s"]),
        wall_s=row["wall_s"],
        cpu_s=row["cpu_s"],
        compiled=row["compiled"],
    )


def digest_of_runs(run_ids: Collection[str]) -> str:
    """A digest of a set of runs: their ids stand for their results."""
    return blake2b("\n".join(sorted(run_ids)).encode(), digest_size=16).hexdigest()


# Tables


def read_parts(spark: SparkSession, files: list[str]) -> DataFrame:
    """Reads the parts of runs."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.read.schema(from_arrow_schema(RUN_PART)).parquet(*files)


def flat_table(parts: DataFrame, name: str) -> DataFrame:
    """One of RUN_TABLES, from the parts of runs."""
    from pyspark.sql import functions as F  # noqa: N812

    if name == "runs":
        return parts.select("run_id", *(field.name for field in RUN_FACTS))
    return parts.select("run_id", F.inline(name))


def read_table(spark: SparkSession, stage: Stage, name: str) -> DataFrame:
    """Reads a table of the stage `runs`."""
    return stage.read(spark, name, table_schema(name))


def table_schema(name: str) -> StructType:
    """The columns of one of RUN_TABLES."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(RUN_TABLES[name])


def _write_table(
    spark: SparkSession, draft: Draft, before: Stage | None, name: str, new: DataFrame, runs: int
) -> None:
    """Adds rows to a table of the stage. Its files are kept, unless they have become too many."""
    files = 1 + runs // RUNS_PER_FILE
    if before is not None:
        facts = before.manifest.tables[name]
        if len(facts.files) < files + FILES_MORE:
            draft.keep(name, facts)
        else:
            new = read_table(spark, before, name).unionByName(new)
    draft.write(name, new, files=files, schema=table_schema(name))
