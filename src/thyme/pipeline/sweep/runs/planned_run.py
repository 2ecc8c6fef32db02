"""Planned run: one run of a sweep, named after everything that its result depends on.

`SweepRun` is all that the sweep needs to know of a run; `PlannedRun` is one on the radio, a
scenario and a trace. A further kind of run is a record with these properties and a function that
simulates it, both listed in `sweep.runs.run_kinds`.
Clauses: P5, S16.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any, Protocol

import msgspec

from thyme.pipeline.sweep.runs.cost_model import RunCost, estimate_cost
from thyme.sim.scenario import Scenario, Series

ResultRow = dict[str, Any]
"""A row of RUN_PART."""
RESULT_FORMAT = 4
"""Format of results. It is part of run ids, so results in older formats are ignored."""
ENDED, FAILED = "ended", "failed"
"""States of a run in the column `state`."""


class SweepRun(Protocol):
    """A run, as the sweep sees it (P5)."""

    @property
    def run_id(self) -> str:
        """The id of the run: equal for equal inputs, wherever the files are."""
        ...

    @property
    def cost(self) -> RunCost:
        """The estimated cost, which decides the order of runs and their time limit."""
        ...

    @property
    def trace_file(self) -> str | None:
        """Path or URI of a file that workers need, as the driver sees it; None: no file."""
        ...

    @property
    def shipped_trace(self) -> str | None:
        """Name of the file on workers."""
        ...


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True, tag="radio"):
    """A run on the radio: a scenario and a trace."""

    scenario: Scenario
    trace_file: str
    """Path or URI of the trace file, as the driver sees it."""
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
    def cost(self) -> RunCost:
        """The estimated cost of the run."""
        return estimate_cost(self.scenario)

    @property
    def parameter(self) -> float:
        """The value that varies in the series: nodes, failing share, or speed."""
        return series_parameter(self.scenario)

    @property
    def shipped_trace(self) -> str:
        """Name of the trace file on workers."""
        return shipped_name(self.trace_file, self.trace_digest)


def shipped_name(trace_file: str, digest: str) -> str:
    """Name of a trace file on workers: by its contents, with the ending that tells its format."""
    name = PurePosixPath(trace_file).name
    return f"thyme-trace-{digest}{name[name.find('.') :]}"


def series_parameter(scenario: Scenario) -> float:
    """The value that varies in the series of a scenario: nodes, failing share, or speed."""
    match scenario.kind:
        case Series.STATIC:
            return float(scenario.nodes)
        case Series.CRASH | Series.TRANSIENT:
            return scenario.failing
        case Series.MOBILE:
            return scenario.speed_m_s


def content_digest(data: bytes) -> str:
    """Digest of the contents of a file."""
    return blake2b(data, digest_size=16).hexdigest()


def failed_run(run_id: str, error: str, trace_back: str = "") -> ResultRow:
    """The row of a run that has no result."""
    return {"state": FAILED, "run_id": run_id, "error": error, "trace_back": trace_back}
