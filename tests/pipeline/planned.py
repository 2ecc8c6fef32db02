"""Small plans for tests: a few short runs of four nodes that hear each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.sim.runs import AT_ONCE, delete, insert, scenario, subscribe, trace, unsubscribe
from thyme.pipeline.runs import PlannedRun, Row, digest_of, simulate
from thyme.sim.scenario import Kind, Substrate
from thyme.traces.reactions import Reaction
from thyme.traces.table import write_trace
from thyme.traces.trace import Trace

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
    reaction: Reaction = AT_ONCE,
    **settings: Any,
) -> PlannedRun:
    """One run, its trace written."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"trace-{story.users}.csv"
    write_trace(story, file)
    setting = {"topology": 1, **settings}
    return PlannedRun(
        scenario=scenario(substrate, story.users, reaction=reaction, **setting),
        trace=str(file),
        trace_digest=digest_of(file),
        version="test",
    )


def a_few(folder: Path) -> list[PlannedRun]:
    """Each substrate in two topologies; and with devices that come and go."""
    return [
        planned(folder, substrate, topology=topology)
        for substrate in Substrate
        for topology in (1, 2)
    ] + [planned(folder, kind=Kind.TRANSIENT, failing=0.5)]


def timeless(row: Row) -> Row:
    """A result without what clocks said."""
    return {name: value for name, value in row.items() if name not in ("wall_s", "cpu_s")}


def result(run: PlannedRun) -> Row:
    """What a run comes to, without Spark."""
    return timeless(simulate(run))
