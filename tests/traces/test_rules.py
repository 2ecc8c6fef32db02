"""P3: how posts become a trace, user by user."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import mean

import pytest

from tests.hashing import printed
from thyme.model.errors import InputError
from thyme.model.tags import Tag, as_tags
from thyme.model.time_frames import ALWAYS, SECOND_US
from thyme.query.query import Query
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.posts import Post, tag_popularity
from thyme.traces.posts_to_trace import (
    HOUR_US,
    TraceRules,
    UserRole,
    assign_roles,
    draw_deletes,
    draw_query,
    draw_subscribes,
    draw_unsubscribes,
    exponential_arrivals,
    is_insertable,
    make_inserts,
    trace_from_posts,
    user_operations,
)
from thyme.traces.query_tags import QueryCandidates, RankDraw, choose_candidates
from thyme.traces.row_codec import operation_to_row
from thyme.traces.synthetic.football_match import FootballMatch, FootballMatchConfig
from thyme.traces.timetable import FINAL_2016, Timetable
from thyme.traces.trace import Trace
from thyme.traces.trace_files import rows_to_csv

CANDIDATES = QueryCandidates(as_tags(["goal", "eder", "final"]), RankDraw(3))
RULES = TraceRules()
MINUTE_US = 60 * SECOND_US
# Three hours are 600 s: what happens at minute m happens at second 10/3 · m.
HALF_TIME_US = 67 * 60 * SECOND_US // 18
SECOND_HALF_US = 82 * 60 * SECOND_US // 18, 127 * 60 * SECOND_US // 18


def a_post(number: int, minute: float, *tags: str, text: str = "héé") -> Post:
    at_us = FINAL_2016.starts_us + round(minute * MINUTE_US)
    return Post(str(number), "ann", at_us, text, as_tags(tags or ["goal"]))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return trace_from_posts(1, FootballMatch(1, FootballMatchConfig(posts=4_000, users=500)), 40)


def test_posts_are_inserts_with_their_id_text_and_tags_in_compressed_time() -> None:
    [late, early] = a_post(1, 90, "goal", "eder"), a_post(2, 18)
    assert make_inserts(4, [late, early]) == [
        InsertOperation(60 * SECOND_US, 4, "2", (Tag("goal"),), 5, 0, "héé"),
        InsertOperation(300 * SECOND_US, 4, "1", (Tag("eder"), Tag("goal")), 5, 0, "héé"),
    ]


def test_posts_outside_the_hours_or_without_tags_are_no_inserts() -> None:
    untagged = Post("3", "ann", FINAL_2016.starts_us, "", ())
    for post in (untagged, a_post(1, -0.001), a_post(2, 180)):
        assert not is_insertable(post)
        assert make_inserts(0, [post]) == []
    assert is_insertable(a_post(1, 179.999))


def test_three_subscriptions_an_hour_to_half_time_and_one_after() -> None:
    """Means of 2,000 users, within five standard deviations."""
    times = [[each.at_us for each in draw_subscribes(1, user, CANDIDATES)] for user in range(2_000)]
    early = mean(sum(at < HALF_TIME_US for at in each) for each in times)
    late = mean(sum(at >= HALF_TIME_US for at in each) for each in times)
    assert early == pytest.approx(3 * 67 / 60, abs=5 * (3.35 / 2_000) ** 0.5)
    assert late == pytest.approx(113 / 60, abs=5 * (1.88 / 2_000) ** 0.5)


def test_intervals_are_exponential() -> None:
    """Their mean is one over the rate, and so is their deviation."""
    times = list(exponential_arrivals(Random(1), (0, 5_000 * HOUR_US, 2.0)))
    gaps = [(b - a) / HOUR_US for a, b in pairwise(times)]
    average = mean(gaps)
    assert average == pytest.approx(0.5, rel=0.05)
    assert mean((gap - average) ** 2 for gap in gaps) ** 0.5 == pytest.approx(0.5, rel=0.07)


def test_spans_without_a_rate_are_silent() -> None:
    assert all(
        at >= HOUR_US
        for at in exponential_arrivals(Random(1), (0, HOUR_US, 0.0), (HOUR_US, 9 * HOUR_US, 9))
    )


def test_six_in_ten_ask_for_all_time_and_the_others_from_now() -> None:
    made = [each for user in range(600) for each in draw_subscribes(1, user, CANDIDATES)]
    assert {each.frame for each in made if each.frame.start_us != each.at_us} == {ALWAYS}
    assert {each.frame.end_us for each in made} == {None}
    share = mean(each.frame == ALWAYS for each in made)
    assert share == pytest.approx(0.6, abs=0.04)


def test_a_query_is_one_candidate_unless_the_rules_ask_for_formulas() -> None:
    plain = draw_subscribes(1, 7, CANDIDATES, TraceRules(subscribes_early=300))
    mixed = draw_subscribes(1, 7, CANDIDATES, TraceRules(subscribes_early=300, boolean_share=0.5))
    assert {each.query for each in plain} == set(CANDIDATES.tags)
    # The setting changes queries, and nothing else.
    assert [(a.at_us, a.frame) for a in plain] == [(b.at_us, b.frame) for b in mixed]
    changed = [b.query for a, b in zip(plain, mixed, strict=True) if a.query != b.query]
    assert len(changed) / len(plain) == pytest.approx(0.5, abs=0.1)
    assert all(len(Query(query).tags) > 1 for query in changed)
    assert {len(Query(query).tags) for query in changed} == {2, 3}


def test_formulas_do_with_the_tags_there_are() -> None:
    rng = Random(1)
    goal, pair = as_tags(["goal"]), as_tags(["goal", "eder"])
    one = {draw_query(rng, RankDraw(1), 1.0).fill(goal) for _ in range(20)}
    two = {draw_query(rng, RankDraw(2), 1.0).fill(pair) for _ in range(99)}
    assert one == {"goal"}
    assert all(set(Query(query).tags) <= {"goal", "eder"} for query in two)
    assert draw_subscribes(1, 0, QueryCandidates((), RankDraw(0))) == []


def test_objects_and_subscriptions_are_taken_back_in_the_second_half_only() -> None:
    rules = TraceRules(deletes=40, unsubscribes=40)
    inserts = make_inserts(0, [a_post(number, number) for number in range(180)])
    subscribes = draw_subscribes(1, 0, CANDIDATES, TraceRules(subscribes_early=30))
    deletes = draw_deletes(1, 0, inserts, rules)
    unsubscribes = draw_unsubscribes(1, 0, subscribes, rules)
    born = {each.oid: each.at_us for each in inserts} | {s.sid: s.at_us for s in subscribes}
    taken = [(each.at_us, each.oid) for each in deletes] + [
        (each.at_us, each.sid) for each in unsubscribes
    ]
    assert len(deletes) == pytest.approx(30, abs=25)
    assert len({name for _, name in taken}) == len(taken)
    for at_us, name in taken:
        assert SECOND_HALF_US[0] <= at_us <= SECOND_HALF_US[1]
        assert born[name] <= at_us


def test_who_has_nothing_takes_nothing_back() -> None:
    assert draw_deletes(1, 0, [], TraceRules(deletes=40)) == []
    later = make_inserts(0, [a_post(1, 170)])
    assert draw_deletes(1, 0, later, TraceRules(deletes=40)) == []


def test_a_user_s_part_depends_on_that_user_alone(trace: Trace) -> None:
    posts = list(FootballMatch(1, FootballMatchConfig(posts=4_000, users=500)))
    inserts = [each for each in trace.operations if isinstance(each, InsertOperation)]
    kept = {each.oid for each in inserts}
    candidates = choose_candidates(tag_popularity(p for p in posts if p.post_id in kept))
    for user in (0, 39):
        mine = {each.oid for each in inserts if each.user == user}
        again = user_operations(1, user, [p for p in posts if p.post_id in mine], candidates)
        assert tuple(again) == trace.operations_of_user(user)


def test_a_trace_is_the_same_whatever_the_order_of_the_posts(trace: Trace) -> None:
    posts = list(FootballMatch(1, FootballMatchConfig(posts=4_000, users=500)))
    Random(9).shuffle(posts)
    assert trace_from_posts(1, posts, 40) == trace
    assert trace_from_posts(2, posts, 40) != trace


def test_a_trace_is_the_same_in_every_process(trace: Trace) -> None:
    program = """
