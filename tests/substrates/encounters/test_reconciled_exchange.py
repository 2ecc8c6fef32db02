"""The reconciled exchange of MobUser: only what the other lacks, the most useful first (U3, U6)."""

from __future__ import annotations

from hashlib import sha256

from tests.substrates.encounters.devices import Device, meet, pass_messages
from thyme.model.ids import NodeId
from thyme.protocol import app_interface as app
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.encounters import (
    EventData,
    EventDetails,
    EventSummary,
    ProfileReply,
    ReconcileProfile,
)
from thyme.protocol.node import Received, SendFailed
from thyme.substrates.encounters.config import EVENTS_PER_EXCHANGE_MAX, ExchangeMode, MobUserConfig
from thyme.substrates.encounters.mobuser import MobUser
from thyme.wire.codec import size_of

RECONCILE = MobUserConfig(exchange=ExchangeMode.RECONCILE, topics_added=0)
Log = list[tuple[NodeId, Message]]


def pair(config: MobUserConfig = RECONCILE) -> tuple[Device, Device]:
    ana, ben = Device("ana", config), Device("ben", config)
    for device in (ana, ben):
        device.subscribe("goal")
    return ana, ben


def types_of(log: Log) -> list[type]:
    return [type(message) for _, message in log]


def test_u3_each_device_gets_exactly_what_it_lacks() -> None:
    ana, ben = pair()
    for number in range(6):
        ana.publish(f"a{number}", "goal")
        ben.publish(f"b{number}", "goal")
    log: Log = []
    meet(ana, ben, log=log)

    assert sorted(ana.notified) == sorted(ben.notified)
    assert ana.held == ben.held
    assert types_of(log)[:2] == [ReconcileProfile, EventSummary]
    sent = [item.key for _, message in log if isinstance(message, EventDetails)
            for item in message.items]  # fmt: skip
    assert len(sent) == len(set(sent)) == 12


def test_u3_devices_with_the_same_events_send_no_event_again() -> None:
    ana, ben = pair()
    for number in range(10):
        ana.publish(f"a{number}", "goal", data=bytes(400) + bytes([number]))
    meet(ana, ben)
    log: Log = []
    meet(ben, ana, log=log)

    assert set(types_of(log)) == {ReconcileProfile, EventSummary}
    assert sum(size_of(message) for _, message in log) < 300


def test_u3_profiles_first_then_metadata_then_small_events_then_large_ones() -> None:
    ana, ben = pair()
    ben.publish("large", "goal", data=b"l" * 20_000)
    ben.publish("small", "goal", data=b"s" * 10)
    ben.publish("middle", "goal", data=b"m" * 7_000)
    log: Log = []
    meet(ana, ben, log=log)

    details = [message for _, message in log if isinstance(message, EventDetails)]
    data = [message for _, message in log if isinstance(message, EventData)]
    assert [item.key.oid for item in details[0].items] == ["small", "middle", "large"]
    assert [[len(content) for content in message.data] for message in data] == [
        [10, 7_000],
        [20_000],
    ]
    order = types_of(log)
    assert order.index(EventSummary) < order.index(EventDetails) < order.index(EventData)


def test_u3_a_contact_that_breaks_off_has_notified_and_the_next_one_brings_the_bytes() -> None:
    ana, ben = pair()
    ben.publish("photo", "goal", data=b"p" * 30_000)
    ana.discover()
    ben.give(Received(ana.node_id, ana.drain()[0][1]))
    for _, message in ben.drain():
        ana.give(Received(ben.node_id, message))
    for _, message in ana.drain():
        ben.give(Received(ana.node_id, message))
    for _, message in ben.drain():
        if isinstance(message, EventDetails):
            ana.give(Received(ben.node_id, message))  # the bytes are lost
        else:
            ben.give(SendFailed(ana.node_id, message))
    assert ana.notified == ["photo"]
    [event] = ana.node.dissemination.memory
    answer = ana.ask(app.Retrieve, metadata=event.metadata)
    assert isinstance(answer, app.Failed)
    assert "broke off" in answer.detail

    meet(ben, ana)
    answer = ana.ask(app.Retrieve, metadata=event.metadata)

    assert isinstance(answer, app.Finished)
    assert ana.notified == ["photo"]


def test_u6_an_event_that_both_have_counts_as_received_again() -> None:
    ana, ben = pair()
    cleo = Device("cleo", RECONCILE)
    cleo.publish("goal1", "goal")
    for device in (ana, ben):
        meet(device, cleo)
    meet(ana, ben)

    for device in (ana, ben):
        dissemination = device.node.dissemination
        assert isinstance(dissemination, MobUser)
        assert [event.key.oid for event in dissemination.memory.popular] == ["goal1"]


def test_u2_topics_of_nobody_are_not_exchanged() -> None:
    ana, ben = pair()
    ben.publish("save1", "save")
    meet(ana, ben)

    assert ana.held == set()


def test_u3_a_device_of_the_paper_answers_with_all_its_events() -> None:
    ana, ben = Device("ana", RECONCILE), Device("ben", MobUserConfig(topics_added=0))
    ana.subscribe("goal")
    ben.publish("goal1", "goal")
    log: Log = []
    meet(ana, ben, log=log)

    assert types_of(log)[:2] == [ReconcileProfile, ProfileReply]
    assert ana.notified == ["goal1"]


def test_what_was_not_asked_for_is_dropped_and_counted() -> None:
    ana, ben = pair()
    ben.publish("goal1", "goal")
    [event] = ben.node.dissemination.memory
    for message in (
        EventSummary(5, (), (), (), False),
        EventSummary(5, (), (), (), True),
        EventDetails(5, (event.metadata,)),
        EventData(5, (b"goal1",)),
    ):
        ana.give(Received(ben.node_id, message))

    assert ana.held == set()
    assert dict(ana.node.dropped) == {
        "unexpected summaries": 2,
        "unsolicited events": 1,
        "corrupt events": 1,
    }


def test_a_device_that_floods_is_bounded_and_bytes_must_fit_their_digest() -> None:
    ana, ben = pair()
    ben.discover()
    ana.give(Received(ben.node_id, ben.drain()[0][1]))
    [(_, summary)] = ana.drain()
    assert isinstance(summary, EventSummary)
    for number in range(EVENTS_PER_EXCHANGE_MAX + 5):
        ben.publish(f"goal{number}", "goal")
    items = tuple(event.metadata for event in ben.node.dissemination.memory)
    ana.give(Received(ben.node_id, EventDetails(summary.exchange, items)))
    ana.give(Received(ben.node_id, EventData(summary.exchange, (b"goal0", b"other"))))

    assert ana.node.dropped["flooded events"] == 5
    assert ana.node.dropped["corrupt events"] == 1
    assert sha256(b"goal0").digest() == items[0].digest


def test_neighbours_that_stay_together_compare_again_only_with_new_events() -> None:
    config = MobUserConfig(exchange=ExchangeMode.RECONCILE, repeat_us=300_000_000)
    ana, ben = pair(config)
    ben.publish("goal1", "goal")
    meet(ana, ben)
    ben.discover()
    pass_messages(ana, ben)
    log: Log = []
    meet(ana, ben, log=log)
    assert types_of(log) == [ReconcileProfile]

    ben.publish("goal2", "goal")
    meet(ana, ben)

    assert ana.notified == ["goal1", "goal2"]
