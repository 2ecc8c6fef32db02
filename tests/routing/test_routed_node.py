"""The routed node: an inner node and its routing as one node (E3, L4)."""

from __future__ import annotations

import pytest

from tests.routing.graph import Probe, name, question
from thyme.model.errors import DecodeError
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.protocol.app_interface import Failed, Lookup
from thyme.protocol.messages.common import Message, Packet, RouteUpdate
from thyme.protocol.messages.replies import Done
from thyme.protocol.node import (
    Action,
    AppRequested,
    Broadcast,
    CancelTimer,
    Emit,
    Input,
    Received,
    Send,
    SendFailed,
    SetTimer,
    Started,
    Timer,
    TimerFired,
)
from thyme.protocol.outbox import Outbox
from thyme.routing import RoutedNode, Routing, RoutingTraffic
from thyme.wire.codec import decode, encode, size_of

ME, ANN, BEN = name(0), name(1), name(2)


class ByHand:
    """A routing with fixed routes."""

    control_type: type[Message] = RouteUpdate
    timer_types: tuple[type, ...] = (str,)

    def __init__(self, outbox: Outbox, ways: dict[NodeId, NodeId]) -> None:
        self.traffic = RoutingTraffic()
        self._outbox = outbox
        self._ways = ways
        self.fired: list[Timer] = []
        self.failed: list[NodeId] = []
        self.started = False

    def start(self, now_us: int) -> None:
        self.started = True

    def on_control_message(self, sender: NodeId, message: Message, now_us: int) -> bool:
        assert isinstance(message, RouteUpdate)
        self._outbox.set_timer("news", now_us)
        return bool(message.entries)

    def send(self, packet: Packet, now_us: int) -> None:
        self._outbox.send(self._ways[packet.destination], packet)

    def forward(self, packet: Packet, now_us: int) -> None:
        self.traffic.forwarded += 1
        self.send(packet, now_us)

    def on_timer(self, timer: Timer, now_us: int) -> None:
        self.fired.append(timer)

    def on_send_failed(self, to: NodeId, packet: Packet, now_us: int) -> None:
        self.failed.append(to)

    def check(self) -> None:
        pass


class Scripted(Probe):
    """A node that returns the actions it was given."""

    def __init__(self, node_id: NodeId, actions: list[Action]) -> None:
        super().__init__(node_id)
        self.actions = actions
        self.events: list[Input] = []

    def handle(self, event: Input, now_us: int) -> list[Action]:
        self.events.append(event)
        super().handle(event, now_us)
        return self.actions if isinstance(event, AppRequested) else []


def a_relay(
    *actions: Action, inner_starts_us: int = 0, hops_max: int = 64
) -> tuple[RoutedNode, Scripted, ByHand]:
    outbox = Outbox()
    routing = ByHand(outbox, {ANN: ANN, BEN: ANN})
    inner = Scripted(ME, list(actions))
    relay = RoutedNode(
        inner,
        routing,
        outbox,
        inner_start_us=inner_starts_us,
        hops_max=hops_max,
        size_of=size_of,
    )
    started = relay.handle(Started(), 0)
    assert bool(started) == bool(inner_starts_us)
    return relay, inner, routing


ASK = AppRequested(Lookup(request_id=1, key=Key(ObjectId("any"), BEN)))


def test_by_hand_is_a_routing() -> None:
    routing: Routing = ByHand(Outbox(), {})

    assert routing.traffic == RoutingTraffic()


def test_e3_what_the_inner_node_sends_becomes_a_packet_to_the_next_hop() -> None:
    relay, _, _ = a_relay(Send(BEN, question(1, BEN)))

    assert relay.handle(ASK, 5) == [Send(ANN, Packet(ME, BEN, 0, question(1, BEN)))]


def test_everything_else_the_inner_node_wants_passes_unchanged_and_in_order() -> None:
    wants: list[Action] = [
        SetTimer(7, 100),
        Broadcast(Done(1)),
        CancelTimer(7),
        Emit(Failed(1, "timeout", "")),
    ]
    relay, _, _ = a_relay(*wants, Send(ANN, Done(2)), *wants)

    packet = Send(ANN, Packet(ME, ANN, 0, Done(2)))
    assert relay.handle(ASK, 5) == [*wants, packet, *wants]


def test_a_message_to_oneself_never_leaves_the_node() -> None:
    relay, inner, _ = a_relay(Send(ME, question(4, ME)))

    assert relay.handle(ASK, 5) == []
    assert inner.got == [(ME, 4)]


def test_a_packet_for_the_node_is_handed_in_as_if_it_had_come_directly() -> None:
    relay, inner, _ = a_relay()

    assert relay.handle(Received(ANN, Packet(BEN, ME, 3, question(1, ME))), 5) == []
    assert inner.got == [(BEN, 1)]
    assert (relay.traffic.delivered, relay.traffic.hops) == (1, 4)


