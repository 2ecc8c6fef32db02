"""Requests to several cells: retries, replies, refusals and timeouts (D8, D11, D19, D28)."""

from __future__ import annotations

from random import Random

from tests.builders import BOB, CAROL, key
from tests.substrates.dcs.components import RecordingRouting
from thyme.model.errors import NotFoundError, RejectedError
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.outbox import Outbox
from thyme.protocol.results import Failure, Result
from thyme.protocol.retry import RetryPolicy
from thyme.protocol.round_trip import RoundTripTimes
from thyme.routing.cells import DeliveryFailure, Destination
from thyme.substrates.dcs.client.cell_requests import CellRequests, CellRequestTimer, Replies

A, B, C = Destination(CellId(1)), Destination(CellId(2)), Destination(CellId(3), BOB)


class RequestHarness:
    """One operation of `CellRequests`, with its recorded messages and results."""

    def __init__(self, *targets: Destination, tries_max: int = 3) -> None:
        self.routing = RecordingRouting()
        policy = RetryPolicy(tries_max=tries_max, wait_us=100)
        self.requests = CellRequests(self.routing, Outbox(), policy, Random(1))
        self.results: list[object] = []
        self.requests.send_requests(
            dict.fromkeys(targets, wire.FetchObject(self.requests.next_id(), key(1))),
            0,
            self.on_result,
        )

    def on_result(self, result: Result[Replies], now_us: int) -> None:
        self.results.append(result.code if isinstance(result, Failure) else list(result.value))

    @property
    def request_id(self) -> int:
        message = self.routing.sent[0][1]
        assert isinstance(message, wire.FetchObject)
        return message.request_id

    def fire_timer(self) -> None:
        self.requests.on_timer(CellRequestTimer(self.request_id), 100)
        self.requests.check()


def test_d11_cells_that_replied_are_not_asked_again() -> None:
    harness = RequestHarness(A, B, C)
    harness.requests.on_cell_reply(B.cell, wire.Done(harness.request_id), 1)
    harness.fire_timer()
    harness.requests.on_reply(BOB, wire.Done(harness.request_id), 2)
    harness.fire_timer()
    harness.requests.on_cell_reply(A.cell, wire.Done(harness.request_id), 3)

    assert [targets for targets, _ in harness.routing.sent] == [[A, B, C], [A, C], [A]]
    assert harness.results == [[B, C, A]]
    assert len(harness.requests) == 0


def test_d19_tries_end_in_a_timeout_and_late_replies_are_counted() -> None:
    harness = RequestHarness(A, tries_max=2)
    for _ in range(4):
        harness.fire_timer()
    harness.requests.on_cell_reply(A.cell, wire.Done(harness.request_id), 9)

    assert len(harness.routing.sent) == 2
    assert harness.results == ["timeout"]
    assert harness.requests.unmatched_replies == 1


def test_d11_unexpected_and_repeated_replies_are_counted() -> None:
    harness = RequestHarness(A, B)
    for cell in (A.cell, A.cell, C.cell):
        harness.requests.on_cell_reply(cell, wire.Done(harness.request_id), 1)
    harness.requests.on_reply(CAROL, wire.Done(harness.request_id), 1)

    assert harness.results == []
    assert harness.requests.unmatched_replies == 3


def test_d11_the_first_refusal_ends_an_operation() -> None:
    harness = RequestHarness(A, B)
    harness.requests.on_cell_reply(A.cell, wire.Refused(harness.request_id, "rejected", "no"), 1)
    harness.requests.on_cell_reply(B.cell, wire.Done(harness.request_id), 1)

    assert harness.results == ["rejected"]


def test_d8_a_node_that_is_gone_ends_an_operation_at_once() -> None:
    harness = RequestHarness(C)

    assert harness.requests.on_delivery_failure(DeliveryFailure(number=1, node=BOB, cell=C.cell), 1)
    assert harness.results == [NotFoundError.code]
    assert not harness.requests.on_delivery_failure(
        DeliveryFailure(number=7, node=BOB, cell=C.cell), 1
    )


def test_pending_operations_are_bounded() -> None:
    policy = RetryPolicy(pending_max=1)
    requests = CellRequests(RecordingRouting(), Outbox(), policy, Random(1))
    results: list[Result[Replies]] = []
    for _ in range(2):
        request = wire.FetchObject(requests.next_id(), key(1))
        requests.send_requests({A: request}, 0, lambda result, _: results.append(result))
    requests.check()
    [result] = results
    assert isinstance(result, Failure)
    assert result.code == RejectedError.code


class RecordedTimes(RoundTripTimes):
    """The round-trip times that were measured."""

    def __init__(self) -> None:
        super().__init__(10_000)
        self.measured: list[int] = []

    def add(self, round_trip_us: int) -> None:
        self.measured.append(round_trip_us)


class MeasuredRequest:
    """One request to cell A and node BOB, sent at 0 and again at the given times."""

    def __init__(self, *repeated_us: int) -> None:
        self.times = RecordedTimes()
        policy = RetryPolicy(tries_max=9, wait_us=100)
        routing = RecordingRouting()
        self.requests = CellRequests(
            routing, Outbox(), policy, Random(1), None, self.times, self.times
        )
        self.request_id = self.requests.next_id()
        request = wire.FetchObject(self.request_id, key(1))
        self.requests.send_requests({A: request, C: request}, 0, lambda *_: None)
        for now_us in repeated_us:
            self.requests.on_timer(CellRequestTimer(self.request_id), now_us)

    def reply(self, now_us: int) -> None:
        self.requests.on_cell_reply(A.cell, wire.Done(self.request_id), now_us)

    def reply_of_node(self, now_us: int) -> None:
        self.requests.on_reply(BOB, wire.Done(self.request_id), now_us)


def test_d28_the_reply_to_the_only_try_is_measured() -> None:
    request = MeasuredRequest()
    request.reply(30)
    request.reply_of_node(40)
    assert request.times.measured == [30, 40]


def test_d28_one_reply_to_a_repeated_request_says_nothing_about_the_channel() -> None:
    """The first try may have been lost."""
    request = MeasuredRequest(100, 300)
    request.reply(310)
    request.reply_of_node(320)
    assert request.times.measured == []


def test_d28_a_second_reply_to_a_repeated_request_says_that_the_first_was_late() -> None:
    request = MeasuredRequest(100)
    request.reply(130)
    request.reply(240)
    assert request.times.measured == [130], "from the first try, which was not lost"

    request.reply_of_node(150)
    request.reply_of_node(260)
    assert request.times.measured == [130, 150]


def test_d28_of_several_tries_as_many_were_answered_as_there_are_replies() -> None:
    request = MeasuredRequest(100, 300)
    request.reply(350)
    request.reply(360)
    assert request.times.measured == [250], "from the second try at the latest"

    request.reply(370)
    assert request.times.measured == [250, 350]

    request.reply(380)
    assert request.times.measured == [250, 350], "a duplicate, since there were three tries"
