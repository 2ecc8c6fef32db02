"""Moving: who works for which cell, who knows where somebody is, who waits for whom."""

from __future__ import annotations

import msgspec

from tests.substrates.dcs.network import LONE, SETTLED_S, STREET, DcsNetwork, in_cell, tag_in
from thyme.model.ids import NodeId
from thyme.model.time_frames import TimeFrame
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId, CellTarget
from thyme.query.query import Query
from thyme.substrates.dcs.config import (
    PAPER,
    MovementConfig,
    NotificationDeliveryConfig,
    ReplicationConfig,
)
from thyme.substrates.dcs.membership.cell_joining import CellJoinPhase
from thyme.substrates.dcs.state.replica_store import ReplicaRole

BRISK = msgspec.structs.replace(
    PAPER, notification_delivery=NotificationDeliveryConfig(wait_us_max=20_000_000)
)


def serving(net: DcsNetwork) -> dict[str, int]:
    return {name: node.routing.cell for name, node in net.nodes.items() if node.routing.serving}


# D20


def test_d20_who_leaves_its_cell_stops_working_for_it_at_once() -> None:
    net = DcsNetwork(STREET)

    net.move("ann", in_cell(1), settle_s=0.01)

    ann = net.nodes["ann"]
    assert not ann.routing.serving
    assert ann.routing.cell == 1
    assert ann.joining.phase is CellJoinPhase.OUTSIDE
    neighbour = net.nodes["bea"].routing.neighbours.get(NodeId(b"ann"))  # type: ignore[attr-defined]
    assert neighbour is not None
    assert not neighbour.serving


def test_d20_within_its_cell_a_node_moves_as_it_likes() -> None:
    net = DcsNetwork(STREET)

    net.move("ann", in_cell(0, 9), settle_s=1)

    assert net.nodes["ann"].routing.serving


def test_d20_on_its_way_a_node_hears_beacons_asks_and_is_told() -> None:
    net = DcsNetwork(STREET)
    net.subscribe("ann", tag_in(4))

    for cell in (1, 2, 3):
        net.move("ann", in_cell(cell, 5), settle_s=3)
        assert not net.nodes["ann"].routing.serving
        net.insert("dan", f"photo-{cell}", tag_in(4), seconds=1)
    net.insert("ann", "own", tag_in(6), seconds=1)

    assert net.heard("ann") == ["photo-1", "photo-2", "photo-3"]
    assert net.indexing("own") == {"dan", "dot"}


def test_d20_after_standing_for_a_while_it_joins_the_cell_it_is_in() -> None:
    """D20, D23: it drops what it kept for the old cell and learns what the new one knows."""
    net = DcsNetwork(STREET)
    old = net.insert("dan", "old", tag_in(0))
    new = net.insert("cat", "new", tag_in(4))
    held = net.insert("abe", "held", tag_in(6))
    assert net.nodes["ann"].replicas.get(held) is not None

    net.move("ann", in_cell(4, 5), settle_s=SETTLED_S)

    assert serving(net)["ann"] == 4
    assert set(net.index("ann")) == {"new"}
    assert net.nodes["ann"].replicas.get(held) is None
    assert net.indexing("old") == {"abe"}
    assert net.holding(new) >= {"cat", "col", "ann"}
    assert old.oid == "old"


def test_d20_how_long_it_must_stand_can_be_set() -> None:
    slow = msgspec.structs.replace(PAPER, movement=MovementConfig(settle_us=30_000_000))
    net = DcsNetwork(STREET, config=slow)

    net.move("ann", in_cell(4, 5), settle_s=28)
    assert "ann" not in serving(net)
    net.run(6)
    assert serving(net)["ann"] == 4


def test_d20_whoever_keeps_moving_joins_nothing() -> None:
    net = DcsNetwork(STREET)

    for step in range(10):
        net.move("ann", in_cell(4, step), settle_s=2)

    assert "ann" not in serving(net)


