"""DSDV of one node: the routes it learns from updates, and the updates it sends (R1)."""

from __future__ import annotations

from random import Random

import pytest

from tests.routing.graph import SECOND_US, question
from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Packet, RouteEntry, RouteUpdate
from thyme.protocol.node import Action, Broadcast, Send, SetTimer
from thyme.protocol.outbox import Outbox
from thyme.routing.dsdv.config import (
    AdvertTimer,
    BufferedPacketTimer,
    DsdvConfig,
    DumpTimer,
    RouteSettledTimer,
)
from thyme.routing.dsdv.protocol import Dsdv

ME, ANN, BEN, CAT, DAN = (NodeId(name) for name in (b"me", b"ann", b"ben", b"cat", b"dan"))
AGED = DsdvConfig(settling_weight=1.0)
"""Every hop count settles in five seconds, whatever the route's age."""


class Node:
    """The routing of one node, with timers fired by the test."""

    def __init__(self, config: DsdvConfig | None = None, *, at_us: int = 0) -> None:
        self.outbox = Outbox()
        self.dsdv = Dsdv(ME, self.outbox, Random(1), config)
        self.timers: dict[object, int] = {}
        self.dsdv.start(at_us)
        self.take()

    def take(self) -> list[Action]:
        """The actions since the last call; timers are recorded apart."""
        self.dsdv.check()
        rest: list[Action] = []
        for action in self.outbox.drain_actions():
            if isinstance(action, SetTimer):
                self.timers[action.timer] = action.at_us
            else:
                rest.append(action)
        return rest

    def hear(self, sender: NodeId, *entries: RouteEntry, at_us: int = 0) -> list[Action]:
        self.dsdv.on_control_message(sender, RouteUpdate(entries), at_us)
        return self.take()

    def fire(self, timer: object) -> list[Action]:
        at_us = self.timers.pop(timer)
        self.dsdv.on_timer(timer, at_us)
        return self.take()

    def told(self, timer: object) -> list[RouteEntry]:
        """The entries about other nodes that are sent when a timer fires."""
        [action] = self.fire(timer)
        assert isinstance(action, Broadcast)
        assert isinstance(action.message, RouteUpdate)
        assert action.message.entries[0][0] == ME
        return list(action.message.entries[1:])

    def way(self, destination: NodeId) -> tuple[NodeId, int, int] | None:
        route = self.dsdv.routes.get(destination)
        return None if route is None else (route.next_hop, route.sequence, route.hops)


def packet(to: NodeId, number: int = 1) -> Packet:
    return Packet(ME, to, 0, question(number, to))


def test_r1_a_dump_tells_of_the_node_itself_with_a_new_even_number_each_time() -> None:
    node = Node()

    for number in (2, 4, 6):
        [action] = node.fire(DumpTimer())
        assert action == Broadcast(RouteUpdate(((ME, number, 1),)))


def test_r1_a_life_that_begins_soon_after_another_is_believed_at_once() -> None:
    """Its first number is higher than any of the earlier incarnation, even one that marks it as
    lost."""
    config = DsdvConfig(restart_sequence_step_us=1_000)
    [before] = Node(config, at_us=5 * SECOND_US).fire(DumpTimer())
    [after] = Node(config, at_us=5 * SECOND_US + 3_000).fire(DumpTimer())

    assert isinstance(before, Broadcast)
    assert isinstance(after, Broadcast)
    assert isinstance(before.message, RouteUpdate)
    assert isinstance(after.message, RouteUpdate)
    assert after.message.entries[0][1] > before.message.entries[0][1] + 1


def test_r1_dumps_are_a_quarter_of_a_minute_apart_and_a_little_more() -> None:
    node = Node()
    first_us = node.timers[DumpTimer()]
    node.fire(DumpTimer())

    assert 0 <= first_us <= 1_000
    assert 15 * SECOND_US <= node.timers[DumpTimer()] - first_us <= 15 * SECOND_US + 25_000


def test_r1_a_node_that_comes_back_starts_with_a_higher_number_than_it_ever_had() -> None:
    node = Node(at_us=1_000 * SECOND_US)

    [action] = node.fire(DumpTimer())

    assert action == Broadcast(RouteUpdate(((ME, 2_002, 1),)))


def test_r1_a_new_destination_is_routed_to_at_once_and_told_within_a_millisecond() -> None:
    node = Node()

    assert node.hear(ANN, (ANN, 2, 1), (BEN, 4, 2), at_us=50) == []

    assert node.way(ANN) == (ANN, 2, 1)
    assert node.way(BEN) == (ANN, 4, 2)
    assert 50 <= node.timers[AdvertTimer()] <= 1_050
    assert node.told(AdvertTimer()) == [(ANN, 2, 2), (BEN, 4, 3)]


