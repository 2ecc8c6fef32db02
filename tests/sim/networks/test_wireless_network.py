"""The wireless network: nodes in range receive, nodes that move away do not."""

from __future__ import annotations

import pytest

from tests.sim.networks.test_ideal_network import Puppet, ignore
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.protocol.app_interface import ListSubscriptions
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.replies import Done, ObjectData
from thyme.protocol.node import AppRequested, Broadcast, Received, Send, SendFailed
from thyme.sim.faults.network_faults import NetworkFaults
from thyme.sim.faults.schedule import Reordering
from thyme.sim.mobility.paths import Leg, pause_leg, straight_leg
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.radio.radio import RadioConfig
from thyme.sim.radio.unit_disk import UnitDisk
from thyme.storage.store import MemoryStore

SECOND_US = 1_000_000
START_US = 1_700_000_000_000_000
ALICE, BOB = NodeId(b"alice"), NodeId(b"bob")
RANGE_M = UnitDisk().range_m


def a_walk(speed_m_s: float = 2.0) -> list[Leg]:
    """After ten seconds, 200 m away from Alice, then back."""
    away = straight_leg(10 * SECOND_US, (10.0, 0.0), (210.0, 0.0), speed_m_s)
    return [
        pause_leg(0, 10 * SECOND_US, (10.0, 0.0)),
        away,
        straight_leg(away.end_us, (210.0, 0.0), (10.0, 0.0), speed_m_s),
    ]


class Talk:
    """Alice sends to Bob once a second."""

    def __init__(self, config: RadioConfig, paths: dict[NodeId, list[Leg]]) -> None:
        self.world = WirelessNetwork(
            {ALICE: (0.0, 0.0), BOB: (10.0, 0.0)},
            seed=1,
            config=config,
            start_us=START_US,
            paths=paths,
        )
        self.alice = Puppet(
            ALICE, lambda event: [Send(BOB, Done(1))] if isinstance(event, AppRequested) else []
        )
        self.bob = Puppet(BOB)
        self.world.add(self.alice, MemoryStore(), ignore)
        self.world.add(self.bob, MemoryStore(), ignore)

    def run(self, seconds: int) -> None:
        for second in range(seconds):
            self.world.run(START_US + second * SECOND_US)
            self.world.send_request(ALICE, ListSubscriptions(request_id=second))

    def heard_s(self) -> list[int]:
        return [
            (at_us - START_US) // SECOND_US
            for at_us, event in self.bob.happened
            if isinstance(event, Received)
        ]

    def failed_s(self) -> list[int]:
        return [
            (at_us - START_US) // SECOND_US
            for at_us, event in self.alice.happened
            if isinstance(event, SendFailed)
        ]


def test_s6_who_walks_out_of_range_is_not_heard_until_it_is_back() -> None:
    talk = Talk(RadioConfig(unit_disk=UnitDisk()), {BOB: a_walk()})
    talk.run(220)
    # Out of range from 10 + (113 − 10) / 2 = 61.5 s to 210 − 51.5 = 158.5 s, give or take a step.
    assert talk.failed_s() == list(range(62, 159))
    assert talk.heard_s() == [*range(62), *range(159, 219)]
    assert 398 <= talk.world.walker.steps_taken <= 404


def test_s6_motion_reaches_the_fading_radio_too() -> None:
    talk = Talk(RadioConfig(), {BOB: a_walk()})
    talk.run(220)
    assert set(range(45)) <= set(talk.heard_s())
    assert set(range(95, 125)) <= set(talk.failed_s())
    assert set(range(175, 219)) <= set(talk.heard_s())


def test_s6_a_nodes_place_is_exact_between_steps() -> None:
    talk = Talk(RadioConfig(unit_disk=UnitDisk()), {BOB: a_walk(1.0)})
    for seconds, x in ((0, 10.0), (10, 10.0), (10.25, 10.25), (33.1, 33.1), (210, 210), (999, 10)):
        talk.world.run(START_US + int(seconds * SECOND_US))
        assert talk.world.position_of(BOB) == pytest.approx((x, 0.0))
    assert talk.world.position_of(ALICE) == (0.0, 0.0)