def test_d20_who_comes_back_to_its_cell_still_has_its_state() -> None:
    net = DcsNetwork(STREET)
    net.insert("dan", "before", tag_in(0))
    net.move("ann", in_cell(1), settle_s=2)
    net.insert("dan", "meanwhile", tag_in(0))

    net.move("ann", in_cell(0), settle_s=SETTLED_S)

    assert serving(net)["ann"] == 0
    assert set(net.index("ann")) == {"before", "meanwhile"}


def test_d20_a_node_that_does_not_serve_passes_nothing_on() -> None:
    net = DcsNetwork(STREET)
    net.move("bea", in_cell(1, 3), settle_s=1)
    net.sent.clear()

    net.insert("ann", "photo", tag_in(6))

    packets = [
        (name, packet) for name, _, packet in net.sent if isinstance(packet, wire.CellPacket)
    ]
    passed_on = {name for name, packet in packets if packet.origin != name.encode()}
    assert "bea" not in passed_on
    assert "ben" in passed_on


# D21


def test_d21_at_each_border_the_cells_of_active_subscriptions_learn_where_a_node_is() -> None:
    net = DcsNetwork(STREET)
    net.subscribe("ann", tag_in(4))
    net.subscribe("ann", tag_in(4, 1))
    net.subscribe("ann", tag_in(6))
    net.sent.clear()

    for cell in (1, 2):
        net.move("ann", in_cell(cell, 5), settle_s=1)

    updates = [packet for name, packet in net.messages(cell_wire.LocationUpdate) if name == "ann"]
    assert [[to.cell for to in packet.targets] for packet in updates] == [[4], [6], [4], [6]]
    told = updates[0].message
    assert isinstance(told, cell_wire.LocationUpdate)
    assert len(told.sids) == 2, "merged: one message for each cell"
    for name in ("cat", "col", "dan", "dot"):
        assert {interest.cell for interest in net.nodes[name].index.cell_subscriptions()} == {2}


def test_d21_once_settled_others_learn_where_a_passive_replica_is() -> None:
    net = DcsNetwork(STREET)
    net.subscribe("ann", tag_in(2))
    net.insert("dan", "photo", tag_in(2))
    net.finish("ann", asked.Retrieve, metadata=net.metadata("ann", "photo"))
    assert net.index("bea")["photo"] == ([6], ["ann"])

    net.move("ann", in_cell(4, 5), settle_s=1)
    [entry] = net.nodes["bea"].index.objects()
    assert [replica.cell for replica in entry.passive] == [0], "not on its way"
    net.run(SETTLED_S)

    [entry] = net.nodes["bea"].index.objects()
    assert [(replica.cell, replica.node) for replica in entry.passive] == [(4, b"ann")]


def test_d21_a_moved_owner_becomes_a_passive_replica_of_its_own_objects() -> None:
    net = DcsNetwork(STREET)
    key = net.insert("ann", "photo", tag_in(2))

    net.move("ann", in_cell(4, 5), settle_s=SETTLED_S)

    assert net.index("bea")["photo"] == ([0], ["ann"])
    net.go("abe")
    net.run(6)
    net.subscribe("dan", tag_in(2))
    assert net.finish("dan", asked.Retrieve, metadata=net.metadata("dan", "photo")) == b"pixels"
    assert net.nodes["ann"].replicas.get(key).role is ReplicaRole.OWN  # type: ignore[union-attr]


def test_d21_subscriptions_and_objects_of_one_cell_go_in_one_message() -> None:
    net = DcsNetwork(STREET)
    net.subscribe("ann", tag_in(2))
    net.insert("ann", "photo", tag_in(2, 1))
    net.move("ann", in_cell(4, 5), settle_s=1)
    net.sent.clear()

    net.run(SETTLED_S)

    [(_, packet)] = net.messages(cell_wire.LocationUpdate)
    told = packet.message
    assert isinstance(told, cell_wire.LocationUpdate)
    assert len(told.sids) == len(told.keys) == 1


