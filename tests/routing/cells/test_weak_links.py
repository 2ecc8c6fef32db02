"""Links at the edge of the radio's range, over which few beacons arrive, are avoided (D28)."""

from __future__ import annotations

from random import Random

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId, CellTarget
from thyme.protocol.messages.cells import CellBeacon
from thyme.routing.cells import CellRoutingConfig, Grid
from thyme.routing.cells.neighbours import Neighbours
from thyme.routing.cells.next_hop import Forward, NextHopSelector

GRID = Grid(columns=10, rows=1)
HERE, NEAR, FAR, BEYOND = CellId(0), CellId(1), CellId(2), CellId(5)
CONFIG = CellRoutingConfig(beacon_gap_us_max=5 * SECOND_US // 4)
NEAR_NODE, FAR_NODE = NodeId(b"near"), NodeId(b"far")


def hear(neighbours: Neighbours, node: NodeId, cell: CellId, *times_s: float) -> None:
    around = neighbours.layout.encode(0, 0)
    for at_s in times_s:
        beacon = CellBeacon(cell, True, around, b"")
        neighbours.process_beacon(node, beacon, round(at_s * SECOND_US))


def next_hop(neighbours: Neighbours, cell: CellId) -> NodeId:
    selector = NextHopSelector(GRID, always_perimeter=False, rates_links=True)
    decision = selector.decide(neighbours.neighbourhood(HERE), CellTarget(cell))
    assert isinstance(decision, Forward)
    [chosen] = decision.candidates
    return chosen.node_id


def test_d28_the_next_hop_is_the_farthest_node_whose_beacons_arrive() -> None:
    neighbours = Neighbours(GRID, CONFIG)
    hear(neighbours, NEAR_NODE, NEAR, *range(20))
    hear(neighbours, FAR_NODE, FAR, *range(20))
    assert next_hop(neighbours, BEYOND) == FAR_NODE

    hear(neighbours, FAR_NODE, FAR, 22, 24, 26, 29)

    assert next_hop(neighbours, BEYOND) == NEAR_NODE
    hear(neighbours, FAR_NODE, FAR, *range(30, 60))
    assert next_hop(neighbours, BEYOND) == FAR_NODE, "and again once they arrive"


def test_d28_a_new_link_is_weak_until_some_beacons_arrived_in_time() -> None:
    neighbours = Neighbours(GRID, CONFIG)
    hear(neighbours, NEAR_NODE, NEAR, *range(20))
    hear(neighbours, FAR_NODE, FAR, 20)

    assert next_hop(neighbours, BEYOND) == NEAR_NODE


def test_d28_a_weak_link_is_used_where_no_strong_one_leads_closer() -> None:
    neighbours = Neighbours(GRID, CONFIG)
    hear(neighbours, FAR_NODE, FAR, 0, 3, 6, 9)

    assert next_hop(neighbours, BEYOND) == FAR_NODE


def test_d28_usual_jitter_and_a_lost_beacon_now_and_then_do_not_weaken_a_link() -> None:
    rng = Random(1)
    neighbours = Neighbours(GRID, CONFIG)
    at_s = 0.0
    hear(neighbours, NEAR_NODE, NEAR, *range(20))
    hear(neighbours, FAR_NODE, FAR, *range(20))
    strong = 0
    for number in range(20, 520):
        at_s = number + rng.uniform(-0.25, 0.25)
        if number % 20:
            hear(neighbours, FAR_NODE, FAR, at_s)
        strong += next_hop(neighbours, BEYOND) == FAR_NODE
    assert strong >= 475


def test_d5_without_a_limit_all_links_are_taken_for_strong() -> None:
    neighbours = Neighbours(GRID, CellRoutingConfig())
    hear(neighbours, NEAR_NODE, NEAR, *range(20))
    hear(neighbours, FAR_NODE, FAR, 0, 3, 6, 9)

    assert next_hop(neighbours, BEYOND) == FAR_NODE
