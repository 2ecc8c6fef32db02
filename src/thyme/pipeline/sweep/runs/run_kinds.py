"""Run kinds: the kinds of runs that a sweep can carry out, and the function that simulates each.

A new kind is a record with the properties of `SweepRun` and a tag of its own, added to `AnyRun`,
and a function from the record to a row of RUN_PART, added to `simulate`. Limits, isolation, URIs,
resuming, progress and plans are then those of every sweep. A preset that only varies scenarios of
the radio needs neither: its runs are of the kind `PlannedRun`.
Clauses: P5, P11.
"""

from __future__ import annotations

from typing import assert_never

from thyme.pipeline.sweep.runs import encounter_run, infra_task, task
from thyme.pipeline.sweep.runs.encounter_run import EncounterRun
from thyme.pipeline.sweep.runs.infra_run import InfraRun
from thyme.pipeline.sweep.runs.planned_run import PlannedRun, ResultRow
from thyme.traces.files import FilePath

AnyRun = PlannedRun | EncounterRun | InfraRun


def simulate(run: AnyRun, trace_file: FilePath | None = None) -> ResultRow:
    """Simulates a run; its trace may be in another file here than on the driver."""
    match run:
        case PlannedRun():
            return task.simulate(run, trace_file)
        case EncounterRun():
            return encounter_run.simulate(run)
        case InfraRun():
            return infra_task.simulate(run, trace_file)
        case _:
            assert_never(run)
