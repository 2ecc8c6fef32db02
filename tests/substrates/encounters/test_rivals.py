"""U7: MFPS and RAPID, the rivals of MobUser."""

from __future__ import annotations

import pytest

from tests.builders import BOB, CAROL
from tests.substrates.encounters.devices import Device, meet, wait
from thyme.model.errors import OptionError
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.encounters import (
    EncounterEvents,
    Heartbeat,
    HeldEvents,
    NeighbourProbe,
)
from thyme.protocol.node import Received, TimerFired
from thyme.substrates.encounters.config import MfpsConfig, RapidConfig
from thyme.substrates.encounters.memory_config import WhenFull
from thyme.substrates.encounters.mfps import Mfps
from thyme.substrates.encounters.rapid import ForwardTimer, GossipTimer, Rapid, ReplyGossipTimer

MFPS, RAPID = MfpsConfig(), RapidConfig()


def test_u7_mfps_exchanges_keys_before_events() -> None:
    ana, ben = Device("ana", MFPS), Device("ben", MFPS)
    for device, name in ((ana, "goal1"), (ben, "goal2")):
        device.publish(name, "goal")
        device.subscribe("goal")
    log: list[tuple[NodeId, Message]] = []
    meet(ana, ben, log=log)

    assert [type(message) for _, message in log] == [
        Heartbeat,
        HeldEvents,
        HeldEvents,
        EncounterEvents,
        EncounterEvents,
    ]
    assert (ana.held, ben.held) == ({"goal1", "goal2"}, {"goal1", "goal2"})


def test_u7_mfps_sends_only_what_the_other_lacks() -> None:
    ana, ben = Device("ana", MFPS), Device("ben", MFPS)
    ana.publish("goal1", "goal")
    for device in (ana, ben):
        device.subscribe("goal")
    meet(ana, ben)
    log: list[tuple[NodeId, Message]] = []
    meet(ana, ben, log=log)

    assert not any(isinstance(message, EncounterEvents) for _, message in log)


def test_u7_mfps_carries_nothing_for_others() -> None:
    publisher, carrier = Device("publisher", MFPS), Device("carrier", MFPS)
    publisher.publish("rare1", "rare")
    carrier.subscribe("goal")
    meet(carrier, publisher)

    assert carrier.held == set()


@pytest.mark.parametrize(
    ("speed_cm_s", "period_s"),
    [(None, 300), (150, 300), (180, 250), (1_000, 200), (1, 400), (0, 400)],
)
def test_u7_the_period_of_mfps_follows_the_speed_of_neighbours(
    speed_cm_s: int | None, period_s: int
) -> None:
    ana = Device("ana", MFPS)
    ana.give(Received(BOB, Heartbeat((), speed_cm_s)))

    assert ana.node.dissemination.discovery_us == period_s * SECOND_US


def test_u7_a_device_of_mfps_measures_its_own_speed() -> None:
    ana = Device("ana", MFPS)
    ana.move_to(0, 0)
    wait(ana, seconds=10)
    ana.move_to(15, 0)
    ana.discover()
    [(_, heartbeat)] = ana.drain()

    assert heartbeat == Heartbeat((), 150)


def test_u7_rapid_gossips_to_neighbours_whatever_their_topics() -> None:
    ana, ben = Device("ana", RAPID), Device("ben", RAPID)
    ana.publish("goal1", "goal")
    ben.subscribe("save")
    meet(ana, ben)
    ana.give(TimerFired(GossipTimer()))
    [(to, gossip)] = ana.drain()
    assert to is None
    ben.give(Received(ana.node_id, gossip))

    assert ben.held == {"goal1"}
    assert ben.notified == []


def test_u7_a_device_that_is_discovered_gossips_too() -> None:
    ana, ben = Device("ana", RAPID), Device("ben", RAPID)
    ben.publish("goal1", "goal")
    ana.subscribe("goal")
    meet(ana, ben)
    ben.give(TimerFired(ReplyGossipTimer()))
    [(_, gossip)] = ben.drain()
    ana.give(Received(ben.node_id, gossip))

    assert ana.notified == ["goal1"]


def test_u7_rapid_without_neighbours_sends_its_probe_only() -> None:
    ana = Device("ana", RAPID)
    ana.publish("goal1", "goal")
    meet(ana)
    ana.give(TimerFired(GossipTimer()))

    assert ana.drain() == []


def test_u7_rapid_forwards_a_new_event_and_no_known_one() -> None:
    ana, ben = Device("ana", RAPID), Device("ben", RAPID)
    ana.publish("goal1", "goal")
    meet(ana, ben)
    ana.give(TimerFired(GossipTimer()))
    [(_, gossip)] = ana.drain()
    ben.give(TimerFired(ReplyGossipTimer()))
    assert ben.drain() == []  # it has no events to answer with
    for _ in range(2):
        ben.give(Received(ana.node_id, gossip))
    ben.give(TimerFired(ForwardTimer()))
    [(_, forwarded)] = ben.drain()
    assert isinstance(forwarded, EncounterEvents)
    ben.give(TimerFired(ForwardTimer()))

    assert [metadata.oid for metadata in forwarded.items] == ["goal1"]
    assert ben.drain() == []


def test_u7_in_a_crowd_rapid_sends_each_event_with_a_small_probability() -> None:
    ana = Device("ana", RAPID)
    for number in range(60):
        ana.publish(f"goal{number}", "goal")
    ana.discover()
    for number in range(20):
        ana.give(Received(NodeId(bytes([number + 1])), NeighbourProbe(True)))
    ana.drain()
    ana.give(TimerFired(GossipTimer()))
    [(_, gossip)] = ana.drain()

    assert isinstance(gossip, EncounterEvents)
    assert 0 < len(gossip.items) < 20  # 60 events with a probability of 2 / 20


def test_u7_both_keep_twenty_events_and_then_refuse() -> None:
    for config, kind in ((MFPS, Mfps), (RAPID, Rapid)):
        ana, ben = Device("ana", config), Device("ben", config)
        for number in range(30):
            ana.publish(f"goal{number}", "goal")
        ben.subscribe("goal")
        ana.subscribe("goal")
        meet(ana, ben)
        ana.give(TimerFired(GossipTimer()))
        for _, message in ana.drain():
            ben.give(Received(ana.node_id, message))
        assert isinstance(ben.node.dissemination, kind)
        assert len(ben.held) == len(ben.notified) == 20
        assert ben.node.dropped["memory full"] == 10


def test_u7_with_replacement_all_events_are_received() -> None:
    config = MfpsConfig(when_full=WhenFull.REPLACE)
    ana, ben = Device("ana", config), Device("ben", config)
    for number in range(30):
        ana.publish(f"goal{number}", "goal")
    for device in (ana, ben):
        device.subscribe("goal")
    meet(ana, ben)

    assert len(ben.notified) == 30
    assert len(ben.held) == 20


def test_a_probe_is_answered_once() -> None:
    ana = Device("ana", RAPID)
    ana.give(Received(CAROL, NeighbourProbe(False)))

    assert ana.drain() == [(CAROL, NeighbourProbe(True))]


def test_impossible_settings_of_rivals_are_refused() -> None:
    with pytest.raises(OptionError):
        RapidConfig(forwarders_expected=0)
    with pytest.raises(OptionError):
        MfpsConfig(discovery_us_max=1)
