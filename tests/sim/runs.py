"""Small runs for tests: few nodes, short timelines, traces of a few lines."""

from __future__ import annotations

from msgspec.structs import replace

from thyme.model.tags import as_tags
from thyme.model.time_frames import ALWAYS, SECOND_US, TimeFrame
from thyme.sim.deployment import Deployment
from thyme.sim.scenario import Scenario, Series, Substrate, Timeline
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.retrieve_behaviour import NO_RETRIEVES, RetrieveBehaviour
from thyme.traces.trace import Trace

SHORT = Timeline(
    starts_us=3 * SECOND_US,
    joins_us=2 * SECOND_US,
    operations_us=20 * SECOND_US,
    quiet_us=5 * SECOND_US,
)
AT_ONCE = RetrieveBehaviour(probability=1.0, within_us=SECOND_US)


def scenario(
    substrate: Substrate = Substrate.LS,
    nodes: int = 4,
    kind: Series = Series.STATIC,
    timeline: Timeline = SHORT,
    reaction: RetrieveBehaviour = NO_RETRIEVES,
    **settings: object,
) -> Scenario:
    """A scenario in which all nodes are in range of each other, unless options say otherwise."""
    plain = Scenario(
        substrate=substrate,
        nodes=nodes,
        kind=kind,
        timeline=timeline,
        reaction=reaction,
        area_m=(60.0, 60.0),
    )
    return replace(plain, **settings)


def insert(
    at_s: float,
    user: int,
    oid: str,
    tags: str = "goal",
    *,
    size: int = 100,
    summary_size: int = 0,
    text: str = "",
    life_us: int | None = None,
) -> InsertOperation:
    """A user inserts an object of 100 bytes."""
    size = len(text.encode()) or size
    return InsertOperation(
        _us(at_s), user, oid, as_tags(tags.split()), size, summary_size, text, life_us
    )


def delete(at_s: float, user: int, oid: str) -> DeleteOperation:
    """A user deletes an object."""
    return DeleteOperation(_us(at_s), user, oid)


def subscribe(
    at_s: float,
    user: int,
    sid: str,
    query: str = "goal",
    frame_s: tuple[float | None, float | None] | None = None,
) -> SubscribeOperation:
    """A user subscribes; the frame is in seconds, from the start of the operations."""
    frame = ALWAYS
    if frame_s is not None:
        frame = TimeFrame(*(None if end_s is None else _us(end_s) for end_s in frame_s))
    return SubscribeOperation(_us(at_s), user, sid, query, frame)


def unsubscribe(at_s: float, user: int, sid: str) -> UnsubscribeOperation:
    """A user revokes a subscription."""
    return UnsubscribeOperation(_us(at_s), user, sid)


def trace(users: int, *operations: Operation) -> Trace:
    """The operations in order of time."""
    return Trace(users, tuple(sorted(operations, key=lambda each: each.at_us)))


def cast(of: Scenario, what: Trace | None = None) -> Deployment:
    """The deployment of a scenario."""
    return Deployment(of, what or Trace(of.nodes, ()))


def _us(seconds: float) -> int:
    return round(seconds * SECOND_US)