def test_d21_a_border_crossed_with_nothing_to_tell_costs_no_message() -> None:
    net = DcsNetwork(STREET)

    net.move("ann", in_cell(1, 5), settle_s=SETTLED_S)

    assert net.messages(cell_wire.LocationUpdate) == []


# D22


def test_d22_a_notification_that_came_back_waits_for_the_subscriber_and_is_sent_again() -> None:
    net = DcsNetwork(STREET, config=BRISK)
    net.subscribe("dan", tag_in(2))
    net.links.relink(NodeId(b"dan"), [])  # out of everybody's reach
    net.run(6)

    net.insert("ann", "photo", tag_in(2))
    assert net.heard("dan") == []
    assert sum(len(net.nodes[name].service.notification_delivery) for name in ("bea", "ben")) == 1

    net.move("dan", in_cell(5), settle_s=3)
    assert net.heard("dan") == ["photo"]


def test_d22_after_a_longest_time_the_subscriber_is_taken_for_failed_by_its_whole_cell() -> None:
    net = DcsNetwork(STREET, config=BRISK)
    net.subscribe("dan", tag_in(2))
    net.go("dan")
    net.run(6)
    net.insert("ann", "photo", tag_in(2))

    net.run(10)
    assert set(net.standing()) == {"bea", "ben"}, "not before its time"
    net.run(15)
    assert net.standing() == {}


def test_d22_who_was_taken_for_failed_subscribes_again_when_it_says_where_it_is() -> None:
    net = DcsNetwork(STREET, config=BRISK)
    net.subscribe("dan", tag_in(2))
    net.links.relink(NodeId(b"dan"), [])
    net.run(6)
    net.insert("ann", "missed", tag_in(2))
    net.run(25)
    assert net.standing() == {}

    net.move("dan", in_cell(5), settle_s=3)
    assert net.heard("dan") == ["missed"]
    assert set(net.standing()) == {"bea", "ben"}
    net.insert("ann", "next", tag_in(2))
    assert net.heard("dan") == ["missed", "next"]


def test_d22_a_cancelled_subscription_is_not_taken_up_again() -> None:
    net = DcsNetwork(STREET)
    begun = net.subscribe("dan", tag_in(2))
    net.finish("dan", asked.Unsubscribe, sid=begun.sid)

    net.move("dan", in_cell(5), settle_s=SETTLED_S)

    assert net.standing() == {}
    assert net.messages(cell_wire.LocationUpdate) == []


def test_d22_who_is_said_to_have_failed_and_has_not_keeps_its_subscriptions() -> None:
    """B5: a colleague who says so is not believed; each node sees for itself."""
    net = DcsNetwork(STREET)
    net.subscribe("dan", tag_in(2))
    gone = cell_wire.SuspectSubscriber(NodeId(b"dan"), CellId(6))
    two = CellId(2)
    net.receive("bea", "ben", wire.CellBroadcast(NodeId(b"ben"), two, 99, 0, two, two, gone))

    net.run(10)

    assert set(net.standing()) == {"bea", "ben"}
    assert len(net.messages(cell_wire.CellNotifyBatch)) == 1, "one question, one answer"
    assert len(net.nodes["bea"].service.notification_delivery) == 0
    net.insert("ann", "photo", tag_in(2))
    assert net.heard("dan") == ["photo"]


def test_d22_who_is_said_to_have_failed_is_asked_some_times_before_it_is_believed() -> None:
    net = DcsNetwork(STREET)
    net.subscribe("dan", tag_in(2))
    net.go("dan")
    gone = cell_wire.SuspectSubscriber(NodeId(b"dan"), CellId(6))
    two = CellId(2)
    for number in (98, 99):
        net.receive(
            "bea", "ben", wire.CellBroadcast(NodeId(b"ben"), two, number, 0, two, two, gone)
        )
    net.run(2)
    assert set(net.standing()) == {"bea", "ben"}

    net.run(3)

    assert set(net.standing()) == {"ben"}, "only bea was told"
    assert len({packet.number for _, packet in net.messages(cell_wire.CellNotifyBatch)}) == 3


