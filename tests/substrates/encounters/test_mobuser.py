"""MobUser: discovery, generated profiles and exchanges (U1–U4), and the interface (U10)."""

from __future__ import annotations

from random import Random

import pytest

from tests.builders import BOB, conjunctions, photo
from tests.substrates.encounters.devices import Device, meet, pass_messages, wait
from thyme.model.errors import OptionError
from thyme.model.ids import NodeId
from thyme.model.tags import as_tag
from thyme.model.time_frames import SECOND_US, TimeFrame
from thyme.protocol import app_interface as app
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.encounters import EncounterEvents, EncounterProfile, ProfileReply
from thyme.protocol.node import (
    AppRequested,
    Received,
    SendFailed,
    SetTimer,
    Started,
    TimerFired,
)
from thyme.storage.store import MemoryStore
from thyme.substrates.encounters.config import (
    EVENTS_PER_EXCHANGE_MAX,
    EXCHANGES_PER_MINUTE_MAX,
    PROFILE_TOPICS_MAX,
    EncounterConfig,
    ExchangeMode,
    MobUserConfig,
)
from thyme.substrates.encounters.demand import Demand
from thyme.substrates.encounters.dissemination import DiscoveryTimer
from thyme.substrates.encounters.mobuser import MobUser
from thyme.substrates.encounters.node import EncounterNode

NO_ADDED = MobUserConfig(topics_added=0)
ONE_FOR_ONE = MobUserConfig(exchange=ExchangeMode.ONE_FOR_ONE)


def test_u1_neighbours_are_discovered_every_300_seconds() -> None:
    node = EncounterNode(BOB, MemoryStore(), Random(1), EncounterConfig())
    [first] = node.handle(Started(), 0)
    assert isinstance(first, SetTimer)
    assert 0 <= first.at_us < 300 * SECOND_US

    again = node.handle(TimerFired(DiscoveryTimer()), first.at_us)

    assert again[0] == SetTimer(DiscoveryTimer(), first.at_us + 300 * SECOND_US)


def test_u1_devices_that_do_not_meet_exchange_nothing() -> None:
    ana, ben = Device("ana"), Device("ben")
    ana.publish("goal1", "goal")
    ben.subscribe("goal")
    meet(ana)

    assert ben.notified == []


def test_u3_a_profile_is_answered_by_a_profile_and_events_then_by_events() -> None:
    ana, ben = Device("ana"), Device("ben")
    ana.publish("goal1", "goal")
    ana.subscribe("save")
    ben.publish("save1", "save")
    ben.subscribe("goal")
    log: list[tuple[NodeId, Message]] = []
    meet(ana, ben, log=log)

    assert [(sender, type(message)) for sender, message in log] == [
        (ana.node_id, EncounterProfile),
        (ben.node_id, ProfileReply),
        (ana.node_id, EncounterEvents),
    ]
    assert (ana.notified, ben.notified) == (["save1"], ["goal1"])


def test_u3_all_matching_events_travel_in_one_packet() -> None:
    ana, ben = Device("ana"), Device("ben")
    for number in range(12):
        ben.publish(f"goal{number}", "goal")
    ana.subscribe("goal")
    log: list[tuple[NodeId, Message]] = []
    meet(ana, ben, log=log)

    assert len(ana.notified) == 12
    assert len(log) == 2


def test_u3_one_for_one_alternates_until_one_device_has_no_more() -> None:
    ana, ben = Device("ana", ONE_FOR_ONE), Device("ben", ONE_FOR_ONE)
    for number in range(5):
        ana.publish(f"goal{number}", "goal")
    for number in range(3):
        ben.publish(f"save{number}", "save")
    ana.subscribe("save")
    ben.subscribe("goal")
    log: list[tuple[NodeId, Message]] = []
    meet(ana, ben, log=log)

    assert sorted(ana.notified) == ["save0", "save1", "save2"]
    assert len(ben.notified) == 3
    assert all(
        len(message.items) <= 1
        for _, message in log
        if isinstance(message, ProfileReply | EncounterEvents)
    )


