"""Thyme-DCS sends small objects with their metadata, and acknowledgements together (D28)."""

from __future__ import annotations

from msgspec.structs import replace

from tests.substrates.dcs.network import DcsNetwork, in_cell, tag_in
from thyme.model.ids import ObjectId
from thyme.model.time_frames import SECOND_US
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.compact import CompactNotifyBatch, CompactPage
from thyme.substrates.dcs.config import PAPER, ROBUST, NotificationDeliveryConfig
from thyme.substrates.dcs.state.small_objects import SmallObjects

PLACES = {"ann": in_cell(0), "bea": in_cell(2), "cat": in_cell(4), "dan": in_cell(6)}
SMALL = replace(
    PAPER,
    compact_messages=True,
    small_object_bytes_max=100,
    notification_delivery=NotificationDeliveryConfig(ack_timeout_us=SECOND_US, retry_us=SECOND_US),
)


def retrieve(net: DcsNetwork, name: str, oid: str) -> object:
    return net.finish(name, asked.Retrieve, metadata=net.metadata(name, oid))


def test_d28_a_notified_reader_has_a_small_object_already() -> None:
    net = DcsNetwork(PLACES, config=SMALL)
    net.subscribe("dan", tag_in(2))
    key = net.insert("ann", "post", tag_in(2), tag_in(4))
    assert net.holding(key) == {"ann"}

    assert retrieve(net, "dan", "post") == b"pixels"
    assert net.holding(key) == {"ann", "dan"}, "whoever retrieved it keeps it (D13)"
    net.run(20)
    assert net.messages(cell_wire.AnnounceReplica) == []
    assert len(net.messages(cell_wire.IndexSmallObject)) == 1, "one message to both cells"
    assert net.messages(wire.FetchObject) == []


def test_d28_a_reader_of_the_past_has_small_objects_already() -> None:
    net = DcsNetwork(PLACES, config=SMALL)
    for number in range(3):
        net.insert("ann", f"post{number}", tag_in(2))
    net.subscribe("dan", tag_in(2))

    assert [retrieve(net, "dan", f"post{number}") for number in range(3)] == [b"pixels"] * 3
    assert len(net.messages(CompactPage)) == 1
    assert net.messages(wire.FetchObject) == []


def test_d28_a_larger_object_is_retrieved_as_before() -> None:
    net = DcsNetwork(PLACES, config=SMALL)
    net.subscribe("dan", tag_in(2))
    net.insert("ann", "photo", tag_in(2), data=b"p" * 101)

    assert retrieve(net, "dan", "photo") == b"p" * 101
    assert net.messages(cell_wire.IndexSmallObject) == []
    assert len(net.messages(wire.FetchObject)) == 1


def test_d28_a_small_object_that_the_cell_has_not_is_retrieved() -> None:
    """The cell learnt of the object by other ways: a state transfer, a re-announcement."""
    net = DcsNetwork(PLACES, config=SMALL)
    key = net.insert("ann", "post", tag_in(2))
    net.nodes["bea"].service.small_objects.remove(key)
    net.subscribe("dan", tag_in(2))

    assert retrieve(net, "dan", "post") == b"pixels"
    assert len(net.messages(wire.FetchObject)) == 1


def test_d15_a_cell_forgets_a_small_object_that_was_deleted() -> None:
    net = DcsNetwork(PLACES, config=SMALL)
    key = net.insert("ann", "post", tag_in(2))
    assert len(net.nodes["bea"].service.small_objects) == 1

    net.finish("ann", asked.Delete, key=key)

    assert len(net.nodes["bea"].service.small_objects) == 0


def test_b5_signed_metadata_are_verified_with_the_object_that_came_along() -> None:
    net = DcsNetwork(PLACES, config=SMALL, keys=True)
    net.subscribe("dan", tag_in(2))
    net.insert("ann", "post", tag_in(2))

    assert retrieve(net, "dan", "post") == b"pixels"
    assert net.messages(wire.FetchObject) == []


def test_d28_the_profile_of_the_papers_sends_neither() -> None:
    net = DcsNetwork(PLACES)
    net.subscribe("dan", tag_in(2))
    net.insert("ann", "post", tag_in(2))

    assert retrieve(net, "dan", "post") == b"pixels"
    assert net.messages(cell_wire.IndexSmallObject) == []
    assert net.messages(CompactNotifyBatch) == []


def test_the_cache_of_small_objects_is_bounded_and_answers_for_the_same_content_only() -> None:
    net = DcsNetwork(PLACES, config=SMALL)
    for number in range(3):
        net.insert("ann", f"post{number}", tag_in(2))
    net.subscribe("dan", tag_in(2))
    metadata = [net.metadata("dan", f"post{number}") for number in range(3)]
    cache = SmallObjects(100, entries_max=2)
    for each in metadata:
        cache.add(each, b"pixels")

    assert [cache.get(each) for each in metadata] == [None, b"pixels", b"pixels"]
    assert cache.get(replace(metadata[2], digest_and_proof=b"d" * 32)) is None
    cache.add(replace(metadata[0], size=101), b"p" * 101)
    assert len(cache) == 2


def test_d28_while_notifications_are_frequent_acknowledgements_wait_longer() -> None:
    busy = replace(
        SMALL,
        notification_delivery=replace(
            ROBUST.notification_delivery, aggregation_us=0, busy_ack_delay_us=0
        ),
    )
    acks = {}
    for delay_us in (0, 2 * SECOND_US):
        delivery = replace(
            busy.notification_delivery,
            aggregation_us=SECOND_US // 20,
            busy_ack_delay_us=delay_us,
        )
        net = DcsNetwork(PLACES, config=replace(busy, notification_delivery=delivery))
        net.subscribe("dan", tag_in(2))
        for number in range(12):
            net.insert("ann", f"post{number}", tag_in(2), seconds=0.5)
        net.run(5)
        assert net.heard("dan") == [f"post{number}" for number in range(12)]
        assert len({packet.number for _, packet in net.messages(CompactNotifyBatch)}) == 12
        acks[delay_us] = len(net.messages(cell_wire.NotifyAck))

    assert acks[2 * SECOND_US] < acks[0] / 2


def test_m35_acknowledgements_of_long_summaries_do_not_wait() -> None:
    """The window of the sender is in bytes, too, and must not stay full."""
    net = DcsNetwork(PLACES, config=ROBUST)
    net.subscribe("dan", tag_in(2))
    for number in range(5):
        oid, tags = ObjectId(f"post{number}"), (tag_in(2),)
        summary = bytes(60_000)
        net.finish("ann", asked.Insert, 0.05, data=b"x", tags=tags, oid=oid, summary=summary)
    assert len(net.messages(cell_wire.NotifyAck)) == 1
