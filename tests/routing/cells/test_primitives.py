"""The three primitives, NACKs, several targets, and the limits of routing (D5–D10, D20)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.routing.cells.field import Field, Place, name, question
from thyme.model.ids import NodeId
from thyme.model.rng import derive_rng
from thyme.protocol.messages.cell_records import CellId, CellTarget, PerimeterState
from thyme.protocol.messages.cells import Undelivered
from thyme.protocol.messages.common import CellBroadcast, CellPacket
from thyme.protocol.messages.replies import Done
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import (
    CellRouting,
    CellRoutingConfig,
    CellRoutingUser,
    Delivery,
    DeliveryFailure,
    Destination,
    GeographicRouting,
    Grid,
)

GRID = Grid.covering(400.0, 200.0)
DONE = Done(1)


def middle(cell: int, right_m: float = 0.0) -> Place:
    x, y = GRID.centre_of(CellId(cell))
    return x + right_m, y


def crowd(*cells: int) -> dict[int, Place]:
    """Nodes 0, 1, 2, … in these cells; the nodes of a cell are a metre apart."""
    seen: Counter[int] = Counter()
    places = {}
    for number, cell in enumerate(cells):
        places[number] = middle(cell, seen[cell])
        seen[cell] += 1
    return places


def told(field: Field) -> dict[int, list[Delivery]]:
    """The nodes that got the message, and what they got."""
    return {
        number: field.ears[name(number)].arrivals
        for number in field.places
        if field.ears[name(number)].arrivals
    }


def send(field: Field, source: int, *targets: Destination, request: int = 1) -> int:
    number = field.nodes[name(source)].send(targets, question(request), field.now_us)
    field.run(name(source))
    return number


def test_geographic_routing_is_a_routing_by_cells() -> None:
    """The interface that a node of Thyme-DCS uses."""
    field = Field(GRID, crowd(0))
    routing: CellRouting = field.nodes[name(0)]
    listener: CellRoutingUser = field.ears[name(0)]

    assert routing.cell_of_key("goal") == GRID.cell_of_key("goal")
    assert routing.distance(CellId(0), CellId(2)) == 80.0
    assert listener.beacon_payload(0) == b""
    assert not routing.on_received(name(1), question(1), 0)
    assert not routing.on_timer("another's", 0)
    assert not routing.on_send_failed(name(1), question(1), 0)
    routing.check()


# To a cell


def test_d7_all_nodes_of_a_cell_are_told_once_and_the_first_knows_it_is() -> None:
    field = Field(GRID, crowd(0, 2, 4, 6, 6, 6)).settle()

    number = send(field, 0, Destination(CellId(6)))

    arrivals = told(field)
    assert sorted(arrivals) == [3, 4, 5]
    assert [len(one) for one in arrivals.values()] == [1, 1, 1]
    [first] = [one for [one] in arrivals.values() if one.is_first]
    assert first == Delivery(
        origin=name(0),
        origin_cell=CellId(0),
        number=number,
        cell=CellId(6),
        is_unicast=False,
        is_first=True,
        hops=3,
        message=question(1),
    )
    assert [one.hops for [one] in arrivals.values() if not one.is_first] == [4, 4]
    spreads = [message for _, _, message in field.log if isinstance(message, CellBroadcast)]
    assert [(spread.receiving_cell, spread.hops) for spread in spreads] == [(6, 3)]


def test_d7_a_message_to_the_own_cell_starts_there() -> None:
    field = Field(GRID, crowd(3, 3, 4)).settle()

    send(field, 0, Destination(CellId(3)))

    assert {number: one.is_first for number, [one] in told(field).items()} == {0: True, 1: False}


def test_d7_one_who_is_alone_tells_nobody() -> None:
    field = Field(GRID, crowd(0, 1)).settle()

    send(field, 0, Destination(CellId(1)))

    assert sorted(told(field)) == [1]
    assert len(field.log) == 1


def test_d7_a_message_that_comes_twice_is_told_once() -> None:
    field = Field(GRID, crowd(0, 1, 1)).settle()
    packet = CellPacket(name(0), CellId(0), 7, 0, (CellTarget(CellId(1)),), question(1))

    for receiver in (1, 2, 1):
        field.nodes[name(receiver)].on_received(name(0), packet, field.now_us)
        field.run(name(receiver))

    assert {number: len(arrivals) for number, arrivals in told(field).items()} == {1: 1, 2: 1}


def test_d7_the_memory_against_this_is_bounded() -> None:
    field = Field(GRID, crowd(0, 1), config=CellRoutingConfig(seen_max=5)).settle()

    for request in range(20):
        send(field, 0, Destination(CellId(1)), request=request)
        field.nodes[name(1)].check()

    assert len(told(field)[1]) == 20


def test_d7_broadcast_within_a_cell_stays_there() -> None:
    field = Field(GRID, crowd(3, 3, 3, 4, 2)).settle()

    field.nodes[name(0)].broadcast_in_cell(question(9), field.now_us)
    field.run(name(0))

    arrivals = told(field)
    assert sorted(arrivals) == [1, 2]
    assert not any(one.is_first or one.is_unicast for [one] in arrivals.values())
    assert len(field.log) == 1


# The route


def test_d5_greedy_goes_straight_and_as_far_as_it_can() -> None:
    field = Field(GRID, crowd(*range(10))).settle()

    send(field, 0, Destination(CellId(9)))

    assert [int.from_bytes(to, "big") for _, to in field.hops()] == [2, 4, 6, 8, 9]


def test_d5_the_next_hop_is_drawn_among_the_nodes_of_a_cell() -> None:
    field = Field(GRID, crowd(0, *[2] * 4, 4)).settle()

    for request in range(80):
        send(field, 0, Destination(CellId(4)), request=request)

    carried = Counter(to for sender, to in field.hops() if sender == name(0))
    assert sorted(carried) == [name(n) for n in (1, 2, 3, 4)]
    assert min(carried.values()) > 8


def test_d5_a_void_is_gone_around_and_then_it_is_greedy_again() -> None:
    """From the bottom of a U to a cell beyond its opening, and back to greedy on the rim."""
    cells = [2, 12, 22, 32, 42, 43, 44, 45, 46, 47, 37, 27, 17, 7, 8, 9]
    field = Field(GRID, crowd(*cells)).settle()

    send(field, 0, Destination(CellId(9)))

    assert sorted(told(field)) == [15]
    perimeters = [m.targets[0].perimeter for _, _, m in field.log if isinstance(m, CellPacket)]
    entries = [None if perimeter is None else perimeter.entry_cell for perimeter in perimeters]
    assert entries[0] == 2
    assert entries[-1] is None


def test_d5_a_cell_that_only_a_cell_peer_hears_is_reached_through_it() -> None:
    """The sender is at the far side of its cell and does not hear cell 3 itself."""
    field = Field(GRID, {0: (1.0, 20.0), 1: (39.0, 20.0), 2: (121.0, 20.0)}).settle()
    assert name(2) not in field.links[name(0)]

    send(field, 0, Destination(CellId(3)))

    assert sorted(told(field)) == [2]
    assert field.hops() == [(name(0), name(1)), (name(1), name(2))]


def test_d6_a_message_for_an_empty_cell_makes_the_loop_and_ends_at_its_proxy() -> None:
    """Cell 22 is empty, and the eight around it are populated: 12 is closest, by its number."""
    ring = [11, 12, 13, 21, 23, 31, 32, 33]
    hears = {"hears": lambda one, other: abs(one[0] - other[0]) + abs(one[1] - other[1]) < 41}
    field = Field(GRID, crowd(*ring), **hears).settle()

    for source in range(8):
        field.log.clear()
        send(field, source, Destination(CellId(22)))

        [(where, [arrival])] = told(field).items()
        assert ring[where] == 12
        assert (arrival.cell, arrival.is_first) == (22, True)
        assert len({to for _, to in field.hops()} | {name(source)}) == 8
        field.ears[name(where)].arrivals.clear()


def test_d6_whoever_spreads_for_an_empty_cell_tells_its_own_cell() -> None:
    """Even if the sender is in that cell."""
    field = Field(GRID, crowd(12, 12, 12, 13, 14)).settle()

    send(field, 0, Destination(CellId(2)))

    arrivals = told(field)
    assert sorted(arrivals) == [0, 1, 2]
    assert {one.cell for [one] in arrivals.values()} == {2}
    assert sum(one.is_first for [one] in arrivals.values()) == 1


def test_d6_the_loop_may_be_spared_where_nobody_can_be_closer() -> None:
    ring = [11, 12, 13, 21, 23, 31, 32, 33]
    hops = {}
    for loop_always in (True, False):
        config = CellRoutingConfig(always_perimeter=loop_always)
        field = Field(GRID, crowd(*ring), config=config).settle()
        send(field, 7, Destination(CellId(22)))
        assert [ring[where] for where in told(field)] == [12]
        hops[loop_always] = len(field.hops())

    assert hops[False] == 1
    assert hops[True] > 4


def test_d6_one_who_is_alone_stands_in_for_everybody() -> None:
    field = Field(GRID, crowd(27)).settle()

    send(field, 0, Destination(CellId(3)))

    assert [one.cell for [one] in told(field).values()] == [3]


# To a node in a cell


def test_d7_a_message_to_a_node_reaches_it_alone() -> None:
    field = Field(GRID, crowd(0, 2, 4, 6, 6, 6)).settle()

    send(field, 0, Destination(CellId(6), name(4)))

    [(where, [arrival])] = told(field).items()
    assert where == 4
    assert arrival.is_unicast
    assert not any(isinstance(message, CellBroadcast) for _, _, message in field.log)


def test_d7_to_itself_it_is_told_at_once() -> None:
    field = Field(GRID, crowd(0, 1)).settle()

    send(field, 0, Destination(CellId(5), name(0)))

    assert sorted(told(field)) == [0]
    assert field.log == []


def test_d8_a_node_that_is_not_in_the_cell_yields_a_nack() -> None:
    """Node 5 is elsewhere; the source, some hops away, gets the failure; the cell does not."""
    field = Field(GRID, crowd(0, 2, 4, 6, 6, 49)).settle()

    number = send(field, 0, Destination(CellId(6), name(5)))

    assert told(field) == {}
    assert field.ears[name(0)].lost == [
        DeliveryFailure(number=number, node=name(5), cell=CellId(6))
    ]


def test_d8_so_does_one_whose_cell_is_empty_and_one_that_is_gone() -> None:
    field = Field(GRID, crowd(0, 2, 4, 6, 8)).settle()
    first = send(field, 0, Destination(CellId(45), name(9)))
    field.remove(4)

    second = send(field, 0, Destination(CellId(8), name(4)))

    assert field.ears[name(0)].lost == [
        DeliveryFailure(number=first, node=name(9), cell=CellId(45)),
        DeliveryFailure(number=second, node=name(4), cell=CellId(8)),
    ]


def test_d8_the_sender_may_find_out_itself() -> None:
    field = Field(GRID, crowd(0, 0)).settle()

    number = send(field, 0, Destination(CellId(0), name(7)))

    assert field.ears[name(0)].lost == [
        DeliveryFailure(number=number, node=name(7), cell=CellId(0))
    ]
    assert field.log == []


def test_d8_of_a_nack_that_is_not_delivered_nobody_is_told() -> None:
    field = Field(GRID, crowd(2, 4, 6)).settle()
    orphan = CellPacket(name(9), CellId(0), 1, 0, (CellTarget(CellId(6), name(8)),), question(1))

    field.nodes[name(1)].on_received(name(9), orphan, field.now_us)
    field.run(name(1))

    assert sum(node.traffic.dropped["sender gone"] for node in field.nodes.values()) == 1
    nacks = [m for _, _, m in field.log if isinstance(getattr(m, "message", None), Undelivered)]
    assert nacks


# Many targets


def test_d9_a_message_to_many_travels_as_one_until_its_ways_part() -> None:
    """Three cells in a row, and one to either side of the last."""
    field = Field(GRID, crowd(20, 22, 24, 16, 36)).settle()
    wanted = [Destination(CellId(cell)) for cell in [16, 36]]

    number = send(field, 0, *wanted)

    assert sorted(told(field)) == [3, 4]
    assert {one.number for [one] in told(field).values()} == {number}
    alone = 0
    for to in wanted:
        field.log.clear()
        send(field, 0, to)
        alone += len(field.hops())
    field.log.clear()
    send(field, 0, *wanted)
    assert len(field.hops()) == alone - 2  # two links of the row are crossed once
    assert [len(m.targets) for _, _, m in field.log if isinstance(m, CellPacket)][:2] == [2, 2]


def test_d9_cells_and_nodes_may_be_mixed_and_repeated() -> None:
    field = Field(GRID, crowd(0, 2, 4, 4, 6)).settle()
    targets = [
        Destination(CellId(4)),
        Destination(CellId(4), name(3)),
        Destination(CellId(6)),
        Destination(CellId(4)),
        Destination(CellId(0)),
    ]

    send(field, 0, *targets)

    found = {n: [(one.cell, one.is_unicast) for one in some] for n, some in told(field).items()}
    assert {number: sorted(some) for number, some in found.items()} == {
        0: [(0, False)],
        2: [(4, False)],
        3: [(4, False), (4, True)],
        4: [(6, False)],
    }


def test_d9_one_hop_carries_what_goes_to_a_node_and_through_its_cell() -> None:
    """Four nodes could be the next hop; one of them is a target itself, and gets everything."""
    field = Field(GRID, crowd(0, 2, 2, 2, 2, 4)).settle()

    for request in range(10):
        field.log.clear()
        send(field, 0, Destination(CellId(4)), Destination(CellId(2), name(3)), request=request)
        assert [to for sender, to in field.hops() if sender == name(0)] == [name(3)]


SHARING = CellRoutingConfig(share_hops=True)


def hops_of(config: CellRoutingConfig, cells: list[int], *targets: Destination) -> list[int]:
    """The receivers of the copies of one message from node 0, after it came to all targets."""
    field = Field(GRID, crowd(*cells), config=config).settle()
    send(field, 0, *targets)
    assert sum(map(len, told(field).values())) == len(targets)
    return [int.from_bytes(to, "big") for _, to in field.hops()]


def test_d9_two_distant_targets_share_a_next_hop_that_is_on_the_way_to_both() -> None:
    """Cells 14 and 34 are above and below the row of the sender, each with a best next hop of its
    own, in cells 12 and 32. Cell 22 is a little farther from both, but in range of them."""
    cells = [20, 12, 22, 32, 14, 34]
    targets = [Destination(CellId(14)), Destination(CellId(34))]

    assert sorted(hops_of(CellRoutingConfig(), cells, *targets)) == [1, 3, 4, 5]
    assert sorted(hops_of(SHARING, cells, *targets)) == [2, 4, 5]


def test_d9_a_distant_target_goes_over_a_node_that_is_sent_the_message_anyway() -> None:
    cells = [20, 12, 22, 14]
    targets = [Destination(CellId(22), name(2)), Destination(CellId(14))]

    assert sorted(hops_of(CellRoutingConfig(), cells, *targets)) == [1, 2, 3]
    assert sorted(hops_of(SHARING, cells, *targets)) == [2, 3]


def test_d9_no_target_takes_a_longer_way_to_share_a_hop() -> None:
    """Over cell 21 the distant target would need another hop; the one in cell 12 is its own."""
    cells = [20, 21, 12, 14, 3]
    targets = [Destination(CellId(21)), Destination(CellId(14))]

    assert sorted(hops_of(SHARING, cells, *targets)) == [1, 2, 3]


def test_d9_no_target_is_no_message() -> None:
    field = Field(GRID, crowd(0, 1)).settle()

    send(field, 0)

    assert field.log == []


def test_a_cell_that_does_not_exist_is_refused() -> None:
    field = Field(GRID, crowd(0, 1)).settle()

    with pytest.raises(ValueError, match="cell 50 is outside"):
        send(field, 0, Destination(CellId(50)))
    stray = CellPacket(name(9), CellId(0), 1, 0, (CellTarget(CellId(50)),), question(1))
    field.nodes[name(1)].on_received(name(9), stray, 0)
    assert field.nodes[name(1)].traffic.dropped == {"no such cell": 1}


# Limits of routing


def test_d10_without_rerouting_a_message_that_nobody_took_is_dropped() -> None:
    field = Field(GRID, crowd(0, 2, 2, 4), config=CellRoutingConfig(reroute=False)).settle()
    field.remove(1)
    field.remove(2)

    send(field, 0, Destination(CellId(4)))

    assert len(field.log) == 1
    assert field.nodes[name(0)].traffic.dropped == {"not acknowledged": 1}


def test_d10_with_it_another_neighbour_is_tried_but_nobody_twice() -> None:
    field = Field(GRID, crowd(0, 2, 2, 2, 4)).settle()
    field.remove(1)
    field.remove(2)

    for request in range(8):
        field.log.clear()
        send(field, 0, Destination(CellId(4)), request=request)
        tried = [to for sender, to in field.hops() if sender == name(0)]
        assert len(set(tried)) == len(tried)
        assert tried[-1] == name(3)

    assert len(told(field)[4]) == 8


@pytest.mark.parametrize("serving", [True, False])
def test_d10_if_nobody_answers_each_is_tried_once(serving: bool) -> None:
    field = Field(GRID, crowd(0, 2, 2, 11, 4)).settle()
    field.move(0, middle(0), serving=serving)
    for number in (1, 2, 3):
        field.remove(number)

    send(field, 0, Destination(CellId(4)))

    assert sorted(to for _, to in field.hops()) == [name(1), name(2), name(3)]
    assert sum(field.nodes[name(0)].traffic.dropped.values()) == 1


def test_d6_a_cell_that_knows_no_way_is_not_the_proxy_of_what_passes() -> None:
    """A node that has just begun to serve, and has not heard anybody yet."""
    field = Field(GRID, crowd(12))
    perimeter = PerimeterState(CellId(2), CellId(3), CellId(3), CellId(12))
    passing = CellPacket(name(9), CellId(2), 1, 5, (CellTarget(CellId(0), None, perimeter),), DONE)

    field.nodes[name(0)].on_received(name(9), passing, 0)

    assert told(field) == {}
    assert field.nodes[name(0)].traffic.dropped == {"the way back is gone": 1}


def test_d10_a_cell_is_not_empty_because_one_message_was_not_taken() -> None:
    """Otherwise a proxy would take messages that are not its own."""
    field = Field(GRID, crowd(0, 1)).settle()
    field.remove(1)

    send(field, 0, Destination(CellId(1)))

    assert told(field) == {}
    assert field.nodes[name(0)].traffic.dropped == {"nobody closer answers": 1}
    send(field, 0, Destination(CellId(1)), request=2)
    assert told(field) == {}
    send(field, 0, Destination(CellId(1)), request=3)
    assert [one.cell for one in told(field)[0]] == [1]


def test_a_message_goes_only_so_far() -> None:
    field = Field(GRID, crowd(0, 2, 4, 6), config=CellRoutingConfig(hops_max=3)).settle()

    send(field, 0, Destination(CellId(4)))
    send(field, 0, Destination(CellId(6)))

    assert sorted(told(field)) == [2]
    assert field.nodes[name(3)].traffic.dropped == {"too many hops": 1}


# Moving nodes


def test_d20_one_who_moves_neither_forwards_nor_serves_but_talks_and_is_reached() -> None:
    """Node 1 moves from cell 2 to cell 3; cells 0 and 4 hear each other only over cell 12."""
    field = Field(GRID, crowd(0, 2, 4, 12, 3)).settle()
    field.move(1, middle(3, 5.0), serving=False)
    field.settle(6)
    field.log.clear()

    send(field, 0, Destination(CellId(4)))
    send(field, 0, Destination(CellId(3)))
    assert name(1) not in [to for _, to in field.hops()]
    assert sorted(told(field)) == [2, 4]

    send(field, 1, Destination(CellId(0)))
    send(field, 0, Destination(CellId(3), name(1)))
    assert [one.origin_cell for one in told(field)[0]] == [3]
    assert [one.is_unicast for one in told(field)[1]] == [True]


def test_d20_what_reaches_it_by_mistake_is_dropped() -> None:
    field = Field(GRID, crowd(0, 2, 4)).settle()
    field.nodes[name(1)].set_cell(CellId(2), field.now_us, serving=False)

    send(field, 0, Destination(CellId(4)))

    assert told(field) == {}
    assert field.nodes[name(1)].traffic.dropped["not serving"] == 1


def test_d20_one_who_hears_nobody_sends_nothing() -> None:
    field = Field(GRID, crowd(0, 49)).settle()
    field.move(0, middle(0), serving=False)

    send(field, 0, Destination(CellId(4)))

    assert field.nodes[name(0)].traffic.dropped == {"no neighbour": 1}


def test_a_moved_node_is_found_in_its_new_cell_and_not_in_the_old() -> None:
    field = Field(GRID, crowd(0, 2, 4, 4, 6)).settle()
    field.move(3, middle(6, 3.0), serving=True)
    field.settle(2)

    number = send(field, 0, Destination(CellId(4), name(3)))
    send(field, 0, Destination(CellId(6), name(3)))

    assert [lost.number for lost in field.ears[name(0)].lost] == [number]
    assert [one.cell for one in told(field)[3]] == [6]


def test_numbers_differ_between_lives() -> None:
    """A node that lost its store must not be taken for its earlier incarnation."""
    field = Field(GRID, crowd(0))
    numbers: set[int] = set()
    for life in range(3):
        rng = derive_rng(1, "cells", life)
        routing = GeographicRouting(
            NodeId(b"a"), GRID, Outbox(), rng, field.ears[name(0)], CellRoutingConfig()
        )
        routing.start(CellId(0), 0, serving=True)
        numbers |= {routing.send([Destination(CellId(0))], question(1), 0) for _ in range(5)}

    assert len(numbers) == 15
