"""Messages neither multiply nor loop, whatever links do and neighbours assume."""

from __future__ import annotations

from tests.routing.cells.field import Field, name, question
from thyme.protocol.messages.cell_records import CellId, CellTarget
from thyme.protocol.messages.cells import CellBeacon
from thyme.protocol.messages.common import CellPacket
from thyme.routing.cells import Destination, Grid

STREET = Grid(columns=8, rows=1)
FAR = CellId(3)


def test_d10_a_packet_that_a_link_doubles_is_passed_on_once() -> None:
    field = Field(STREET, {0: (20.0, 20.0), 1: (100.0, 20.0), 2: (180.0, 20.0)}).settle()
    packet = CellPacket(name(0), CellId(0), 7, 0, (CellTarget(CellId(4)),), question(1))
    field.log.clear()

    for _ in range(3):
        field.nodes[name(1)].on_received(name(0), packet, field.now_us)
        field.run(name(1))

    assert field.hops() == [(name(1), name(2))]
    assert len(field.ears[name(2)].arrivals) == 1


def test_d5_cell_peers_who_take_each_other_for_the_one_who_knows_give_up() -> None:
    """Each assumes that the other hears a cell that has become empty."""
    field = Field(STREET, {0: (20.0, 20.0), 1: (22.0, 20.0)}).settle()
    for one, other in ((0, 1), (1, 0)):
        window = field.nodes[name(one)].neighbours.layout
        heard_of = window.bit(STREET.offset(CellId(0), FAR))
        stale = CellBeacon(CellId(0), True, window.encode(0, heard_of), b"")
        field.nodes[name(one)].on_received(name(other), stale, field.now_us)
    field.log.clear()

    field.nodes[name(0)].send([Destination(FAR)], question(1), field.now_us)
    field.run(name(0))

    assert field.hops() == [(name(0), name(1))]
    assert field.nodes[name(1)].traffic.dropped == {"nobody in the cell knows the way": 1}
