"""I1: logical cells and the routing over them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import photo
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import (
    CELLS_MAX,
    CellId,
    CellTarget,
    IndexedMetadata,
)
from thyme.protocol.messages.cells import CellBeacon, CellBroadcastAck, IndexObject
from thyme.protocol.messages.common import CellPacket, Message
from thyme.protocol.messages.replies import Done
from thyme.protocol.node import Broadcast, Send
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import (
    STATION_CELL,
    BeaconReceived,
    CellRoutingConfig,
    Delivery,
    DeliveryFailure,
    Destination,
    LogicalCells,
    LogicalRouting,
)

ME, ANN, BOB = NodeId(b"me"), NodeId(b"ann"), NodeId(b"bob")
LATE_US = 60_000_000


class User:
    """The layer above: notes what it is given."""

    def __init__(self) -> None:
        self.delivered: list[Delivery] = []
        self.failed: list[DeliveryFailure] = []
        self.beacons: list[BeaconReceived] = []

    def on_delivery(self, delivery: Delivery, now_us: int) -> None:
        self.delivered.append(delivery)

    def on_delivery_failure(self, failure: DeliveryFailure, now_us: int) -> None:
        self.failed.append(failure)

    def on_beacon(self, beacon: BeaconReceived, now_us: int) -> None:
        self.beacons.append(beacon)

    def on_payload(self, node: NodeId, cell: CellId, payload: bytes) -> None:
        pass

    def is_new_payload(self, payload: bytes) -> bool:
        return False

    def may_become_new(self, payload: bytes) -> bool:
        return self.is_new_payload(payload)

    def is_redundant(self, origin: NodeId, origin_cell: CellId, message: Message) -> bool:
        return False

    def beacon_payload(self, now_us: int) -> bytes:
        return b""


class Net:
    """A node in cell 1 of four, which hears some others."""

    def __init__(self, *heard: tuple[NodeId, int]) -> None:
        self.user, self.outbox = User(), Outbox()
        self.routing = LogicalRouting(ME, LogicalCells(4), self.outbox, Random(1), self.user)
        self.routing.start(CellId(1), 0, serving=True)
        for node, cell in heard:
            self.routing.on_received(node, CellBeacon(CellId(cell), True, b"", b""), LATE_US)
        self.outbox.drain_actions()

    def send(self, *targets: Destination) -> list[tuple[NodeId, tuple[CellTarget, ...]]]:
        """The next hops of a message, and the targets in each copy."""
        self.routing.send(targets, Done(7), LATE_US)
        return [
            (action.to, action.message.targets)
            for action in self.outbox.drain_actions()
            if isinstance(action, Send) and isinstance(action.message, CellPacket)
        ]


@given(st.integers(1, 500), st.binary(min_size=1, max_size=32))
def test_i1_a_cell_follows_from_the_id_of_a_node(count: int, node: bytes) -> None:
    cells = LogicalCells(count)

    assert cells.cell_of_node(NodeId(node)) in cells
    assert cells.cell_of_node(NodeId(node)) == LogicalCells(count).cell_of_node(NodeId(node))


def test_i1_nodes_and_keys_are_spread_evenly_over_the_cells() -> None:
    cells = LogicalCells(10)
    for counts in (
        Counter(cells.cell_of_node(NodeId(str(n).encode())) for n in range(10_000)),
        Counter(cells.cell_of_key(f"tag{n}") for n in range(10_000)),
    ):
        assert len(counts) == 10
        assert max(counts.values()) < 1.2 * min(counts.values())


@pytest.mark.parametrize("count", [0, -1, CELLS_MAX])
def test_i1_a_world_has_at_least_one_cell_and_leaves_one_for_stations(count: int) -> None:
    with pytest.raises(ValueError, match="logical cells"):
        LogicalCells(count)
    assert STATION_CELL not in LogicalCells(CELLS_MAX - 1)


def test_i1_a_message_to_a_cell_goes_to_one_of_its_nodes_in_one_hop() -> None:
    net = Net((ANN, 2), (BOB, 3))

    assert net.send(Destination(CellId(2))) == [(ANN, (CellTarget(CellId(2)),))]


def test_i1_a_message_to_the_own_cell_is_delivered_here_and_broadcast() -> None:
    net = Net((ANN, 1))
    net.routing.send([Destination(CellId(1))], Done(7), LATE_US)

    assert [type(action) for action in net.outbox.drain_actions()] == [Broadcast]
    assert [delivery.cell for delivery in net.user.delivered] == [1]


@pytest.mark.parametrize(
    ("heard", "proxy"), [(((ANN, 2), (BOB, 3)), ME), (((ANN, 0),), ANN), ((), ME)]
)
def test_d6_the_proxy_of_an_empty_cell_is_the_next_populated_one_on_the_ring(
    heard: tuple[tuple[NodeId, int], ...], proxy: NodeId
) -> None:
    net = Net(*heard)
    hops = [node for node, _ in net.send(Destination(CellId(0)))]

    assert (hops or [ME]) == [proxy]
    assert net.routing.is_certain_proxy_of(CellId(0)) is (proxy == ME)


def test_d8_a_node_that_is_not_heard_is_not_in_its_cell() -> None:
    net = Net((ANN, 2))

    assert net.send(Destination(CellId(3), BOB)) == []
    assert [(failure.node, failure.cell) for failure in net.user.failed] == [(BOB, 3)]


def test_d8_a_node_that_has_just_started_sends_to_nodes_it_has_not_heard_yet() -> None:
    net = Net()
    net.routing.send([Destination(CellId(3), BOB)], Done(7), 1_000)

    assert [action.to for action in net.outbox.drain_actions() if isinstance(action, Send)] == [BOB]


def test_d10_a_message_that_a_node_did_not_take_goes_to_another_node_of_the_cell() -> None:
    net = Net((ANN, 2), (BOB, 2))
    net.routing.send([Destination(CellId(2))], Done(7), LATE_US)
    [first] = [action for action in net.outbox.drain_actions() if isinstance(action, Send)]

    net.routing.on_send_failed(first.to, first.message, LATE_US)

    [second] = [action for action in net.outbox.drain_actions() if isinstance(action, Send)]
    assert {first.to, second.to} == {ANN, BOB}


def test_i3_with_another_number_of_cells_a_node_moves_and_forgets_old_cell_numbers() -> None:
    net = Net((ANN, 2))
    moved: list[CellId] = []

    def move(cell: CellId) -> None:
        moved.append(cell)
        net.routing.set_cell(cell, LATE_US, serving=False)

    net.routing.resize(50, move)

    assert moved == [LogicalCells(50).cell_of_node(ME)]
    assert net.routing.populated_cells() == ()
    net.routing.resize(1, move)
    net.routing.check()
    assert net.send(Destination(CellId(49))) == [], "a cell that no longer exists is left out"


def test_m25_messages_about_cells_that_do_not_exist_are_dropped_and_counted() -> None:
    net = Net()
    for message in (
        CellBeacon(CellId(9), True, b"", b""),
        CellPacket(ANN, CellId(9), 1, 0, (CellTarget(CellId(1)),), Done(7)),
        CellPacket(ANN, CellId(2), 2, 0, (CellTarget(CellId(9)),), Done(7)),
    ):
        assert net.routing.on_received(ANN, message, LATE_US)

    assert net.user.delivered == []
    assert net.routing.traffic.dropped == {"strange beacon": 1, "no such cell": 2}


def test_b8_a_known_request_is_broadcast_again_unless_the_cell_is_about_to_acknowledge_it() -> None:
    """Bob missed an insert that this node knows: a peer broadcast it and left. The origin repeats
    it here: Bob has to get it before the insert is answered, but not once for each copy."""

    class Knowing(User):
        def is_redundant(self, origin: NodeId, origin_cell: CellId, message: Message) -> bool:
            return True

    config = CellRoutingConfig(
        broadcast_tries_max=5, broadcast_redundant=False, answer_when_known=True
    )
    outbox = Outbox()
    routing = LogicalRouting(ME, LogicalCells(4), outbox, Random(1), Knowing(), config)
    routing.start(CellId(1), 0, serving=True)
    for node, cell in ((ANN, 2), (BOB, 1)):
        routing.on_received(node, CellBeacon(CellId(cell), True, b"", b""), LATE_US)
    outbox.drain_actions()

    def broadcasts(number: int) -> int:
        insert = IndexObject(5, IndexedMetadata(photo(1), ()))
        packet = CellPacket(ANN, CellId(2), number, 0, (CellTarget(CellId(1)),), insert)
        routing.on_received(ANN, packet, LATE_US)
        return sum(isinstance(action, Broadcast) for action in outbox.drain_actions())

    assert broadcasts(1) == 1
    assert broadcasts(2) == 0, "Bob has not acknowledged the first copy yet"
    routing.on_received(BOB, CellBroadcastAck(ANN, 1, CellId(1)), LATE_US)
    assert broadcasts(3) == 1, "nothing says that the cell still has it"
