"""Cell routing on the radio: frames collide and are lost, and messages to cells arrive (D4–D10)."""

from __future__ import annotations

from random import Random

from tests.routing.cells.field import Field, name, question
from tests.routing.cells.radio import Place, RadioField
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId
from thyme.routing.cells import DeliveryFailure, Destination, Grid

GRID = Grid.covering(400.0, 200.0)


def scattered(count: int, seed: int) -> dict[NodeId, Place]:
    rng = Random(seed)
    return {name(n): (rng.uniform(0, 400), rng.uniform(0, 200)) for n in range(count)}


def row(*cells: int) -> dict[NodeId, Place]:
    return {name(n): GRID.centre_of(CellId(cell)) for n, cell in enumerate(cells)}


def tellers(world: RadioField, source: NodeId, number: int) -> dict[NodeId, bool]:
    """The nodes that got a message, and whether as the first."""
    return {
        node_id: arrival.is_first
        for node_id, router in world.routers.items()
        for arrival in router.ear.arrivals
        if (arrival.origin, arrival.number) == (source, number)
    }


def test_d7_a_hundred_nodes_send_to_cells_populated_and_empty() -> None:
    """The papers' area: each message is handled once, in the cell or its proxy, and nearly every
    node there gets it: broadcasts are not acknowledged."""
    places = scattered(100, seed=1)
    truth = Field(GRID, {int.from_bytes(n, "big"): place for n, place in places.items()})
    reached = truth.component(name(0))
    assert len(reached) == 100
    world = RadioField(GRID, places, seed=1)
    world.run(8)
    rng, sent = Random(2), []
    for request in range(60):
        source, cell = name(rng.randrange(100)), CellId(rng.randrange(len(GRID)))
        number = world.send(source, Destination(cell), message=question(request))
        sent.append((source, number, truth.closest(reached, cell)))
        world.run(0.05)
    world.run(1)

    right = heard = members = 0
    for source, number, where in sent:
        found = tellers(world, source, number)
        firsts = [world.routers[n].routing.cell for n, first in found.items() if first]
        right += firsts == [where]
        heard += len(found)
        members += sum(router.routing.cell == where for router in world.routers.values())
    assert right >= 59
    assert heard >= 0.97 * members


def test_d9_one_message_reaches_ten_cells_in_fewer_frames_than_ten_messages() -> None:
    places = scattered(100, seed=3)
    corner = min(places, key=lambda node_id: sum(places[node_id]))
    targets = [
        Destination(cell) for cell in sorted({GRID.cell_at(place) for place in places.values()})
    ]
    chosen = Random(4).sample(targets, 10)

    def packets(*batches: list[Destination]) -> tuple[int, int]:
        world = RadioField(GRID, places, seed=3)
        world.run(8)
        world.lines.clear()
        arrived = 0
        for batch in batches:
            number = world.send(corner, *batch, message=question(1))
            world.run(0.3)
            arrived += sum(tellers(world, corner, number).values())
        return arrived, sum("CellPacket(" in line for line in world.lines)

    together, one_by_one = packets(chosen), packets(*([to] for to in chosen))

    assert together[0] == one_by_one[0] == 10
    assert together[1] < 0.8 * one_by_one[1]


def test_d4_d10_when_a_node_goes_others_carry_its_messages() -> None:
    """Two nodes in the middle cell; one is switched off without warning."""
    world = RadioField(GRID, {**row(0, 2, 4), name(3): (101.0, 30.0)})
    world.run(5)
    world.world.remove(name(1))
    del world.routers[name(1)]

    for request in range(6):
        number = world.send(name(0), Destination(CellId(4)), message=question(request))
        world.run(0.5)
        assert tellers(world, name(0), number) == {name(2): True}
    world.run(5)

    assert world.routers[name(0)].routing.nodes_in(CellId(2)) == [name(3)]


def test_d8_a_node_that_was_switched_off_is_reported() -> None:
    world = RadioField(GRID, row(0, 2, 4))
    world.run(5)
    world.world.remove(name(2))
    del world.routers[name(2)]

    number = world.send(name(0), Destination(CellId(4), name(2)), message=question(1))
    world.run(1)

    lost = DeliveryFailure(number=number, node=name(2), cell=CellId(4))
    assert world.routers[name(0)].ear.lost == [lost]


def lines_of(seed: int) -> list[str]:
    world = RadioField(GRID, scattered(25, seed=9), seed=seed)
    world.run(4)
    for cell in (0, 20, 49):
        world.send(name(cell % 25), Destination(CellId(cell)), message=question(cell))
        world.run(0.2)
    return world.lines


def test_the_same_seed_gives_the_same_messages() -> None:
    assert lines_of(5) == lines_of(5)
    assert lines_of(5) != lines_of(6)
