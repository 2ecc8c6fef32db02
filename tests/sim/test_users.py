"""S7, S10, M16, M17, M27: users execute the trace and react to the events of their devices."""

from __future__ import annotations

from typing import cast

import pytest

from tests.builders import conjunctions, frame
from tests.sim.runs import AT_ONCE, delete, insert, subscribe, trace, unsubscribe
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata, make_metadata
from thyme.model.subscriptions import Notification
from thyme.model.tags import as_tags
from thyme.model.time_frames import ALWAYS, SECOND_US
from thyme.protocol import app_interface as ask
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    CaughtUp,
    Failed,
    Finished,
    NotificationEvent,
    SubscriptionStarted,
)
from thyme.sim.deployment import node_id_for
from thyme.sim.engine.kernel import make_kernel
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.users import BATCH, NEXT_PAGE_US, Attempt, ReceivedNotification, Users
from thyme.traces.operations import Operation
from thyme.traces.retrieve_behaviour import NO_RETRIEVES, RetrieveBehaviour

ORIGIN_US = 60 * SECOND_US
ALICE, BOB = 0, 1
S1 = SubscriptionId("s1")


class Stage:
    """A network that only records the requests of two users to their devices."""

    def __init__(self, *operations: Operation, reaction: RetrieveBehaviour = NO_RETRIEVES) -> None:
        self.kernel = make_kernel()
        self.asked: list[tuple[int, AppRequest]] = []
        self.names = [node_id_for(number) for number in range(3)]  # the last is a server
        self.users = Users(
            cast(WirelessNetwork, self),
            self.names,
            trace(2, *operations),
            origin_us=ORIGIN_US,
            reaction=reaction,
            seed=1,
        )
        self.users.schedule_operations()
        for name in self.names:
            self.users.on_power(name, 1)

    @property
    def now_us(self) -> int:
        return self.kernel.now_us

    def send_request(self, node_id: NodeId, request: AppRequest) -> None:
        self.asked.append((self.names.index(node_id), request))

    def run(self, until_s: float) -> list[tuple[int, AppRequest]]:
        """The requests up to an instant, from the start of the operations, that were not returned
        yet."""
        self.kernel.run(ORIGIN_US + round(until_s * SECOND_US))
        return self.take()

    def take(self) -> list[tuple[int, AppRequest]]:
        asked, self.asked = self.asked, []
        return asked

    def tell(self, user: int, told: AppEvent) -> None:
        self.users.on_event(self.names[user], told)

    def life(self, user: int, life: int) -> None:
        self.users.on_power(self.names[user], life)

    @property
    def attempt(self) -> Attempt:
        return self.users.attempts[-1]


def photo(oid: str, by: int = BOB) -> Metadata:
    return make_metadata(Key(ObjectId(oid), node_id_for(by)), b"pixels", ["goal"], ORIGIN_US)


def news(
    oid: str, sid: SubscriptionId = S1, by: int = BOB, *, past: bool = False
) -> NotificationEvent:
    return NotificationEvent(Notification(sid, photo(oid, by), ORIGIN_US, past))


def following(stage: Stage) -> Stage:
    """With Alice's subscription, her first operation, started."""
    [(_, request)] = stage.run(1)
    assert isinstance(request, ask.Subscribe)
    stage.tell(ALICE, Finished(request.request_id, SubscriptionStarted(S1, 0)))
    return stage


# Operations


def test_operations_are_asked_for_in_their_time() -> None:
    """S10, S11: instants and frames of the trace count from the start of the operations."""
    stage = Stage(
        insert(1, BOB, "o", "goal eder", size=3, summary_size=2, life_us=9 * SECOND_US),
        subscribe(2, ALICE, "s", "goal & !eder", (0, 5)),
        delete(3, BOB, "o"),
    )

    assert stage.run(0.99) == []
    assert stage.run(1) == [
        (
            BOB,
            ask.Insert(
                request_id=1,
                data=bytes(3),
                tags=as_tags(["eder", "goal"]),
                summary=bytes(2),
                oid=ObjectId("o"),
                ttl_us=9 * SECOND_US,
            ),
        )
    ]
    within = frame(ORIGIN_US, ORIGIN_US + 5 * SECOND_US)
    terms = conjunctions("goal & !eder")
    assert stage.run(2) == [
        (ALICE, ask.Subscribe(request_id=1, conjunctions=terms, frame=within, batch=BATCH))
    ]
    key = Key(ObjectId("o"), node_id_for(BOB))
    assert stage.run(3) == [(BOB, ask.Delete(request_id=2, key=key))]


