"""Recent answers: pairs of objects and subscriptions that concurrent requests miss (B2, M26)."""

from __future__ import annotations

from tests.builders import ALICE, BOB, key, subscribe
from tests.substrates.dcs.components import CELL, a_cell_index, indexed
from thyme.protocol.messages.cell_records import CellSubscription
from thyme.substrates.dcs.service.recent_answers import RecentAnswers


def test_m26_b2_missed_objects_and_subscriptions_are_found_for_a_while() -> None:
    index = a_cell_index()
    answers = RecentAnswers(index, race_window_us=5, late_window_us=100)
    subscription = subscribe(1, "goal")
    index.add_subscription(CellSubscription(subscription, CELL), ALICE, 10)
    index.add_object(indexed(1), BOB, 10)
    answers.add_subscription(subscription.key, 10)
    answers.add_object(key(1), 10)

    for now_us, fresh, late in ((14, True, True), (16, False, True), (111, False, False)):
        assert (answers.select_recent([subscription], now_us) == [subscription]) == fresh
        assert (
            answers.missed_subscriptions(indexed(2, at_us=1).metadata, now_us) == [subscription]
        ) == late
        assert (answers.missed_objects(subscription, now_us) == [indexed(1).metadata]) == late