def test_u3_a_selfish_device_gets_one_event_at_most() -> None:
    config = MobUserConfig(exchange=ExchangeMode.ONE_FOR_ONE, topics_added=0)
    ana, selfish = Device("ana", config), Device("selfish", config)
    for number in range(5):
        ana.publish(f"goal{number}", "goal")
    selfish.subscribe("goal")
    for _ in range(2):
        meet(selfish, ana)
        assert len(selfish.notified) == 1
    dissemination = ana.node.dissemination
    assert isinstance(dissemination, MobUser)
    assert (dissemination.given_first, dissemination.returned) == (2, 0)


def test_u3_an_event_sent_twice_does_not_pay_for_two() -> None:
    ana, cheat = Device("ana", ONE_FOR_ONE), Device("cheat", ONE_FOR_ONE)
    for number in range(5):
        ana.publish(f"goal{number}", "goal")
    ana.subscribe("save")
    cheat.publish("save1", "save")
    cheat.subscribe("goal")
    cheat.discover()
    [(_, profile)] = cheat.drain()
    ana.give(Received(cheat.node_id, profile))
    assert isinstance(profile, EncounterProfile)
    payment = EncounterEvents(profile.exchange, (photo(1, tags=["save"], data=b"x"),), (b"x",))
    for _ in range(4):
        ana.give(Received(cheat.node_id, payment))

    given = [message for _, message in ana.drain()]
    assert [type(message) for message in given] == [ProfileReply, EncounterEvents]


def test_u2_a_generated_profile_adds_the_least_demanded_topics() -> None:
    demand = Demand(map(as_tag, ["a", "b", "c", "d"]), Random(1))
    demand.record_profile(map(as_tag, ["a", "c"]))
    demand.record_profile([as_tag("c")])

    assert demand.generate_profile(frozenset({as_tag("a")}), 2) == {"a", "b", "d"}
    assert demand[as_tag("c")] == 2


def test_u2_every_received_profile_counts_as_demand() -> None:
    ana, ben = Device("ana"), Device("ben")
    ben.subscribe("rare")
    meet(ben, ana)
    dissemination = ana.node.dissemination
    assert isinstance(dissemination, MobUser)
    assert dissemination.demand[as_tag("rare")] == 1


def test_u2_a_device_carries_rare_topics_for_others() -> None:
    publisher, carrier, reader = Device("publisher"), Device("carrier"), Device("reader")
    publisher.publish("rare1", "rare")
    reader.subscribe("rare")
    meet(reader, carrier)  # the carrier learns that there is a topic with little demand
    meet(carrier, publisher)
    meet(reader, carrier)

    assert carrier.notified == []
    assert reader.notified == ["rare1"]


def test_u2_each_discovery_has_a_new_number_and_names_no_device() -> None:
    ana = Device("ana")
    ana.discover()
    ana.discover()
    [(_, one), (_, other)] = ana.drain()

    assert isinstance(one, EncounterProfile)
    assert isinstance(other, EncounterProfile)
    assert one.exchange != other.exchange
    assert one.__struct_fields__ == ("exchange", "topics", "one_for_one")


def test_u4_an_event_gets_the_location_topic_of_its_device() -> None:
    ana, ben = Device("ana"), Device("ben")
    ana.move_to(123.4, 56.7)
    ana.publish("café", "coffee")
    ben.subscribe("geo:1:12:5 & coffee")  # ten by ten metres around it (U5)
    meet(ben, ana)

    [note] = [event for event in ben.events if isinstance(event, app.NotificationEvent)]
    assert note.notification.tags == ("coffee", "geo:0:123:56")


def test_u4_an_event_without_a_semantic_topic_is_refused() -> None:
    ana = Device("ana")
    answer = ana.ask(app.Insert, data=b"x", tags=(as_tag("geo:0:1:1"),))

    assert isinstance(answer, app.Failed)
    assert answer.code == "bad_tag"


def test_u10_a_query_and_a_frame_are_evaluated_on_the_device() -> None:
    ana, ben = Device("ana"), Device("ben")
    ben.subscribe("goal & !replay", TimeFrame(0, 15 * SECOND_US))
    ana.publish("goal1", "goal", "replay")
    wait(ana, ben, seconds=10)
    ana.publish("goal2", "goal")
    wait(ana, ben, seconds=10)
    ana.publish("goal3", "goal")
    meet(ben, ana)

    assert ben.notified == ["goal2"]


