"""Thyme-DCS says less when many read: announcements and acknowledgements (D28)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.substrates.dcs.network import DcsNetwork, in_cell, tag_in
from thyme.model.time_frames import SECOND_US
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.round_trip import RoundTripTimes
from thyme.substrates.dcs.config import (
    PAPER,
    AnnouncementConfig,
    NotificationDeliveryConfig,
    ReplicationConfig,
)

WANTED = 2
WAIT_S = 15
READERS = [f"r{number}" for number in range(6)]
PLACES = {
    "ann": in_cell(0),
    "bea": in_cell(2),
    "cat": in_cell(4),
    **{name: in_cell(6, number) for number, name in enumerate(READERS)},
}
ANNOUNCEMENTS = AnnouncementConfig(wanted=WANTED, delay_us=WAIT_S * SECOND_US)
SPARING = replace(PAPER, replication=ReplicationConfig(announcements=ANNOUNCEMENTS))


def read(net: DcsNetwork, names: list[str], oid: str) -> None:
    """Each of them retrieves an object of which it was notified."""
    for name in names:
        assert net.finish(name, asked.Retrieve, metadata=net.metadata(name, oid)) == b"pixels"


def test_d28_of_many_notified_readers_as_many_announce_their_replicas_as_are_wanted() -> None:
    net = DcsNetwork(PLACES, config=SPARING)
    for name in READERS:
        net.subscribe(name, tag_in(2))
    key = net.insert("ann", "photo", tag_in(2))

    read(net, READERS, "photo")
    net.run(WAIT_S)

    assert net.holding(key) == {"ann", *READERS}, "whoever retrieved it keeps it"
    active, passive = net.index("bea")["photo"]
    assert active == [0]
    assert len(passive) == WANTED


def test_d28_the_chosen_readers_differ_from_object_to_object() -> None:
    net = DcsNetwork(PLACES, config=SPARING)
    for name in READERS:
        net.subscribe(name, tag_in(2))
    for number in range(12):
        net.insert("ann", f"photo{number}", tag_in(2))
        read(net, READERS, f"photo{number}")
    net.run(WAIT_S)

    listed = net.index("bea").values()
    assert all(len(passive) == WANTED for _, passive in listed)
    assert {name for _, passive in listed for name in passive} == set(READERS)


def test_d28_a_replica_is_announced_to_the_cell_that_notified_and_the_one_that_is_asked() -> None:
    net = DcsNetwork(PLACES, config=SPARING)
    tags = sorted(map(tag_in, (2, 4, 6)))
    cells = [net.grid.cell_of_key(tag) for tag in tags]
    net.subscribe("r0", tags[2])
    net.insert("ann", "photo", *tags)

    read(net, ["r0"], "photo")
    net.run(WAIT_S)

    sent = [packet.targets for _, packet in net.messages(cell_wire.AnnounceReplicas)]
    assert {target.cell for targets in sent for target in targets} <= {cells[0], cells[2]}
    lists = {cell: net.index(name)["photo"] for name, cell in (("bea", 2), ("cat", 4), ("r1", 6))}
    listing = {cell for cell, (_, passive) in lists.items() if passive == ["r0"]}
    assert listing == {cells[0], cells[2]}


def test_d28_announcements_of_several_objects_travel_as_one() -> None:
    net = DcsNetwork(PLACES, config=SPARING)
    net.subscribe("r0", tag_in(2))
    keys = [net.insert("ann", f"photo{number}", tag_in(2)) for number in range(3)]
    for number in range(3):
        read(net, ["r0"], f"photo{number}")
    assert net.messages(cell_wire.AnnounceReplicas) == [], "they wait"

    net.run(WAIT_S)

    sent = {packet.message for _, packet in net.messages(cell_wire.AnnounceReplicas)}
    assert sent == {cell_wire.AnnounceReplicas(tuple(keys))}
    assert all(net.index("bea")[f"photo{number}"] == ([0], ["r0"]) for number in range(3))


def test_d28_a_reader_of_the_past_announces_its_replica_while_the_page_lists_too_few() -> None:
    net = DcsNetwork(PLACES, config=SPARING)
    net.insert("ann", "photo", tag_in(2))
    for name in READERS[: WANTED + 1]:
        net.subscribe(name, tag_in(2))
        read(net, [name], "photo")
        net.run(WAIT_S)

    assert net.index("bea")["photo"] == ([0], ["r1", "r0"])


def test_d28_if_a_listed_replica_is_gone_every_tag_cell_hears_of_the_new_one() -> None:
    net = DcsNetwork(PLACES, config=SPARING)
    net.insert("ann", "photo", tag_in(2), tag_in(4))
    for name in READERS[:WANTED]:
        net.subscribe(name, tag_in(2))
        read(net, [name], "photo")
        net.run(WAIT_S)
    net.subscribe("r5", tag_in(2))
    for name in READERS[:WANTED]:
        net.nodes[name].replicas.remove_without_tombstone(net.metadata("r5", "photo").key)

    read(net, ["r5"], "photo")
    net.run(WAIT_S)

    assert "r5" in net.index("bea")["photo"][1]
    assert "r5" in net.index("cat")["photo"][1]


def test_d28_one_message_acknowledges_the_notifications_of_several_senders() -> None:
    delivery = NotificationDeliveryConfig(
        retry_us=SECOND_US, ack_timeout_us=3 * SECOND_US, ack_delay_us=SECOND_US
    )
    net = DcsNetwork(PLACES, config=replace(PAPER, notification_delivery=delivery))
    for cell in (2, 4):
        net.subscribe("r0", tag_in(cell))
    net.sent.clear()

    for number in range(3):
        request = asked.Insert(request_id=100 + number, data=b"pixels", tags=(tag_in(2), tag_in(4)))
        net.ask("ann", request, 0.05)
    net.run(2)

    acks = {packet.message for name, packet in net.messages(cell_wire.NotifyAck) if name == "r0"}
    assert len(acks) == 1
    assert {len(ack.numbers) for ack in acks if isinstance(ack, cell_wire.NotifyAck)} == {6}
    for name in ("bea", "cat"):
        assert len(net.nodes[name].service.notification_delivery) == 0, "nothing is unacknowledged"


def test_d28_announcements_wait_on_while_the_channel_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = DcsNetwork(PLACES, config=replace(SPARING, reply_wait_us_max=4 * SECOND_US))
    net.subscribe("r0", tag_in(2))
    net.insert("ann", "photo", tag_in(2))
    read(net, ["r0"], "photo")

    monkeypatch.setattr(RoundTripTimes, "is_busy", True)
    net.run(3 * WAIT_S)
    assert net.messages(cell_wire.AnnounceReplicas) == []

    monkeypatch.setattr(RoundTripTimes, "is_busy", False)
    net.run(WAIT_S)
    assert len(net.messages(cell_wire.AnnounceReplicas)) == 1