def test_s6_a_node_with_a_path_starts_where_the_path_does() -> None:
    far_off = [pause_leg(0, 5 * SECOND_US, (500.0, 0.0))]
    talk = Talk(RadioConfig(unit_disk=UnitDisk()), {BOB: far_off})
    talk.run(3)
    assert talk.heard_s() == []
    assert talk.world.position_of(BOB) == (500.0, 0.0)


def test_s6_a_path_may_begin_later() -> None:
    talk = Talk(RadioConfig(unit_disk=UnitDisk()), {BOB: a_walk()[1:]})
    talk.run(80)
    assert talk.heard_s() == list(range(62))
    assert talk.world.walker.steps_taken <= 142, "none before it begins"


def photo(size: int) -> ObjectData:
    return ObjectData(1, Key(ObjectId("photo"), ALICE), bytes(size))


@pytest.mark.parametrize("to_all", [False, True])
def test_a_message_of_many_frames_arrives_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, to_all: bool
) -> None:
    """The second of three frames does not reach Bob the first time."""
    asked: list[NodeId] = []

    def reaches(faults: NetworkFaults, sender: NodeId, receiver: NodeId) -> bool:
        asked.append(receiver)
        return len(asked) != 2

    monkeypatch.setattr(NetworkFaults, "delivers", reaches)
    message: Message = photo(5_000)
    world = WirelessNetwork({ALICE: (0.0, 0.0), BOB: (10.0, 0.0)}, seed=1)
    world.faults.inactive = False
    bob = Puppet(BOB)
    world.add(bob, MemoryStore(), ignore)
    action = Broadcast(message) if to_all else Send(BOB, message)
    alice = Puppet(ALICE, lambda event: [action] if isinstance(event, AppRequested) else [])
    world.add(alice, MemoryStore(), ignore)
    world.send_request(ALICE, ListSubscriptions(request_id=1))
    world.run(SECOND_US)
    assert bob.received() == ([] if to_all else [message])
    assert world.traffic.repeated == (0 if to_all else 1)
    assert len(asked) == (3 if to_all else 4)


def test_s7_a_message_of_many_frames_does_not_span_two_lives() -> None:
    """Bob restarts during the reception of a message: its first part is dropped."""
    world = WirelessNetwork({ALICE: (0.0, 0.0), BOB: (10.0, 0.0)}, seed=1)
    first, second = Puppet(BOB), Puppet(BOB)
    world.add(first, MemoryStore(), ignore)
    action = Broadcast(photo(5_000))
    alice = Puppet(ALICE, lambda event: [action] if isinstance(event, AppRequested) else [])
    world.add(alice, MemoryStore(), ignore)
    world.send_request(ALICE, ListSubscriptions(request_id=1))
    world.run(3_170)  # the first frame is on the air until 3,146 µs
    world.remove(BOB)
    world.add(second, MemoryStore(), ignore)
    world.run(SECOND_US)
    assert (first.received(), second.received()) == ([], [])
    world.send_request(ALICE, ListSubscriptions(request_id=2))
    world.run(2 * SECOND_US)
    assert second.received() == [action.message]


def test_s8_what_is_held_back_for_a_node_that_is_gone_meanwhile_is_not_heard() -> None:
    talk = Talk(RadioConfig(unit_disk=UnitDisk()), {})
    talk.world.faults.begin_fault(Reordering(0, SECOND_US, 1.0, 100_000), [BOB])
    talk.world.send_request(ALICE, ListSubscriptions(request_id=1))
    talk.world.run(START_US + 1_000)
    talk.world.remove(BOB)
    talk.world.run(START_US + SECOND_US)
    assert talk.heard_s() == []
    assert talk.world.collect_measurements().loads["Done"].heard == 0