def test_u10_retrieve_returns_the_event_itself() -> None:
    ana, ben = Device("ana"), Device("ben")
    ana.publish("goal1", "goal", data=b"79' Eder!")
    ben.subscribe("goal")
    meet(ben, ana)
    [note] = [event for event in ben.events if isinstance(event, app.NotificationEvent)]

    answer = ben.ask(app.Retrieve, metadata=note.notification.metadata)

    assert answer == app.Finished(answer.request_id, b"79' Eder!")


def test_u10_an_event_that_left_the_memory_is_not_found() -> None:
    ben = Device("ben")
    answer = ben.ask(app.Retrieve, metadata=photo(1))

    assert isinstance(answer, app.Failed)
    assert answer.code == "not_found"


def test_u10_deletes_and_searches_are_refused_by_name() -> None:
    ana = Device("ana")
    ana.publish("goal1", "goal")
    [key] = [event.key for event in ana.node.dissemination.memory]

    delete = ana.ask(app.Delete, key=key)
    search = ana.ask(app.Search, conjunctions=conjunctions("goal"), frame=TimeFrame(), count=1)

    assert isinstance(delete, app.Failed)
    assert isinstance(search, app.Failed)
    assert (delete.code, search.code) == ("unsupported", "unsupported")
    assert "time to live" in delete.detail


def test_u10_a_subscription_into_the_past_returns_what_the_device_has() -> None:
    ana = Device("ana")
    ana.publish("goal1", "goal")
    answer = ana.subscribe("goal")

    assert isinstance(answer, app.Finished)
    assert isinstance(answer.value, app.SubscriptionStarted)
    assert answer.value.total == 1
    assert ana.notified == ["goal1"]


def test_an_event_is_notified_once_however_often_it_arrives() -> None:
    ana, ben = Device("ana"), Device("ben")
    ana.publish("goal1", "goal")
    ben.subscribe("goal")
    for _ in range(4):
        meet(ben, ana)

    assert ben.notified == ["goal1"]


def test_own_events_survive_a_restart_with_their_store() -> None:
    ana = Device("ana")
    ana.publish("goal1", "goal")
    again, ben = Device("ana", store=ana.store), Device("ben")
    ben.subscribe("goal")
    meet(ben, again)

    assert ben.notified == ["goal1"]


def test_events_end_with_their_time_to_live() -> None:
    ana, ben = Device("ana"), Device("ben")
    ana.publish("goal1", "goal", ttl_us=10 * SECOND_US)
    ben.subscribe("goal")
    wait(ana, ben, seconds=11)
    meet(ana, ben)

    assert ben.notified == []


def test_within_the_repeat_time_only_new_events_are_sent() -> None:
    config = MobUserConfig(topics_added=0, repeat_us=60 * SECOND_US)
    ana, ben = Device("ana", config), Device("ben", config)
    ana.publish("goal1", "goal")
    ben.subscribe("goal")
    meet(ben, ana)
    quiet: list[tuple[NodeId, Message]] = []
    meet(ben, ana, log=quiet)
    ana.publish("goal2", "goal")
    meet(ben, ana)

    assert [type(message) for _, message in quiet] == [EncounterProfile]
    assert ben.notified == ["goal1", "goal2"]


def test_after_an_encounter_that_broke_off_the_events_are_sent_again() -> None:
    config = MobUserConfig(topics_added=0, repeat_us=60 * SECOND_US)
    ana, ben = Device("ana", config), Device("ben", config)
    ana.publish("goal1", "goal")
    ben.subscribe("goal")
    ben.discover()
    [(_, profile)] = ben.drain()
    ana.give(Received(ben.node_id, profile))
    [(_, lost)] = ana.drain()
    ana.give(SendFailed(ben.node_id, lost))
    meet(ben, ana)

    assert ben.notified == ["goal1"]
    assert ana.node.dropped["encounters broken off"] == 1


# Bad input is bounded, counted and named


def test_unsolicited_events_are_dropped_and_counted() -> None:
    ana = Device("ana")
    ana.subscribe("goal")
    ana.give(Received(BOB, EncounterEvents(7, (photo(1, data=b"x"),), (b"x",))))

    assert ana.notified == []
    assert ana.node.dropped["unsolicited events"] == 1