import sys
from thyme.traces.synthetic.football_match import FootballMatch, FootballMatchConfig
from thyme.traces.row_codec import operation_to_row
from thyme.traces.posts_to_trace import trace_from_posts
from thyme.traces.trace_files import rows_to_csv
trace = trace_from_posts(1, FootballMatch(1, FootballMatchConfig(posts=4_000, users=500)), 40)
sys.stdout.buffer.write(rows_to_csv(map(operation_to_row, trace.operations)))
"""
    assert printed(program) == {rows_to_csv(map(operation_to_row, trace.operations))}


def test_user_0_is_the_most_active(trace: Trace) -> None:
    made = [
        sum(isinstance(each, InsertOperation) for each in trace.operations_of_user(user))
        for user in range(40)
    ]
    assert made == sorted(made, reverse=True)


def test_operations_lie_within_600_seconds(trace: Trace) -> None:
    assert trace.operations[-1].at_us < 600 * SECOND_US
    assert trace.operations[-1].at_us > 590 * SECOND_US


def test_s7_users_are_publishers_or_subscribers_where_asked_for() -> None:
    posts = list(FootballMatch(1, FootballMatchConfig(posts=4_000, users=500)))
    trace = trace_from_posts(1, posts, 41, publishers_share=0.5)
    parts = assign_roles(1, 41, 0.5)
    assert parts.count(UserRole.PUBLISHER) == 21
    assert parts.count(UserRole.SUBSCRIBER) == 20
    allowed: dict[UserRole, tuple[type[Operation], ...]] = {
        UserRole.PUBLISHER: (InsertOperation, DeleteOperation),
        UserRole.SUBSCRIBER: (SubscribeOperation, UnsubscribeOperation),
    }
    for user, role in enumerate(parts):
        mine = trace.operations_of_user(user)
        assert mine
        assert all(isinstance(each, allowed[role]) for each in mine)
    inserted = {
        tag for each in trace.operations if isinstance(each, InsertOperation) for tag in each.tags
    }
    asked = {each.query for each in trace.operations if isinstance(each, SubscribeOperation)}
    assert asked <= inserted


@pytest.mark.parametrize(
    "bad",
    [
        {"deletes": -1},
        {"always_share": 1.5},
        {"boolean_share": -0.1},
        {"lasts_us": 0},
        {"one_in": 0},
    ],
)
def test_rules_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError):
        TraceRules(**bad)  # type: ignore[arg-type]


def test_a_timetable_runs_forward() -> None:
    with pytest.raises(InputError, match="follow each other"):
        Timetable(starts_us=0, length_s=10, first_half_s=(5, 3), second_half_s=(6, 7))
