"""S9, S14: the costs of a run, compared with figures worked out by hand."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.networks.test_ideal_network import Puppet, ignore
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.protocol.app_interface import Insert, ListSubscriptions
from thyme.protocol.messages.common import Packet, ReliableMessage, RouteUpdate
from thyme.protocol.messages.replies import Done, ObjectData
from thyme.protocol.node import Action, AppRequested, Broadcast, Input, Send, SendFailed
from thyme.sim.measurement.energy import OperationCosts, Phone, RadioPower, RoleCosts
from thyme.sim.measurement.measurements import Measurements, TrafficCount, distribution_of
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.radio.phy import Phy
from thyme.sim.radio.radio import RadioConfig
from thyme.sim.radio.unit_disk import UnitDisk
from thyme.storage.store import MemoryStore
from thyme.wire.codec import size_of

SECOND_US = 1_000_000
ALICE, BOB, CAROL, FAR = (NodeId(name) for name in (b"alice", b"bob", b"carol", b"far"))
PLACES = {ALICE: (0.0, 0.0), BOB: (10.0, 0.0), CAROL: (20.0, 0.0), FAR: (5_000.0, 0.0)}
HEADERS_BYTES = 64
ACK_BYTES = 14
PHONE = Phone(
    name="round",
    battery_mah=1_000,
    battery_v=1.0,
    rest_w=0.25,
    radio=RadioPower(transmit_w=2.0, receive_w=1.0, idle_w=0.5, sleep_w=0.1),
    operations=OperationCosts(insert=RoleCosts(issue=3.0)),
)


def insert(ask: int) -> Insert:
    return Insert(request_id=ask, data=b"", tags=())


def the_world(
    *actions: Action, up: tuple[NodeId, ...] = (ALICE, BOB, CAROL, FAR)
) -> WirelessNetwork:
    """Alice acts whenever her application requests an insert."""

    def react(event: Input) -> list[Action]:
        asked = isinstance(event, AppRequested) and isinstance(event.request, Insert)
        return list(actions) if asked else []

    world = WirelessNetwork(PLACES, seed=1, config=RadioConfig(unit_disk=UnitDisk()))
    for name in up:
        world.add(Puppet(name, react), MemoryStore(), ignore)
    return world


def test_s14_a_broadcast_counts_once_as_sent_and_once_for_each_who_hears_it() -> None:
    world = the_world(Broadcast(Done(7)))
    for ask in range(3):
        world.send_request(ALICE, insert(ask))
        world.run(world.now_us + SECOND_US)
    size = size_of(Done(7))
    measured = world.collect_measurements()

    assert measured.loads == {"Done": TrafficCount(3, 3 * size, 6, 6 * size)}
    assert measured.total == measured.loads["Done"]
    assert [node.loads for node in measured.nodes] == [
        {"Done": TrafficCount(sent=3, sent_bytes=3 * size)},
        {"Done": TrafficCount(heard=3, heard_bytes=3 * size)},
        {"Done": TrafficCount(heard=3, heard_bytes=3 * size)},
        {},
    ]
    assert (measured.frames, measured.frames_by_kind) == (3, {"broadcast": 3})
    assert measured.frame_bytes == 3 * (size + HEADERS_BYTES)
    assert [node.frames for node in measured.nodes] == [3, 0, 0, 0]
    assert measured.nodes[0].frame_bytes == measured.frame_bytes
    assert (measured.hot_spot.max, measured.hot_spot.mean) == (3, 9 / 4)
    assert measured.nodes[0].operations == {"insert": 3}
    assert measured.span_us == 3 * SECOND_US


def test_s14_what_nobody_acknowledges_is_counted_by_cause_and_told() -> None:
    world = the_world(Send(FAR, Done(7)), Send(NodeId(b"nobody"), Done(8)))
    world.send_request(ALICE, insert(1))
    world.run(SECOND_US)
    measured = world.collect_measurements()

    assert measured.dropped == {"exceeded": 1, "unknown": 1}
    assert measured.nodes[0].dropped == measured.dropped
    assert measured.nodes[1].dropped == {}
    assert measured.retransmissions == measured.nodes[0].retransmissions == 6
    assert measured.nodes[0].frames == 7


def test_s14_a_node_is_told_who_did_not_acknowledge_but_not_what_its_queue_dropped() -> None:
    """A frame that was never sent says nothing about the neighbour; and a node gets a failure only
    after it has finished the input that made it send."""
    sends: list[Action] = [Send(FAR, Done(0)), *(Send(BOB, Done(n)) for n in range(1, 120))]
    happened: list[Input] = []

    class Recording(Puppet):
        def handle(self, event: Input, now_us: int) -> list[Action]:
            happened.append(event)
            return sends if isinstance(event, AppRequested) else []

    world = the_world(up=(BOB,))
    world.add(Recording(ALICE), MemoryStore(), ignore)
    world.send_request(ALICE, ListSubscriptions(request_id=1))
    assert not any(isinstance(event, SendFailed) for event in happened)
    world.run(SECOND_US)
    assert world.collect_measurements().dropped == {"exceeded": 1, "full": 20}
    failed = [event.message for event in happened if isinstance(event, SendFailed)]
    assert failed == [Done(0)]


def test_s14_a_message_of_many_frames_is_one_message() -> None:
    photo = ObjectData(1, Key(ObjectId("photo"), ALICE), bytes(5_000))
    world = the_world(Send(BOB, photo))
    world.send_request(ALICE, insert(1))
    world.run(SECOND_US)
    measured = world.collect_measurements()
    size = size_of(photo)
    assert measured.loads == {"ObjectData": TrafficCount(1, size, 1, size)}
    assert measured.frames_by_kind["unicast"] == 3
    assert measured.nodes[0].frame_bytes > size + 3 * HEADERS_BYTES


def test_s14_messages_inside_messages_are_told_apart_and_those_passed_on_counted() -> None:
    own = Packet(ALICE, BOB, 0, ReliableMessage(1, Done(7)))
    passed_on = Packet(CAROL, BOB, 2, Done(7))
    update = RouteUpdate(((ALICE, 2, 1),))
    world = the_world(Send(BOB, own), Send(BOB, passed_on), Broadcast(update))
    world.send_request(ALICE, insert(1))
    world.run(SECOND_US)
    measured = world.collect_measurements()
    size = size_of(passed_on)
    assert measured.loads == {
        "Packet/Done": TrafficCount(1, size, 1, size, 1, size),
        "Packet/Letter/Done": TrafficCount(1, size_of(own), 1, size_of(own)),
        "RouteUpdate": TrafficCount(1, size_of(update), 2, 2 * size_of(update)),
    }
    assert measured.total.forwarded_bytes == size
    assert measured.control.sent_bytes == size_of(update)


def test_s9_a_unicast_costs_its_sender_and_its_receiver_what_the_powers_say() -> None:
    world = the_world(Send(BOB, Done(7)), up=(ALICE, BOB))
    world.send_request(ALICE, insert(1))
    world.run(10 * SECOND_US)
    frame_us = Phy().duration_us(size_of(Done(7)) + HEADERS_BYTES)
    ack_us = Phy().duration_us(ACK_BYTES)
    alice, bob, carol, _ = (node.energy for node in world.collect_measurements(PHONE).nodes)
    idle_us = 10 * SECOND_US - frame_us - ack_us

    assert (alice.on_us, alice.sending_us, alice.receiving_us) == (
        10 * SECOND_US,
        frame_us,
        ack_us,
    )
    assert (bob.sending_us, bob.receiving_us) == (ack_us, frame_us)
    assert alice.radio_j == pytest.approx((2.0 * frame_us + ack_us + 0.5 * idle_us) / 1e6)
    assert bob.radio_j == pytest.approx((2.0 * ack_us + frame_us + 0.5 * idle_us) / 1e6)
    assert (alice.operations_j, bob.operations_j) == (3.0, 0.0)
    assert alice.joules == pytest.approx(alice.radio_j + 3.0 + 0.25 * 10)
    assert alice.battery_share == pytest.approx(alice.joules / 3_600)
    assert carol.joules == 0.0, "it was never on"
    assert world.collect_measurements(PHONE).joules == pytest.approx(alice.joules + bob.joules)


def test_s9_a_device_that_is_off_spends_nothing() -> None:
    world = the_world(up=(ALICE,))
    world.run(4 * SECOND_US)
    world.remove(ALICE)
    world.run(10 * SECOND_US)
    world.add(Puppet(ALICE), MemoryStore(), ignore)
    world.run(11 * SECOND_US)
    energy = world.collect_measurements(PHONE).nodes[0].energy
    assert energy.on_us == 5 * SECOND_US
    assert energy.joules == pytest.approx(5 * (0.5 + 0.25))


def test_s9_a_device_switched_off_while_it_sends_is_charged_for_the_frame() -> None:
    world = the_world(Broadcast(Done(7)), up=(ALICE,))
    world.send_request(ALICE, insert(1))
    world.run(60)  # 50 µs of silence, then it sends
    world.remove(ALICE)
    world.run(SECOND_US)
    energy = world.collect_measurements(PHONE).nodes[0].energy
    assert energy.on_us == 60
    assert energy.radio_j == pytest.approx(2.0 * energy.sending_us / 1e6)


def test_s9_a_node_that_only_overhears_pays_for_listening() -> None:
    world = the_world(Send(BOB, Done(7)))
    world.send_request(ALICE, insert(1))
    world.run(SECOND_US)
    _, bob, carol, far = (node.energy for node in world.collect_measurements(PHONE).nodes)
    assert carol.receiving_us == bob.receiving_us + bob.sending_us
    assert (carol.sending_us, far.receiving_us) == (0, 0)


def test_s14_the_record_survives_json() -> None:
    world = the_world(Send(BOB, Done(7)), Send(FAR, Done(7)))
    world.send_request(ALICE, insert(1))
    world.run(SECOND_US)
    measured = world.collect_measurements()
    written = msgspec.json.encode(measured)
    assert msgspec.json.decode(written, type=Measurements) == measured


def test_s14_hot_spots_by_hand() -> None:
    assert distribution_of([0, 0, 0, 8]).gini == pytest.approx(0.75)
    assert distribution_of([5, 5, 5]).gini == pytest.approx(0.0)
    assert distribution_of([1, 3]).gini == pytest.approx(0.25)
    assert distribution_of([]).max == 0
    assert distribution_of([0, 0]).gini == 0.0


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=30))
def test_s14_the_gini_is_the_mean_difference_between_two_nodes(values: list[int]) -> None:
    if not sum(values):
        return
    differences = sum(abs(a - b) for a in values for b in values)
    expected = differences / (2 * len(values) * sum(values))
    assert distribution_of(values).gini == pytest.approx(expected, abs=1e-9)
