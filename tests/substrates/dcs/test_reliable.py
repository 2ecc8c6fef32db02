"""Thyme-DCS with what the documents left open: each part of the profile `robust` between nodes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.substrates.dcs.network import STREET, DcsNetwork, in_cell, tag_in
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.time_frames import ALWAYS
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.protocol.messages.common import CellBroadcast, CellPacket, Message
from thyme.protocol.node import Received
from thyme.query.query import Query
from thyme.routing.cells import Destination
from thyme.substrates.dcs.config import (
    PAPER,
    ROBUST,
    DcsConfig,
    KeyChoice,
    NotificationDeliveryConfig,
    ReplicationConfig,
)
from thyme.substrates.dcs.service.notification_delivery import PROBES_MAX

Loses = Callable[[NodeId, NodeId, Message], bool]
"""Whether a message from one to another is lost without a word."""


Lose = Callable[[DcsNetwork, Loses], None]


def only(**parts: object) -> DcsConfig:
    """The profile of the documents with one part of the other."""
    return msgspec.structs.replace(PAPER, **parts)


ACKNOWLEDGED = only(notification_delivery=ROBUST.notification_delivery)
SURE = only(routing=ROBUST.routing)
REPAIRED = only(anti_entropy=ROBUST.anti_entropy)


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Lose:
    """Has some messages of a net be lost."""

    def lose(net: DcsNetwork, loses: Loses) -> None:
        deliver = net.links._deliver_later

        def unless(sender: NodeId, to: NodeId, message: Message) -> None:
            if not loses(sender, to, message):
                deliver(sender, to, message)

        monkeypatch.setattr(net.links, "_deliver_later", unless)

    return lose


def carries(message: Message, kind: type) -> bool:
    return isinstance(message, CellPacket | CellBroadcast) and isinstance(message.message, kind)


def the_first(count: int, kind: type, lost: list[Message]) -> Loses:
    """Loses so many messages of a kind, and keeps them here."""

    def loses(_sender: NodeId, _to: NodeId, message: Message) -> bool:
        if not carries(message, kind) or len(lost) == count:
            return False
        lost.append(message)
        return True

    return loses


# B3: acknowledged notifications


def test_b3_a_notification_that_is_lost_without_a_word_is_sent_again(lose: Lose) -> None:
    net = DcsNetwork(STREET, config=ACKNOWLEDGED)
    net.subscribe("dan", tag_in(2))
    lost: list[Message] = []
    lose(net, the_first(2, cell_wire.CellNotifyBatch, lost))
    net.insert("ann", "photo", tag_in(2))

    assert net.heard("dan") == ["photo"]
    assert len(lost) == 2
    assert in_flight(net) == 0


def test_b3_a_lost_receipt_costs_a_repetition_that_nobody_is_told_of(lose: Lose) -> None:
    net = DcsNetwork(STREET, config=ACKNOWLEDGED)
    net.subscribe("dan", tag_in(2))
    lose(net, the_first(1, cell_wire.NotifyAck, []))
    net.insert("ann", "photo", tag_in(2))

    assert net.heard("dan") == ["photo"]
    assert len({packet.number for _, packet in net.messages(cell_wire.CellNotifyBatch)}) == 2
    assert net.nodes["dan"].subscriber.duplicates == 1
    assert in_flight(net) == 0


def test_b3_tries_and_what_is_remembered_of_them_are_bounded(lose: Lose) -> None:
    returned = NotificationDeliveryConfig(
        ack_timeout_us=200_000, tries_max=3, wait_us_max=5_000_000, pending_max=4
    )
    net = DcsNetwork(STREET, config=only(notification_delivery=returned))
    net.subscribe("dan", tag_in(2))
    lose(
        net,
        lambda _sender, _to, message: (
            carries(message, cell_wire.CellNotifyBatch) or carries(message, wire.Missed)
        ),
    )

    for number in range(6):
        net.insert("ann", f"photo-{number}", tag_in(2), seconds=0.1)
        assert in_flight(net) <= 2 * 4
    net.run(12)

    assert in_flight(net) == 0
    sent = [packet.message for _, packet in net.messages(cell_wire.CellNotifyBatch)]
    asks = sent.count(cell_wire.CellNotifyBatch(()))
    assert len(sent) - asks <= 6 * (3 + 1)
    assert asks <= 2 * PROBES_MAX, "at the end each asks whether it is there"
    assert net.standing() == {}, "a subscriber that never answers is taken for failed (D22)"


def test_m34_notifications_that_never_arrive_are_read_by_the_subscriber(lose: Lose) -> None:
    net = DcsNetwork(STREET, config=ACKNOWLEDGED)
    net.subscribe("dan", tag_in(2))
    lose(net, lambda _sender, _to, message: carries(message, cell_wire.CellNotifyBatch))
    for number in range(6):
        net.insert("ann", f"photo-{number}", tag_in(2), seconds=0.1)

    net.run(60)

    assert net.heard("dan") == [f"photo-{number}" for number in range(6)]


def test_d22_who_is_taken_for_failed_is_forgotten_by_all_for_good() -> None:
    """B2: nobody has it from a colleague again."""
    brisk = msgspec.structs.replace(ROBUST.notification_delivery, wait_us_max=5_000_000)
    net = DcsNetwork(STREET, config=msgspec.structs.replace(ROBUST, notification_delivery=brisk))
    net.subscribe("dan", tag_in(2))
    net.go("dan")
    net.run(6)
    net.insert("ann", "photo", tag_in(2))

    net.run(20)

    assert net.standing() == {}


def test_b3_what_is_sent_again_to_one_subscriber_travels_as_one(lose: Lose) -> None:
    net = DcsNetwork({**STREET, "ben": in_cell(7)}, config=ACKNOWLEDGED)
    net.subscribe("dan", tag_in(2))
    deaf = True
    lose(net, lambda _sender, _to, message: deaf and carries(message, cell_wire.CellNotifyBatch))
    for number in range(4):
        net.insert("ann", f"photo-{number}", tag_in(2), seconds=0.05)
    deaf = False
    net.sent.clear()
    net.run(3)

    assert sorted(net.heard("dan")) == [f"photo-{number}" for number in range(4)]
    together = [packet.message for _, packet in net.messages(cell_wire.CellNotifyBatch)]
    assert max(len(news.items) for news in together) >= 2  # type: ignore[union-attr]
    assert len(together) < 4


def test_b3_notifications_within_a_short_while_may_travel_as_one() -> None:
    gathering = msgspec.structs.replace(ROBUST.notification_delivery, aggregation_us=300_000)
    net = DcsNetwork({**STREET, "ben": in_cell(7)}, config=only(notification_delivery=gathering))
    for name in ("dan", "cat"):
        net.subscribe(name, tag_in(2))
    net.sent.clear()
    for number in range(4):
        net.insert("ann", f"photo-{number}", tag_in(2), seconds=0.05)
    net.run(1)

    for name in ("dan", "cat"):
        assert sorted(net.heard(name)) == [f"photo-{number}" for number in range(4)]
    assert len({packet.number for _, packet in net.messages(cell_wire.CellNotifyBatch)}) < 4
    assert in_flight(net) == 0


def in_flight(net: DcsNetwork) -> int:
    return sum(len(node.service.notification_delivery) for node in net.nodes.values())


# B2: reliable cells


def test_b2_what_a_cell_answered_for_is_known_to_all_of_it(lose: Lose) -> None:
    crowd = {f"b{number}": in_cell(2, number) for number in range(4)}
    net = DcsNetwork({"ann": in_cell(0), **crowd}, config=SURE)
    missed: set[NodeId] = set()

    def loses(sender: NodeId, to: NodeId, message: Message) -> bool:
        if carries(message, cell_wire.IndexObject) and isinstance(message, CellBroadcast):
            first = to not in missed
            missed.add(to)
            return first
        return False

    lose(net, loses)
    net.told["ann"].clear()
    request = asked.Insert(request_id=99, data=b"x", tags=(tag_in(2),), oid=ObjectId("photo"))
    net.links.ask(NodeId(b"ann"), request)
    while not net.told["ann"]:
        net.run(0.001)

    assert len(missed - {NodeId(b"ann")}) == 3
    assert net.indexing("photo") == set(crowd), "all know it when the answer comes"


def test_b2_a_cell_peer_that_is_gone_does_not_hold_an_answer_up_for_long() -> None:
    net = DcsNetwork(STREET, config=SURE)
    net.go("ben")

    net.insert("ann", "photo", tag_in(2), seconds=1.0)

    assert net.indexing("photo") == {"bea"}


def test_b2_questions_are_not_spread_and_answered_all_the_same() -> None:
    net = DcsNetwork(STREET, config=SURE)
    net.insert("ann", "photo", tag_in(2))
    net.sent.clear()

    found = net.finish("dan", asked.Lookup, key=Key.parse("photo@616e6e"))
    assert found is not None
    net.subscribe("dan", tag_in(2))
    net.finish("dan", asked.Retrieve, metadata=net.metadata("dan", "photo"))

    spread = [m.message for _, _, m in net.sent if isinstance(m, CellBroadcast)]
    assert not any(isinstance(m, wire.FetchObject | wire.FetchStatus) for m in spread)


def test_b2_nodes_of_a_cell_that_differ_repair_it_and_then_are_silent(lose: Lose) -> None:
    net = DcsNetwork(STREET, config=REPAIRED)
    deaf = True

    def loses(sender: NodeId, to: NodeId, message: Message) -> bool:
        return deaf and isinstance(message, CellBroadcast)

    lose(net, loses)
    keys = [net.insert("ann", f"photo-{n}", tag_in(2), seconds=0.2) for n in range(6)]
    assert any(len(net.indexing(f"photo-{n}")) == 1 for n in range(6))
    net.finish("ann", asked.Delete, key=keys[0])
    net.subscribe("dan", tag_in(2))
    deaf = False
    net.run(12)

    assert all(net.indexing(f"photo-{n}") == {"bea", "ben"} for n in range(1, 6))
    assert net.indexing("photo-0") == set(), "deletes win (D15)"
    assert net.standing() == {"bea": 1, "ben": 1}
    assert net.holding(keys[1]) >= {"ann", "abe"}, "objects are repaired, too"
    assert net.holding(keys[0]) == set()
    net.sent.clear()
    net.run(20)
    assert net.messages(cell_wire.CellDigest) == []


def test_b2_who_answered_without_knowing_makes_up_for_it(lose: Lose) -> None:
    """M26: an object is indexed by one node, a subscription taken up by the other."""
    net = DcsNetwork(STREET, config=REPAIRED)
    lose(net, lambda _sender, _to, message: isinstance(message, CellBroadcast))

    names = [f"photo-{number}" for number in range(6)]
    conjunctions = Query(tag_in(2)).conjunctions
    request = asked.Subscribe(request_id=99, conjunctions=conjunctions, frame=ALWAYS, batch=20)
    net.ask("dan", request, 0.1)
    for name in names:
        net.insert("ann", name, tag_in(2), seconds=0.1)
    assert sorted(net.heard("dan")) != names, "some went to the node that knew nothing"
    net.run(12)

    assert sorted(net.heard("dan")) == names


def test_b2_a_digest_makes_a_beacon_4_bytes_longer_and_is_not_there_without_it() -> None:
    for config, size in ((REPAIRED, 4), (PAPER, 0)):
        net = DcsNetwork(STREET, config=config, settle_s=4)
        assert {len(node.beacon_payload(0)) for node in net.nodes.values()} == {size}


def test_b2_a_stranger_s_comparison_is_not_answered() -> None:
    """M25: only colleagues of the cell are told what it knows."""
    net = DcsNetwork(STREET, config=REPAIRED)
    net.insert("ann", "photo", tag_in(2))
    net.sent.clear()
    for message in (
        cell_wire.CellDigest(bytes(128)),
        cell_wire.CellRecordHashes(bytes(range(32)), b"", True),
    ):
        net.nodes["dan"].routing.send([to_node(2, "bea")], message, net.links.kernel.now_us)
    net.nodes["dan"].routing.send([to_node(2, "bea")], cell_wire.CellDigest(b"short"), 0)
    net.run(2)

    told = [*net.messages(cell_wire.CellRecordHashes), *net.messages(cell_wire.CellState)]
    assert [name for name, _ in told if name != "dan"] == []


def test_b2_objects_that_are_on_their_way_are_not_sent_once_more() -> None:
    """While objects are inserted all the time, cell peers always differ in the newest."""
    net = DcsNetwork(STREET, config=REPAIRED)
    net.insert("ann", "old", tag_in(2), seconds=3.0)
    net.insert("ann", "new", tag_in(2), seconds=0.1)
    net.sent.clear()
    asking = cell_wire.CellRecordHashes(bytes(range(32)), b"", False)

    def told_of_objects() -> list[str]:
        net.nodes["ben"].routing.send([to_node(2, "bea")], asking, net.links.kernel.now_us)
        net.run(0.5)
        states = [packet.message for name, packet in net.messages(cell_wire.CellState)]
        return [str(each.metadata.key.oid) for state in states for each in state.objects]

    assert told_of_objects() == ["old"]
    net.run(2.0)
    net.sent.clear()
    assert told_of_objects() == ["old", "new"]


def to_node(cell: int, name: str) -> Destination:
    return Destination(CellId(cell), NodeId(name.encode()))


def test_d15_a_delete_that_overtakes_its_insert_leaves_no_copy_behind(lose: Lose) -> None:
    net = DcsNetwork(STREET, config=ROBUST)
    held: list[tuple[NodeId, Message]] = []

    def late(sender: NodeId, to: NodeId, message: Message) -> bool:
        if carries(message, cell_wire.StoreReplica):
            held.append((to, message))
            return True
        return False

    lose(net, late)
    key = net.insert("ann", "photo", tag_in(2))
    net.finish("ann", asked.Delete, key=key)
    for to, message in held:
        net.links.feed(to, Received(NodeId(b"ann"), message))
    net.run(5)

    assert held
    assert net.holding(key) == set()
    assert net.indexing("photo") == set()


# B6: partial replication


FEW = only(
    replication=ReplicationConfig(
        active_max=3, crowded_nodes_min=5, upkeep_us=2_000_000, locate_again=True
    )
)


@pytest.mark.parametrize(("people", "copies"), [(4, 4), (5, 3), (8, 3)])
def test_b6_a_crowded_cell_keeps_few_copies_and_another_all(people: int, copies: int) -> None:
    crowd = {f"a{number}": in_cell(0, number) for number in range(people)}
    net = DcsNetwork({**crowd, "ben": in_cell(2)}, config=FEW)
    net.subscribe("ben", tag_in(2))

    key = net.insert("a0", "photo", tag_in(2))

    assert len(net.holding(key)) == copies
    assert "a0" in net.holding(key)
    metadata = net.metadata("ben", "photo")
    assert net.finish("ben", asked.Retrieve, metadata=metadata) == b"pixels"


def test_b6_a_copy_whose_holder_is_gone_is_made_up_for_and_can_be_found() -> None:
    crowd = {f"a{number}": in_cell(0, number) for number in range(6)}
    net = DcsNetwork({**crowd, "ben": in_cell(2), "cat": in_cell(4)}, config=FEW)
    net.subscribe("cat", tag_in(2))
    key = net.insert("a0", "photo", tag_in(2))
    first = net.holding(key)

    for name in sorted(first - {"a0"}):
        net.go(name)
    net.run(12)
    second = net.holding(key)
    assert len(second) == 3
    assert second & set(crowd) - first

    net.go("a0")
    net.run(12)
    assert len(net.holding(key)) == 3
    metadata = net.metadata("cat", "photo")
    [entry] = [e for e in net.nodes["ben"].index.objects() if e.metadata.key == key]
    known = [replica.node for replica in (*entry.active, *entry.passive)]
    assert {name.encode() for name in net.holding(key)} <= set(known)
    assert net.nodes["cat"].replicas.get(key) is None
    told = net.ask("cat", asked.Retrieve(request_id=7, metadata=metadata), 30)
    assert told == asked.Finished(7, b"pixels")


def test_b6_a_newcomer_does_not_fetch_what_only_some_should_have() -> None:
    crowd = {f"a{number}": in_cell(0, number) for number in range(6)}
    net = DcsNetwork({**crowd, "ben": in_cell(2)}, config=FEW, absent=("a5",))
    key = net.insert("a0", "photo", tag_in(2))
    holders = net.holding(key)
    net.come("a5")
    net.run(10)

    assert len(holders) == 3
    assert net.holding(key) == holders
    assert Replica(CellId(0)) not in net.nodes["a0"].replicas.get(key).active  # type: ignore[union-attr]


# B10: the key of a conjunction


@pytest.mark.parametrize(
    ("choice", "cell"),
    [(KeyChoice.FIRST, 0), (KeyChoice.NEAREST, 4), (KeyChoice.RAREST, 6)],
)
def test_b10_a_subscription_goes_where_the_chosen_literal_is_looked_after(
    choice: KeyChoice, cell: int
) -> None:
    """What a node has published, or holds for others, tells it what is common."""
    first, near, rare = tag_in(0), tag_in(4), tag_in(6)
    net = DcsNetwork(STREET, config=only(key_choice=choice))
    for number in range(4):
        net.insert("col", f"photo-{number}", first, near, *([rare] if number == 0 else []))

    net.subscribe("cat", f"{first} & {near} & {rare}")

    assert {net.grid.cell_at(net.places[name]) for name in net.standing()} == {cell}
    assert net.heard("cat") == ["photo-0"], "whichever it is, the answer is the same"


# The profile as a whole


def test_robust_operations_work_with_every_part_on() -> None:
    net = DcsNetwork(STREET, config=ROBUST)
    net.subscribe("dan", f"{tag_in(2)} & {tag_in(4)}")
    key = net.insert("ann", "photo", tag_in(2), tag_in(4))

    assert net.heard("dan") == ["photo"]
    metadata = net.metadata("dan", "photo")
    assert net.finish("dan", asked.Retrieve, metadata=metadata) == b"pixels"
    net.finish("ann", asked.Delete, key=key)
    assert net.indexing("photo") == set()


@pytest.mark.parametrize("seed", range(2))
def test_b2_b3_with_a_fifth_of_all_messages_lost_everybody_hears_everything(seed: int) -> None:
    net = DcsNetwork(STREET, config=ROBUST, seed=seed, loss=0.2, settle_s=8)
    net.subscribe("dan", tag_in(2))
    net.subscribe("col", f"{tag_in(2)} | {tag_in(6)}")
    names = [f"photo-{number}" for number in range(4)]
    for name in names:
        net.insert("ann", name, tag_in(2), tag_in(6), seconds=8)
    net.run(40)

    assert sorted(net.heard("dan")) == names
    assert sorted(net.heard("col")) == names
    for cell in ({"bea", "ben"}, {"dan", "dot"}):
        assert all(net.indexing(name) >= cell for name in names)


def test_d22_one_notification_that_came_back_by_chance_is_no_failed_subscriber() -> None:
    net = DcsNetwork(STREET, config=PAPER)
    net.subscribe("dan", tag_in(2))
    dan = NodeId(b"dan")
    others = list(net.links._linked[dan])
    net.links.relink(dan, [])
    net.insert("ann", "photo", tag_in(2), seconds=0.3)
    net.links.relink(dan, others)
    assert in_flight(net) == 1

    net.run(65)

    assert net.heard("dan") == ["photo"], "a last try is made before the subscriber is given up"
    assert set(net.standing()) == {"bea", "ben"}
    assert in_flight(net) == 0


@pytest.mark.parametrize("asks", [True, False])
def test_d18_who_is_refused_by_a_cell_asks_the_owner_in_it_if_so_set(asks: bool) -> None:
    """B2: a node of the owner's cell missed the broadcast of the object, and answers for it."""
    replication = ReplicationConfig(try_owner=asks)
    asked_then: set[NodeId | None] = set()
    for seed in range(12):
        net = DcsNetwork(
            {"ann": in_cell(0), "abe": in_cell(0, 1), "bea": in_cell(2)},
            config=msgspec.structs.replace(PAPER, replication=replication),
            seed=seed,
        )
        net.subscribe("bea", tag_in(2))
        key = net.insert("ann", "photo", tag_in(2))
        net.nodes["abe"].replicas.remove_without_tombstone(key)
        note = net.metadata("bea", "photo")
        assert net.finish("bea", asked.Retrieve, metadata=note) == b"pixels"
        asks_made = [packet.targets[0].node for _, packet in net.messages(wire.FetchObject)]
        assert asks_made[0] is None
        asked_then |= set(asks_made[1:])

    assert asked_then == {NodeId(b"ann") if asks else None}
