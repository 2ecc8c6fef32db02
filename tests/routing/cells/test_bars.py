"""Targets of cell routing on random landscapes: open areas, voids, rings, U shapes and disconnected
parts, with nodes at random positions and no loss of frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.routing.cells.field import Field, Place, question
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId
from thyme.routing.cells import Destination, Grid
from thyme.routing.cells.grid import CELL_M

RIGHT_LEAST = 0.999
STRETCH_MOST = 1.5

SHAPES: dict[str, Callable[[float, float], bool]] = {
    "open": lambda x, y: True,
    "void": lambda x, y: math.dist((x, y), (0.5, 0.5)) > 0.3,
    "ring": lambda x, y: max(abs(x - 0.5), abs(y - 0.5)) > 0.33,
    "U": lambda x, y: x < 0.25 or x > 0.75 or y < 0.25,
    "comb": lambda x, y: y < 0.25 or int(8 * x) % 4 == 0,
    "parts": lambda x, y: x < 0.3 or x > 0.7,
}
"""Where nodes may be on a square of side 1."""


@st.composite
def landscapes(draw: st.DrawFn) -> Field:
    """Nodes at random positions in an area of some shape, from sparse to dense."""
    rng = Random(draw(st.integers(0, 2**32)))
    shape = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    grid = Grid(columns=draw(st.integers(4, 9)), rows=draw(st.integers(4, 9)))
    turned = draw(st.booleans())
    count = round(len(grid) * draw(st.sampled_from([0.3, 0.6, 1.0])))
    places: list[Place] = []
    while len(places) < count:
        x, y = rng.random(), rng.random()
        if shape(*((y, x) if turned else (x, y))):
            places.append((x * grid.columns * CELL_M, y * grid.rows * CELL_M))
    return Field(grid, dict(enumerate(places)))


@dataclass
class Score:
    """The results of many messages."""

    sent: int = 0
    right: int = 0
    hops: int = 0
    shortest: int = 0
    proxies: dict[tuple[CellId, CellId], set[CellId]] = field(default_factory=dict)
    """The proxies of an empty cell, for each connected part, which is named by its least cell."""

    def send(self, field: Field, source: NodeId, reached: dict[NodeId, int], cell: CellId) -> None:
        """Sends a message from a node to a cell."""
        for ear in field.ears.values():
            ear.arrivals.clear()
        field.nodes[source].send([Destination(cell)], question(1), field.now_us)
        field.run(source)
        first = {
            node_id: arrival.hops
            for node_id, ear in field.ears.items()
            for arrival in ear.arrivals
            if arrival.is_first
        }
        wanted = field.closest(reached, cell)
        self.sent += 1
        if [field.cell(node_id) for node_id in first] != [wanted]:
            return
        self.right += 1
        if wanted == cell:
            self.hops += sum(first.values())
            self.shortest += min(far for n, far in reached.items() if field.cell(n) == cell)
        else:
            part = min(map(field.cell, reached))
            self.proxies.setdefault((part, cell), set()).add(wanted)


def test_d5_d6_messages_find_their_cell_or_its_proxy_whatever_the_landscape() -> None:
    """At least 99.9 % of them, over routes at most half as long again as the shortest; all sources
    agree on the proxy."""
    total = Score()

    @settings(
        max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(landscapes(), st.randoms(use_true_random=False))
    def tried_out(field: Field, rng: Random) -> None:
        field.logging = False
        field.settle()
        here = Score()
        for source in rng.sample(list(field.nodes), min(3, len(field.nodes))):
            reached = field.component(source)
            for cell in rng.sample(range(len(field.grid)), min(25, len(field.grid))):
                here.send(field, source, reached, CellId(cell))
        assert all(len(found) == 1 for found in here.proxies.values())
        for what in ("sent", "right", "hops", "shortest"):
            setattr(total, what, getattr(total, what) + getattr(here, what))

    tried_out()

    assert total.sent > 1_000
    assert total.right >= RIGHT_LEAST * total.sent
    assert total.hops <= STRETCH_MOST * total.shortest


def sparse(seed: int) -> Field:
    """Few nodes at random positions: whether two cells hear each other depends on centimetres."""
    rng = Random(seed)
    grid = Grid(columns=rng.randint(3, 8), rows=rng.randint(3, 8))
    count = max(3, round(len(grid) * rng.choice([0.15, 0.2, 0.25, 0.3, 0.4])))
    width_m, height_m = grid.columns * CELL_M, grid.rows * CELL_M
    places = [(rng.uniform(0, width_m), rng.uniform(0, height_m)) for _ in range(count)]
    return Field(grid, dict(enumerate(places)), seed=seed)


@pytest.mark.parametrize("seed", [2975, 3513, 6437, 9425, 9661])
def test_d5_an_edge_that_only_one_end_keeps_is_kept_by_none(seed: int) -> None:
    """In each of these a cell lies between two others, of which only one can know it; before the
    fix, messages ran in loops or reached the wrong proxy."""
    field = sparse(seed).settle()
    field.logging = False

    score = Score()
    for source in list(field.nodes)[:3]:
        reached = field.component(source)
        for cell in range(len(field.grid)):
            score.send(field, source, reached, CellId(cell))

    assert score.right == score.sent > 0
