"""The lecture trace: the workload of the thesis, a class held twice, each for half of the students.

Entry point: `lecture_trace`. In a class, good students subscribe to all topics during the warm-up
and publish much; regular students publish after the warm-up and subscribe to the topics one by one.
All students publish and subscribe under the tags of the university all the time. Retrieves follow
from notifications (`retrieve_behaviour.LECTURE_RETRIEVES`). Values that the thesis leaves open are
settings: numbers of tags, rate of deletes, sizes; all frames are ⊥..⊥.
Clause: S13.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.model.sampling import check_share, sample_nodes
from thyme.model.tags import as_tag
from thyme.model.time_frames import SECOND_US
from thyme.traces.operations import DeleteOperation, InsertOperation, Operation, SubscribeOperation
from thyme.traces.posts_to_trace import RateSpan, exponential_arrivals
from thyme.traces.trace import Trace, merge_users

MINUTE_US = 60 * SECOND_US


class LectureConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the thesis, section 5.1; rates per user and hour, before compression."""

    users: int = 100
    good_share: float = 0.15
    """Share of good students in each class."""
    class_us: int = 45 * MINUTE_US
    break_us: int = 10 * MINUTE_US
    warm_up_us: int = 10 * MINUTE_US
    lasts_us: int = 600 * SECOND_US
    class_tags: int = 8
    university_tags: int = 40
    publishes_good: float = 30.0
    publishes_regular: float = 5.0
    university_subscribes: float = 10.0
    university_publishes_outside: float = 10.0
    university_publishes_inside: float = 2.0
    deletes: float = 0.5
    size: int = 64
    summary_size: int = 0

    def __post_init__(self) -> None:
        check_share(self.good_share, "the share of good students")
        if self.users < 1:
            raise InputError(f"a lecture has at least one student, not {self.users}")
        if not 0 <= self.warm_up_us <= self.class_us or self.class_us < 1 or self.break_us < 0:
            raise InputError(
                "warm_up_us must be 0 to class_us, class_us at least 1, break_us at least 0"
            )
        if self.class_tags < 1 or self.university_tags < 1:
            raise InputError("class_tags and university_tags must be at least 1")

    @property
    def total_us(self) -> int:
        """Duration of both classes and the break between them."""
        return 2 * self.class_us + self.break_us

    def class_span_us(self, number: int) -> tuple[int, int]:
        """Start and end of class 0 or class 1."""
        begin_us = number * (self.class_us + self.break_us)
        return begin_us, begin_us + self.class_us


THESIS_LECTURE = LectureConfig()
PlannedOperation = tuple[int, str, str]
"""Instant before compression, kind (insert or subscribe), and tag."""


def lecture_trace(seed: int, config: LectureConfig = THESIS_LECTURE) -> Trace:
    """Draws the trace of all students."""
    first, good = draw_attendance(seed, config)
    return merge_users(
        config.users,
        (
            operation
            for user in range(config.users)
            for operation in student_operations(
                seed, user, 0 if user in first else 1, user in good, config
            )
        ),
    )


def draw_attendance(seed: int, config: LectureConfig = THESIS_LECTURE) -> tuple[set[int], set[int]]:
    """The students of the first class, and the good students of both classes."""
    first = set(sample_nodes(seed, "class", range(config.users), 0.5))
    second = set(range(config.users)) - first
    good = {
        user
        for attending in (first, second)
        for user in sample_nodes(seed, "good student", attending, config.good_share)
    }
    return first, good


def student_operations(
    seed: int, user: int, class_number: int, good: bool, config: LectureConfig = THESIS_LECTURE
) -> list[Operation]:
    """The operations of one student, in order."""
    planned = [
        *_class_operations(derive_rng(seed, "lecture", user, "class"), class_number, good, config),
        *_university_operations(
            derive_rng(seed, "lecture", user, "university"), class_number, config
        ),
    ]
    operations: list[Operation] = []
    for number, (at_us, kind, tag) in enumerate(sorted(planned)):
        now_us = at_us * config.lasts_us // config.total_us
        if kind == "insert":
            oid = f"o{user}-{number}"
            tags = (as_tag(tag),)
            operations.append(
                InsertOperation(now_us, user, oid, tags, config.size, config.summary_size)
            )
        else:
            operations.append(SubscribeOperation(now_us, user, f"s{user}-{number}", tag))
    deletes = _draw_deletes(derive_rng(seed, "lecture", user, "delete"), user, operations, config)
    return sorted([*operations, *deletes], key=lambda operation: operation.at_us)


def _class_operations(
    rng: Random, class_number: int, good: bool, config: LectureConfig
) -> Iterator[PlannedOperation]:
    begin_us, end_us = config.class_span_us(class_number)
    warm_us = begin_us + config.warm_up_us
    topics = [f"class{number}" for number in range(config.class_tags)]
    for topic in topics:
        # Good students subscribe during the warm-up, the others during the whole class.
        yield (
            rng.randrange(begin_us, max(warm_us, begin_us + 1) if good else end_us),
            "subscribe",
            topic,
        )
    rate = config.publishes_good if good else config.publishes_regular
    for at_us in exponential_arrivals(rng, (begin_us if good else warm_us, end_us, rate)):
        yield at_us, "insert", rng.choice(topics)


def _university_operations(
    rng: Random, class_number: int, config: LectureConfig
) -> Iterator[PlannedOperation]:
    tags = [f"university{number}" for number in range(config.university_tags)]
    begin_us, end_us = config.class_span_us(class_number)
    outside, inside = config.university_publishes_outside, config.university_publishes_inside
    spans: list[RateSpan] = [
        (0, begin_us, outside),
        (begin_us, end_us, inside),
        (end_us, config.total_us, outside),
    ]
    for at_us in exponential_arrivals(rng, *spans):
        yield at_us, "insert", rng.choice(tags)
    # A student subscribes to each tag at most once.
    rng.shuffle(tags)
    asking = exponential_arrivals(rng, (0, config.total_us, config.university_subscribes))
    for at_us, tag in zip(asking, tags, strict=False):
        yield at_us, "subscribe", tag


def _draw_deletes(
    rng: Random, user: int, operations: list[Operation], config: LectureConfig
) -> Iterator[DeleteOperation]:
    there = [each for each in operations if isinstance(each, InsertOperation)]
    for at_us in exponential_arrivals(rng, (0, config.total_us, config.deletes)):
        now_us = at_us * config.lasts_us // config.total_us
        if mine := [each for each in there if each.at_us <= now_us]:
            chosen = rng.choice(mine)
            there.remove(chosen)
            yield DeleteOperation(now_us, user, chosen.oid)
