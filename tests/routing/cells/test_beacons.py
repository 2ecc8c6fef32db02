"""Beacons and the neighbour table (D4, C22, D20)."""

from __future__ import annotations

import pytest

from tests.routing.cells.field import SECOND_US, Ear, Field, name
from thyme.model.rng import derive_rng
from thyme.protocol.messages.cell_records import CellId, CellTarget
from thyme.protocol.messages.cells import CellBeacon
from thyme.protocol.messages.common import CellPacket
from thyme.protocol.messages.replies import Done
from thyme.protocol.node import Action, Broadcast, Send, SetTimer
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import (
    BeaconReceived,
    CellRoutingConfig,
    Destination,
    GeographicRouting,
    Grid,
)
from thyme.routing.cells.interface import BeaconTimer
from thyme.wire.codec import encode

GRID = Grid.covering(400.0, 200.0)


def a_node(
    cell: int = 0, *, config: CellRoutingConfig | None = None, serving: bool = True
) -> tuple[GeographicRouting, Outbox, Ear]:
    outbox, ear = Outbox(), Ear()
    node = GeographicRouting(name(0), GRID, outbox, derive_rng(1, "cells"), ear, config)
    node.start(CellId(cell), 0, serving=serving)
    return node, outbox, ear


def a_beacon(cell: int, *, serving: bool = True, payload: bytes = b"") -> CellBeacon:
    return CellBeacon(CellId(cell), serving, bytes(12) if serving else b"", payload)


def fired(node: GeographicRouting, outbox: Outbox, now_us: int) -> list[Action]:
    assert node.on_timer(BeaconTimer(), now_us)
    return outbox.drain_actions()


def test_d4_a_node_says_where_it_is_again_and_again_but_not_in_step() -> None:
    node, outbox, _ = a_node(7)
    [start] = outbox.drain_actions()
    assert isinstance(start, SetTimer)
    assert 0 <= start.at_us <= SECOND_US // 10

    waits_us, now_us = set(), 0
    for _ in range(50):
        beacon, timer = fired(node, outbox, now_us)
        assert beacon == Broadcast(a_beacon(7))
        assert isinstance(timer, SetTimer)
        assert timer.timer == BeaconTimer()
        waits_us.add(timer.at_us - now_us)
        now_us = timer.at_us

    assert len(waits_us) > 40
    assert min(waits_us) >= SECOND_US // 2
    assert max(waits_us) <= 3 * SECOND_US // 2


@pytest.mark.parametrize(("cell", "location_bytes"), [(0, 1), (49, 1), (255, 2), (65_535, 3)])
def test_c22_the_location_takes_three_bytes_at_most(cell: int, location_bytes: int) -> None:
    """The rest: 4 bytes of framing, 1 of serving, 14 of the cells around, 2 of no payload, 1 of no
    world."""
    beacon = a_beacon(cell)

    assert len(encode(beacon)) == 21 + location_bytes


def test_d4_the_layer_above_may_put_something_into_beacons() -> None:
    field = Field(GRID, {0: (10.0, 10.0), 1: (50.0, 10.0)})
    field.ears[name(0)].says = b"digest"

    field.settle(1)

    assert field.ears[name(1)].sightings == [
        BeaconReceived(node=name(0), cell=CellId(0), serving=True, payload=b"digest")
    ]


def test_d4_of_a_beacon_like_the_one_before_only_cell_peers_and_the_curious_are_told() -> None:
    node, _, ear = a_node(0)
    ear.cares = b"unrest"

    def told(beacon: CellBeacon) -> bool:
        before = len(ear.sightings)
        assert node.on_received(name(1), beacon, SECOND_US)
        return len(ear.sightings) > before

    assert told(a_beacon(1))
    assert not told(a_beacon(1))
    assert not told(a_beacon(1, payload=b"digest"))
    assert told(a_beacon(1, payload=b"unrest"))
    assert told(a_beacon(1, serving=False))
    assert not told(a_beacon(1, serving=False))
    assert told(a_beacon(0))
    assert told(a_beacon(0))


def test_d4_too_much_of_it_is_a_mistake() -> None:
    node, _, ear = a_node()
    ear.says = bytes(129)

    with pytest.raises(AssertionError):
        node.on_timer(BeaconTimer(), 0)


def test_d4_neighbours_are_known_by_cell_and_expire() -> None:
    node, outbox, _ = a_node(0)
    node.on_received(name(1), a_beacon(1), 0)
    node.on_received(name(2), a_beacon(1), 0)
    assert node.nodes_in(CellId(1)) == [name(1), name(2)]

    node.on_received(name(1), a_beacon(2), 3 * SECOND_US)
    fired(node, outbox, 4 * SECOND_US)
    assert node.nodes_in(CellId(1)) == [name(2)]
    assert node.nodes_in(CellId(2)) == [name(1)]

    fired(node, outbox, 5 * SECOND_US)
    assert node.nodes_in(CellId(1)) == []
    assert node.nodes_in(CellId(2)) == [name(1)]


