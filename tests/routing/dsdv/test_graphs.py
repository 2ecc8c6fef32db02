"""DSDV in graphs: never a loop, shortest routes after a while, and recovery (R1).

After every input, `Graph` checks that no route of the node has a loop.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.routing.graph import Graph, circle, line, name
from thyme.protocol.node import Action, Broadcast, Input
from thyme.routing import DsdvConfig

TEXTBOOK = DsdvConfig(suppress_repeated=False)
HASTY = DsdvConfig(
    dump_interval_us=2_000_000, settling_us=500_000, failures_max=1, buffer_us_max=5_000_000
)


@st.composite
def connected(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """A connected graph: a tree and some more links."""
    size = draw(st.integers(2, 8))
    tree = {(draw(st.integers(0, node - 1)), node) for node in range(1, size)}
    pair = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    more = {(min(p), max(p)) for p in draw(st.lists(pair, max_size=size)) if p[0] != p[1]}
    return size, sorted(tree | more)


@settings(max_examples=30, deadline=None)
@given(connected(), st.integers(0, 1_000))
def test_r1_after_a_quiet_while_every_route_is_a_shortest_way(
    drawn: tuple[int, list[tuple[int, int]]], seed: int
) -> None:
    graph = Graph(*drawn, seed=seed, config=TEXTBOOK)

    graph.run(59)

    distances = graph.distances()
    assert graph.hops() == distances
    assert {ends: len(graph.way(*ends)) - 1 for ends in distances} == distances


@settings(max_examples=30, deadline=None)
@given(connected(), st.integers(0, 1_000))
def test_r3_as_in_ns3_every_node_is_reached_in_no_more_hops_than_told(
    drawn: tuple[int, list[tuple[int, int]]], seed: int
) -> None:
    """Now and then a route is not the shortest, or shorter than advertised: cancelled updates are
    not sent."""
    graph = Graph(*drawn, seed=seed)

    graph.run(59)

    distances = graph.distances()
    hops = graph.hops()
    assert hops.keys() == distances.keys()
    for ends, distance in distances.items():
        assert distance <= len(graph.way(*ends)) - 1 <= hops[ends]


changes = st.lists(
    st.tuples(
        st.floats(0.01, 8.0),
        st.sampled_from(["cut", "link", "ask"]),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(connected(), changes, st.sampled_from([0.0, 0.1, 0.4]), st.integers(0, 1_000))
@pytest.mark.parametrize("config", [HASTY, DsdvConfig(), TEXTBOOK], ids=["hasty", "ns3", "text"])
def test_r1_whatever_happens_to_links_no_way_ever_leads_in_a_circle(
    config: DsdvConfig,
    drawn: tuple[int, list[tuple[int, int]]],
    script: list[tuple[float, str, int, int]],
    loss: float,
    seed: int,
) -> None:
    size, links = drawn
    graph = Graph(size, links, seed=seed, loss=loss, config=config)
    at_s = 0.0
    for number, (later_s, what, one, other) in enumerate(script):
        at_s += later_s
        graph.run(at_s)
        one, other = one % size, other % size
        if what == "ask":
            graph.ask(number, one, other)
        elif one != other:
            (graph.cut if what == "cut" else graph.link)(one, other)
    graph.run(at_s + 20)

    looped = sum(relay.traffic.dropped["too many hops"] for relay in graph.relays.values())
    assert looped == 0


def test_r1_a_cut_link_is_told_with_odd_numbers_and_routed_around() -> None:
    odd: list[tuple[int, ...]] = []

    def journal(at_us: int, node: bytes, entry: Input | Action) -> None:
        if isinstance(entry, Broadcast):
            update = entry.message
            odd.extend(e for e in getattr(update, "entries", ()) if e[1] % 2)

    graph = Graph(6, circle(6), config=TEXTBOOK, journal=journal)
    graph.run(44)
    assert graph.way(0, 1) == [0, 1]
    assert odd == []

    graph.cut(0, 1)
    graph.run(44 + 75)

    assert graph.way(0, 1) == [0, 5, 4, 3, 2, 1]
    assert graph.hops() == graph.distances()


def test_r1_a_node_out_of_reach_is_given_up_by_all_and_found_again() -> None:
    odd: set[tuple[bytes, int]] = set()

    def journal(at_us: int, node: bytes, entry: Input | Action) -> None:
        if isinstance(entry, Broadcast):
            for destination, sequence, _ in getattr(entry.message, "entries", ()):
                if sequence % 2:
                    odd.add((destination, sequence % 2))

    graph = Graph(4, line(4), config=TEXTBOOK, journal=journal)
    graph.run(44)
    graph.cut(2, 3)
    graph.run(44 + 75)
    assert graph.dsdv(name(0)).next_hop(name(3)) is None
    assert (name(3), 1) in odd

    graph.link(2, 3)
    graph.run(44 + 75 + 45)
    assert graph.way(0, 3) == [0, 1, 2, 3]


def test_r1_with_failures_counted_a_broken_link_is_noticed_by_the_first_packet() -> None:
    graph = Graph(4, circle(4), config=DsdvConfig(failures_max=1, suppress_repeated=False))
    graph.run(44)
    graph.cut(0, 1)
    graph.ask(1, 0, 1)
    graph.run(44.1)
    graph.ask(2, 0, 1)  # waits until the others have advertised their routes
    graph.run(61)

    assert graph.probes[0].failed == [name(1)]
    assert graph.probes[1].got == [(name(0), 2)]


@pytest.mark.parametrize("config", [DsdvConfig(), TEXTBOOK], ids=["ns3", "text"])
def test_r1_packets_reach_everybody_over_many_hops(config: DsdvConfig) -> None:
    graph = Graph(7, line(7), config=config)
    graph.run(60)
    for number in range(1, 7):
        graph.ask(number, 0, number)
    graph.run(61)

    assert [probe.got for probe in graph.probes[1:]] == [[(name(0), n)] for n in range(1, 7)]
    last = graph.relays[name(6)].traffic
    assert (last.delivered, last.hops) == (1, 6)
    assert graph.relays[name(0)].traffic.sent == 6
    assert graph.relays[name(3)].traffic.forwarded == 3


def test_r1_packets_sent_before_there_is_a_route_arrive_when_there_is_one() -> None:
    graph = Graph(4, line(4))
    graph.ask(1, 0, 3)
    graph.run(29)

    assert graph.probes[3].got == [(name(0), 1)]


def test_r2_control_traffic_is_counted() -> None:
    graph = Graph(3, line(3))
    graph.run(60)

    for relay in graph.relays.values():
        assert relay.traffic.control >= 4
        assert relay.traffic.control_bytes >= 10 * relay.traffic.control


def journal_of(seed: int) -> list[str]:
    lines: list[str] = []
    graph = Graph(
        6,
        [*circle(6), (0, 3)],
        seed=seed,
        loss=0.2,
        config=HASTY,
        journal=lambda *entry: lines.append(repr(entry)),
    )
    for number in range(20):
        graph.run(number)
        graph.ask(number, number % 6, (number * 5 + 1) % 6)
    graph.run(30)
    return lines


def test_the_same_seed_gives_the_same_journal_and_another_one_does_not() -> None:
    assert journal_of(1) == journal_of(1)
    assert journal_of(1) != journal_of(2)


@settings(max_examples=20, deadline=None)
@given(connected(), st.integers(0, 100), st.integers(0, 100))
def test_r1_in_whatever_order_messages_come_the_ways_are_equally_long(
    drawn: tuple[int, list[tuple[int, int]]], one: int, other: int
) -> None:
    first = Graph(*drawn, seed=one, config=TEXTBOOK)
    second = Graph(*drawn, seed=other, config=TEXTBOOK)
    first.run(59)
    second.run(59)

    assert first.hops() == second.hops()
