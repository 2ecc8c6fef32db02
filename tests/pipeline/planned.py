"""Small plans for tests: a few short runs of four nodes that hear each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.sim.runs import AT_ONCE, delete, insert, scenario, subscribe, trace, unsubscribe
from thyme.pipeline.sweep.run_schemas import RUN_FACTS, RUN_LOGS
from thyme.pipeline.sweep.runs.planned_run import PlannedRun, ResultRow, content_digest
from thyme.pipeline.sweep.runs.task import simulate
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
"""Past and future, deleted, expired and revoked: a little of everything."""


def planned(
    folder: Path,
    substrate: Substrate = Substrate.LS,
    story: Trace = STORY,
    reaction: RetrieveBehaviour = AT_ONCE,
    **settings: Any,
) -> PlannedRun:
    """One run, its trace written."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"trace-{story.users}.csv"
    write_trace(story, file)
    setting = {"topology": 1, **settings}
    return PlannedRun(
        scenario=scenario(substrate, story.users, reaction=reaction, **setting),
        trace_file=str(file),
        trace_digest=content_digest(file.read_bytes()),
        version="test",
    )


def a_few(folder: Path) -> list[PlannedRun]:
    """Each substrate in two topologies; and with devices that come and go."""
    return [
        planned(folder, substrate, topology=topology)
        for substrate in Substrate
        for topology in (1, 2)
    ] + [planned(folder, kind=Series.TRANSIENT, failing=0.5)]


TIMES = ("wall_s", "cpu_s", "compiled")
"""Columns that say how a run was simulated, not what it came to."""


def result(run: PlannedRun) -> dict[str, list[ResultRow]]:
    """What a run comes to, without Spark: the rows of each flat table, in any order."""
    row = simulate(run)
    facts = {field.name: row[field.name] for field in RUN_FACTS if field.name not in TIMES}
    return in_order({"runs": [facts], **{name: row[name] for name in RUN_LOGS}})


def in_order(tables: dict[str, list[ResultRow]]) -> dict[str, list[ResultRow]]:
    """Tables with their rows in an order of their own."""
    return {
        name: sorted(rows, key=lambda row: str(sorted(row.items())))
        for name, rows in tables.items()
    }
