"""Flooding: every node is reached, each sends once, and the duplicate filter is bounded (L2)."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.links import Links, a_row
from thyme.model.errors import DecodeError
from thyme.model.ids import NodeId
from thyme.protocol.app_interface import ListSubscriptions
from thyme.protocol.messages.common import Flooded, Message
from thyme.protocol.messages.replies import Done
from thyme.protocol.node import (
    Action,
    AppRequested,
    Broadcast,
    Input,
    Received,
    SetTimer,
    TimerFired,
)
from thyme.protocol.outbox import Outbox
from thyme.routing.flooding import FloodExpiryTimer, Flooding, FloodingConfig, RebroadcastTimer
from thyme.wire.codec import decode, encode

ME, ANN, BEN = NodeId(b"me"), NodeId(b"ann"), NodeId(b"ben")


class Flooder:
    """A node that floods a `Done` for each request, and records the floods it receives."""

    def __init__(
        self, node_id: NodeId, config: FloodingConfig | None = None, seed: int = 0
    ) -> None:
        self.node_id = node_id
        self.got: list[tuple[NodeId, Message]] = []
        self.neighbours: list[NodeId] = []
        self._outbox = Outbox()
        self.flooding = Flooding(
            node_id,
            self._outbox,
            Random(f"{seed} {node_id!r}"),
            config or FloodingConfig(),
            lambda origin, message, _: self.got.append((origin, message)),
            lambda now_us: self.neighbours,
        )

    def flood(self, message: Message, now_us: int = 0) -> list[Action]:
        self.flooding.flood(message, now_us)
        return self._outbox.drain_actions()

    def handle(self, event: Input, now_us: int) -> list[Action]:
        match event:
            case AppRequested(ListSubscriptions() as request):
                self.flooding.flood(Done(request.request_id), now_us)
            case Received(sender, Flooded() as flooded):
                self.flooding.on_flooded(sender, flooded, now_us)
            case TimerFired(RebroadcastTimer() as timer):
                self.flooding.on_rebroadcast_timer(timer, now_us)
            case TimerFired(FloodExpiryTimer()):
                self.flooding.on_expiry_timer(now_us)
        return self._outbox.drain_actions()

    def check(self) -> None:
        self.flooding.check()


def heard(flooder: Flooder, flooded: Flooded, at_us: int = 0) -> list[Action]:
    return flooder.handle(Received(ANN, flooded), at_us)


def rebroadcast_at(actions: list[Action]) -> int:
    [at_us] = [
        a.at_us for a in actions if isinstance(a, SetTimer) and type(a.timer) is RebroadcastTimer
    ]
    return at_us


def broadcasts(actions: list[Action]) -> list[Flooded]:
    found = [action.message for action in actions if isinstance(action, Broadcast)]
    assert all(isinstance(message, Flooded) for message in found)
    return found  # type: ignore[return-value]


def test_l2_a_message_seen_for_the_first_time_is_delivered_and_said_again_once() -> None:
    me = Flooder(ME)

    actions = heard(me, Flooded(ANN, 7, 0, Done(1)))

    assert me.got == [(ANN, Done(1))]
    assert broadcasts(actions) == [], "not before the jitter"
    at_us = rebroadcast_at(actions)
    fired = me.handle(TimerFired(RebroadcastTimer((ANN, 7))), at_us)
    assert broadcasts(fired) == [Flooded(ANN, 7, 1, Done(1))]
    assert me.handle(TimerFired(RebroadcastTimer((ANN, 7))), at_us + 1) == []


def test_l2_a_message_seen_before_is_dropped_whoever_says_it() -> None:
    me = Flooder(ME)
    heard(me, Flooded(ANN, 7, 0, Done(1)))
    for sender, hops in ((ANN, 0), (BEN, 5)):
        assert me.handle(Received(sender, Flooded(ANN, 7, hops, Done(1))), 9) == []
    assert len(me.got) == 1
    assert me.flooding.duplicates == 2


def test_l2_one_s_own_flood_that_comes_back_is_dropped_even_after_a_restart() -> None:
    me = Flooder(ME)
    [flooded, *_] = broadcasts(me.flood(Done(1)))
    assert heard(me, flooded) == []
    assert heard(Flooder(ME, seed=1), flooded) == []
    assert me.got == []


def test_two_lives_of_a_node_number_their_floods_differently() -> None:
    numbers = {broadcasts(Flooder(ME, seed=seed).flood(Done(1)))[0].number for seed in range(20)}
    assert len(numbers) == 20


def test_l2_the_jitter_is_drawn_between_nothing_and_its_bound() -> None:
    config = FloodingConfig(jitter_us_max=1_000)
    delays = [
        rebroadcast_at(heard(Flooder(ME, config, seed), Flooded(ANN, 7, 0, Done(1)), 50)) - 50
        for seed in range(200)
    ]
    assert 0 <= min(delays) < 100
    assert 900 < max(delays) <= 1_000


def test_a_flood_ends_where_its_hops_are_used_up() -> None:
    names = [NodeId(bytes([n])) for n in range(8)]
    config = FloodingConfig(hops_max=3)
    world, nodes = a_world(names, a_row(names), config)
    world.ask(names[0], ListSubscriptions(request_id=1))
    world.run(1)
    assert [len(node.got) for node in nodes] == [0, 1, 1, 1, 0, 0, 0, 0]


def test_what_was_seen_is_forgotten_by_timer_alone() -> None:
    me = Flooder(ME, FloodingConfig(seen_us=1_000))
    actions = heard(me, Flooded(ANN, 7, 0, Done(1)), 0)
    assert SetTimer(FloodExpiryTimer(), 1_000) in actions
    heard(me, Flooded(ANN, 8, 0, Done(1)), 400)
    assert me.handle(TimerFired(FloodExpiryTimer()), 1_000) == [SetTimer(FloodExpiryTimer(), 1_400)]
    assert me.handle(TimerFired(FloodExpiryTimer()), 1_400) == []
    heard(me, Flooded(ANN, 7, 0, Done(1)), 2_000)
    assert len(me.got) == 3, "7, 8, and 7 as if for the first time"


def test_the_memory_is_bounded_in_number() -> None:
    me = Flooder(ME, FloodingConfig(seen_max=10))
    for number in range(100):
        heard(me, Flooded(ANN, number, 0, Done(1)))
        me.check()
    assert heard(me, Flooded(ANN, 95, 0, Done(1))) == []
    assert heard(me, Flooded(ANN, 5, 0, Done(1))) != []


def test_with_repeats_every_node_says_it_so_often() -> None:
    me = Flooder(ME, FloodingConfig(repeats=3, repeat_us=10_000, jitter_us_max=100))
    actions = me.flood(Done(1), 0)
    said = broadcasts(actions)
    instants = []
    while any(
        isinstance(action, SetTimer) and type(action.timer) is RebroadcastTimer
        for action in actions
    ):
        instants.append(rebroadcast_at(actions))
        actions = me.handle(TimerFired(RebroadcastTimer((ME, said[0].number))), instants[-1])
        said += broadcasts(actions)
    assert said == said[:1] * 3
    assert 10_000 <= instants[0] <= 10_100
    assert 10_000 <= instants[1] - instants[0] <= 10_100


def repeats_of(me: Flooder, hears: dict[int, NodeId]) -> int:
    """How often a node broadcasts the flood 7 of Ann, if it hears it from others in between: after
    so many broadcasts of its own, from whom."""
    actions, count = heard(me, Flooded(ANN, 7, 0, Done(1))), 0
    while any(isinstance(a, SetTimer) and type(a.timer) is RebroadcastTimer for a in actions):
        if count in hears:
            me.handle(Received(hears[count], Flooded(ANN, 7, 1, Done(1))), 0)
        actions = me.handle(TimerFired(RebroadcastTimer((ANN, 7))), rebroadcast_at(actions))
        count += len(broadcasts(actions))
    return count


def test_l2_a_flood_is_repeated_until_all_neighbours_have_repeated_it() -> None:
    config = FloodingConfig(repeats=4, received_enough=3)
    for hears, repeats in (({}, 4), ({1: BEN}, 1), ({2: BEN}, 2), ({1: ANN}, 4)):
        me = Flooder(ME, config)
        me.neighbours = [ANN, BEN]
        assert repeats_of(me, hears) == repeats


def test_l2_a_flood_heard_from_enough_of_many_neighbours_is_broadcast_once() -> None:
    me = Flooder(ME, FloodingConfig(repeats=4, received_enough=2))
    me.neighbours = [ANN, BEN, *(NodeId(bytes([number])) for number in range(20))]
    assert repeats_of(me, {0: BEN}) == 1, "also if it was heard from both before"


def test_l2_without_neighbours_nobody_is_waited_for() -> None:
    assert repeats_of(Flooder(ME, FloodingConfig(repeats=4, received_enough=3)), {}) == 1


def test_l2_one_s_own_flood_is_repeated_until_it_comes_back() -> None:
    me = Flooder(ME, FloodingConfig(repeats=4, received_enough=3))
    me.neighbours = [ANN]
    actions = me.flood(Done(1), 0)
    [flooded] = broadcasts(actions)
    timer = RebroadcastTimer((ME, flooded.number))
    assert broadcasts(me.handle(TimerFired(timer), rebroadcast_at(actions))) == [flooded]
    heard(me, Flooded(ME, flooded.number, 1, Done(1)))
    assert me.handle(TimerFired(timer), 10**6) == []


@pytest.mark.parametrize(
    "array",
    [
        [50, b"x", 1, -1, [16, 1]],
        [50, b"x", 1, 0, [50, b"x", 1, 0, [16, 1]]],
        [50, b"", 1, 0, [16, 1]],
    ],
    ids=["negative hops", "a flood in a flood", "nobody began it"],
)
def test_m25_a_flood_that_cannot_be_is_not_decoded(array: list[object]) -> None:
    frame = encode(Done(1))[:1] + msgspec.msgpack.encode(array)
    with pytest.raises(DecodeError):
        decode(frame)


def a_world(
    names: list[NodeId], links: list[tuple[NodeId, NodeId]], config: FloodingConfig, loss: float = 0
) -> tuple[Links, list[Flooder]]:
    world = Links(links, loss=loss)
    nodes = [Flooder(name, config) for name in names]
    for node in nodes:
        world.add(node)
    return world, nodes


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A size and some links; not all nodes need be reachable."""
    size = draw(st.integers(2, 12))
    ends = st.integers(0, size - 1)
    links = draw(st.lists(st.tuples(ends, ends).filter(lambda link: link[0] != link[1])))
    return size, links


