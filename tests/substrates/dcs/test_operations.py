"""The operations of Thyme-DCS between nodes: what goes where, who keeps it, who answers."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import conjunctions
from tests.substrates.dcs.town import HASTY, STREET, Town, in_cell, tag_in
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


def replicated(**settings: object) -> Town:
    replication = ReplicationConfig(**settings)  # type: ignore[arg-type]
    return Town(STREET, config=msgspec.structs.replace(PAPER, replication=replication))


def test_d11_metadata_goes_to_the_cell_of_each_tag_and_the_object_to_the_owner_s_cell() -> None:
    town = Town(STREET)

    key = town.insert("ann", "photo", tag_in(2), tag_in(6))

    assert town.indexing("photo") == {"bea", "ben", "dan", "dot"}
    assert town.holding(key) == {"ann", "abe"}


def test_d11_one_reply_comes_from_each_tag_cell() -> None:
    town = Town(STREET)

    town.insert("ann", "photo", tag_in(2), tag_in(6), tag_in(2, 1))

    answers = [packet.message for _, packet in town.messages(wire.Done)]
    assert {reply.cell for reply in answers if isinstance(reply, wire.ReplyFromCell)} == {2, 6}
    assert len(answers) == 2


def test_d11_only_cells_that_did_not_answer_are_asked_again_then_it_times_out() -> None:
    town = Town(STREET, config=HASTY)
    far = {"cat", "col", "dan", "dot"}
    for name in far:
        town.go(name)
    # The others do not know yet that nobody is there.
    request = asked.Insert(
        request_id=99, data=b"x", tags=(tag_in(2), tag_in(6)), oid=ObjectId("photo")
    )
    told = town.ask("ann", request, 3)

    asks = [packet.targets for _, packet in town.messages(cell_wire.IndexObject)]
    assert {target.cell for target in asks[0]} == {2, 6}
    assert all([target.cell for target in targets] == [6] for targets in asks[1:])
    assert len(asks) >= HASTY.retries.tries_max
    assert isinstance(told, Failed)
    assert told.code == OperationTimeoutError.code
    assert town.indexing("photo") == {"bea", "ben"}


def test_d6_the_proxy_answers_in_the_name_of_an_empty_cell() -> None:
    town = Town(STREET)

    town.insert("ann", "photo", tag_in(5))

    # Of the populated cells, 4 and 6 are as close to 5; the lower number wins.
    assert town.indexing("photo") == {"cat", "col"}
    town.subscribe("dan", tag_in(5))
    assert town.heard("dan") == ["photo"]


def test_d6_a_proxy_keeps_a_subscription_keyed_to_two_of_its_cells_as_one() -> None:
    town = Town({"ann": in_cell(0), "abe": in_cell(0, 1)})

    begun = town.subscribe("abe", f"{tag_in(3)} | {tag_in(5)}")
    town.insert("ann", "three", tag_in(3))
    town.insert("ann", "five", tag_in(5))

    assert town.standing() == {"ann": 1, "abe": 1}
    assert town.heard("abe") == ["three", "five"]
    town.finish("abe", asked.Unsubscribe, sid=begun.sid)
    assert town.standing() == {}


def test_d12_d13_who_retrieved_an_object_keeps_it_and_is_listed_in_every_tag_cell() -> None:
    town = Town(STREET)
    town.subscribe("dan", tag_in(2))
    key = town.insert("ann", "photo", tag_in(2), tag_in(4))

    data = town.finish("dan", asked.Retrieve, metadata=town.metadata("dan", "photo"))

    assert data == b"pixels"
    assert town.holding(key) == {"ann", "abe", "dan"}
    for name in ("bea", "ben", "cat", "col"):
        assert town.index(name)["photo"] == ([0], ["dan"])


def test_d13_without_passive_replication_nobody_keeps_what_it_retrieves() -> None:
    town = replicated(passive=False)
    town.subscribe("dan", tag_in(2))
    key = town.insert("ann", "photo", tag_in(2))

    town.finish("dan", asked.Retrieve, metadata=town.metadata("dan", "photo"))

    assert town.holding(key) == {"ann", "abe"}
    assert town.messages(cell_wire.AnnounceReplica) == []


@pytest.mark.parametrize(("active_max", "copies"), [(1, 1), (2, 2), (3, 3), (9, 4), (None, 4)])
def test_d14_an_object_has_as_many_active_replicas_as_the_strategy_says(
    active_max: int | None, copies: int
) -> None:
    crowd = {f"a{number}": in_cell(0, number) for number in range(4)}
    config = msgspec.structs.replace(PAPER, replication=ReplicationConfig(active_max=active_max))
    town = Town({**crowd, "ben": in_cell(2), "bob": in_cell(2, 1)}, config=config)
    town.subscribe("ben", tag_in(2))

    key = town.insert("a0", "photo", tag_in(2))

    assert len(town.holding(key)) == copies
    assert town.indexing("photo") == {"ben", "bob"}, "metadata is kept by all, whatever is set"
    assert town.standing() == {"ben": 1, "bob": 1}, "and so are subscriptions"
    assert "a0" in town.holding(key)
    note = town.metadata("ben", "photo")
    assert town.finish("ben", asked.Retrieve, metadata=note) == b"pixels"
    entries = next(iter(town.nodes["ben"].index.objects())).active
    assert len(entries) == (1 if active_max is None else copies)


def test_d15_a_delete_empties_the_tag_cells_and_the_active_replicas() -> None:
    town = Town(STREET)
    key = town.insert("ann", "photo", tag_in(2), tag_in(4))
    town.subscribe("dan", tag_in(2))

    town.finish("ann", asked.Delete, key=key)

    assert town.indexing("photo") == set()
    assert town.holding(key) == set()
    metadata = town.metadata("dan", "photo")
    assert town.fail("dan", asked.Retrieve, metadata=metadata) == NotFoundError.code
    known = town.finish("dan", asked.Lookup, key=key)
    assert known == LookupResult("deleted")


def test_d15_passive_replicas_go_when_they_learn_of_it_and_are_found_by_nobody() -> None:
    town = Town(STREET)
    for name in ("bea", "dan"):
        town.subscribe(name, tag_in(2))
    key = town.insert("ann", "photo", tag_in(2))
    for name in ("bea", "dan"):
        town.finish(name, asked.Retrieve, metadata=town.metadata(name, "photo"))
    assert town.holding(key) == {"ann", "abe", "bea", "dan"}

    town.finish("ann", asked.Delete, key=key)

    assert town.holding(key) == {"dan"}, "who works for the tag's cell has learnt of it"
    town.sent.clear()
    assert town.found("col", tag_in(2)) == set()
    town.subscribe("col", tag_in(2))
    assert town.heard("col") == []
    assert town.finish("col", asked.Lookup, key=key) == LookupResult("deleted")


def test_d15_a_late_copy_does_not_bring_a_deleted_object_back() -> None:
    town = Town(STREET)
    key = town.insert("ann", "photo", tag_in(2))
    [(_, insert)] = town.messages(cell_wire.IndexObject)
    town.finish("ann", asked.Delete, key=key)
    ann = town.nodes["ann"]

    ann.routing.send([Destination(CellId(2))], insert.message, town.links.kernel.now_us)
    ann.routing.broadcast_in_cell(
        cell_wire.StoreReplica(insert.message.indexed.metadata, b"pixels"),  # type: ignore[union-attr]
        town.links.kernel.now_us,
    )
    town.finish("ann", asked.ListSubscriptions)  # carries the two out

    assert town.indexing("photo") == set()
    assert town.holding(key) == set()


def test_d15_a_delete_that_overtakes_its_insert_wins() -> None:
    town = Town(STREET)
    ann, now_us = town.nodes["ann"], town.links.kernel.now_us
    key = Key(ObjectId("photo"), ann.node_id)
    ann.routing.send([Destination(CellId(2))], wire.DeleteObject(1, key), now_us)
    town.finish("ann", asked.ListSubscriptions)

    told = town.ask(
        "ann", asked.Insert(request_id=77, data=b"x", tags=(tag_in(2),), oid=ObjectId("photo"))
    )

    assert isinstance(told, Failed)
    assert "deleted" in told.detail
    assert town.indexing("photo") == set()
    assert "ann" not in town.holding(key)


def test_d15_a_delete_that_some_cell_did_not_answer_can_be_repeated() -> None:
    town = Town(STREET, config=HASTY)
    key = town.insert("ann", "photo", tag_in(0), tag_in(2))
    for name in ("bea", "ben"):
        town.go(name)
    assert town.fail("ann", asked.Delete, key=key) == OperationTimeoutError.code

    for name in ("bea", "ben"):
        town.come(name)
    town.run(6)
    assert town.indexing("photo") == {"bea", "ben"}
    town.finish("ann", asked.Delete, key=key)

    assert town.indexing("photo") == set()
    assert town.holding(key) == set()


def test_d15_m14_nobody_else_can_delete_an_object() -> None:
    town = Town(STREET)
    key = town.insert("ann", "photo", tag_in(2))
    dan, now_us = town.nodes["dan"], town.links.kernel.now_us

    dan.routing.send(
        [Destination(CellId(2)), Destination(CellId(0))], wire.DeleteObject(1, key), now_us
    )
    town.finish("dan", asked.ListSubscriptions)

    assert town.indexing("photo") == {"bea", "ben"}
    assert town.holding(key) == {"ann", "abe"}


def test_d16_each_conjunction_goes_to_the_cell_of_one_of_its_positive_literals() -> None:
    town = Town(STREET)
    a, b, c = tag_in(0), tag_in(2), tag_in(6)

    begun = town.subscribe("cat", f"{a} & {b} | {c} & !{a}")

    sent = [
        (target.cell, packet.message.subscription.conjunctions)
        for _, packet in town.messages(wire.StartSubscription)
        for target in packet.targets
        if isinstance(packet.message, wire.StartSubscription)
    ]
    cells = dict(sent)
    assert len(sent) == 2
    assert set(cells) in ({0, 6}, {2, 6})
    assert [str(one) for one in cells[6]] == [f"{c} & !{a}"]
    assert town.standing().keys() == SEEN_FROM_CELL[min(cells)] | SEEN_FROM_CELL[6]
    for name in town.standing():
        interests = list(town.nodes[name].index.cell_subscriptions())
        assert [interest.cell for interest in interests] == [4]

    town.finish("cat", asked.Unsubscribe, sid=begun.sid)
    assert town.standing() == {}


def test_d16_a_later_life_cancels_where_the_earlier_one_subscribed() -> None:
    town = Town(STREET)
    query = " & ".join(tag_in(cell) for cell in (0, 2, 4, 6))
    begun = town.subscribe("cat", query)
    assert len(town.standing()) == 2

    town.go("cat")
    town.run(1)
    town.come("cat")
    town.run(5)
    town.finish("cat", asked.Unsubscribe, sid=begun.sid)

    assert town.standing() == {}


def test_d17_exactly_one_node_of_the_cell_notifies() -> None:
    town = Town(STREET)
    town.subscribe("cat", tag_in(2))
    town.sent.clear()

    for number in range(5):
        town.insert("ann", f"photo-{number}", tag_in(2))

    assert town.heard("cat") == [f"photo-{number}" for number in range(5)]
    assert len(town.messages(cell_wire.CellNotify)) == 5
    assert town.nodes["cat"].subscriber.duplicates == 0


def test_d9_one_notification_goes_to_all_subscribers_and_parts_on_the_way() -> None:
    town = Town(STREET)
    for name in ("bea", "cat", "col", "dot"):
        town.subscribe(name, tag_in(0))
    town.sent.clear()

    town.insert("ann", "photo", tag_in(0))

    notes = town.messages(cell_wire.CellNotify)
    named = [
        target.node.decode() for _, packet in notes for target in packet.targets if target.node
    ]
    assert sorted(named) == ["bea", "cat", "col", "dot"]
    assert len({packet.number for _, packet in notes}) == 1
    assert all(town.heard(name) == ["photo"] for name in ("bea", "cat", "col", "dot"))


def test_d9_many_subscribers_are_told_in_several_messages() -> None:
    config = msgspec.structs.replace(
        PAPER, notification_delivery=NotificationDeliveryConfig(destinations_max=2)
    )
    town = Town(STREET, config=config)
    for name in ("bea", "cat", "dot"):
        town.subscribe(name, tag_in(0))
    town.sent.clear()

    town.insert("ann", "photo", tag_in(0))

    assert len({packet.number for _, packet in town.messages(cell_wire.CellNotify)}) == 2
    assert all(town.heard(name) == ["photo"] for name in ("bea", "cat", "dot"))


def test_d17_m17_m20_pages_of_several_cells_are_merged_and_counted_once() -> None:
    town = Town(STREET)
    a, b = tag_in(0), tag_in(6)
    for number, tags in enumerate([(a,), (b,), (a, b), (b,), (a,)]):
        town.insert("col", f"photo-{number}", *tags)

    begun = town.subscribe("ben", f"{a} | {b}")
    found = town.finish(
        "ben",
        asked.Search,
        conjunctions=conjunctions(f"{a} | {b}"),
        frame=TimeFrame(),
        count=3,
    )

    assert begun.total == 5
    assert town.heard("ben") == [f"photo-{number}" for number in (4, 3, 2, 1, 0)]
    assert isinstance(found, SearchResult)
    assert [note.key.oid for note in found] == ["photo-4", "photo-3", "photo-2"]


def test_d18_the_closest_replica_is_asked_first() -> None:
    town = Town(STREET)
    town.subscribe("cat", tag_in(2))
    key = town.insert("ann", "photo", tag_in(2))
    town.finish("cat", asked.Retrieve, metadata=town.metadata("cat", "photo"))
    town.subscribe("dot", tag_in(2))
    town.sent.clear()

    town.finish("dot", asked.Retrieve, metadata=town.metadata("dot", "photo"))

    [(_, fetch)] = town.messages(wire.FetchObject)
    assert [(target.cell, target.node) for target in fetch.targets] == [(4, b"cat")]
    assert town.holding(key) == {"ann", "abe", "cat", "dot"}


def test_d18_d8_a_replica_that_is_gone_is_passed_over_and_the_active_cell_comes_last() -> None:
    town = Town(STREET, config=HASTY)
    town.subscribe("cat", tag_in(2))
    town.insert("ann", "photo", tag_in(2))
    town.finish("cat", asked.Retrieve, metadata=town.metadata("cat", "photo"))
    town.subscribe("dot", tag_in(2))
    town.go("cat")
    town.run(6)
    town.sent.clear()

    told = town.finish("dot", asked.Retrieve, metadata=town.metadata("dot", "photo"))

    assert told == b"pixels"
    tried = [packet.targets[0] for _, packet in town.messages(wire.FetchObject)]
    assert [(target.cell, target.node) for target in tried] == [(4, b"cat"), (0, None)]


def test_d18_tries_are_bounded() -> None:
    town = Town(STREET, config=HASTY)
    town.subscribe("dot", tag_in(4))
    town.insert("ann", "photo", tag_in(4))
    for name in ("ann", "abe", "bea", "ben"):
        town.go(name)
    town.run(6)
    town.sent.clear()

    code = town.fail("dot", asked.Retrieve, metadata=town.metadata("dot", "photo"))

    asks = {packet.number for _, packet in town.messages(wire.FetchObject)}
    assert 1 < len(asks) <= PAPER.replication.retrieve_tries_max
    assert code == NotFoundError.code, "who stands in for the owner's cell has no copy"


def test_d18_a_later_life_asks_a_tag_cell_where_the_object_is() -> None:
    town = Town(STREET)
    town.subscribe("dot", tag_in(2))
    town.insert("ann", "photo", tag_in(2))
    metadata = town.metadata("dot", "photo")
    town.go("dot")
    town.come("dot")
    town.run(5)

    assert town.finish("dot", asked.Retrieve, metadata=metadata) == b"pixels"


@pytest.mark.parametrize("seed", range(5))
def test_d19_operations_are_repeated_until_answered_and_do_no_harm_twice(seed: int) -> None:
    patient = msgspec.structs.replace(PAPER, retries=RetryPolicy(tries_max=12, backoff=1.2))
    town = Town(STREET, seed=seed, config=patient)
    town.links.loss = 0.2
    town.subscribe("dan", tag_in(2))
    keys = [
        town.insert("ann", f"photo-{number}", tag_in(2), tag_in(4), seconds=16)
        for number in range(8)
    ]
    for key in keys[:4]:
        told = town.ask("ann", asked.Delete(request_id=1_000 + keys.index(key), key=key), 16)
        assert isinstance(told, asked.Finished), told
    retransmitted = sum(node.requests.retransmissions for node in town.nodes.values())

    assert retransmitted > 0
    assert town.heard("dan")
    assert len(town.heard("dan")) == len(set(town.heard("dan")))
    kept, deleted = {key.oid for key in keys[4:]}, {key.oid for key in keys[:4]}
    for one, other in (("bea", "ben"), ("cat", "col")):
        known = town.index(one).keys(), town.index(other).keys()
        assert kept <= known[0] | known[1], "whoever answered for an insert has it"
        assert not deleted & known[0] & known[1], "and who answered for a delete has it no more"
    assert all(count == 1 for count in town.standing().values())


def test_d22_a_notification_that_came_back_waits_for_its_subscriber() -> None:
    town = Town(STREET)
    begun = town.subscribe("dan", tag_in(2))
    town.go("dan")
    town.run(6)

    town.insert("ann", "photo", tag_in(2))
    key = town.insert("ann", "deleted", tag_in(2))
    assert waiting(town) == 2
    town.finish("ann", asked.Delete, key=key)
    town.come("dan")
    town.run(6)
    town.sent.clear()
    town.finish("dan", asked.Resume, sid=begun.sid)

    assert waiting(town) == 0
    assert town.heard("dan") == ["photo"]
    [(_, packet)] = town.messages(cell_wire.CellNotify)
    assert packet.message.indexed.metadata.oid == "photo"  # type: ignore[union-attr]


def test_d22_after_a_longest_time_a_notification_is_given_up() -> None:
    town = Town(STREET)
    town.subscribe("dan", tag_in(2))
    town.go("dan")
    town.run(6)
    town.insert("ann", "photo", tag_in(2))
    assert waiting(town) == 1

    town.run(61)

    assert waiting(town) == 0
    assert sum(node.service.notification_delivery.given_up for node in town.nodes.values()) == 1


def test_b3_a_notification_that_came_back_may_be_tried_again() -> None:
    returned = NotificationDeliveryConfig(retry_us=1_000_000)
    town = Town(STREET, config=msgspec.structs.replace(PAPER, notification_delivery=returned))
    town.subscribe("dan", tag_in(2))
    town.go("dan")
    town.run(6)
    town.insert("ann", "photo", tag_in(2))
    town.run(20)
    tries = [packet for _, packet in town.messages(cell_wire.CellNotify)]

    assert len(tries) == returned.tries_max
    assert waiting(town) == 1


def waiting(town: Town) -> int:
    return sum(len(node.service.notification_delivery) for node in town.nodes.values())


def test_m18_a_subscription_that_a_node_forgot_is_stopped_by_the_news_of_it() -> None:
    town = Town(STREET)
    town.subscribe("dan", tag_in(2))
    town.go("dan")
    del town.stores["dan"]
    town.come("dan")
    town.run(5)

    town.insert("ann", "photo", tag_in(2))

    assert town.heard("dan") == []
    assert town.standing() == {}


def test_m32_a_look_up_of_what_nobody_told_us_asks_the_cells_of_our_subscriptions() -> None:
    town = Town(STREET)
    key = town.insert("ann", "photo", tag_in(2), tag_in(4))

    assert town.finish("dan", asked.Lookup, key=key) == LookupResult("unknown")

    town.subscribe("dan", f"{tag_in(2)} & !{tag_in(4)}")
    known = town.finish("dan", asked.Lookup, key=key)
    assert isinstance(known, LookupResult)
    assert known.state == "there"
    assert known.metadata is not None
    assert known.metadata.key == key
