"""Joining a cell: what a node that comes, or comes back, knows before it works for others."""

from __future__ import annotations

import msgspec

from tests.builders import photo
from tests.substrates.dcs.town import STREET, Town, in_cell, tag_in
from thyme.model.ids import NodeId
from thyme.protocol import cell_messages as cell_wire
from thyme.protocol import requests as asked
from thyme.protocol.cells import CellId, Indexed, Replica
from thyme.substrates.dcs.config import PAPER, JoiningConfig
from thyme.substrates.dcs.joining import Phase
from thyme.substrates.dcs.replicas import Role
from thyme.wire import size_of


def test_d23_a_newcomer_gets_the_whole_state_of_its_cell_before_it_serves() -> None:
    town = Town(STREET, absent=("abe",))
    town.subscribe("dan", tag_in(0))
    gone = town.insert("bea", "gone", tag_in(0))
    town.finish("bea", asked.Delete, key=gone)
    own = town.insert("ann", "hers", tag_in(0))
    town.insert("cat", "other", tag_in(0))
    cancelled = town.subscribe("bea", tag_in(0))
    town.finish("bea", asked.Unsubscribe, sid=cancelled.sid)

    abe = town.come("abe")
    town.run(0.01)
    assert not abe.routing.serving
    town.run(5)

    assert abe.joining.phase is Phase.JOINED
    assert abe.routing.serving
    ann = town.nodes["ann"]
    assert list(abe.index.objects()) == list(ann.index.objects())
    assert list(abe.index.interests()) == list(ann.index.interests())
    assert list(abe.index.buried_objects()) == list(ann.index.buried_objects())
    assert list(abe.index.buried_subscriptions()) == list(ann.index.buried_subscriptions())
    assert own in {held.metadata.key for held in abe.replicas.of_role(Role.ACTIVE)}
    assert abe.replicas.data(own) == b"pixels"


def test_d23_a_node_that_hears_nobody_in_its_cell_is_alone_and_starts() -> None:
    town = Town({"ann": in_cell(0), "bea": in_cell(2)}, settle_s=2.9)
    assert [node.joining.phase for node in town.nodes.values()] == [Phase.LISTENING] * 2

    town.run(0.2)

    assert [node.joining.phase for node in town.nodes.values()] == [Phase.ALONE] * 2
    assert all(node.routing.serving for node in town.nodes.values())
    assert town.messages(cell_wire.FetchCellState) == []


def test_d23_state_comes_in_parts_of_bounded_size() -> None:
    joining = JoiningConfig(part_bytes_max=400)
    town = Town(STREET, absent=("abe",), config=msgspec.structs.replace(PAPER, joining=joining))
    for number in range(20):
        town.insert("ann", f"photo-{number}", tag_in(0))
    town.sent.clear()

    town.come("abe")
    town.run(6)

    parts = [packet.message for _, packet in town.messages(cell_wire.CellState)]
    assert len(parts) > 5
    assert all(size_of(part) < 400 + 150 for part in parts)
    assert {part.part for part in parts} == set(range(len(parts)))  # type: ignore[union-attr]
    assert len(town.index("abe")) == 20
    assert len(town.nodes["abe"].replicas) == 20


def test_d23_an_answer_that_does_not_come_is_asked_for_again_then_the_node_is_alone() -> None:
    town = Town(STREET, absent=("abe",))
    deaf = town.nodes["ann"]
    deaf.joining.on_request = lambda *_: None  # type: ignore[method-assign]

    abe = town.come("abe")
    town.run(20)

    asks = {packet.number for _, packet in town.messages(cell_wire.FetchCellState)}
    assert len(asks) == PAPER.joining.tries_max
    assert abe.joining.phase is Phase.ALONE
    assert abe.routing.serving


def test_d23_only_what_the_entry_point_tells_is_state() -> None:
    town = Town(STREET, absent=("abe",))
    town.nodes["ann"].joining.on_request = lambda *_: None  # type: ignore[method-assign]
    abe = town.come("abe")
    while abe.joining.phase is not Phase.ASKING:
        town.run(0.1)
    request = town.messages(cell_wire.FetchCellState)[-1][1].message
    assert isinstance(request, cell_wire.FetchCellState)
    true = Indexed(photo(1, tags=[tag_in(0)]), (Replica(CellId(4)),))
    state = cell_wire.CellState(request.request, 0, 1, (true,))

    abe.joining.on_state(NodeId(b"bea"), state, town.links.kernel.now_us)
    assert (list(abe.index.objects()), abe.joining.phase) == ([], Phase.ASKING)
    other = msgspec.structs.replace(state, request=request.request + 1)
    abe.joining.on_state(NodeId(b"ann"), other, town.links.kernel.now_us)
    assert (list(abe.index.objects()), abe.joining.phase) == ([], Phase.ASKING)

    abe.joining.on_state(NodeId(b"ann"), state, town.links.kernel.now_us)
    assert (list(abe.index.objects()), abe.joining.phase) == ([true], Phase.JOINED)


def test_d23_d15_who_was_away_learns_what_was_deleted_and_cancelled_meanwhile() -> None:
    town = Town(STREET)
    begun = town.subscribe("dan", tag_in(0))
    kept = town.insert("bea", "kept", tag_in(0))
    gone = town.insert("bea", "gone", tag_in(0))
    assert town.indexing("gone") == {"ann", "abe"}
    town.go("abe")
    town.finish("bea", asked.Delete, key=gone)
    town.finish("dan", asked.Unsubscribe, sid=begun.sid)

    abe = town.come("abe")
    town.run(6)

    assert set(town.index("abe")) == {kept.oid}
    assert abe.broker_subscriptions == 0


def test_m24_a_node_that_comes_back_alone_has_what_it_knew() -> None:
    town = Town({"ann": in_cell(0), "bea": in_cell(2)})
    key = town.insert("bea", "photo", tag_in(0))
    town.go("ann")
    town.come("ann")
    town.run(6)

    assert set(town.index("ann")) == {"photo"}
    town.subscribe("bea", tag_in(0))
    assert town.heard("bea") == ["photo"]
    assert town.holding(key) == {"bea"}


def test_d20_who_comes_back_elsewhere_drops_the_old_cell_s_state_but_keeps_its_own() -> None:
    town = Town(STREET)
    town.insert("bea", "indexed", tag_in(0))
    own = town.insert("ann", "own", tag_in(4))
    held = town.insert("abe", "held", tag_in(4))
    town.go("ann")

    ann = town.come("ann", in_cell(2, 2))
    town.run(6)

    assert town.index("ann") == town.index("ben")
    assert ann.replicas.get(own) is not None
    assert ann.replicas.get(held) is None


def test_d20_a_node_does_nothing_for_others_before_it_joins() -> None:
    town = Town(STREET, settle_s=2)

    assert not any(node.routing.serving for node in town.nodes.values())
    town.run(4)
    assert all(node.routing.serving for node in town.nodes.values())