def test_r1_what_is_said_about_the_node_itself_is_passed_over() -> None:
    node = Node()

    node.hear(ANN, (ME, 1_000, 1), (ME, 1_001, 1))

    assert node.way(ME) is None
    assert AdvertTimer() not in node.timers


@pytest.mark.parametrize("entry", [(BEN, 2, 1), (BEN, 4, 2), (BEN, 4, 3), (BEN, 3, 2)])
def test_r1_what_is_older_or_no_shorter_teaches_nothing(entry: RouteEntry) -> None:
    node = Node()
    node.hear(ANN, (BEN, 4, 2))
    node.told(AdvertTimer())

    assert not node.dsdv.on_control_message(CAT, RouteUpdate((entry,)), 5_000)

    assert node.way(BEN) == (ANN, 4, 2)
    assert node.take() == []
    assert AdvertTimer() not in node.timers


def test_r1_a_newer_number_at_the_same_distance_is_told_without_waiting() -> None:
    node = Node()
    node.hear(ANN, (BEN, 4, 2))
    node.told(AdvertTimer())

    node.hear(CAT, (BEN, 6, 2), at_us=9_000)

    assert node.dsdv.next_hop(BEN) == CAT
    assert node.told(AdvertTimer()) == [(BEN, 6, 3)]
    assert node.way(BEN) == (CAT, 6, 2)


@pytest.mark.parametrize("entry", [(BEN, 4, 1), (BEN, 6, 1), (BEN, 6, 9)])
def test_r1_a_changed_hop_count_is_used_at_once_and_told_when_it_has_settled(
    entry: RouteEntry,
) -> None:
    node = Node(AGED)
    node.hear(ANN, (BEN, 4, 2))
    node.told(AdvertTimer())

    node.hear(CAT, entry, at_us=9_000)

    assert node.way(BEN) == (CAT, *entry[1:])
    assert AdvertTimer() not in node.timers
    assert node.timers[RouteSettledTimer()] == 9_000 + 5 * SECOND_US
    assert node.told(RouteSettledTimer()) == [(BEN, entry[1], entry[2] + 1)]


def test_r1_a_hop_count_that_changes_back_while_settling_is_told_once() -> None:
    node = Node(AGED)
    node.hear(ANN, (BEN, 4, 2))
    node.told(AdvertTimer())

    node.hear(CAT, (BEN, 6, 3), at_us=SECOND_US)
    node.hear(ANN, (BEN, 6, 2), at_us=2 * SECOND_US)

    assert node.timers[RouteSettledTimer()] == 7 * SECOND_US
    assert node.told(RouteSettledTimer()) == [(BEN, 6, 3)]
    assert RouteSettledTimer() not in node.timers


def test_r1_the_settling_time_leans_towards_the_past() -> None:
    node = Node()
    node.hear(ANN, (BEN, 4, 2), at_us=0)
    node.told(AdvertTimer())

    node.hear(CAT, (BEN, 6, 1), at_us=13 * SECOND_US)

    settling_us = round(0.875 * 5 * SECOND_US + 0.125 * 13 * SECOND_US)
    assert node.timers[RouteSettledTimer()] == 13 * SECOND_US + settling_us


def test_r3_news_that_a_neighbour_repeats_before_it_is_told_is_taken_back() -> None:
    node = Node()
    node.hear(ANN, (BEN, 4, 2))
    node.told(AdvertTimer())

    node.hear(ANN, (BEN, 6, 2), at_us=SECOND_US)
    node.hear(CAT, (BEN, 6, 2), at_us=SECOND_US)

    assert node.fire(AdvertTimer()) == []
    assert node.way(BEN) == (ANN, 4, 2)  # so it becomes pending again


def test_r1_without_taking_back_repeated_news_is_told_all_the_same() -> None:
    node = Node(DsdvConfig(suppress_repeated=False))
    node.hear(ANN, (BEN, 4, 2))

    node.hear(CAT, (BEN, 4, 2))

    assert node.told(AdvertTimer()) == [(BEN, 4, 3)]


def test_r1_a_way_lost_by_the_next_hop_is_lost_and_told_with_its_odd_number() -> None:
    node = Node()
    node.hear(ANN, (ANN, 2, 1), (BEN, 4, 2), (CAT, 8, 3))
    node.told(AdvertTimer())

    node.hear(ANN, (BEN, 5, 3), at_us=9_000)

    assert node.way(BEN) is None
    assert node.way(CAT) == (ANN, 8, 3)
    assert node.told(AdvertTimer()) == [(BEN, 5, 3)]