def test_a_flood_of_events_is_cut_and_counted() -> None:
    ana = Device("ana")
    ana.subscribe("goal")
    ana.discover()
    [(_, profile)] = ana.drain()
    assert isinstance(profile, EncounterProfile)
    flood = tuple(photo(number, data=b"x") for number in range(EVENTS_PER_EXCHANGE_MAX + 10))
    ana.give(Received(BOB, ProfileReply(profile.exchange, (), flood, (b"x",), False)))

    assert ana.node.dropped["flooded events"] == 10
    assert len(ana.held) == 14


def test_a_flood_of_profiles_is_answered_up_to_a_limit() -> None:
    ana = Device("ana")
    for number in range(EXCHANGES_PER_MINUTE_MAX + 5):
        ana.give(Received(BOB, EncounterProfile(number, (), False)))

    assert len(ana.drain()) == EXCHANGES_PER_MINUTE_MAX
    assert ana.node.dropped["too many exchanges"] == 5
    wait(ana, seconds=61)
    ana.give(Received(BOB, EncounterProfile(9, (), False)))
    assert len(ana.drain()) == 1


def test_events_with_other_bytes_than_described_are_dropped_and_counted() -> None:
    ana = Device("ana")
    ana.subscribe("goal")
    ana.discover()
    [(_, profile)] = ana.drain()
    assert isinstance(profile, EncounterProfile)
    reply = ProfileReply(profile.exchange, (), (photo(1, data=b"x"),), (b"y",), False)
    ana.give(Received(BOB, reply))

    assert ana.node.dropped["corrupt events"] == 1
    assert ana.held == set()


def test_a_profile_larger_than_the_limit_is_dropped_and_counted() -> None:
    ana = Device("ana")
    topics = tuple(sorted(as_tag(f"t{number}") for number in range(PROFILE_TOPICS_MAX + 1)))
    ana.give(Received(BOB, EncounterProfile(1, topics, False)))

    assert ana.drain() == []
    assert ana.node.dropped["oversized profiles"] == 1


def test_a_user_profile_larger_than_the_limit_is_refused() -> None:
    ana = Device("ana")
    for part in range(2):
        query = " | ".join(f"t{part}-{number}" for number in range(PROFILE_TOPICS_MAX // 4))
        assert isinstance(ana.subscribe(query), app.Finished)
    answer = ana.subscribe("one-more")

    assert isinstance(answer, app.Failed)
    assert answer.code == "rejected"
    assert "topics" in answer.detail


def test_a_device_with_the_same_identifier_is_ignored_and_counted() -> None:
    ana = Device("ana")
    ana.give(Received(ana.node_id, EncounterProfile(1, (), False)))

    assert ana.drain() == []
    assert ana.node.dropped["messages with this device's identifier"] == 1


def test_a_reply_to_no_discovery_is_dropped_and_counted() -> None:
    ana = Device("ana")
    ana.give(Received(BOB, ProfileReply(1, (), (), (), False)))

    assert ana.node.dropped["unexpected reply"] == 1


def test_a_message_of_another_protocol_is_dropped_and_counted() -> None:
    from thyme.protocol.messages.encounters import NeighbourProbe

    ana = Device("ana")
    ana.give(Received(BOB, NeighbourProbe(False)))

    assert ana.node.dropped["not spoken here"] == 1


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(OptionError):
        MobUserConfig(topics_added=-1)
    with pytest.raises(OptionError):
        MobUserConfig(discovery_us=0)


def test_a_batch_of_inserts_is_answered_one_by_one() -> None:
    ana = Device("ana")
    inserts = (
        app.Insert(request_id=1, data=b"a", tags=(as_tag("goal"),)),
        app.Insert(request_id=2, data=b"b", tags=(as_tag("geo:0:1:1"),)),
    )
    ana.give(AppRequested(app.InsertBatch(inserts)))

    assert [type(event) for event in ana.events] == [app.Failed, app.Finished]
    assert len(ana.held) == 1


def test_three_devices_in_range_exchange_in_one_discovery() -> None:
    ana, ben, eva = Device("ana", NO_ADDED), Device("ben", NO_ADDED), Device("eva", NO_ADDED)
    ana.publish("goal1", "goal")
    for reader in (ben, eva):
        reader.subscribe("goal")
    ana.subscribe("goal")
    ana.discover()
    pass_messages(ana, ben, eva)

    assert (ben.notified, eva.notified) == (["goal1"], ["goal1"])
