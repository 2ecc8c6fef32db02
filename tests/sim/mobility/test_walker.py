"""S6: while nodes move, the known links are those that a fresh computation finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thyme.sim.engine.kernel import make_kernel
from thyme.sim.mobility.paths import Leg, pause_leg, position_at, straight_leg
from thyme.sim.mobility.walker import PathWalker
from thyme.sim.radio.link_table import LinkTable
from thyme.sim.radio.phy import Phy

PLACES = st.tuples(st.floats(0, 600), st.floats(0, 600))
NODES = 6


def facts(links: LinkTable, number: int) -> tuple[object, ...]:
    row = links.row(number)
    clean = links.clear_reception(row, 3_000)
    return (
        (row.power_mw, row.detecting, row.sensing, row.in_reach, row.in_reach_or_self, row.levels),
        (
            clean.header_sure,
            clean.sure,
            clean.possible,
            clean.uncertain,
            clean.header_only,
            clean.header_probability,
        ),
    )


@given(
    st.lists(PLACES, min_size=NODES, max_size=NODES),
    st.lists(st.tuples(st.integers(0, NODES - 1), PLACES, st.booleans()), max_size=20),
)
def test_s6_neighbour_sets_stay_exact_while_nodes_move(
    places: list[tuple[float, float]], moves: list[tuple[int, tuple[float, float], bool]]
) -> None:
    links = LinkTable(Phy(), places)
    for number, place, look in moves:
        if look:  # some rows are known before the next move, some are not
            links.clear_reception(links.row(number), 3_000)
        places[number] = place
        links.move(number, place)
    fresh = LinkTable(Phy(), places)
    for number in range(NODES):
        assert facts(links, number) == facts(fresh, number)


def test_s6_a_walker_is_never_further_than_a_step_from_where_it_should_be() -> None:
    there = straight_leg(5_000_000, (0.0, 0.0), (30.0, 40.0), 2.5)
    path: list[Leg] = [
        pause_leg(0, 5_000_000, (0.0, 0.0)),
        there,
        pause_leg(there.end_us, there.end_us + 10_000_000, (30.0, 40.0)),
    ]
    kernel = make_kernel()
    links = LinkTable(Phy(), [(0.0, 0.0), (300.0, 0.0)])
    motion = PathWalker(kernel, links, {0: path}, step_m=1.0)
    for at_us in range(0, 35_000_000, 100_000):
        kernel.run(at_us)
        x, y = links.position_of(0)
        true_x, true_y = position_at(path, at_us)
        assert abs(x - true_x) + abs(y - true_y) <= 1.5
    assert links.position_of(0) == (30.0, 40.0)
    assert 50 <= motion.steps_taken <= 53, "pauses take no steps"
