"""The lecture trace: the workload of the thesis, a class held twice, each for half of the students.

Entry point: `lecture_trace`. In a class, good students subscribe to all topics during the warm-up
and publish much; regular students publish after the warm-up and subscribe to the topics one by one.
All students publish and subscribe under the tags of the university all the time. Retrieves follow
from notifications (`retrieve_behaviour.LECTURE_RETRIEVES`). Values that the thesis leaves open are
constants here: numbers of tags, rate of deletes, sizes; all frames are ⊥..⊥.
Clause: S13.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from thyme.model.rng import derive_rng
from thyme.model.sampling import sample_nodes
from thyme.model.tags import as_tag
from thyme.model.time_frames import SECOND_US
from thyme.traces.operations import DeleteOperation, InsertOperation, Operation, SubscribeOperation
from thyme.traces.posts_to_trace import RateSpan, exponential_arrivals
from thyme.traces.trace import Trace, merge_users

MINUTE_US = 60 * SECOND_US

# Parameters of the thesis, section 5.1; rates per user and hour, before compression.
_USERS = 100
_GOOD_SHARE = 0.15
"""Share of good students in each class."""
_CLASS_US = 45 * MINUTE_US
_BREAK_US = 10 * MINUTE_US
_WARM_UP_US = 10 * MINUTE_US
_TOTAL_US = 2 * _CLASS_US + _BREAK_US
"""Duration of both classes and the break between them."""
_COMPRESSED_US = 600 * SECOND_US
"""Duration of the trace, to which the total is compressed."""
_CLASS_TAGS = 8
_UNIVERSITY_TAGS = 40
_PUBLISHES_GOOD = 30.0
_PUBLISHES_REGULAR = 5.0
_UNIVERSITY_SUBSCRIBES = 10.0
_UNIVERSITY_PUBLISHES_OUTSIDE = 10.0
_UNIVERSITY_PUBLISHES_INSIDE = 2.0
_DELETES = 0.5
_OBJECT_BYTES = 64

PlannedOperation = tuple[int, str, str]
"""Instant before compression, kind (insert or subscribe), and tag."""


def lecture_trace(seed: int) -> Trace:
    """Draws the trace of all students."""
    first, good = draw_attendance(seed)
    return merge_users(
        _USERS,
        (
            operation
            for user in range(_USERS)
            for operation in student_operations(seed, user, 0 if user in first else 1, user in good)
        ),
    )


def draw_attendance(seed: int) -> tuple[set[int], set[int]]:
    """The students of the first class, and the good students of both classes."""
    first = set(sample_nodes(seed, "class", range(_USERS), 0.5))
    second = set(range(_USERS)) - first
    good = {
        user
        for attending in (first, second)
        for user in sample_nodes(seed, "good student", attending, _GOOD_SHARE)
    }
    return first, good


def student_operations(seed: int, user: int, class_number: int, good: bool) -> list[Operation]:
    """The operations of one student, in order."""
    planned = [
        *_class_operations(derive_rng(seed, "lecture", user, "class"), class_number, good),
        *_university_operations(derive_rng(seed, "lecture", user, "university"), class_number),
    ]
    operations: list[Operation] = []
    for number, (at_us, kind, tag) in enumerate(sorted(planned)):
        now_us = at_us * _COMPRESSED_US // _TOTAL_US
        if kind == "insert":
            oid = f"o{user}-{number}"
            tags = (as_tag(tag),)
            operations.append(InsertOperation(now_us, user, oid, tags, _OBJECT_BYTES, 0))
        else:
            operations.append(SubscribeOperation(now_us, user, f"s{user}-{number}", tag))
    deletes = _draw_deletes(derive_rng(seed, "lecture", user, "delete"), user, operations)
    return sorted([*operations, *deletes], key=lambda operation: operation.at_us)


def _class_span_us(number: int) -> tuple[int, int]:
    """Start and end of class 0 or class 1."""
    begin_us = number * (_CLASS_US + _BREAK_US)
    return begin_us, begin_us + _CLASS_US


def _class_operations(rng: Random, class_number: int, good: bool) -> Iterator[PlannedOperation]:
    begin_us, end_us = _class_span_us(class_number)
    warm_us = begin_us + _WARM_UP_US
    topics = [f"class{number}" for number in range(_CLASS_TAGS)]
    for topic in topics:
        # Good students subscribe during the warm-up, the others during the whole class.
        yield (
            rng.randrange(begin_us, warm_us if good else end_us),
            "subscribe",
            topic,
        )
    rate = _PUBLISHES_GOOD if good else _PUBLISHES_REGULAR
    for at_us in exponential_arrivals(rng, (begin_us if good else warm_us, end_us, rate)):
        yield at_us, "insert", rng.choice(topics)


def _university_operations(rng: Random, class_number: int) -> Iterator[PlannedOperation]:
    tags = [f"university{number}" for number in range(_UNIVERSITY_TAGS)]
    begin_us, end_us = _class_span_us(class_number)
    spans: list[RateSpan] = [
        (0, begin_us, _UNIVERSITY_PUBLISHES_OUTSIDE),
        (begin_us, end_us, _UNIVERSITY_PUBLISHES_INSIDE),
        (end_us, _TOTAL_US, _UNIVERSITY_PUBLISHES_OUTSIDE),
    ]
    for at_us in exponential_arrivals(rng, *spans):
        yield at_us, "insert", rng.choice(tags)
    # A student subscribes to each tag at most once.
    rng.shuffle(tags)
    asking = exponential_arrivals(rng, (0, _TOTAL_US, _UNIVERSITY_SUBSCRIBES))
    for at_us, tag in zip(asking, tags, strict=False):
        yield at_us, "subscribe", tag


def _draw_deletes(rng: Random, user: int, operations: list[Operation]) -> Iterator[DeleteOperation]:
    there = [each for each in operations if isinstance(each, InsertOperation)]
    for at_us in exponential_arrivals(rng, (0, _TOTAL_US, _DELETES)):
        now_us = at_us * _COMPRESSED_US // _TOTAL_US
        if mine := [each for each in there if each.at_us <= now_us]:
            chosen = rng.choice(mine)
            there.remove(chosen)
            yield DeleteOperation(now_us, user, chosen.oid)