def test_a_packet_for_another_node_is_passed_on_one_hop_further() -> None:
    relay, inner, _ = a_relay()
    cat = name(3)

    actions = relay.handle(Received(cat, Packet(cat, BEN, 3, question(1, BEN))), 5)

    packet = Packet(cat, BEN, 4, question(1, BEN))
    assert actions == [Send(ANN, packet)]
    assert inner.got == []
    assert (relay.traffic.forwarded, relay.traffic.forwarded_bytes) == (1, size_of(packet))


@pytest.mark.parametrize(
    ("packet", "cause"),
    [
        (Packet(ME, BEN, 3, Done(1)), "came back"),
        (Packet(name(3), BEN, 7, Done(1)), "too many hops"),
    ],
)
def test_a_packet_that_cannot_go_on_is_dropped_and_counted(packet: Packet, cause: str) -> None:
    relay, inner, _ = a_relay(hops_max=8)

    assert relay.handle(Received(ANN, packet), 5) == []
    assert inner.events == [Started()]
    assert relay.traffic.dropped == {cause: 1}


def test_what_neighbours_broadcast_reaches_the_inner_node() -> None:
    relay, inner, _ = a_relay()

    relay.handle(Received(ANN, question(9, ME)), 5)

    assert inner.got == [(ANN, 9)]


def test_control_messages_are_for_the_routing_alone() -> None:
    relay, inner, _ = a_relay()

    assert relay.handle(Received(ANN, RouteUpdate(())), 5) == []
    actions = relay.handle(Received(ANN, RouteUpdate(((ANN, 2, 1),))), 6)

    assert actions[-1] == SetTimer("news", 6)
    assert inner.events == [Started()]


def test_timers_go_to_whom_they_belong() -> None:
    relay, inner, routing = a_relay()

    relay.handle(TimerFired("news"), 5)
    relay.handle(TimerFired(7), 5)

    assert routing.fired == ["news"]
    assert inner.events == [Started(), TimerFired(7)]


def test_a_packet_that_a_neighbour_did_not_acknowledge_is_told_to_routing_and_origin() -> None:
    relay, inner, routing = a_relay()

    relay.handle(SendFailed(ANN, Packet(ME, BEN, 0, Done(1))), 5)
    relay.handle(SendFailed(ANN, Packet(name(3), BEN, 2, Done(2))), 5)

    assert routing.failed == [ANN, ANN]
    assert inner.failed == [BEN]


def test_the_inner_node_may_start_later_than_the_routing() -> None:
    relay, inner, routing = a_relay(inner_starts_us=30)
    [starts] = a_relay_start(30)
    assert routing.started

    relay.handle(ASK, 5)
    relay.handle(Received(ANN, Packet(BEN, ME, 0, question(1, ME))), 6)
    assert inner.events == []

    relay.handle(TimerFired(starts.timer), 30)
    assert starts.at_us == 30
    assert inner.events == [Started(), ASK]
    assert inner.started_us == 30
    assert relay.traffic.dropped == {"not started": 1}
    relay.check()


def a_relay_start(inner_starts_us: int) -> list[SetTimer]:
    """The timers that a routed node sets when it starts."""
    outbox = Outbox()
    inner = Probe(ME)
    relay = RoutedNode(inner, ByHand(outbox, {}), outbox, inner_start_us=inner_starts_us)
    return [action for action in relay.handle(Started(), 0) if isinstance(action, SetTimer)]


def test_m25_a_packet_in_a_packet_is_refused_however_deep() -> None:
    inside = Packet(ANN, BEN, 0, question(1, BEN))

    with pytest.raises(ValueError, match="cannot contain another Packet"):
        Packet(ANN, BEN, 0, inside)
    nested = encode(inside)[1:]
    for _ in range(3):
        nested = encode(inside)[1 : -len(encode(inside.message)) + 1] + nested
    with pytest.raises(DecodeError):
        decode(b"\x01" + nested)


@pytest.mark.parametrize("entry", [(ANN, -1, 1), (ANN, 2, 0), (ANN, 2**62, 1), (NodeId(b""), 2, 1)])
def test_m25_an_update_that_no_node_says_is_refused(entry: tuple[NodeId, int, int]) -> None:
    with pytest.raises(ValueError, match=r"invalid route|node id"):
        RouteUpdate((entry,))


def test_r3_an_entry_is_about_as_long_as_in_ns3() -> None:
    """12 bytes with ns-3's addresses of 4 bytes; here less, depending on the numbers."""
    addresses = [NodeId(bytes([10, 1, 0, last])) for last in range(100)]
    young = RouteUpdate(tuple((address, 20, 2) for address in addresses))
    old = RouteUpdate(tuple((address, 3_400_000_000, 2) for address in addresses))

    assert 900 <= size_of(young) <= 910
    assert 1_300 <= size_of(old) <= 1_310
