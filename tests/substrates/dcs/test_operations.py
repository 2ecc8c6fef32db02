"""The operations of Thyme-DCS between nodes: what goes where, who keeps it, who answers."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import conjunctions
from tests.substrates.dcs.network import HASTY, STREET, DcsNetwork, in_cell, tag_in
from thyme.model.errors import NotFoundError, OperationTimeoutError
from thyme.model.ids import Key, ObjectId
from thyme.model.time_frames import TimeFrame
from thyme.protocol import app_interface as asked
from thyme.protocol.app_interface import Failed, LookupResult, SearchResult
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.retry import RetryPolicy
from thyme.routing.cells import Destination
from thyme.substrates.dcs.config import PAPER, NotificationDeliveryConfig, ReplicationConfig

SEEN_FROM_CELL = {0: {"ann", "abe"}, 2: {"bea", "ben"}, 4: {"cat", "col"}, 6: {"dan", "dot"}}


def replicated(**settings: object) -> DcsNetwork:
    replication = ReplicationConfig(**settings)  # type: ignore[arg-type]
    return DcsNetwork(STREET, config=msgspec.structs.replace(PAPER, replication=replication))


def test_d11_metadata_goes_to_the_cell_of_each_tag_and_the_object_to_the_owner_s_cell() -> None:
    net = DcsNetwork(STREET)

    key = net.insert("ann", "photo", tag_in(2), tag_in(6))

    assert net.indexing("photo") == {"bea", "ben", "dan", "dot"}
    assert net.holding(key) == {"ann", "abe"}


def test_d11_one_reply_comes_from_each_tag_cell() -> None:
    net = DcsNetwork(STREET)

    net.insert("ann", "photo", tag_in(2), tag_in(6), tag_in(2, 1))

    answers = [packet.message for _, packet in net.messages(wire.Done)]
    assert {reply.cell for reply in answers if isinstance(reply, wire.ReplyFromCell)} == {2, 6}
    assert len(answers) == 2


def test_d11_only_cells_that_did_not_answer_are_asked_again_then_it_times_out() -> None:
    net = DcsNetwork(STREET, config=HASTY)
    far = {"cat", "col", "dan", "dot"}
    for name in far:
        net.go(name)
    # The others do not know yet that nobody is there.
    request = asked.Insert(
        request_id=99, data=b"x", tags=(tag_in(2), tag_in(6)), oid=ObjectId("photo")
    )
    told = net.ask("ann", request, 3)

    asks = [packet.targets for _, packet in net.messages(cell_wire.IndexObject)]
    assert {target.cell for target in asks[0]} == {2, 6}
    assert all([target.cell for target in targets] == [6] for targets in asks[1:])
    assert len(asks) >= HASTY.retries.tries_max
    assert isinstance(told, Failed)
    assert told.code == OperationTimeoutError.code
    assert net.indexing("photo") == {"bea", "ben"}


def test_d6_the_proxy_answers_in_the_name_of_an_empty_cell() -> None:
    net = DcsNetwork(STREET)

    net.insert("ann", "photo", tag_in(5))

    # Of the populated cells, 4 and 6 are as close to 5; the lower number wins.
    assert net.indexing("photo") == {"cat", "col"}
    net.subscribe("dan", tag_in(5))
    assert net.heard("dan") == ["photo"]


def test_d6_a_proxy_keeps_a_subscription_keyed_to_two_of_its_cells_as_one() -> None:
    net = DcsNetwork({"ann": in_cell(0), "abe": in_cell(0, 1)})

    begun = net.subscribe("abe", f"{tag_in(3)} | {tag_in(5)}")
    net.insert("ann", "three", tag_in(3))
    net.insert("ann", "five", tag_in(5))

    assert net.standing() == {"ann": 1, "abe": 1}
    assert net.heard("abe") == ["three", "five"]
    net.finish("abe", asked.Unsubscribe, sid=begun.sid)
    assert net.standing() == {}


def test_d12_d13_who_retrieved_an_object_keeps_it_and_is_listed_in_every_tag_cell() -> None:
    net = DcsNetwork(STREET)
    net.subscribe("dan", tag_in(2))
    key = net.insert("ann", "photo", tag_in(2), tag_in(4))

    data = net.finish("dan", asked.Retrieve, metadata=net.metadata("dan", "photo"))

    assert data == b"pixels"
    assert net.holding(key) == {"ann", "abe", "dan"}
    for name in ("bea", "ben", "cat", "col"):
        assert net.index(name)["photo"] == ([0], ["dan"])


def test_d13_without_passive_replication_nobody_keeps_what_it_retrieves() -> None:
    net = replicated(passive=False)
    net.subscribe("dan", tag_in(2))
    key = net.insert("ann", "photo", tag_in(2))

    net.finish("dan", asked.Retrieve, metadata=net.metadata("dan", "photo"))

    assert net.holding(key) == {"ann", "abe"}
    assert net.messages(cell_wire.AnnounceReplica) == []


@pytest.mark.parametrize(("active_max", "copies"), [(1, 1), (2, 2), (3, 3), (9, 4), (None, 4)])
def test_d14_an_object_has_as_many_active_replicas_as_the_strategy_says(
    active_max: int | None, copies: int
) -> None:
    crowd = {f"a{number}": in_cell(0, number) for number in range(4)}
    config = msgspec.structs.replace(PAPER, replication=ReplicationConfig(active_max=active_max))
    net = DcsNetwork({**crowd, "ben": in_cell(2), "bob": in_cell(2, 1)}, config=config)
    net.subscribe("ben", tag_in(2))

    key = net.insert("a0", "photo", tag_in(2))

    assert len(net.holding(key)) == copies
    assert net.indexing("photo") == {"ben", "bob"}, "metadata is kept by all, whatever is set"
    assert net.standing() == {"ben": 1, "bob": 1}, "and so are subscriptions"
    assert "a0" in net.holding(key)
    note = net.metadata("ben", "photo")
    assert net.finish("ben", asked.Retrieve, metadata=note) == b"pixels"
    entries = next(iter(net.nodes["ben"].index.objects())).active
    assert len(entries) == (1 if active_max is None else copies)


def test_d15_a_delete_empties_the_tag_cells_and_the_active_replicas() -> None:
    net = DcsNetwork(STREET)
    key = net.insert("ann", "photo", tag_in(2), tag_in(4))
    net.subscribe("dan", tag_in(2))

    net.finish("ann", asked.Delete, key=key)

    assert net.indexing("photo") == set()
    assert net.holding(key) == set()
    metadata = net.metadata("dan", "photo")
    assert net.fail("dan", asked.Retrieve, metadata=metadata) == NotFoundError.code
    known = net.finish("dan", asked.Lookup, key=key)
    assert known == LookupResult("deleted")


def test_d15_passive_replicas_go_when_they_learn_of_it_and_are_found_by_nobody() -> None:
    net = DcsNetwork(STREET)
    for name in ("bea", "dan"):
        net.subscribe(name, tag_in(2))
    key = net.insert("ann", "photo", tag_in(2))
    for name in ("bea", "dan"):
        net.finish(name, asked.Retrieve, metadata=net.metadata(name, "photo"))
    assert net.holding(key) == {"ann", "abe", "bea", "dan"}

    net.finish("ann", asked.Delete, key=key)

    assert net.holding(key) == {"dan"}, "who works for the tag's cell has learnt of it"
    net.sent.clear()
    assert net.found("col", tag_in(2)) == set()
    net.subscribe("col", tag_in(2))
    assert net.heard("col") == []
    assert net.finish("col", asked.Lookup, key=key) == LookupResult("deleted")


def test_d15_a_late_copy_does_not_bring_a_deleted_object_back() -> None:
    net = DcsNetwork(STREET)
    key = net.insert("ann", "photo", tag_in(2))
    [(_, insert)] = net.messages(cell_wire.IndexObject)
    net.finish("ann", asked.Delete, key=key)
    ann = net.nodes["ann"]

    ann.routing.send([Destination(CellId(2))], insert.message, net.links.kernel.now_us)
    ann.routing.broadcast_in_cell(
        cell_wire.StoreReplica(insert.message.indexed.metadata, b"pixels"),  # type: ignore[union-attr]
        net.links.kernel.now_us,
    )
    net.finish("ann", asked.ListSubscriptions)  # carries the two out

    assert net.indexing("photo") == set()
    assert net.holding(key) == set()


def test_d15_a_delete_that_overtakes_its_insert_wins() -> None:
    net = DcsNetwork(STREET)
    ann, now_us = net.nodes["ann"], net.links.kernel.now_us
    key = Key(ObjectId("photo"), ann.node_id)
    ann.routing.send([Destination(CellId(2))], wire.DeleteObject(1, key), now_us)
    net.finish("ann", asked.ListSubscriptions)

    told = net.ask(
        "ann", asked.Insert(request_id=77, data=b"x", tags=(tag_in(2),), oid=ObjectId("photo"))
    )

    assert isinstance(told, Failed)
    assert "deleted" in told.detail
    assert net.indexing("photo") == set()
    assert "ann" not in net.holding(key)


def test_d15_a_delete_that_some_cell_did_not_answer_can_be_repeated() -> None:
    net = DcsNetwork(STREET, config=HASTY)
    key = net.insert("ann", "photo", tag_in(0), tag_in(2))
    for name in ("bea", "ben"):
        net.go(name)
    assert net.fail("ann", asked.Delete, key=key) == OperationTimeoutError.code

    for name in ("bea", "ben"):
        net.come(name)
    net.run(6)
    assert net.indexing("photo") == {"bea", "ben"}
    net.finish("ann", asked.Delete, key=key)

    assert net.indexing("photo") == set()
    assert net.holding(key) == set()


def test_d15_m14_nobody_else_can_delete_an_object() -> None:
    net = DcsNetwork(STREET)
    key = net.insert("ann", "photo", tag_in(2))
    dan, now_us = net.nodes["dan"], net.links.kernel.now_us

    dan.routing.send(
        [Destination(CellId(2)), Destination(CellId(0))], wire.DeleteObject(1, key), now_us
    )
    net.finish("dan", asked.ListSubscriptions)

    assert net.indexing("photo") == {"bea", "ben"}
    assert net.holding(key) == {"ann", "abe"}


def test_d16_each_conjunction_goes_to_the_cell_of_one_of_its_positive_literals() -> None:
    net = DcsNetwork(STREET)
    a, b, c = tag_in(0), tag_in(2), tag_in(6)

    begun = net.subscribe("cat", f"{a} & {b} | {c} & !{a}")

    sent = [
        (target.cell, packet.message.subscription.conjunctions)
        for _, packet in net.messages(wire.StartSubscription)
        for target in packet.targets
        if isinstance(packet.message, wire.StartSubscription)
    ]
    cells = dict(sent)
    assert len(sent) == 2
    assert set(cells) in ({0, 6}, {2, 6})
    assert [str(one) for one in cells[6]] == [f"{c} & !{a}"]
    assert net.standing().keys() == SEEN_FROM_CELL[min(cells)] | SEEN_FROM_CELL[6]
    for name in net.standing():
        interests = list(net.nodes[name].index.cell_subscriptions())
        assert [interest.cell for interest in interests] == [4]

    net.finish("cat", asked.Unsubscribe, sid=begun.sid)
    assert net.standing() == {}


def test_d16_a_later_life_cancels_where_the_earlier_one_subscribed() -> None:
    net = DcsNetwork(STREET)
    query = " & ".join(tag_in(cell) for cell in (0, 2, 4, 6))
    begun = net.subscribe("cat", query)
    assert len(net.standing()) == 2

    net.go("cat")
    net.run(1)
    net.come("cat")
    net.run(5)
    net.finish("cat", asked.Unsubscribe, sid=begun.sid)

    assert net.standing() == {}


def test_d17_exactly_one_node_of_the_cell_notifies() -> None:
    net = DcsNetwork(STREET)
    net.subscribe("cat", tag_in(2))
    net.sent.clear()

    for number in range(5):
        net.insert("ann", f"photo-{number}", tag_in(2))

    assert net.heard("cat") == [f"photo-{number}" for number in range(5)]
    assert len(net.messages(cell_wire.CellNotify)) == 5
    assert net.nodes["cat"].subscriber.duplicates == 0


def test_d9_one_notification_goes_to_all_subscribers_and_parts_on_the_way() -> None:
    net = DcsNetwork(STREET)
    for name in ("bea", "cat", "col", "dot"):
        net.subscribe(name, tag_in(0))
    net.sent.clear()

    net.insert("ann", "photo", tag_in(0))

    notes = net.messages(cell_wire.CellNotify)
    named = [
        target.node.decode() for _, packet in notes for target in packet.targets if target.node
    ]
    assert sorted(named) == ["bea", "cat", "col", "dot"]
    assert len({packet.number for _, packet in notes}) == 1
    assert all(net.heard(name) == ["photo"] for name in ("bea", "cat", "col", "dot"))


def test_d9_many_subscribers_are_told_in_several_messages() -> None:
    config = msgspec.structs.replace(
        PAPER, notification_delivery=NotificationDeliveryConfig(destinations_max=2)
    )
    net = DcsNetwork(STREET, config=config)
    for name in ("bea", "cat", "dot"):
        net.subscribe(name, tag_in(0))
    net.sent.clear()

    net.insert("ann", "photo", tag_in(0))

    assert len({packet.number for _, packet in net.messages(cell_wire.CellNotify)}) == 2
    assert all(net.heard(name) == ["photo"] for name in ("bea", "cat", "dot"))


def test_d17_m17_m20_pages_of_several_cells_are_merged_and_counted_once() -> None:
    net = DcsNetwork(STREET)
    a, b = tag_in(0), tag_in(6)
    for number, tags in enumerate([(a,), (b,), (a, b), (b,), (a,)]):
        net.insert("col", f"photo-{number}", *tags)

    begun = net.subscribe("ben", f"{a} | {b}")
    found = net.finish(
        "ben",
        asked.Search,
        conjunctions=conjunctions(f"{a} | {b}"),
        frame=TimeFrame(),
        count=3,
    )

    assert begun.total == 5
    assert net.heard("ben") == [f"photo-{number}" for number in (4, 3, 2, 1, 0)]
    assert isinstance(found, SearchResult)
    assert [note.key.oid for note in found] == ["photo-4", "photo-3", "photo-2"]


def test_d18_the_closest_replica_is_asked_first() -> None:
    net = DcsNetwork(STREET)
    net.subscribe("cat", tag_in(2))
    key = net.insert("ann", "photo", tag_in(2))
    net.finish("cat", asked.Retrieve, metadata=net.metadata("cat", "photo"))
    net.subscribe("dot", tag_in(2))
    net.sent.clear()

    net.finish("dot", asked.Retrieve, metadata=net.metadata("dot", "photo"))

    [(_, fetch)] = net.messages(wire.FetchObject)
    assert [(target.cell, target.node) for target in fetch.targets] == [(4, b"cat")]
    assert net.holding(key) == {"ann", "abe", "cat", "dot"}


def test_d18_d8_a_replica_that_is_gone_is_passed_over_and_the_active_cell_comes_last() -> None:
    net = DcsNetwork(STREET, config=HASTY)
    net.subscribe("cat", tag_in(2))
    net.insert("ann", "photo", tag_in(2))
    net.finish("cat", asked.Retrieve, metadata=net.metadata("cat", "photo"))
    net.subscribe("dot", tag_in(2))
    net.go("cat")
    net.run(6)
    net.sent.clear()

    told = net.finish("dot", asked.Retrieve, metadata=net.metadata("dot", "photo"))

    assert told == b"pixels"
    tried = [packet.targets[0] for _, packet in net.messages(wire.FetchObject)]
    assert [(target.cell, target.node) for target in tried] == [(4, b"cat"), (0, None)]


def test_d18_tries_are_bounded() -> None:
    net = DcsNetwork(STREET, config=HASTY)
    net.subscribe("dot", tag_in(4))
    net.insert("ann", "photo", tag_in(4))
    for name in ("ann", "abe", "bea", "ben"):
        net.go(name)
    net.run(6)
    net.sent.clear()

    code = net.fail("dot", asked.Retrieve, metadata=net.metadata("dot", "photo"))

    asks = {packet.number for _, packet in net.messages(wire.FetchObject)}
    assert 1 < len(asks) <= PAPER.replication.retrieve_tries_max
    assert code == NotFoundError.code, "who stands in for the owner's cell has no copy"


def test_d18_a_later_life_asks_a_tag_cell_where_the_object_is() -> None:
    net = DcsNetwork(STREET)
    net.subscribe("dot", tag_in(2))
    net.insert("ann", "photo", tag_in(2))
    metadata = net.metadata("dot", "photo")
    net.go("dot")
    net.come("dot")
    net.run(5)

    assert net.finish("dot", asked.Retrieve, metadata=metadata) == b"pixels"


@pytest.mark.parametrize("seed", range(5))
def test_d19_operations_are_repeated_until_answered_and_do_no_harm_twice(seed: int) -> None:
    patient = msgspec.structs.replace(PAPER, retries=RetryPolicy(tries_max=12, backoff=1.2))
    net = DcsNetwork(STREET, seed=seed, config=patient)
    net.links.loss = 0.2
    net.subscribe("dan", tag_in(2))
    keys = [
        net.insert("ann", f"photo-{number}", tag_in(2), tag_in(4), seconds=16)
        for number in range(8)
    ]
    for key in keys[:4]:
        told = net.ask("ann", asked.Delete(request_id=1_000 + keys.index(key), key=key), 16)
        assert isinstance(told, asked.Finished), told
    retransmitted = sum(node.requests.retransmissions for node in net.nodes.values())

    assert retransmitted > 0
    assert net.heard("dan")
    assert len(net.heard("dan")) == len(set(net.heard("dan")))
    kept, deleted = {key.oid for key in keys[4:]}, {key.oid for key in keys[:4]}
    for one, other in (("bea", "ben"), ("cat", "col")):
        known = net.index(one).keys(), net.index(other).keys()
        assert kept <= known[0] | known[1], "whoever answered for an insert has it"
        assert not deleted & known[0] & known[1], "and who answered for a delete has it no more"
    assert all(count == 1 for count in net.standing().values())


def test_d22_a_notification_that_came_back_waits_for_its_subscriber() -> None:
    net = DcsNetwork(STREET)
    begun = net.subscribe("dan", tag_in(2))
    net.go("dan")
    net.run(6)

    net.insert("ann", "photo", tag_in(2))
    key = net.insert("ann", "deleted", tag_in(2))
    assert waiting(net) == 2
    net.finish("ann", asked.Delete, key=key)
    net.come("dan")
    net.run(6)
    net.sent.clear()
    net.finish("dan", asked.Resume, sid=begun.sid)

    assert waiting(net) == 0
    assert net.heard("dan") == ["photo"]
    [(_, packet)] = net.messages(cell_wire.CellNotify)
    assert packet.message.indexed.metadata.oid == "photo"  # type: ignore[union-attr]


def test_d22_after_a_longest_time_a_notification_is_given_up() -> None:
    net = DcsNetwork(STREET)
    net.subscribe("dan", tag_in(2))
    net.go("dan")
    net.run(6)
    net.insert("ann", "photo", tag_in(2))
    assert waiting(net) == 1

    net.run(61)

    assert waiting(net) == 0
    assert sum(node.service.notification_delivery.given_up for node in net.nodes.values()) == 1


def test_b3_a_notification_that_came_back_may_be_tried_again() -> None:
    returned = NotificationDeliveryConfig(retry_us=1_000_000)
    net = DcsNetwork(STREET, config=msgspec.structs.replace(PAPER, notification_delivery=returned))
    net.subscribe("dan", tag_in(2))
    net.go("dan")
    net.run(6)
    net.insert("ann", "photo", tag_in(2))
    net.run(20)
    tries = [packet for _, packet in net.messages(cell_wire.CellNotify)]

    assert len(tries) == returned.tries_max
    assert waiting(net) == 1


def waiting(net: DcsNetwork) -> int:
    return sum(len(node.service.notification_delivery) for node in net.nodes.values())


def test_m18_a_subscription_that_a_node_forgot_is_stopped_by_the_news_of_it() -> None:
    net = DcsNetwork(STREET)
    net.subscribe("dan", tag_in(2))
    net.go("dan")
    del net.stores["dan"]
    net.come("dan")
    net.run(5)

    net.insert("ann", "photo", tag_in(2))

    assert net.heard("dan") == []
    assert net.standing() == {}


def test_m32_a_look_up_of_what_nobody_told_us_asks_the_cells_of_our_subscriptions() -> None:
    net = DcsNetwork(STREET)
    key = net.insert("ann", "photo", tag_in(2), tag_in(4))

    assert net.finish("dan", asked.Lookup, key=key) == LookupResult("unknown")

    net.subscribe("dan", f"{tag_in(2)} & !{tag_in(4)}")
    known = net.finish("dan", asked.Lookup, key=key)
    assert isinstance(known, LookupResult)
    assert known.state == "there"
    assert known.metadata is not None
    assert known.metadata.key == key