def test_r1_ways_over_a_lost_neighbour_are_lost_with_it() -> None:
    node = Node()
    node.hear(ANN, (ANN, 2, 1), (BEN, 4, 2))
    node.hear(CAT, (CAT, 6, 1), at_us=10)
    node.told(AdvertTimer())

    node.hear(ANN, (ANN, 3, 1), at_us=9_000)

    assert list(node.dsdv.routes) == [CAT]
    assert node.told(AdvertTimer()) == [(ANN, 3, 2), (BEN, 5, 3)]


def test_r1_a_way_lost_by_somebody_else_is_kept() -> None:
    node = Node()
    node.hear(ANN, (BEN, 4, 2))
    node.told(AdvertTimer())

    node.hear(CAT, (BEN, 5, 2), at_us=9_000)

    assert node.way(BEN) == (ANN, 4, 2)


def test_r1_a_lost_way_comes_back_only_with_a_newer_number() -> None:
    node = Node()
    node.hear(ANN, (BEN, 4, 2))
    node.hear(ANN, (BEN, 5, 3), at_us=10)

    node.hear(CAT, (BEN, 4, 1), at_us=20)
    assert node.way(BEN) is None

    node.hear(CAT, (BEN, 6, 1), at_us=30)
    assert node.way(BEN) == (CAT, 6, 1)
    assert node.told(AdvertTimer()) == [(BEN, 6, 2)]


def test_r1_a_way_that_nobody_confirms_for_three_dumps_is_given_up() -> None:
    node = Node()
    node.hear(ANN, (ANN, 2, 1), (BEN, 4, 2), at_us=0)
    node.told(AdvertTimer())
    node.hear(CAT, (CAT, 2, 1), at_us=40 * SECOND_US)
    node.told(AdvertTimer())

    node.timers[DumpTimer()] = 45 * SECOND_US
    assert node.told(DumpTimer()) == [(ANN, 2, 2), (BEN, 4, 3), (CAT, 2, 2)]
    node.timers[DumpTimer()] = 45 * SECOND_US + 1
    assert node.told(DumpTimer()) == [(BEN, 5, 3), (ANN, 3, 2), (CAT, 2, 2)]
    assert list(node.dsdv.routes) == [CAT]


def test_r1_the_next_hop_confirms_a_way_by_repeating_it() -> None:
    node = Node()
    node.hear(ANN, (ANN, 2, 1), at_us=0)
    node.told(AdvertTimer())

    node.hear(CAT, (ANN, 2, 1), at_us=20 * SECOND_US)
    node.hear(ANN, (ANN, 2, 1), at_us=10 * SECOND_US)

    node.timers[DumpTimer()] = 55 * SECOND_US
    assert node.told(DumpTimer()) == [(ANN, 2, 2)]
    node.timers[DumpTimer()] = 55 * SECOND_US + 1
    assert node.told(DumpTimer()) == [(ANN, 3, 2)]


def test_r1_a_neighbour_that_does_not_acknowledge_may_be_given_up() -> None:
    node = Node(DsdvConfig(failures_max=2))
    node.hear(ANN, (ANN, 2, 1), (BEN, 4, 2))
    node.told(AdvertTimer())

    node.dsdv.on_send_failed(ANN, packet(BEN), 9_000)
    assert node.take() == []
    assert node.way(BEN) == (ANN, 4, 2)
    node.dsdv.on_send_failed(ANN, packet(BEN), 9_500)
    node.take()

    assert not node.dsdv.routes
    assert node.told(AdvertTimer()) == [(ANN, 3, 2), (BEN, 5, 3)]
    assert node.dsdv.traffic.dropped == {"link": 2}


def test_r3_by_default_a_neighbour_that_does_not_acknowledge_stays_the_next_hop() -> None:
    node = Node()
    node.hear(ANN, (ANN, 2, 1))

    for _ in range(100):
        node.dsdv.on_send_failed(ANN, packet(ANN), 9_000)

    assert node.dsdv.next_hop(ANN) == ANN


def test_r1_a_packet_waits_for_a_route_and_leaves_with_the_next_update() -> None:
    node = Node()
    node.dsdv.send(packet(BEN), 0)
    assert node.take() == []

    node.hear(ANN, (BEN, 4, 2), at_us=SECOND_US)
    [update, send] = node.fire(AdvertTimer())

    assert isinstance(update, Broadcast)
    assert send == Send(ANN, packet(BEN))


