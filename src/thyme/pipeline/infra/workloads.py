"""Station workloads: the traces of the evaluation of Thyme-Infrastructure.

Entry point: `StationWorkload.make`. Three kinds: the lecture, also in its original duration;
lectures in several worlds whose users publish at different rates; and a goal, after which everybody
subscribes to the same tag. The values are those of the thesis, chapter 5.
Clauses: S13, C23–C32, C36.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from thyme.model.tags import as_tag
from thyme.model.time_frames import SECOND_US
from thyme.traces.operations import (
    InsertOperation,
    Operation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.synthetic.lecture_trace import THESIS_LECTURE, LectureConfig, lecture_trace
from thyme.traces.trace import Trace, merge_users

GOAL_TAG = "goal"
GOAL_OBJECTS = 50
"""Objects right after a goal; 100 in the thesis. They fit into one page of a subscription."""
_GOAL_PUBLISH_US = 5 * SECOND_US
_GOAL_SUBSCRIBE_US = 10 * SECOND_US
_GOAL_PUBLISHERS = 10


class WorkloadKind(StrEnum):
    """What users do."""

    LECTURE = "lecture"
    LECTURE_UNCOMPRESSED = "lecture-uncompressed"
    """The first part of a lecture, at its original pace."""
    WORLDS = "worlds"
    WORLDS_ALL = "worlds-all"
    """As `WORLDS`; rates apply to subscriptions as well."""
    GOAL = "goal"


class StationWorkload(msgspec.Struct, frozen=True, order=True, kw_only=True):
    """The parameters of a trace."""

    kind: WorkloadKind = WorkloadKind.LECTURE
    seed: int
    users: int
    lasts_us: int
    size: int = 64
    summary_size: int = 0
    rates: tuple[float, ...] = ()
    """How much more often than usual the users of each world publish."""

    @property
    def file(self) -> str:
        """Name of the trace file."""
        rates = "".join(f"-{rate:g}" for rate in self.rates)
        sizes = f"{self.size}-{self.summary_size}"
        lasts_s = self.lasts_us // SECOND_US
        return f"{self.kind}{rates}-{sizes}-users-{self.users}-{lasts_s}s-{self.seed}.parquet"

    def make(self) -> Trace:
        """Draws the trace."""
        match self.kind:
            case WorkloadKind.LECTURE:
                return lecture_trace(self.seed, self._lecture(self.users))
            case WorkloadKind.LECTURE_UNCOMPRESSED:
                slow = replace(self._lecture(self.users), lasts_us=THESIS_LECTURE.total_us)
                drawn = lecture_trace(self.seed, slow)
                early = (each for each in drawn.operations if each.at_us <= self.lasts_us)
                return Trace(self.users, tuple(early))
            case WorkloadKind.WORLDS | WorkloadKind.WORLDS_ALL:
                return merge_users(self.users, self._worlds())
            case WorkloadKind.GOAL:
                return merge_users(self.users, self._goal())

    def _lecture(self, users: int, rate: float = 1.0) -> LectureConfig:
        base = THESIS_LECTURE
        subscribes = rate if self.kind is WorkloadKind.WORLDS_ALL else 1.0
        return replace(
            base,
            users=users,
            lasts_us=self.lasts_us,
            size=self.size,
            summary_size=self.summary_size,
            publishes_good=rate * base.publishes_good,
            publishes_regular=rate * base.publishes_regular,
            university_publishes_outside=rate * base.university_publishes_outside,
            university_publishes_inside=rate * base.university_publishes_inside,
            university_subscribes=subscribes * base.university_subscribes,
        )

    def _worlds(self) -> Iterator[Operation]:
        """A lecture in each world; user n is in world n mod the number of worlds. Tags differ from
        world to world, so that a perfect execution notifies nobody of other worlds."""
        worlds = len(self.rates)
        for world, rate in enumerate(self.rates):
            members = len(range(world, self.users, worlds))
            for operation in lecture_trace(self.seed, self._lecture(members, rate)).operations:
                yield _in_world(operation, world, worlds)

    def _goal(self) -> Iterator[Operation]:
        """Many objects right after the goal; then a subscription every second."""
        tags = (as_tag(GOAL_TAG),)
        for number in range(GOAL_OBJECTS):
            at_us = number * _GOAL_PUBLISH_US // GOAL_OBJECTS
            user, oid = number % min(_GOAL_PUBLISHERS, self.users), f"goal{number}"
            yield InsertOperation(at_us, user, oid, tags, self.size, self.summary_size)
        for number, at_us in enumerate(range(_GOAL_SUBSCRIBE_US, self.lasts_us, SECOND_US)):
            yield SubscribeOperation(at_us, number % self.users, f"s{number}", GOAL_TAG)


def _in_world(operation: Operation, world: int, worlds: int) -> Operation:
    user, prefix = operation.user * worlds + world, f"w{world}"
    match operation:
        case InsertOperation():
            tags = tuple(as_tag(f"{prefix}{tag}") for tag in operation.tags)
            return replace(operation, user=user, oid=prefix + operation.oid, tags=tags)
        case SubscribeOperation():
            query = prefix + operation.query
            return replace(operation, user=user, sid=prefix + operation.sid, query=query)
        case UnsubscribeOperation():
            return replace(operation, user=user, sid=prefix + operation.sid)
        case _:
            return replace(operation, user=user, oid=prefix + operation.oid)
