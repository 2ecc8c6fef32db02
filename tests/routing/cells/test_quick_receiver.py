"""Messages that cause no action, as beacons that repeat the last one and broadcasts inside other
cells: the short way has the same effect as the long one (D4, D7, I1)."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.routing.cells.test_logical import User
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellBeacon
from thyme.protocol.messages.common import CellBroadcast, Done
from thyme.protocol.node import Broadcast
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import LogicalCells, LogicalRouting
from thyme.routing.cells.interface import BeaconTimer

SECOND_US = 1_000_000
NODES = [NodeId(name) for name in (b"ann", b"bob", b"eve")]
BEACONS = [
    CellBeacon(CellId(cell), serving, b"", payload)
    for cell in (0, 1, 2)
    for serving in (True, False)
    for payload in (b"", b"change 1", b"change 2", b"stranger")
]
OTHER_WORLD = 7
BROADCASTS = [
    CellBroadcast(NodeId(b"ann"), CellId(0), number, 0, CellId(cell), CellId(cell), Done(5), world)
    for number in (1, 2)
    for cell in (0, 1, 2)
    for world in (None, OTHER_WORLD)
]


class ChangingUser(User):
    """A layer above for which a payload is new if it names another change than the latest."""

    latest = b"change 1"

    def is_new_payload(self, payload: bytes) -> bool:
        return payload.startswith(b"change") and payload != self.latest

    def may_become_new(self, payload: bytes) -> bool:
        return payload.startswith(b"change")


class Listener:
    """A node in cell 1 of three."""

    def __init__(self, *, short_way: bool) -> None:
        self.user, self.outbox = ChangingUser(), Outbox()
        self.routing = LogicalRouting(
            NodeId(b"me"), LogicalCells(3), self.outbox, Random(1), self.user
        )
        self.routing.start(CellId(1), 0, serving=True)
        self.routing.accept_beacons(lambda payload: payload != b"stranger")
        self.outbox.drain_actions()
        self._short_way = short_way
        self.quickly_received = 0

    def hear(self, sender: NodeId, message: CellBeacon | CellBroadcast, now_us: int) -> None:
        if self._short_way and self.routing.receive_quickly(sender, message, now_us):
            self.quickly_received += 1
        else:
            self.routing.on_received(sender, message, now_us)

    def known(self) -> object:
        """All that a node knows and has done."""
        cells = [self.routing.nodes_in(CellId(cell)) for cell in range(3)]
        dropped = dict(self.routing.traffic.dropped)
        user = self.user
        return cells, self.routing.neighbour_count, user.beacons, user.delivered, dropped


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["hear", "hear", "hear", "hear", "timer", "move", "change", "fail"]),
            st.sampled_from(NODES),
            st.sampled_from(BEACONS),
            st.sampled_from(BROADCASTS),
            st.integers(0, 3 * SECOND_US),
        ),
        max_size=60,
    )
)
def test_the_short_way_changes_nothing(
    events: list[tuple[str, NodeId, CellBeacon, CellBroadcast, int]],
) -> None:
    """Whatever is heard, and whatever happens between: the node knows the same either way."""
    now_us = 0
    quick, slow = Listener(short_way=True), Listener(short_way=False)
    for event, sender, beacon, broadcast, passes_us in events:
        now_us += passes_us
        for listener in (quick, slow):
            match event:
                case "hear":
                    listener.hear(sender, beacon, now_us)
                    listener.hear(sender, broadcast, now_us)
                    listener.hear(sender, beacon, now_us)
                case "timer":
                    listener.routing.on_timer(BeaconTimer(), now_us)
                case "move":
                    listener.routing.set_cell(beacon.cell, now_us, serving=beacon.serving)
                case "change":
                    listener.user.latest = b"change 2"
                case _:
                    listener.routing._record_failure(sender)
        assert quick.known() == slow.known()
        assert quick.outbox.drain_actions() == slow.outbox.drain_actions()


def test_a_repeated_beacon_keeps_its_sender_in_the_neighbour_table() -> None:
    """A node that always says the same is heard for as long as it does, and then forgotten."""
    listener, [ann, *_] = Listener(short_way=True), NODES
    beacon = CellBeacon(CellId(2), True, b"", b"")
    for second in range(60):
        listener.hear(ann, beacon, second * SECOND_US)
        listener.routing.on_timer(BeaconTimer(), second * SECOND_US)
        assert listener.routing.nodes_in(CellId(2)) == [ann]
    assert listener.quickly_received == 58

    listener.routing.on_timer(BeaconTimer(), 62 * SECOND_US)
    assert listener.routing.nodes_in(CellId(2)) == [ann]
    listener.routing.on_timer(BeaconTimer(), 64 * SECOND_US)
    assert listener.routing.nodes_in(CellId(2)) == []


def test_only_broadcasts_inside_other_cells_take_the_short_way() -> None:
    listener, [ann, *_] = Listener(short_way=True), NODES
    for broadcast in BROADCASTS:
        listener.hear(ann, broadcast, SECOND_US)
    assert listener.quickly_received == 4  # two cells, two numbers
    assert [delivery.number for delivery in listener.user.delivered] == [1, 2]
    assert listener.routing.traffic.dropped == {"another world": 6}


def test_a_node_sends_the_same_object_until_something_changes() -> None:
    listener = Listener(short_way=True)

    def next_beacon(now_us: int) -> object:
        listener.routing.on_timer(BeaconTimer(), now_us)
        [beacon] = [a.message for a in listener.outbox.drain_actions() if isinstance(a, Broadcast)]
        return beacon

    first = next_beacon(SECOND_US)
    assert next_beacon(2 * SECOND_US) is first
    listener.routing.set_cell(CellId(2), 3 * SECOND_US, serving=True)
    listener.outbox.drain_actions()
    assert next_beacon(4 * SECOND_US) is not first
