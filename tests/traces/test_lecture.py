"""S13: the class of V, 5.1, held twice."""

from __future__ import annotations

from statistics import mean

import pytest

from thyme.model.errors import InputError
from thyme.model.time_frames import SECOND_US
from thyme.traces.operations import DeleteOperation, InsertOperation, SubscribeOperation
from thyme.traces.retrieve_behaviour import LECTURE_RETRIEVES, NO_RETRIEVES, RetrieveBehaviour
from thyme.traces.synthetic.lecture_trace import LectureConfig, draw_attendance, lecture_trace
from thyme.traces.trace import Trace

# 100 minutes are 600 s: a minute is six seconds.
MINUTE_US = 6 * SECOND_US
CLASSES = [(0, 45 * MINUTE_US), (55 * MINUTE_US, 100 * MINUTE_US)]
TOPICS = {f"class{number}" for number in range(8)}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return lecture_trace(1)


def test_half_attend_each_class_and_15_percent_are_good() -> None:
    first, good = draw_attendance(1)
    assert len(first) == 50
    # 7.5 of each class; half a student counts as one.
    assert len(good & first) == len(good - first) == 8


def test_good_students_subscribe_to_all_topics_while_the_class_warms_up(trace: Trace) -> None:
    first, good = draw_attendance(1)
    for user in range(100):
        begin_us, end_us = CLASSES[0 if user in first else 1]
        asked = [
            each
            for each in trace.operations_of_user(user)
            if isinstance(each, SubscribeOperation) and each.query in TOPICS
        ]
        assert {each.query for each in asked} == TOPICS
        assert len(asked) == len(TOPICS)
        until_us = begin_us + 10 * MINUTE_US if user in good else end_us
        assert all(begin_us <= each.at_us < until_us for each in asked)


def class_inserts(trace: Trace, user: int) -> list[InsertOperation]:
    return [
        each
        for each in trace.operations_of_user(user)
        if isinstance(each, InsertOperation) and set(each.tags) <= TOPICS
    ]


def test_good_students_publish_30_an_hour_and_the_others_5_after_the_warm_up() -> None:
    """Means of eight traces: 45 minutes at 30, 35 minutes at 5, within five deviations."""
    counts: dict[bool, list[int]] = {True: [], False: []}
    for seed in range(8):
        trace = lecture_trace(seed)
        first, good = draw_attendance(seed)
        for user in range(100):
            begin_us, end_us = CLASSES[0 if user in first else 1]
            if user not in good:
                begin_us += 10 * MINUTE_US
            mine = class_inserts(trace, user)
            assert all(begin_us <= each.at_us < end_us for each in mine)
            counts[user in good].append(len(mine))
    for is_good, due in ((True, 22.5), (False, 35 / 12)):
        assert mean(counts[is_good]) == pytest.approx(
            due, abs=5 * (due / len(counts[is_good])) ** 0.5
        )


def test_the_university_is_talked_of_all_the_time() -> None:
    """10 subscriptions an hour; 10 publications outside of class and 2 inside."""
    asked, inside, outside = 0, 0, 0
    for seed in range(4):
        trace = lecture_trace(seed)
        first, _ = draw_attendance(seed)
        for each in trace.operations:
            if isinstance(each, SubscribeOperation):
                asked += each.query not in TOPICS
            elif isinstance(each, InsertOperation) and not set(each.tags) <= TOPICS:
                begin_us, end_us = CLASSES[0 if each.user in first else 1]
                if begin_us <= each.at_us < end_us:
                    inside += 1
                else:
                    outside += 1
    for found, due in ((asked, 400 / 6 * 100), (inside, 400 * 1.5), (outside, 400 * 55 / 6)):
        assert found == pytest.approx(due, abs=5 * due**0.5)


def test_nobody_subscribes_to_the_same_tag_twice(trace: Trace) -> None:
    for user in range(100):
        asked = [
            each.query
            for each in trace.operations_of_user(user)
            if isinstance(each, SubscribeOperation)
        ]
        assert len(asked) == len(set(asked))


def test_there_are_deletes_and_everything_lies_in_ten_minutes(trace: Trace) -> None:
    assert any(isinstance(each, DeleteOperation) for each in trace.operations)
    assert trace.operations[-1].at_us < 600 * SECOND_US
    assert trace == lecture_trace(1) != lecture_trace(2)


@pytest.mark.parametrize(
    "bad", [{"users": 0}, {"good_share": 2.0}, {"warm_up_us": -1}, {"class_tags": 0}]
)
def test_lectures_that_cannot_be_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError):
        LectureConfig(**bad)  # type: ignore[arg-type]


def test_seven_in_ten_are_retrieved_within_half_a_minute() -> None:
    delays = [
        LECTURE_RETRIEVES.delay_us(1, user, f"o{oid}") for user in range(50) for oid in range(40)
    ]
    given = [delay for delay in delays if delay is not None]
    assert len(given) / len(delays) == pytest.approx(0.7, abs=0.05)
    assert 0 <= min(given) < SECOND_US
    assert 29 * SECOND_US < max(given) <= 30 * SECOND_US
    assert LECTURE_RETRIEVES.delay_us(1, 3, "o3") == LECTURE_RETRIEVES.delay_us(1, 3, "o3")
    assert NO_RETRIEVES.delay_us(1, 0, "o") is None
    with pytest.raises(InputError):
        RetrieveBehaviour(within_us=-1)