def test_d22_a_stranger_cannot_move_somebody_else_s_subscription() -> None:
    """M25: where a subscriber is, only its own messages say."""
    net = DcsNetwork(STREET)
    begun = net.subscribe("dan", tag_in(2))
    update = cell_wire.LocationUpdate(1, (begun.sid,))
    target = CellTarget(CellId(2))
    net.receive("bea", "cat", wire.CellPacket(NodeId(b"cat"), CellId(4), 1, 0, (target,), update))
    net.run(1)

    cells = {interest.cell for interest in net.nodes["bea"].index.cell_subscriptions()}
    assert cells == {6}


# Beyond the documents: each with a switch of its own


def test_d21_if_so_set_objects_that_nobody_else_has_are_found_while_their_holder_walks() -> None:
    """M19: an owner that was alone in its cell, and says at each border where its objects are."""
    telling = MovementConfig(announce_while_moving=True)
    net = DcsNetwork(LONE, config=msgspec.structs.replace(PAPER, movement=telling))
    net.insert("cat", "photo", tag_in(1))

    net.move("cat", in_cell(3, 5), settle_s=1)

    assert not net.nodes["cat"].routing.serving
    net.subscribe("dan", tag_in(1))
    assert net.finish("dan", asked.Retrieve, metadata=net.metadata("dan", "photo")) == b"pixels"


def test_d21_what_others_of_the_cell_have_need_not_be_told_on_the_way() -> None:
    telling = MovementConfig(announce_while_moving=True)
    net = DcsNetwork(STREET, config=msgspec.structs.replace(PAPER, movement=telling))
    net.insert("ann", "photo", tag_in(2))
    net.sent.clear()

    net.move("ann", in_cell(1), settle_s=1)

    assert net.messages(cell_wire.LocationUpdate) == []


def test_d18_if_so_set_who_is_refused_by_all_asks_once_more_where_the_object_is() -> None:
    """What it was told is old: the owner has moved since."""
    looking = ReplicationConfig(locate_again=True)
    net = DcsNetwork(LONE, config=msgspec.structs.replace(PAPER, replication=looking))
    net.subscribe("ann", tag_in(1))
    net.insert("cat", "photo", tag_in(1))
    net.move("cat", in_cell(5, 5), settle_s=SETTLED_S)

    told = net.metadata("ann", "photo")
    assert net.finish("ann", asked.Retrieve, metadata=told) == b"pixels"


def test_d22_if_so_set_who_comes_back_says_where_it_is_and_gets_what_waits_for_it() -> None:
    renewing = msgspec.structs.replace(BRISK, movement=MovementConfig(announce_on_start=True))
    net = DcsNetwork(STREET, config=renewing)
    net.subscribe("dan", tag_in(2))
    net.go("dan")
    net.run(6)
    net.insert("ann", "photo", tag_in(2))
    net.run(5)

    net.come("dan", in_cell(6))
    [held] = net.nodes["dan"].subscriber.active_subscriptions()
    net.ask("dan", asked.Resume(request_id=500, sid=held.sid), 8)

    assert net.heard("dan") == ["photo"]
    assert net.messages(cell_wire.LocationUpdate)


def test_d6_a_message_for_a_cell_that_is_empty_since_just_now_does_not_go_to_and_fro() -> None:
    """Each of two neighbours may believe of the other that it still hears somebody there."""
    net = DcsNetwork(LONE)
    net.insert("cat", "photo", tag_in(4))
    net.move("cat", in_cell(1, 5), settle_s=0.1)
    net.sent.clear()

    net.ask(
        "dan",
        asked.Search(
            request_id=99, conjunctions=Query(tag_in(4)).conjunctions, frame=TimeFrame(), count=5
        ),
        0.4,
    )

    crossed = [m for _, _, m in net.sent if isinstance(m.message, wire.FetchPage)]  # type: ignore[union-attr]
    assert 0 < len(crossed) < 20