def test_d20_a_node_that_does_not_serve_says_so_and_is_not_counted_on() -> None:
    node, outbox, ear = a_node(0)
    outbox.drain_actions()
    node.on_received(name(1), a_beacon(1, serving=False), 0)

    assert node.nodes_in(CellId(1)) == []
    assert [sighting.serving for sighting in ear.sightings] == [False]

    node.set_cell(CellId(3), 0, serving=False)
    assert outbox.drain_actions()[0] == Broadcast(a_beacon(3, serving=False))
    node.set_cell(CellId(3), 0, serving=False)
    assert outbox.drain_actions() == []


def test_d4_a_beacon_tells_which_cells_its_sender_hears_and_which_those_hear() -> None:
    """Four nodes in a row, two cells apart."""
    field = Field(GRID, {n: (20.0 + 80.0 * n, 20.0) for n in range(4)}).settle()
    around = field.nodes[name(0)].neighbours.neighbourhood(CellId(0))

    assert around.cells_in(around.direct) == [2]
    assert around.cells_in(around.second) == [2]  # cell 4 is outside of the bitmap
    middle = field.nodes[name(1)].neighbours.neighbourhood(CellId(2))
    assert middle.cells_in(middle.direct) == [0, 4]


@pytest.mark.parametrize(
    "beacon",
    [
        CellBeacon(CellId(50), True, bytes(12), b""),
        CellBeacon(CellId(1), True, bytes(11), b""),
        CellBeacon(CellId(1), True, b"", b""),
    ],
    ids=["no such cell", "another window", "no window"],
)
def test_d4_a_beacon_of_another_grid_is_counted_and_dropped(beacon: CellBeacon) -> None:
    node, _, ear = a_node(0)

    assert node.on_received(name(1), beacon, 0)

    assert len(node.neighbours) == 0
    assert ear.sightings == []
    assert node.traffic.dropped == {"strange beacon": 1}


def test_d4_cells_beyond_the_grid_are_not_believed() -> None:
    node, _, _ = a_node(0)

    node.on_received(name(1), CellBeacon(CellId(0), True, b"\xff" * 12, b""), 0)

    around = node.neighbours.neighbourhood(CellId(0))
    assert set(around.cells_in(around.known)) == {
        column + 10 * row for column in range(4) for row in range(4)
    } - {0}
    assert {edge for edge in around.edges if min(edge) < 0} == set()


def test_d4_the_table_is_bounded() -> None:
    node, _, _ = a_node(0, config=CellRoutingConfig(neighbours_max=3))

    for number in range(1, 9):
        node.on_received(name(number), a_beacon(1), 0)

    node.check()
    assert len(node.neighbours) == 3


def test_d10_a_link_that_carries_beacons_and_nothing_else_is_given_up() -> None:
    """A beacon resets the failures of a neighbour only after a while: requests are repeated
    meanwhile, and must find another route."""
    node, _, _ = a_node(0)
    for failure in range(3):
        now_us = failure * SECOND_US
        node.on_received(name(1), a_beacon(1), now_us)
        assert node.neighbours.get(name(1)) is not None
        node.neighbours.record_failure(name(1), now_us)
    assert node.neighbours.get(name(1)) is None

    for failure in range(3):
        now_us = 10 * SECOND_US + failure * 5 * SECOND_US
        node.on_received(name(1), a_beacon(1), now_us)
        node.neighbours.record_failure(name(1), now_us)
    assert node.neighbours.get(name(1)) is not None


def test_d8_a_last_hop_that_was_too_far_is_made_from_closer_by() -> None:
    """Whether a node is present is decided in its cell, not by a node that could not reach it."""
    node, outbox, ear = a_node(0)
    node.on_received(name(1), a_beacon(1), 0)
    node.on_received(name(2), a_beacon(2), 0)
    outbox.drain_actions()
    node.send([Destination(CellId(2), name(2))], Done(7), SECOND_US)
    [direct] = outbox.drain_actions()
    assert isinstance(direct, Send)
    assert direct.to == name(2)

    assert node.on_send_failed(direct.to, direct.message, SECOND_US)

    [again] = outbox.drain_actions()
    assert isinstance(again, Send)
    assert again.to == name(1)
    assert isinstance(again.message, CellPacket)
    assert again.message.targets == (CellTarget(CellId(2), name(2)),)
    assert ear.lost == []
