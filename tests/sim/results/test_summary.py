"""S14, S15, S18, M16, M23: the summaries of runs made by hand."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from tests.sim.runs import AT_ONCE, SHORT, delete, insert, scenario, subscribe, trace, unsubscribe
from thyme.model.time_frames import SECOND_US
from thyme.sim.faults.availability import DownSpan
from thyme.sim.measurement.measurements import TrafficCount
from thyme.sim.radio.phy import OVERHEAD_BYTES
from thyme.sim.results.summary import (
    Latency,
    NotificationSummary,
    summarise_latency,
    summarise_notifications,
    summarise_operations,
    summarise_run,
)
from thyme.sim.run import Run, run
from thyme.sim.scenario import Substrate
from thyme.sim.users import Attempt, ReceivedNotification
from thyme.traces.operations import Operation
from thyme.traces.oracle import expected_notifications

ORIGIN_US = SHORT.origin_us
NOTHING_DONE = trace(2, insert(0, 0, "unused"))


def us(at_s: float) -> int:
    """An instant of the run, given from the start of the operations."""
    return ORIGIN_US + round(at_s * SECOND_US)


@cache
def some_run(substrate: Substrate = Substrate.LS) -> Run:
    """A run with real measurements."""
    return run(scenario(substrate, nodes=2), NOTHING_DONE)


def a_run(
    *operations: Operation,
    heard: list[ReceivedNotification] | None = None,
    attempts: list[Attempt] | None = None,
    downtimes: dict[int, list[DownSpan]] | None = None,
) -> Run:
    done = trace(2, *operations)
    return replace(
        some_run(),
        trace=done,
        expected=expected_notifications(done),
        attempts=attempts or [],
        notifications=heard or [],
        downtimes=downtimes or {},
    )


def told(
    oid: str, at_s: float, *, sid: str = "s", user: int = 1, published_s: float = 2
) -> ReceivedNotification:
    return ReceivedNotification(user, sid, oid, us(published_s), us(at_s))


def attempt(
    kind: str, name: str, from_s: float, to_s: float | None = None, code: str = "ok"
) -> Attempt:
    return Attempt(kind, 0, name, us(from_s), None if to_s is None else us(to_s), code)


# Operations


def test_success_is_the_share_that_ended_well() -> None:
    """S14: failures are counted by their codes; only successes have a latency."""
    attempts = [
        attempt("subscribe", "s1", 1, 1.5),
        attempt("subscribe", "s2", 1, 2),
        attempt("subscribe", "s3", 1, 9, "timeout"),
        attempt("subscribe", "s4", 1, None, "pending"),
        attempt("insert", "o", 1, None, "down"),
    ]
    found = summarise_operations(attempts, NOTHING_DONE)

    subscribes = found["subscribe"]
    assert (subscribes.issued, subscribes.ok, subscribes.success) == (4, 2, 0.5)
    assert subscribes.failures == {"pending": 1, "timeout": 1}
    assert subscribes.latency_ms == Latency(750.0, 500.0, 1_000.0, 1_000.0)
    assert (found["insert"].success, found["insert"].latency_ms) == (0.0, Latency())
    assert (found["delete"].issued, found["delete"].success) == (0, None)
    assert list(found) == ["insert", "delete", "subscribe", "unsubscribe", "retrieve"]


def test_quantiles_are_values_that_occurred() -> None:
    durations_us = [1_000 * value for value in range(1, 101)]

    assert summarise_latency(reversed(durations_us)) == Latency(50.5, 50.0, 95.0, 100.0)
    assert summarise_latency([3_000]) == Latency(3.0, 3.0, 3.0, 3.0)
    assert summarise_latency([1_000, 2_000]) == Latency(1.5, 1.0, 2.0, 2.0)
    assert summarise_latency([]) == Latency(None, None, None, None)


@pytest.mark.parametrize(("deleted_s", "ok"), [(4, 1), (5, 1), (7, 0)])
def test_not_finding_what_was_deleted_before_is_the_right_answer(deleted_s: float, ok: int) -> None:
    """The answer came at 6 s."""
    story = trace(2, insert(1, 0, "o"), delete(deleted_s, 0, "o"))
    attempts = [
        attempt("insert", "o", 1, 1),
        attempt("retrieve", "o", 4.5, 6, "not_found"),
        attempt("delete", "o", deleted_s, deleted_s),
    ]

    retrieves = summarise_operations(attempts, story)["retrieve"]
    assert retrieves.ok == ok
    assert retrieves.failures == ({} if ok else {"not_found": 1})


@pytest.mark.parametrize(("life_s", "ok"), [(5, 1), (6, 0)])
def test_nor_is_what_has_expired_to_be_found(life_s: int, ok: int) -> None:
    """M29: inserted at 1 s; the answer came at 6 s."""
    story = trace(2, insert(1, 0, "o", life_us=life_s * SECOND_US))
    attempts = [attempt("insert", "o", 1, 1), attempt("retrieve", "o", 5, 6, "not_found")]

    assert summarise_operations(attempts, story)["retrieve"].ok == ok


def test_not_finding_what_is_there_is_a_failure() -> None:
    attempts = [attempt("insert", "o", 1, 1), attempt("retrieve", "o", 5, 6, "not_found")]
    story = trace(2, insert(1, 0, "o"))

    assert summarise_operations(attempts, story)["retrieve"].failures == {"not_found": 1}


# Notifications


def counted(notifications: NotificationSummary) -> dict[str, int]:
    return {
        name: getattr(notifications, name)
        for name in ("expected", "delivered", "spurious", "duplicates", "unexpected")
        if getattr(notifications, name)
    }


PUBLISHED = insert(2, 0, "o"), insert(2, 0, "p")
STORY = subscribe(1, 1, "s"), *PUBLISHED


def test_recall_is_the_share_of_a_perfect_execution_that_was_told() -> None:
    """S15."""
    found = summarise_notifications(a_run(*STORY, heard=[told("o", 2.25)]))

    assert counted(found) == {"expected": 2, "delivered": 1}
    assert found.recall == 0.5
    assert found.latency_ms == Latency(250.0, 250.0, 250.0, 250.0)


def test_the_latency_of_the_past_counts_from_the_subscription() -> None:
    found = summarise_notifications(a_run(*PUBLISHED, subscribe(9, 1, "s"), heard=[told("o", 9.5)]))

    assert found.latency_ms.max == 500.0


def test_what_is_told_twice_is_told_once_and_a_duplicate() -> None:
    """M16."""
    found = summarise_notifications(a_run(*STORY, heard=[told("o", 3), told("o", 4), told("o", 5)]))

    assert counted(found) == {"expected": 2, "delivered": 1, "duplicates": 2}
    assert found.latency_ms.max == 1_000.0


def test_the_same_object_for_two_subscriptions_is_no_duplicate() -> None:
    heard = [told("o", 3), told("o", 3, sid="t")]

    assert counted(summarise_notifications(a_run(*STORY, subscribe(1, 1, "t"), heard=heard))) == {
        "expected": 4,
        "delivered": 2,
    }


@pytest.mark.parametrize(
    ("story", "wrong"),
    [
        ((subscribe(1, 1, "s", "eder"), *PUBLISHED), told("o", 3)),
        ((subscribe(1, 1, "s", "goal & !eder"), insert(2, 0, "o", "eder goal")), told("o", 3)),
        ((subscribe(1, 1, "s", frame_s=(3, None)), *PUBLISHED), told("o", 4)),
        ((subscribe(3, 1, "s", frame_s=(None, 1)), *PUBLISHED), told("o", 4)),
        (STORY, told("o", 3, user=0)),
        (STORY, told("o", 3, sid="unknown:x")),
        (STORY, told("never", 3)),
        ((insert(2, 0, "o", life_us=SECOND_US), subscribe(3, 1, "s")), told("o", 4)),
    ],
    ids=[
        "does not match",
        "has a tag that is excluded",
        "is before the frame",
        "is after the frame",
        "is another user's subscription",
        "is nobody's subscription",
        "is nobody's object",
        "had expired",
    ],
)
def test_a_notification_is_wrong_if_the_object(
    story: tuple[Operation, ...], wrong: ReceivedNotification
) -> None:
    """M23."""
    found = counted(summarise_notifications(a_run(*story, heard=[wrong])))

    assert found.pop("expected", 0) in (0, 2)
    assert found == {"spurious": 1}


def test_the_frame_is_held_against_the_publishers_stamp() -> None:
    """M28: an insert at 2 s may have a slightly later timestamp, and be outside."""
    story = subscribe(1, 1, "s", frame_s=(None, 2)), insert(2, 0, "o")

    right = summarise_notifications(a_run(*story, heard=[told("o", 3, published_s=2)]))
    wrong = summarise_notifications(a_run(*story, heard=[told("o", 3, published_s=2.1)]))
    assert counted(right) == {"expected": 1, "delivered": 1}
    assert counted(wrong) == {"expected": 1, "spurious": 1}


@pytest.mark.parametrize(
    ("ended_s", "code", "spurious"),
    [(4, "ok", 1), (6, "ok", 0), (4, "timeout", 0), (None, "pending", 0)],
)
def test_what_was_deleted_before_the_subscription_must_not_be_told(
    ended_s: float | None, code: str, spurious: int
) -> None:
    """M14, M23: as soon as the delete has succeeded; the subscription comes at 5 s."""
    story = insert(2, 0, "o"), delete(4, 0, "o"), subscribe(5, 1, "s")
    deleted = attempt("delete", "o", 4, ended_s, code)
    found = counted(
        summarise_notifications(a_run(*story, heard=[told("o", 6)], attempts=[deleted]))
    )

    assert found == ({"spurious": 1} if spurious else {"unexpected": 1})


def test_what_is_deleted_later_was_right_to_tell() -> None:
    story = subscribe(1, 1, "s"), insert(2, 0, "o"), delete(4, 0, "o")
    deleted = attempt("delete", "o", 4, 4)
    found = summarise_notifications(a_run(*story, heard=[told("o", 5)], attempts=[deleted]))

    assert counted(found) == {"expected": 1, "delivered": 1}


@pytest.mark.parametrize(
    ("told_s", "counts"),
    [
        (5, {"expected": 2, "delivered": 1}),
        (5.001, {"expected": 2, "spurious": 1}),
    ],
)
def test_nothing_is_told_after_a_subscription_was_revoked(
    told_s: float, counts: dict[str, int]
) -> None:
    """M18: a notification sent nevertheless counts as wrong and as nothing else."""
    revoked = attempt("unsubscribe", "s", 4, 5)
    story = *STORY, unsubscribe(4, 1, "s")
    found = summarise_notifications(a_run(*story, heard=[told("o", told_s)], attempts=[revoked]))

    assert counted(found) == counts


@pytest.mark.parametrize(
    ("down_s", "latency_ms"),
    [
        ([(1.5, 6)], 1_000.0),
        ([(2, 6)], 1_000.0),
        ([(1, 2)], 5_000.0),
        ([(3, 6)], 5_000.0),
        ([(1.5, 4), (4, 6.5)], 500.0),
    ],
    ids=["down", "goes just then", "is just back", "goes later", "is back for no time"],
)
def test_no_latency_is_counted_while_the_subscribers_device_is_down(
    down_s: list[tuple[float, float]], latency_ms: float
) -> None:
    """Published at 2 s, notified at 7 s."""
    spans: list[DownSpan] = [(us(since_s), us(until_s)) for since_s, until_s in down_s]
    found = summarise_notifications(a_run(*STORY, heard=[told("o", 7)], downtimes={1: spans}))

    assert found.latency_ms.max == latency_ms


def test_the_owners_absence_is_counted() -> None:
    gone: dict[int, list[DownSpan]] = {0: [(us(1), us(6))]}
    found = summarise_notifications(a_run(*STORY, heard=[told("o", 7)], downtimes=gone))

    assert found.latency_ms.max == 5_000.0


def test_who_never_comes_back_is_not_expected_to_be_told() -> None:
    gone: dict[int, list[DownSpan]] = {1: [(us(1.5), None)]}
    found = summarise_notifications(a_run(*STORY, heard=[], downtimes=gone))

    assert (found.expected, found.recall) == (0, None)


def test_a_run_without_anything_to_tell_has_no_recall() -> None:
    found = summarise_notifications(a_run(insert(1, 0, "o")))

    assert (found.expected, found.recall, found.latency_ms) == (0, None, Latency())


# Traffic, energy, and the analytical model


def test_traffic_is_what_the_radio_and_the_ledger_counted() -> None:
    """S14: network headers are added to what was forwarded, all headers to control."""
    found = some_run()
    measures = replace(
        found.measurements,
        loads={
            "RouteUpdate": TrafficCount(10, 500),
            "Packet/Notify": TrafficCount(4, 80, 4, 80, 3, 60),
        },
        total=TrafficCount(14, 580, 4, 80, 3, 60),
        control=TrafficCount(10, 500),
        frame_bytes=4_000,
        frames=40,
        retransmissions=5,
        dropped={"exceeded": 2, "full": 1},
    )
    traffic = summarise_run(replace(found, measurements=measures)).traffic

    assert (traffic.phy_bytes, traffic.phy_frames) == (4_000, 40)
    assert (traffic.mac_retransmissions, traffic.mac_exceeded) == (5, 2)
    assert traffic.forwarded_bytes == 60 + 3 * 28
    assert traffic.control_bytes == 500 + 10 * OVERHEAD_BYTES
    assert traffic.dropped == {"exceeded": 2, "full": 1}
    assert set(traffic.by_type) == {"RouteUpdate", "Packet/Notify"}


def test_load_and_energy_are_those_of_the_busiest_and_of_all() -> None:
    found = summarise_run(some_run())
    joules = [node.energy.joules for node in some_run().measurements.nodes]

    assert found.energy_j.mean == pytest.approx(sum(joules) / 2)
    assert found.energy_j.max == max(joules)
    assert found.load.max == some_run().measurements.hot_spot.max > 0
    assert 0 <= found.load.gini < 1


def test_the_analytical_model_stands_beside_what_was_simulated() -> None:
    """S18: 4 nodes, so routes of 2 hops; every hop counts."""
    story = trace(
        4, subscribe(1, 1, "s"), insert(2, 0, "o"), insert(3, 0, "p"), unsubscribe(9, 1, "s")
    )
    loads = {
        "Flooded/StartSubscription": TrafficCount(4, 400),
        "Flooded/StopSubscription": TrafficCount(3, 300),
        "Packet/Notify": TrafficCount(5, 100),
        "Packet/Letter/Notify": TrafficCount(1, 100),
        "Packet/OwnerPage": TrafficCount(2, 20),
        "Packet/FetchObject": TrafficCount(6, 60),
        "Packet/ObjectData": TrafficCount(7, 70),
        "RouteUpdate": TrafficCount(100, 900),
        "JoinRequest": TrafficCount(4, 40),
    }
    found = some_run()
    found = replace(
        found,
        scenario=replace(found.scenario, nodes=4, reaction=AT_ONCE),
        trace=story,
        expected=expected_notifications(story),
        measurements=replace(found.measurements, loads=loads),
    )
    model = summarise_run(found).analytical

    assert model.formula.insert == 0
    assert model.formula.subscribe == 1 * 4
    assert model.formula.unsubscribe == 1 * 4
    assert model.formula.notification == 2 * 2
    assert model.formula.retrieve == 2 * 2 * 2
    assert model.simulated == {
        "subscribe": 4 + 2,
        "unsubscribe": 3,
        "notification": 6,
        "retrieve": 13,
        "upkeep": 104,
    }


def test_every_message_of_es_belongs_to_an_operation() -> None:
    """S18: the server takes part in every one of them."""
    story = trace(
        2,
        subscribe(1, 1, "s"),
        insert(2, 0, "o"),
        delete(8, 0, "o"),
        unsubscribe(9, 1, "s"),
    )
    found = summarise_run(run(scenario(Substrate.ES, nodes=2, reaction=AT_ONCE), story)).analytical

    for name in ("insert", "delete", "subscribe", "unsubscribe", "notification", "retrieve"):
        assert found.simulated[name] >= 1
        assert getattr(found.formula, name) >= 1
    assert found.simulated["acknowledgement"] >= 3


def test_the_scenario_is_told_with_what_its_users_did() -> None:
    told_of = summarise_run(some_run()).scenario

    assert told_of["substrate"] == "ls"
    assert told_of["nodes"] == 2
    assert told_of["operations"] == {"insert": 1, "delete": 0, "subscribe": 0, "unsubscribe": 0}
