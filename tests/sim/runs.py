"""Small runs for tests: few nodes, short timelines, traces of a few lines."""

from __future__ import annotations

from msgspec.structs import replace

from thyme.model.frames import ALWAYS, SECOND_US, TimeFrame
from thyme.model.tags import as_tags
from thyme.sim.casting import Cast
from thyme.sim.scenario import Kind, Scenario, Substrate, Timeline
from thyme.traces.operations import Delete, Insert, Operation, Subscribe, Unsubscribe
from thyme.traces.reactions import NONE, Reaction
from thyme.traces.trace import Trace

SHORT = Timeline(
    starts_us=3 * SECOND_US,
    joins_us=2 * SECOND_US,
    operations_us=20 * SECOND_US,
    quiet_us=5 * SECOND_US,
)
AT_ONCE = Reaction(probability=1.0, within_us=SECOND_US)


def scenario(
    substrate: Substrate = Substrate.LS,
    nodes: int = 4,
    kind: Kind = Kind.STATIC,
    timeline: Timeline = SHORT,
    reaction: Reaction = NONE,
    **settings: object,
) -> Scenario:
    """A scenario in which everybody hears everybody, unless it says otherwise."""
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
) -> Insert:
    """A user inserts an object of 100 bytes."""
    size = len(text.encode()) or size
    return Insert(_us(at_s), user, oid, as_tags(tags.split()), size, summary_size, text, life_us)


def delete(at_s: float, user: int, oid: str) -> Delete:
    """A user deletes an object."""
    return Delete(_us(at_s), user, oid)


def subscribe(
    at_s: float,
    user: int,
    sid: str,
    query: str = "goal",
    frame_s: tuple[float | None, float | None] | None = None,
) -> Subscribe:
    """A user subscribes; the frame is in seconds, from the start of the operations."""
    frame = ALWAYS
    if frame_s is not None:
        frame = TimeFrame(*(None if end_s is None else _us(end_s) for end_s in frame_s))
    return Subscribe(_us(at_s), user, sid, query, frame)


def unsubscribe(at_s: float, user: int, sid: str) -> Unsubscribe:
    """A user revokes a subscription."""
    return Unsubscribe(_us(at_s), user, sid)


def trace(users: int, *operations: Operation) -> Trace:
    """The operations in order of time."""
    return Trace(users, tuple(sorted(operations, key=lambda each: each.at_us)))


def cast(of: Scenario, what: Trace | None = None) -> Cast:
    """Everybody in a scenario."""
    return Cast(of, what or Trace(of.nodes, ()))


def _us(seconds: float) -> int:
    return round(seconds * SECOND_US)