def test_r1_packets_that_waited_for_the_same_route_leave_one_after_the_other() -> None:
    node = Node()
    for number in range(3):
        node.dsdv.send(packet(BEN, number), 0)
    node.hear(ANN, (BEN, 4, 2), at_us=10)

    sent = node.fire(AdvertTimer())[1:]
    while BufferedPacketTimer(BEN) in node.timers:
        sent += node.fire(BufferedPacketTimer(BEN))

    assert sent == [Send(ANN, packet(BEN, number)) for number in range(3)]
    assert node.dsdv.traffic.sent == 3


def test_r1_no_packet_waits_longer_than_it_may() -> None:
    node = Node()
    node.dsdv.send(packet(BEN), 0)

    node.hear(ANN, (BEN, 4, 2), at_us=30 * SECOND_US + 1)
    [update] = node.fire(AdvertTimer())

    assert isinstance(update, Broadcast)
    assert node.dsdv.traffic.dropped == {"waited too long": 1}


def test_r1_only_so_many_packets_wait() -> None:
    config = DsdvConfig(buffer_max=3, buffer_per_destination_max=2)
    node = Node(config)

    for to in (BEN, BEN, BEN, CAT, DAN):
        node.dsdv.send(packet(to), 0)

    assert node.take() == []
    assert node.dsdv.traffic.dropped == {"too many wait": 2}


def test_r1_a_packet_of_another_node_does_not_wait() -> None:
    node = Node()

    node.dsdv.forward(Packet(ANN, BEN, 1, question(1, BEN)), 0)

    assert node.take() == []
    assert node.dsdv.traffic.dropped == {"no route": 1}


def test_r1_the_table_has_a_limit() -> None:
    node = Node(DsdvConfig(destinations_max=2))

    node.hear(ANN, (ANN, 2, 1), (BEN, 2, 2), (CAT, 2, 2))

    assert list(node.dsdv.routes) == [ANN, BEN]


def test_r1_in_a_full_table_the_memory_of_a_lost_way_makes_room_for_a_new_one() -> None:
    node = Node(DsdvConfig(destinations_max=2))
    node.hear(ANN, (ANN, 2, 1), (BEN, 2, 2))

    node.hear(ANN, (BEN, 3, 2), at_us=10)
    node.hear(ANN, (CAT, 2, 2), (BEN, 4, 2), at_us=20)

    assert list(node.dsdv.routes) == [ANN, CAT]


def test_r1_who_is_too_far_away_is_out_of_reach() -> None:
    node = Node(DsdvConfig(hops_max=4))

    node.hear(ANN, (BEN, 2, 4), (CAT, 2, 5), (DAN, 2, 2**16 - 1))

    assert list(node.dsdv.routes) == [BEN]


def test_s8_a_clock_that_is_set_back_does_no_harm() -> None:
    node = Node()
    node.hear(ANN, (BEN, 4, 2), at_us=100 * SECOND_US)
    node.told(AdvertTimer())

    node.hear(CAT, (BEN, 6, 3), at_us=SECOND_US)

    assert SECOND_US < node.timers[RouteSettledTimer()] <= 6 * SECOND_US
    assert node.told(RouteSettledTimer()) == [(BEN, 6, 4)]


def test_m36_a_node_with_a_corrected_clock_continues_after_the_number_that_others_know() -> None:
    """Its sequence number begins lower than before, so others ignore it until it knows theirs."""
    config = DsdvConfig(recover_sequence=True)
    neighbour, corrected = Node(config), Node(config, at_us=1_000_000_000)
    neighbour.hear(ANN, (ANN, 5_000, 1))

    [answer] = neighbour.hear(ANN, (ANN, 1_000, 1), at_us=1_000_000)
    assert answer == Send(ANN, RouteUpdate(((ANN, 5_000, 1),)))

    assert corrected.hear(BEN, (ME, 5_000, 1), at_us=1_000_000_001) == []
    [action] = corrected.fire(DumpTimer())
    assert isinstance(action, Broadcast)
    assert isinstance(action.message, RouteUpdate)
    assert action.message.entries[0] == (ME, 5_002, 1)


def test_m36_a_number_that_no_node_can_have_counted_is_ignored() -> None:
    node = Node(DsdvConfig(recover_sequence=True))
    node.hear(BEN, (ME, 2**62 - 2, 1))
    [action] = node.fire(DumpTimer())
    assert isinstance(action, Broadcast)
    assert isinstance(action.message, RouteUpdate)
    assert action.message.entries[0] == (ME, 2, 1)
