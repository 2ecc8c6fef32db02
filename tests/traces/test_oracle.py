"""S15: what a perfect execution of a trace notifies, to the last one."""

from __future__ import annotations

from hypothesis import given

from tests.traces.strategies import traces
from tests.traces.twin_oracle import plain_notifications
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import make_metadata
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.model.tags import as_tags
from thyme.model.time_frames import ALWAYS, TimeFrame
from thyme.storage.store import MemoryStore
from thyme.substrates.common.broker import Broker, BrokerConfig
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.oracle import Expected, expected_notifications
from thyme.traces.posts_to_trace import TraceRules, trace_from_posts
from thyme.traces.synthetic.football_match import FootballMatch, FootballMatchConfig
from thyme.traces.trace import Trace

ALICE, BOB = 0, 1


def insert(
    oid: str, at_us: int, *tags: str, by: int = BOB, life_us: int | None = None
) -> InsertOperation:
    return InsertOperation(at_us, by, oid, as_tags(tags or ["goal"]), 3, life_us=life_us)


def subscribe(at_us: int, query: str = "goal", frame: TimeFrame = ALWAYS) -> SubscribeOperation:
    return SubscribeOperation(at_us, ALICE, "s", query, frame)


def told(*operations: Operation) -> list[tuple[str, int]]:
    """The objects that Alice hears of, and when."""
    notes = expected_notifications(Trace(2, operations))
    assert all((note.user, note.sid) == (ALICE, "s") for note in notes)
    return [(note.oid, note.at_us) for note in notes]


def test_the_past_is_told_at_once_and_the_future_as_it_comes() -> None:
    assert told(insert("x", 1), subscribe(5), insert("y", 9)) == [("x", 5), ("y", 9)]


def test_a_notification_says_who_owns_the_object_and_whether_it_was_there_before() -> None:
    trace = Trace(2, (insert("x", 1), subscribe(5), insert("y", 9, by=ALICE)))
    assert expected_notifications(trace) == [
        Expected(5, ALICE, "s", "x", BOB, True),
        Expected(9, ALICE, "s", "y", ALICE, False),
    ]


def test_from_now_on_leaves_the_past_out_but_not_the_instant_itself() -> None:
    operations = insert("x", 4), insert("y", 5), subscribe(5, frame=TimeFrame(5)), insert("z", 6)
    assert told(*operations) == [("y", 5), ("z", 6)]


def test_a_frame_ends_by_itself_and_holds_both_its_ends() -> None:
    frame = TimeFrame(2, 6)
    objects = [insert(f"o{at}", at) for at in range(1, 8)]
    assert told(*objects[:3], subscribe(3, frame=frame), *objects[3:]) == [
        ("o2", 3),
        ("o3", 3),
        ("o4", 4),
        ("o5", 5),
        ("o6", 6),
    ]


def test_a_frame_that_is_over_still_finds_the_past() -> None:
    assert told(insert("x", 1), subscribe(9, frame=TimeFrame(None, 3))) == [("x", 9)]


def test_m14_a_deleted_object_is_not_told_to_those_who_come_later() -> None:
    gone = insert("x", 1), DeleteOperation(2, BOB, "x")
    assert told(*gone, subscribe(3)) == []
    assert told(subscribe(0), *gone) == [("x", 1)]


def test_m29_an_expired_object_is_not_told_from_the_instant_of_its_expiry() -> None:
    assert told(insert("x", 1, life_us=4), subscribe(4)) == [("x", 4)]
    assert told(insert("x", 1, life_us=4), subscribe(5)) == []


def test_m18_nothing_is_told_after_an_unsubscribe() -> None:
    assert told(subscribe(1), UnsubscribeOperation(2, ALICE, "s"), insert("x", 2)) == []


def test_m16_an_object_that_several_conjunctions_match_is_told_once() -> None:
    query = "goal | eder & !replay"
    assert told(insert("x", 1, "goal", "eder"), subscribe(2, query)) == [("x", 2)]
    assert told(subscribe(2, query), insert("x", 3, "goal", "eder")) == [("x", 3)]


@given(traces())
def test_the_oracle_agrees_with_its_plain_twin(trace: Trace) -> None:
    assert expected_notifications(trace) == plain_notifications(trace)


@given(traces())
def test_a_broker_that_nothing_happens_to_tells_what_the_oracle_says(trace: Trace) -> None:
    assert expected_notifications(trace) == broker_notifications(trace)


def test_the_oracle_agrees_with_its_twin_on_a_match_with_boolean_queries() -> None:
    posts = FootballMatch(3, FootballMatchConfig(posts=900, users=200, tags=30))
    trace = trace_from_posts(3, posts, 30, TraceRules(boolean_share=0.7, subscribes_early=6.0))

    notes = expected_notifications(trace)

    assert len(notes) > 1_000
    assert notes == plain_notifications(trace)


def broker_notifications(trace: Trace) -> list[Expected]:
    """What the broker of the real thing tells, operation by operation."""
    broker = Broker(MemoryStore(), BrokerConfig(), 0)
    found: list[Expected] = []
    for each in trace.operations:
        by = NodeId(bytes([each.user]))
        match each:
            case InsertOperation():
                key = Key(ObjectId(each.oid), by)
                life = each.expires_us
                metadata = make_metadata(key, b"", each.tags, each.at_us, expires_us=life)
                found += [
                    _expected(sub, key, each.at_us, False)
                    for sub in broker.insert(metadata, by, b"", each.at_us)
                ]
            case DeleteOperation():
                broker.delete(Key(ObjectId(each.oid), by), by, each.at_us)
            case SubscribeOperation():
                sid = SubscriptionKey(SubscriptionId(each.sid), by)
                sub = SubscriptionRecord(sid, each.conjunctions, each.frame)
                page = broker.subscribe(sub, by, 1_000, each.at_us)
                found += [_expected(sub, item.key, each.at_us, True) for item in page.items]
            case UnsubscribeOperation():
                sid = SubscriptionKey(SubscriptionId(each.sid), by)
                broker.unsubscribe(sid, by, each.at_us)
    return sorted(found)


def _expected(sub: SubscriptionRecord, key: Key, at_us: int, past: bool) -> Expected:
    user, owner = sub.key.subscriber[0], key.owner[0]
    return Expected(at_us, user, str(sub.key.sid), str(key.oid), owner, past)