def test_a_text_is_the_object() -> None:
    text = "golo de Éder"
    stage = Stage(insert(1, BOB, "o", text=text))

    [(_, request)] = stage.run(1)
    assert isinstance(request, ask.Insert)
    assert request.data == text.encode()


def test_how_an_operation_ended_is_written_down() -> None:
    stage = Stage(insert(1, BOB, "o"), delete(2, BOB, "o"))
    stage.run(1.5)
    stage.tell(BOB, Finished(1, Key(ObjectId("o"), node_id_for(BOB))))
    stage.run(2.5)
    stage.tell(BOB, Failed(2, "timeout", "nobody answered"))

    half_us = SECOND_US // 2
    issued_us = ORIGIN_US + SECOND_US, ORIGIN_US + 2 * SECOND_US
    assert stage.users.attempts == [
        Attempt("insert", BOB, "o", issued_us[0], issued_us[0] + half_us, "ok"),
        Attempt("delete", BOB, "o", issued_us[1], issued_us[1] + half_us, "timeout"),
    ]


def test_what_has_not_ended_is_pending() -> None:
    stage = Stage(insert(1, BOB, "o"))
    stage.run(5)

    assert (stage.attempt.code, stage.attempt.ended_us) == ("pending", None)


def test_an_answer_to_what_nobody_asked_changes_nothing() -> None:
    stage = Stage(insert(1, BOB, "o"))
    stage.run(1)
    stage.tell(BOB, Finished(77, None))
    stage.tell(2, Finished(1, None))  # the server has no user

    assert stage.attempt.code == "pending"


def test_who_waits_when_the_device_goes_waits_in_vain() -> None:
    """S7: also if the device, back again, should reply after all."""
    stage = Stage(insert(1, BOB, "o"))
    stage.run(1)
    stage.life(BOB, 0)
    stage.life(BOB, 2)
    stage.tell(BOB, Finished(1, None))

    assert (stage.attempt.code, stage.attempt.ended_us) == ("down", None)


# Subscriptions


def test_an_unsubscribe_waits_until_there_is_something_to_revoke() -> None:
    stage = Stage(subscribe(1, ALICE, "s"), unsubscribe(2, ALICE, "s"))
    stage.run(1)
    assert stage.run(3) == []

    stage.tell(ALICE, Finished(1, SubscriptionStarted(S1, 0)))
    assert stage.take() == [(ALICE, ask.Unsubscribe(request_id=2, sid=S1))]
    stage.tell(ALICE, Finished(2, None))
    assert stage.attempt.code == "ok"
    assert stage.attempt.issued_us == ORIGIN_US + 2 * SECOND_US


@pytest.mark.parametrize("fails_at_s", [1.5, 3])
def test_what_never_began_cannot_be_revoked(fails_at_s: float) -> None:
    """Whether that is known before the unsubscribe or after."""
    stage = Stage(subscribe(1, ALICE, "s"), unsubscribe(2, ALICE, "s"))
    stage.run(fails_at_s)
    stage.tell(ALICE, Failed(1, "timeout", ""))
    stage.run(4)

    assert [each.code for each in stage.users.attempts] == ["timeout", "no_subscription"]
    assert stage.attempt.ended_us is not None


def test_a_subscription_that_was_lost_with_the_device_cannot_be_revoked_either() -> None:
    stage = Stage(subscribe(1, ALICE, "s"), unsubscribe(3, ALICE, "s"))
    stage.run(1)
    stage.life(ALICE, 0)
    stage.life(ALICE, 2)
    stage.run(4)

    assert [each.code for each in stage.users.attempts] == ["down", "no_subscription"]


def test_a_device_that_comes_back_takes_up_what_its_user_follows() -> None:
    """M27: but no subscription that was revoked, or never began."""
    stage = Stage(
        subscribe(1, ALICE, "revoked"),
        unsubscribe(1, ALICE, "revoked"),
        subscribe(2, ALICE, "followed"),
        subscribe(3, ALICE, "failed"),
    )
    stage.run(1)
    stage.tell(ALICE, Finished(1, SubscriptionStarted(SubscriptionId("s-revoked"), 0)))
    stage.run(2)
    stage.tell(ALICE, Finished(3, SubscriptionStarted(SubscriptionId("s-followed"), 0)))
    stage.run(3)
    stage.tell(ALICE, Failed(4, "timeout", ""))
    stage.take()

    stage.life(ALICE, 0)
    assert stage.take() == []
    stage.life(ALICE, 2)
    assert stage.take() == [(ALICE, ask.Resume(request_id=5, sid=SubscriptionId("s-followed")))]


