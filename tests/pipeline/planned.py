"""Small plans for tests: a few short runs of four nodes within range of each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.sim.runs import AT_ONCE, delete, insert, scenario, subscribe, trace, unsubscribe
from thyme.pipeline.sweep.task import PlannedRun, ResultRow, file_digest, simulate
from thyme.sim.scenario import Series, Substrate
from thyme.traces.retrieve_behaviour import RetrieveBehaviour
from thyme.traces.trace import Trace
from thyme.traces.trace_files import write_trace

STORY = trace(
    4,
    insert(1, 0, "a", "goal eder"),
    subscribe(2, 1, "s1", "goal"),
    subscribe(3, 2, "s2", "goal & !replay", (3, None)),
    insert(4, 3, "b", "goal"),
    insert(5, 0, "c", "goal replay"),
    delete(6, 0, "a"),
    subscribe(8, 3, "s3", "goal"),
    unsubscribe(9, 1, "s1"),
    insert(12, 1, "d", "goal", life_us=2_000_000),
    insert(15, 2, "e", "goal"),
)
"""A little of everything: history and new objects, deleted, expired and revoked ones."""


def planned(
    folder: Path,
    substrate: Substrate = Substrate.LS,
    story: Trace = STORY,
    reaction: RetrieveBehaviour = AT_ONCE,
    **settings: Any,
) -> PlannedRun:
    """Plans one run and writes its trace."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"trace-{story.users}.csv"
    write_trace(story, file)
    setting = {"topology": 1, **settings}
    return PlannedRun(
        scenario=scenario(substrate, story.users, reaction=reaction, **setting),
        trace_file=str(file),
        trace_digest=file_digest(file),
        version="test",
    )


def a_few(folder: Path) -> list[PlannedRun]:
    """Each substrate in two topologies, and once with devices that go off and on."""
    return [
        planned(folder, substrate, topology=topology)
        for substrate in Substrate
        for topology in (1, 2)
    ] + [planned(folder, kind=Series.TRANSIENT, failing=0.5)]


def timeless(row: ResultRow) -> ResultRow:
    """A result without wall-clock times."""
    return {name: value for name, value in row.items() if name not in ("wall_s", "cpu_s")}


def result(run: PlannedRun) -> ResultRow:
    """The result of a run, without Spark."""
    return timeless(simulate(run))
