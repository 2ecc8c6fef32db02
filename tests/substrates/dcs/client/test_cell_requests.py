"""Requests to several cells: retries, replies, refusals and timeouts (D8, D11, D19)."""

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