def test_the_first_life_of_a_device_takes_up_nothing() -> None:
    stage = Stage(subscribe(1, ALICE, "s"))

    assert stage.take() == []


# History


def test_a_user_asks_for_all_of_its_past_batch_by_batch() -> None:
    """M17."""
    stage = following(Stage(subscribe(1, ALICE, "s")))
    stage.tell(ALICE, CaughtUp(S1, 2 * BATCH + 1))
    assert stage.take() == [(ALICE, ask.FetchNextPage(request_id=2, sid=S1, count=BATCH))]
    stage.tell(ALICE, Finished(2, BATCH))
    assert stage.take() == [(ALICE, ask.FetchNextPage(request_id=3, sid=S1, count=BATCH))]
    stage.tell(ALICE, Finished(3, 1))
    assert stage.take() == []


def test_a_past_that_fits_a_batch_is_not_asked_for_again() -> None:
    stage = following(Stage(subscribe(1, ALICE, "s")))
    stage.tell(ALICE, CaughtUp(S1, BATCH))

    assert stage.take() == []


def test_what_comes_of_the_past_makes_a_user_ask_whether_there_is_more() -> None:
    """L7: owners answer one by one, and their number is unknown; fetching once is enough."""
    stage = following(Stage(subscribe(1, ALICE, "s")))
    stage.tell(ALICE, news("o1", past=True))
    stage.tell(ALICE, news("o2", past=True))
    stage.tell(ALICE, news("o3"))
    stage.take()

    soon_s = 1 + NEXT_PAGE_US / SECOND_US
    assert stage.run(soon_s) == [(ALICE, ask.FetchNextPage(request_id=2, sid=S1, count=BATCH))]
    stage.tell(ALICE, news("o4", past=True))
    stage.life(ALICE, 0)
    stage.take()
    assert stage.run(9) == []


# Reactions


def test_what_a_user_hears_is_written_down_and_taken() -> None:
    """M16, M27."""
    stage = following(Stage(subscribe(1, ALICE, "s")))
    stage.tell(ALICE, news("o"))

    key = Key(ObjectId("o"), node_id_for(BOB))
    assert stage.take() == [(ALICE, ask.MarkConsumed(sid=S1, key=key))]
    assert stage.users.notification_count == 1
    assert stage.users.notifications() == [
        ReceivedNotification(ALICE, "s", "o", ORIGIN_US, ORIGIN_US + SECOND_US)
    ]


def test_news_of_a_subscription_that_nobody_made_are_kept_as_such() -> None:
    """M23: so that they are counted."""
    stage = Stage()
    stage.tell(ALICE, news("o"))

    assert [each.sid for each in stage.users.notifications()] == ["unknown:s1"]


def test_news_that_come_before_the_answer_belong_to_the_subscription() -> None:
    stage = Stage(subscribe(1, ALICE, "s"))
    stage.run(1)
    stage.tell(ALICE, news("o"))
    stage.tell(ALICE, Finished(1, SubscriptionStarted(S1, 1)))

    assert [each.sid for each in stage.users.notifications()] == ["s"]


def test_a_user_retrieves_what_it_hears_of_once_and_never_its_own() -> None:
    """S10: however many subscriptions notify of it."""
    stage = following(Stage(subscribe(1, ALICE, "s"), reaction=AT_ONCE))
    stage.tell(ALICE, news("o"))
    stage.tell(ALICE, news("o", SubscriptionId("s2")))
    stage.tell(ALICE, news("mine", by=ALICE))
    stage.take()

    assert stage.run(3) == [(ALICE, ask.Retrieve(request_id=2, metadata=photo("o")))]
    assert (stage.attempt.kind, stage.attempt.name) == ("retrieve", "o")


def test_nobody_retrieves_with_a_device_that_is_off() -> None:
    stage = following(Stage(subscribe(1, ALICE, "s"), reaction=AT_ONCE))
    stage.tell(ALICE, news("o"))
    stage.life(ALICE, 0)
    stage.take()

    assert stage.run(3) == []
    assert stage.attempt.kind == "subscribe"


def test_who_does_not_react_retrieves_nothing() -> None:
    stage = following(Stage(subscribe(1, ALICE, "s", "goal"), reaction=NO_RETRIEVES))
    stage.tell(ALICE, news("o"))
    stage.take()

    assert stage.run(60) == []


def test_an_open_frame_stays_open() -> None:
    stage = Stage(subscribe(1, ALICE, "s"))
    [(_, request)] = stage.run(1)

    assert isinstance(request, ask.Subscribe)
    assert request.frame == ALWAYS
