"""Notification aggregation: at once when it is quiet, together when it is busy (D28)."""

from __future__ import annotations

from tests.builders import ALICE, CAROL, key
from thyme.model.ids import SubscriptionId
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.node import SetTimer
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import Destination
from thyme.substrates.dcs.service.notification_aggregation import (
    AggregationTimer,
    Matches,
    NotificationAggregator,
    Targets,
)

TO_ALICE = (Destination(CellId(1), ALICE),)
TO_BOTH = (*TO_ALICE, Destination(CellId(2), CAROL))
S1, S2 = SubscriptionId("s1"), SubscriptionId("s2")


class Sent:
    """An aggregator with an interval of 100 µs, and the messages that it sent."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.messages: list[tuple[int, Targets, Matches, int | None]] = []
        self.is_slow = True
        self.aggregator = NotificationAggregator(self.outbox, 100, lambda: self.is_slow, self._send)

    def _send(self, targets: Targets, matches: Matches, now_us: int, gap_us: int | None) -> None:
        self.messages.append((now_us, targets, matches, gap_us))

    def timer_us(self) -> int:
        [timer] = [each for each in self.outbox.drain_actions() if isinstance(each, SetTimer)]
        assert timer.timer == AggregationTimer()
        return timer.at_us


def test_d28_the_first_notification_is_sent_at_once_and_those_after_it_together() -> None:
    sent = Sent()
    sent.aggregator.add(TO_ALICE, key(1), (S1,), 0)
    sent.aggregator.add(TO_ALICE, key(2), (S1,), 10)
    sent.aggregator.add(TO_ALICE, key(3), (S1,), 90)
    sent.aggregator.check()

    sent.aggregator.on_timer(sent.timer_us())

    assert sent.messages == [
        (0, TO_ALICE, {key(1): (S1,)}, None),
        (100, TO_ALICE, {key(2): (S1,), key(3): (S1,)}, 100),
    ]


def test_d28_notifications_that_are_further_apart_do_not_wait() -> None:
    sent = Sent()
    for number in range(3):
        sent.aggregator.add(TO_ALICE, key(number), (S1,), 150 * number)

    assert [(at_us, gap_us) for at_us, _, _, gap_us in sent.messages] == [
        (0, None),
        (150, 150),
        (300, 150),
    ]
    assert sent.outbox.drain_actions() == []


def test_d28_only_those_for_the_same_subscribers_travel_together() -> None:
    sent = Sent()
    sent.aggregator.add(TO_ALICE, key(1), (S1,), 0)
    sent.aggregator.add(TO_BOTH, key(1), (S1, S2), 0)
    sent.aggregator.add(TO_BOTH, key(2), (S1,), 50)
    sent.aggregator.add(TO_BOTH, key(2), (S2,), 60)

    sent.aggregator.on_timer(sent.timer_us())

    assert [(targets, matches) for _, targets, matches, _ in sent.messages] == [
        (TO_ALICE, {key(1): (S1,)}),
        (TO_BOTH, {key(1): (S1, S2)}),
        (TO_BOTH, {key(2): (S1, S2)}),
    ]


def test_d28_the_timer_is_set_again_for_those_that_are_not_due() -> None:
    sent = Sent()
    sent.aggregator.add(TO_ALICE, key(1), (S1,), 0)
    sent.aggregator.add(TO_BOTH, key(1), (S1,), 40)
    sent.aggregator.add(TO_ALICE, key(2), (S1,), 50)
    sent.aggregator.add(TO_BOTH, key(2), (S1,), 50)

    first_us = sent.timer_us()
    sent.aggregator.on_timer(first_us)
    second_us = sent.timer_us()
    sent.aggregator.on_timer(second_us)

    assert (first_us, second_us) == (100, 140)
    assert len(sent.messages) == 4


def test_d20_a_node_that_leaves_its_cell_sends_what_waits() -> None:
    sent = Sent()
    sent.aggregator.add(TO_ALICE, key(1), (S1,), 0)
    sent.aggregator.add(TO_ALICE, key(2), (S1,), 10)

    sent.aggregator.flush(20)
    sent.aggregator.on_timer(100)

    assert [at_us for at_us, *_ in sent.messages] == [0, 20]


def test_d28_on_a_free_channel_no_notification_waits_for_others() -> None:
    sent = Sent()
    sent.is_slow = False
    for number in range(3):
        sent.aggregator.add(TO_ALICE, key(number), (S1,), 10 * number)

    assert [at_us for at_us, *_ in sent.messages] == [0, 10, 20]


def test_d28_those_that_wait_are_sent_together_also_if_the_channel_is_free_again() -> None:
    sent = Sent()
    for number in range(2):
        sent.aggregator.add(TO_ALICE, key(number), (S1,), 10 * number)
    sent.is_slow = False
    sent.aggregator.add(TO_ALICE, key(2), (S1,), 20)
    sent.aggregator.on_timer(100)

    assert [list(matches) for _, _, matches, _ in sent.messages] == [[key(0)], [key(1), key(2)]]
