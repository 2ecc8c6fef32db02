"""Standing and moving with the noise of GPS (D20)."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import msgspec
import pytest

from tests.substrates.dcs.network import ROW, STREET, DcsNetwork, tag_in
from thyme.model.ids import NodeId
from thyme.model.positions import Position
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import Grid
from thyme.storage.store import MemoryStore
from thyme.substrates.dcs.cell_map import GridCellMap
from thyme.substrates.dcs.config import ROBUST
from thyme.substrates.dcs.membership.position_filter import LEAVE_US, PositionFilter
from thyme.substrates.factory import make_dcs_node

NOISE_M = 5.0
NOISY = msgspec.structs.replace(
    ROBUST,
    movement=msgspec.structs.replace(ROBUST.movement, noise_m=NOISE_M, settle_us=15 * SECOND_US),
)
SQUARE = Grid(columns=4, rows=4)
CORNER = (80.0, 80.0)
"""Where four cells meet."""


def a_filter(grid: Grid = SQUARE, noise_m: float = NOISE_M) -> PositionFilter:
    return PositionFilter(GridCellMap(NodeId(b"ann"), grid, Random(1)), Outbox(), noise_m)


def cells_of(positions: PositionFilter, cell: CellId, reported: list[Position]) -> list[CellId]:
    """The cells of a device that reports its position every second."""
    cells = []
    for second, position in enumerate(reported):
        cell = positions.on_position(position, cell, second * SECOND_US).cell
        cells.append(cell)
    return cells


def noisy(place: Position, rng: Random) -> Position:
    return place[0] + rng.gauss(0, NOISE_M), place[1] + rng.gauss(0, NOISE_M)


@pytest.mark.parametrize("seed", range(5))
def test_d20_noise_at_a_corner_of_four_cells_moves_nobody_for_an_hour(seed: int) -> None:
    rng = Random(seed)
    reported = [noisy(CORNER, rng) for _ in range(3600)]
    exact = cells_of(a_filter(noise_m=0.0), CellId(5), reported)
    assert len(set(exact)) == 4, "which is what happens without the filter"

    assert set(cells_of(a_filter(), CellId(5), reported)) == {CellId(5)}


@pytest.mark.parametrize("speed_m_s", [0.5, 1.4, 8.0])
def test_d20_a_walker_crosses_each_boundary_once(speed_m_s: float) -> None:
    rng = Random(3)
    steps = int(120 / speed_m_s)
    reported = [noisy((20 + speed_m_s * step, 60.0), rng) for step in range(steps)]

    cells = cells_of(a_filter(), CellId(4), [*reported, *[(140.0, 60.0)] * 10])

    changes = [cell for before, cell in pairwise(cells) if cell != before]
    assert changes == sorted(set(changes)), "never back"
    assert cells[-1] == CellId(7)


def test_d20_a_position_far_away_counts_although_no_other_follows() -> None:
    """A device may report its position once, when it has moved."""
    outbox = Outbox()
    positions = PositionFilter(GridCellMap(NodeId(b"ann"), SQUARE, Random(1)), outbox, NOISE_M)

    assert positions.on_position((140.0, 20.0), CellId(0), 0).cell == CellId(0)

    [action] = outbox.drain_actions()
    assert action.at_us == LEAVE_US  # type: ignore[union-attr]
    assert positions.leave_cell().cell == CellId(3)


def test_d20_who_stands_is_not_displaced_by_noise_and_who_walks_slowly_is() -> None:
    rng = Random(1)
    standing, walking = a_filter(), a_filter()
    cell = CellId(5)
    stood = [
        standing.on_position(noisy((60, 60), rng), cell, second * SECOND_US).displaced
        for second in range(600)
    ]
    walked = [
        walking.on_position(noisy((40 + second * 0.8, 60), rng), cell, second * SECOND_US).displaced
        for second in range(60)
    ]
    rests = "".join("." if displaced else "s" for displaced in stood).split(".")
    assert max(map(len, rests)) > 60, "a device that stands settles"
    paces = "".join("." if displaced else "s" for displaced in walked[5:]).split(".")
    assert max(map(len, paces)) < 15 + 5, "one that walks does not, or not for long"


def test_d20_a_node_at_a_boundary_serves_on_and_one_that_moved_there_settles() -> None:
    """D20: noise of 5 m neither stops a node from serving nor lets it flap between cells."""
    net = DcsNetwork({**STREET, "ann": (ROW.cell_m - 0.5, 20.0)}, config=NOISY)
    rng = Random(7)
    ann, abe = net.nodes["ann"], net.nodes["abe"]
    for _ in range(300):
        net.move("ann", noisy((ROW.cell_m, 20.0), rng), settle_s=1.0)
        assert (ann.routing.serving, ann.routing.cell) == (True, 0)
    assert ann.membership.movement.crossings == 0
    net.insert("dan", "photo", tag_in(0))
    assert net.indexing("photo") == {"ann", "abe"}

    net.move("abe", noisy((60.0, 20.0), rng))
    for _ in range(60):
        net.move("abe", noisy((60.0, 20.0), rng), settle_s=1.0)
    assert (abe.routing.serving, abe.routing.cell) == (True, 1)
    assert abe.membership.movement.crossings == 1


def test_d20_a_node_that_restarts_at_a_boundary_keeps_its_cell_and_its_state() -> None:
    def cell_at(store: MemoryStore, x_m: float) -> CellId:
        rng = Random(1)
        node = make_dcs_node(
            NodeId(b"ann"), ROW, (x_m, 20.0), store, cells_rng=rng, rng=rng, config=NOISY
        )
        return node.parts.cell

    store = MemoryStore()
    assert cell_at(store, 38.0) == CellId(0)
    assert cell_at(store, 44.0) == CellId(0)
    assert cell_at(store, 61.0) == CellId(1)
