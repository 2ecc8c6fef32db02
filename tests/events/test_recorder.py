"""The events of applications: operations, notifications, looks into the cache (P9)."""

from __future__ import annotations

import msgspec

from thyme.events.event import decode_event
from thyme.events.recorder import EventRecorder
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import make_metadata
from thyme.model.subscriptions import Conjunction, Notification
from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import (
    Failed,
    Finished,
    Insert,
    ListSubscriptions,
    NotificationEvent,
    Retrieve,
    Subscribe,
    SubscriptionStarted,
)

ALICE, BOB = NodeId(b"\xaa"), NodeId(b"\xbb")
KEY = Key(ObjectId("photo"), BOB)
PHOTO = make_metadata(KEY, b"data", ["goal", "eder"], 90)


def a_recorder(stored: set[Key]) -> tuple[EventRecorder, list[dict[str, object]]]:
    """A recorder and the fields of its events, without those that are always the same."""
    events: list[dict[str, object]] = []

    def sink(line: bytes) -> None:
        event = decode_event(line)
        assert (event.v, event.writer, event.world) == (1, "w", "lisbon")
        assert event.seq == len(events) + 1
        fields = msgspec.json.decode(line)
        events.append({k: v for k, v in fields.items() if k not in ("v", "writer", "world", "seq")})

    return EventRecorder("w", "lisbon", sink, lambda node, key: key in stored), events


def test_an_insert_is_recorded_with_its_duration_and_key() -> None:
    recorder, events = a_recorder(set())
    request = Insert(request_id=1, data=b"data", tags=as_tags(["goal"]), ttl_us=7)
    recorder.on_request(BOB, request, 100)
    assert events == []
    recorder.on_event(BOB, Finished(1, KEY), 130)
    assert events == [
        {
            "at_us": 100, "node": "bb", "kind": "operation", "op": "insert", "code": "ok",
            "took_us": 30, "key": "photo@bb", "tags": ["goal"], "size": 4, "life_us": 7,
        }
    ]  # fmt: skip


def test_a_subscription_and_its_notification_are_recorded() -> None:
    recorder, events = a_recorder(set())
    query = (Conjunction(("goal",), ("replay",)), Conjunction(("eder",)))
    request = Subscribe(request_id=1, conjunctions=query, frame=TimeFrame(5, None), batch=3)
    recorder.on_request(ALICE, request, 10)
    recorder.on_event(ALICE, Finished(1, SubscriptionStarted(SubscriptionId("s1"), 0)), 20)
    notification = Notification(SubscriptionId("s1"), PHOTO, 95, False)
    recorder.on_event(ALICE, NotificationEvent(notification), 95)
    assert events == [
        {
            "at_us": 10, "node": "aa", "kind": "operation", "op": "subscribe", "code": "ok",
            "took_us": 10, "sid": "s1", "query": "goal & !replay | eder", "start_us": 5,
        },
        {
            "at_us": 95, "node": "aa", "kind": "notification", "key": "photo@bb",
            "tags": ["eder", "goal"], "size": 4, "sid": "s1", "published_us": 90, "past": False,
        },
    ]  # fmt: skip


def test_a_retrieve_is_a_hit_if_the_node_stores_the_object() -> None:
    recorder, events = a_recorder({KEY})
    recorder.on_request(ALICE, Retrieve(request_id=1, metadata=PHOTO), 10)
    recorder.on_event(ALICE, Failed(1, "not_found", ""), 12)
    assert [(event["kind"], event["code"]) for event in events] == [
        ("cache", "hit"),
        ("operation", "not_found"),
    ]


def test_operations_of_a_node_that_stops_are_down_and_others_stay() -> None:
    recorder, events = a_recorder(set())
    recorder.on_request(ALICE, Retrieve(request_id=1, metadata=PHOTO), 10)
    recorder.on_request(BOB, Retrieve(request_id=1, metadata=PHOTO), 10)
    recorder.on_stopped(ALICE, 15)
    recorder.on_event(BOB, Finished(1, b"data"), 16)
    ends = [(event["node"], event.get("op"), event["code"]) for event in events[2:]]
    assert ends == [
        ("aa", "retrieve", "down"),
        ("aa", None, "stopped"),
        ("bb", "retrieve", "ok"),
    ]


def test_requests_that_are_no_operations_are_not_recorded() -> None:
    recorder, events = a_recorder(set())
    recorder.on_request(ALICE, ListSubscriptions(request_id=1), 10)
    recorder.on_event(ALICE, Finished(1, ()), 12)
    assert events == []
