"""Requests: repeated with backoff until answered, and then given up (E4)."""

from __future__ import annotations

from random import Random

import msgspec

from thyme.model.ids import Key, NodeId, ObjectId
from thyme.protocol.messages.replies import Done, ObjectData, Refused, Reply
from thyme.protocol.messages.requests import FetchObject
from thyme.protocol.node import Action, CancelTimer, Send, SetTimer
from thyme.protocol.outbox import Outbox
from thyme.protocol.request_tracker import RequestTracker, RetryTimer
from thyme.protocol.results import Failure, Result
from thyme.protocol.retry import RetryPolicy

SERVER, STRANGER = NodeId(b"server"), NodeId(b"stranger")
KEY = Key(ObjectId("photo"), NodeId(b"alice"))
POLICY = RetryPolicy(tries_max=3, wait_us=100, backoff=2.0, pending_max=2)


class Asking:
    """A request tracker with one kind of request, and a record of the results."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.operations = RequestTracker(self.outbox, POLICY, Random(1))
        self.ended: list[Reply | str] = []

    def ask(self, now_us: int) -> list[Action]:
        self.operations.send_request(
            SERVER,
            FetchObject(self.operations.next_id(), KEY),
            Done,
            now_us,
            self.on_result,
        )
        return self.outbox.drain_actions()

    def on_result(self, result: Result[Reply], now_us: int) -> None:
        self.ended.append(result.code if isinstance(result, Failure) else result.value)

    def fire(self, timer: RetryTimer, now_us: int) -> list[Action]:
        self.operations.on_timer(timer, now_us)
        return self.outbox.drain_actions()


def number_of(actions: list[Action]) -> int:
    assert isinstance(actions[0], Send)
    assert isinstance(actions[0].message, FetchObject)
    return actions[0].message.request_id


def test_a_request_is_sent_with_a_timer_and_its_reply_ends_both() -> None:
    asking = Asking()
    sent = asking.ask(now_us=0)
    number = number_of(sent)
    assert sent == [
        Send(SERVER, FetchObject(number, KEY)),
        SetTimer(RetryTimer(number), 100),
    ]

    asking.operations.on_reply(SERVER, Done(number), 50)

    assert asking.outbox.drain_actions() == [CancelTimer(RetryTimer(number))]
    assert asking.ended == [Done(number)]
    assert len(asking.operations) == 0


def test_e4_without_an_answer_it_is_repeated_under_its_number_and_then_fails() -> None:
    asking = Asking()
    sent = asking.ask(now_us=0)
    number = number_of(sent)
    timer = RetryTimer(number)
    again = Send(SERVER, FetchObject(number, KEY))

    assert asking.fire(timer, 100) == [again, SetTimer(timer, 300)]
    assert asking.fire(timer, 300) == [again, SetTimer(timer, 700)]
    assert asking.fire(timer, 700) == []

    assert asking.ended == ["timeout"]
    assert asking.operations.retransmissions == 2
    assert asking.fire(timer, 800) == []


def test_a_late_or_foreign_reply_is_counted_and_ends_nothing() -> None:
    asking = Asking()
    number = number_of(asking.ask(now_us=0))

    asking.operations.on_reply(STRANGER, Done(number), 10)
    asking.operations.on_reply(SERVER, Done(number + 1), 10)
    assert asking.ended == []
    asking.operations.on_reply(SERVER, Done(number), 10)
    asking.operations.on_reply(SERVER, Done(number), 10)

    assert asking.ended == [Done(number)]
    assert asking.operations.unmatched_replies == 3


def test_a_refusal_and_a_reply_of_another_type_are_failures() -> None:
    asking = Asking()
    for reply in (Refused(0, "rejected", "no"), ObjectData(0, KEY, b"bytes")):
        number = number_of(asking.ask(now_us=0))
        asking.operations.on_reply(SERVER, msgspec.structs.replace(reply, request_id=number), 10)
        asking.outbox.drain_actions()

    assert asking.ended == ["rejected", "failed"]


def test_more_requests_than_the_limit_are_refused_at_once() -> None:
    asking = Asking()
    numbers = [number_of(asking.ask(now_us=0)) for _ in range(2)]
    assert len(set(numbers)) == 2
    assert asking.ask(now_us=0) == []
    assert asking.ended == ["rejected"]
    assert len(asking.operations) == 2


def test_two_lives_of_a_node_do_not_share_request_numbers() -> None:
    outbox = Outbox()
    first = RequestTracker(outbox, POLICY, Random(1)).next_id()
    second = RequestTracker(outbox, POLICY, Random(2)).next_id()
    assert abs(first - second) > 1_000_000
