"""Any message is dropped or forwarded, never fatal; and nothing grows."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.routing.cells.field import Field, name, question
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId, CellTarget, PerimeterState
from thyme.protocol.messages.cells import CellBeacon
from thyme.protocol.messages.common import CellBroadcast, CellPacket, Message
from thyme.routing.cells import CellRoutingConfig, Grid

GRID = Grid.covering(160.0, 120.0)
PLACES = {n: (20.0 + 40.0 * (n % 4), 20.0 + 40.0 * (n // 4)) for n in (0, 1, 2, 4, 7, 9)}

cells = (st.integers(0, 11) | st.integers(0, 2**16 - 1)).map(CellId)
nodes = st.integers(0, 12).map(name)
numbers = st.integers(0, 3)
hops = st.integers(0, 300)
perimeters = st.builds(PerimeterState, cells, cells, cells, cells)
targets = st.builds(CellTarget, cells, st.none() | nodes, st.none() | perimeters)
anything: st.SearchStrategy[Message] = st.one_of(
    st.builds(CellBeacon, cells, st.booleans(), st.binary(min_size=12, max_size=12), st.just(b"")),
    st.builds(CellBeacon, cells, st.booleans(), st.binary(max_size=14), st.binary(max_size=5)),
    st.builds(
        CellPacket,
        nodes,
        cells,
        numbers,
        hops,
        st.lists(targets, min_size=1, max_size=4).map(tuple),
        st.just(question(1)),
    ),
    st.builds(CellBroadcast, nodes, cells, numbers, hops, cells, cells, st.just(question(1))),
)


@settings(max_examples=200)
@given(st.lists(st.tuples(nodes, st.integers(0, 5), anything), max_size=12))
def test_nothing_on_the_air_breaks_a_node(heard: list[tuple[NodeId, int, Message]]) -> None:
    """The messages that the nodes send in response end, too."""
    field = Field(GRID, PLACES, config=CellRoutingConfig(neighbours_max=8, seen_max=4)).settle(2)
    names = list(field.nodes)

    for sender, at, message in heard:
        assert field.nodes[names[at]].on_received(sender, message, field.now_us)
        field.run(names[at])
        for node in field.nodes.values():
            node.check()

    assert len(field.log) <= 12 * 4 * 2 * 260