@given(graphs())
def test_l2_whoever_is_connected_gets_it_once_and_says_it_once(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    size, links = graph
    names = [NodeId(bytes([number])) for number in range(size)]
    world, nodes = a_world(names, [(names[a], names[b]) for a, b in links], FloodingConfig())

    world.ask(names[0], ListSubscriptions(request_id=1))
    world.run(2)

    connected = reached({0}, links)
    for number, node in enumerate(nodes):
        assert len(node.got) == int(number in connected and number != 0)
        assert world.broadcasts[node.node_id] == int(number in connected)


def reached(known: set[int], links: list[tuple[int, int]]) -> set[int]:
    more = {b for a, b in links if a in known} | {a for a, b in links if b in known}
    return known if more <= known else reached(known | more, links)


def test_repeats_carry_a_flood_through_a_lossy_network() -> None:
    names = [NodeId(bytes([number])) for number in range(20)]
    counts = []
    for repeats, enough in ((1, None), (6, None), (6, 3)):
        config = FloodingConfig(repeats=repeats, received_enough=enough)
        world, nodes = a_world(names, a_row(names), config, loss=0.3)
        for number, node in enumerate(nodes):
            node.neighbours = names[max(0, number - 1) : number] + names[number + 1 : number + 2]
        world.ask(names[0], ListSubscriptions(request_id=1))
        world.ask(names[0], ListSubscriptions(request_id=2))
        world.run(30)
        counts.append(sum(len(node.got) for node in nodes))
    assert counts[0] < 20 < 36 <= min(counts[1:])


def test_b5_a_neighbour_that_floods_too_much_is_not_repeated_and_others_are() -> None:
    me = Flooder(ME, FloodingConfig(per_neighbour_per_s=10))
    mallory, second_us = NodeId(b"mallory"), 1_000_000
    for number in range(1_000):  # in the names of others, which costs nothing
        flood = Flooded(NodeId(b"name %d" % number), number, 3, Done(1))
        me.handle(Received(mallory, flood), now_us=number)

    me.handle(Received(ANN, Flooded(ANN, 1, 0, Done(2))), now_us=1_000)

    assert (me.flooding.refused, len(me.flooding._pending)) == (950, 51)
    me.handle(Received(mallory, Flooded(mallory, 1, 0, Done(3))), now_us=second_us)
    assert me.flooding.refused == 950, "the budget is filled again"


def test_b5_the_floods_of_one_node_are_as_many_through_all_neighbours_together() -> None:
    me = Flooder(ME, FloodingConfig(per_neighbour_per_s=10))
    mallory = NodeId(b"mallory")
    for number in range(1_000):  # each neighbour passes on others of them
        sender = NodeId(b"neighbour %d" % (number % 20))
        me.handle(Received(sender, Flooded(mallory, number, 1, Done(1))), now_us=number)
    assert len(me.flooding._pending) == 25

    me.handle(Received(ANN, Flooded(BEN, 1, 1, Done(2))), now_us=1_000)
    assert len(me.flooding._pending) == 26, "those of others are passed on"


def test_b5_floods_in_the_name_of_a_neighbour_do_not_use_up_its_own() -> None:
    me = Flooder(ME, FloodingConfig(per_neighbour_per_s=10))
    for number in range(1_000):
        me.handle(Received(NodeId(b"mallory"), Flooded(BEN, number, 1, Done(1))), now_us=number)
    before = len(me.flooding._pending)

    me.handle(Received(BEN, Flooded(BEN, 1_000, 0, Done(2))), now_us=1_000)

    assert len(me.flooding._pending) == before + 1


def test_b5_beyond_the_first_few_floods_each_is_passed_on_once_at_a_steady_rate() -> None:
    config = FloodingConfig(per_neighbour_per_s=30, repeats=6)
    world, [me] = a_world([ME], [], config)
    for number in range(1_000):
        world.feed(ME, Received(ANN, Flooded(ANN, number, 0, Done(1))))
    assert len(me.got) == 150

    counts = []
    for _ in range(8):
        before = world.broadcasts[ME]
        world.run(1)
        counts.append(world.broadcasts[ME] - before)

    assert counts[0] <= 6 * 20 + 32, "before, all 150 were broadcast six times"
    assert max(counts[1:]) <= 32
    assert sum(counts) == 6 * 20 + 130


def test_b5_a_node_starts_no_more_floods_than_others_take() -> None:
    world, [me, ann, ben] = a_world(
        [ME, ANN, BEN], a_row([ME, ANN, BEN]), FloodingConfig(per_neighbour_per_s=30)
    )
    for number in range(500):
        world.ask(ME, ListSubscriptions(request_id=number))
    world.run(1)
    assert 120 <= len(ann.got) <= 150

    world.run(30)

    assert len(ann.got) == len(ben.got) == 500, "late, but none is lost"
    assert me.flooding.refused == ann.flooding.refused == 0


def test_b5_invented_names_have_no_more_floods_together_than_one_node() -> None:
    me = Flooder(ME, FloodingConfig(per_neighbour_per_s=10))
    me.handle(Received(ANN, Flooded(BEN, 1, 1, Done(2))), now_us=0)
    for number in range(1_000):
        sender = NodeId(b"neighbour %d" % (number % 20))
        invented = Flooded(NodeId(b"name %d" % number), number, 1, Done(1))
        me.handle(Received(sender, invented), now_us=number)
    assert len(me.flooding._pending) == 50

    me.handle(Received(ANN, Flooded(BEN, 2, 1, Done(2))), now_us=1_000)
    assert len(me.flooding._pending) == 51, "a node that was heard before goes on"
