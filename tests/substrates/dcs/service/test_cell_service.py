"""The service of a cell: replies and notifications by its first node (D6, D7, D17, D19, M26)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import ALICE, BOB, CAROL, key, subscribe
from tests.substrates.dcs.components import (
    CELL,
    RecordingRouting,
    a_cell_index,
    a_replica_store,
    cell_requests,
    indexed,
    large_replicas,
)
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import Delivery, Destination
from thyme.storage.store import MemoryStore
from thyme.substrates.dcs.config import PAPER
from thyme.substrates.dcs.service.cell_service import CellService

SUBSCRIPTION = wire.StartSubscription(1, subscribe(1), 20)
INSERT = cell_wire.IndexObject(2, indexed())


def a_delivery(
    message: wire.Message, origin: NodeId, *, first: bool, cell: CellId = CELL
) -> Delivery:
    return Delivery(
        origin=origin,
        origin_cell=CellId(7),
        number=1,
        cell=cell,
        is_unicast=False,
        is_first=first,
        hops=1,
        message=message,
    )


class ServiceHarness:
    """The cell service of one node, with its recorded messages."""

    def __init__(self) -> None:
        self.routing = RecordingRouting()
        self.index = a_cell_index()
        self.lost: list[NodeId] = []
        outbox, replicas = Outbox(), a_replica_store()
        self.service = CellService(
            self.routing,
            outbox,
            self.index,
            replicas,
            large_replicas(self.routing, outbox, replicas),
            MemoryStore(),
            cell_requests(self.routing, outbox),
            PAPER,
            None,
            lambda subscriber, _now_us: self.lost.append(subscriber),
            lambda subscriber, _cell: self.lost.append(subscriber),
        )

    def receive(
        self,
        request: wire.CellRequest,
        origin: NodeId,
        now_us: int,
        *,
        first: bool,
        cell: CellId = CELL,
    ) -> None:
        operations: dict[type, Any] = {
            wire.StartSubscription: self.service.start_subscription,
            cell_wire.IndexObject: self.service.index_object,
            wire.FetchStatus: self.service.read_status,
        }
        handler = self.service.answering(operations[type(request)])
        handler(a_delivery(request, origin, first=first, cell=cell), request, now_us)

    @property
    def sent_kinds(self) -> list[str]:
        return [
            type(getattr(message, "message", message)).__name__ for _, message in self.routing.sent
        ]


def test_d7_d17_the_first_node_replies_and_notifies_and_the_others_only_store() -> None:
    one, other = ServiceHarness(), ServiceHarness()
    for harness, first in ((one, True), (other, False)):
        harness.receive(SUBSCRIPTION, ALICE, 10, first=first)
        harness.receive(INSERT, BOB, 10 + SECOND_US, first=first)

    assert one.sent_kinds == ["CellPage", "CellNotify", "Done"]
    assert other.sent_kinds == []
    assert list(one.index.objects()) == list(other.index.objects())
    assert list(one.index.cell_subscriptions()) == list(other.index.cell_subscriptions())


def test_d19_a_repeated_insert_is_answered_and_not_notified_again() -> None:
    harness = ServiceHarness()
    harness.receive(SUBSCRIPTION, ALICE, 10, first=True)
    for _ in range(3):
        harness.receive(INSERT, BOB, 20, first=True)
    assert harness.sent_kinds == ["CellPage", "CellNotify", "Done", "Done", "Done"]


@pytest.mark.parametrize(("later_us", "notified"), [(0, 1), (400_000, 1), (600_000, 0)])
def test_m26_a_node_that_just_answered_a_subscription_notifies_concurrent_inserts(
    later_us: int, notified: int
) -> None:
    harness = ServiceHarness()
    harness.receive(SUBSCRIPTION, ALICE, 10, first=True)
    harness.receive(INSERT, BOB, 10 + later_us, first=False)
    assert harness.sent_kinds.count("CellNotify") == notified


def test_d6_a_reply_names_the_cell_that_was_asked() -> None:
    harness = ServiceHarness()
    harness.receive(wire.FetchStatus(3, key(1)), ALICE, 10, first=True, cell=CellId(42))
    [(targets, reply)] = harness.routing.sent
    assert targets == [Destination(CellId(7), ALICE)]
    assert reply == wire.ReplyFromCell(CellId(42), cell_wire.CellStatus(3, "unknown", None))


def test_m25_an_invalid_request_is_refused_by_the_first_node_and_counted_by_the_others() -> None:
    one, other = ServiceHarness(), ServiceHarness()
    one.receive(INSERT, CAROL, 10, first=True)
    other.receive(INSERT, CAROL, 10, first=False)
    assert one.sent_kinds == ["Refused"]
    assert other.sent_kinds == []
    assert other.service.dropped == {"not_owner": 1}
