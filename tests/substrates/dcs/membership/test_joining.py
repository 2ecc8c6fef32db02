"""Joining a cell: what a node that comes, or comes back, knows before it works for others."""

from __future__ import annotations

import msgspec

from tests.builders import photo
from tests.substrates.dcs.network import STREET, DcsNetwork, in_cell, tag_in
from thyme.model.ids import NodeId
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata, Replica
from thyme.substrates.dcs.config import PAPER, CellJoiningConfig
from thyme.substrates.dcs.membership.cell_joining import CellJoinPhase
from thyme.substrates.dcs.state.replica_store import ReplicaRole
from thyme.wire.codec import size_of


def test_d23_a_newcomer_gets_the_whole_state_of_its_cell_before_it_serves() -> None:
    net = DcsNetwork(STREET, absent=("abe",))
    net.subscribe("dan", tag_in(0))
    gone = net.insert("bea", "gone", tag_in(0))
    net.finish("bea", asked.Delete, key=gone)
    own = net.insert("ann", "hers", tag_in(0))
    net.insert("cat", "other", tag_in(0))
    cancelled = net.subscribe("bea", tag_in(0))
    net.finish("bea", asked.Unsubscribe, sid=cancelled.sid)

    abe = net.come("abe")
    net.run(0.01)
    assert not abe.routing.serving
    net.run(5)

    assert abe.joining.phase is CellJoinPhase.JOINED
    assert abe.routing.serving
    ann = net.nodes["ann"]
    assert list(abe.index.objects()) == list(ann.index.objects())
    assert list(abe.index.cell_subscriptions()) == list(ann.index.cell_subscriptions())
    assert list(abe.index.object_tombstones()) == list(ann.index.object_tombstones())
    assert list(abe.index.subscription_tombstones()) == list(ann.index.subscription_tombstones())
    assert own in {held.metadata.key for held in abe.replicas.with_role(ReplicaRole.ACTIVE)}
    assert abe.replicas.read_data(own) == b"pixels"


def test_d23_a_node_that_hears_nobody_in_its_cell_is_alone_and_starts() -> None:
    net = DcsNetwork({"ann": in_cell(0), "bea": in_cell(2)}, settle_s=2.9)
    assert [node.joining.phase for node in net.nodes.values()] == [CellJoinPhase.LISTENING] * 2

    net.run(0.2)

    assert [node.joining.phase for node in net.nodes.values()] == [CellJoinPhase.ALONE] * 2
    assert all(node.routing.serving for node in net.nodes.values())
    assert net.messages(cell_wire.FetchCellState) == []


def test_d23_state_comes_in_parts_of_bounded_size() -> None:
    joining = CellJoiningConfig(part_bytes_max=400)
    net = DcsNetwork(
        STREET, absent=("abe",), config=msgspec.structs.replace(PAPER, joining=joining)
    )
    for number in range(20):
        net.insert("ann", f"photo-{number}", tag_in(0))
    net.sent.clear()

    net.come("abe")
    net.run(6)

    parts = [packet.message for _, packet in net.messages(cell_wire.CellState)]
    assert len(parts) > 5
    assert all(size_of(part) < 400 + 150 for part in parts)
    assert {part.part for part in parts} == set(range(len(parts)))  # type: ignore[union-attr]
    assert len(net.index("abe")) == 20
    assert len(net.nodes["abe"].replicas) == 20


def test_d23_an_answer_that_does_not_come_is_asked_for_again_then_the_node_is_alone() -> None:
    net = DcsNetwork(STREET, absent=("abe",))
    deaf = net.nodes["ann"]
    deaf.handlers.table.add(cell_wire.FetchCellState, to_node=lambda *_: None)

    abe = net.come("abe")
    net.run(20)

    asks = {packet.number for _, packet in net.messages(cell_wire.FetchCellState)}
    assert len(asks) == PAPER.joining.tries_max
    assert abe.joining.phase is CellJoinPhase.ALONE
    assert abe.routing.serving


def test_d23_only_what_the_entry_point_tells_is_state() -> None:
    net = DcsNetwork(STREET, absent=("abe",))
    net.nodes["ann"].handlers.table.add(cell_wire.FetchCellState, to_node=lambda *_: None)
    abe = net.come("abe")
    while abe.joining.phase is not CellJoinPhase.REQUESTING:
        net.run(0.1)
    request = net.messages(cell_wire.FetchCellState)[-1][1].message
    assert isinstance(request, cell_wire.FetchCellState)
    true = IndexedMetadata(photo(1, tags=[tag_in(0)]), (Replica(CellId(4)),))
    state = cell_wire.CellState(request.request_id, 0, 1, (true,))

    abe.joining.on_state(NodeId(b"bea"), state, net.links.kernel.now_us)
    assert (list(abe.index.objects()), abe.joining.phase) == ([], CellJoinPhase.REQUESTING)
    other = msgspec.structs.replace(state, request_id=request.request_id + 1)
    abe.joining.on_state(NodeId(b"ann"), other, net.links.kernel.now_us)
    assert (list(abe.index.objects()), abe.joining.phase) == ([], CellJoinPhase.REQUESTING)

    abe.joining.on_state(NodeId(b"ann"), state, net.links.kernel.now_us)
    assert (list(abe.index.objects()), abe.joining.phase) == ([true], CellJoinPhase.JOINED)


def test_d23_d15_who_was_away_learns_what_was_deleted_and_cancelled_meanwhile() -> None:
    net = DcsNetwork(STREET)
    begun = net.subscribe("dan", tag_in(0))
    kept = net.insert("bea", "kept", tag_in(0))
    gone = net.insert("bea", "gone", tag_in(0))
    assert net.indexing("gone") == {"ann", "abe"}
    net.go("abe")
    net.finish("bea", asked.Delete, key=gone)
    net.finish("dan", asked.Unsubscribe, sid=begun.sid)

    abe = net.come("abe")
    net.run(6)

    assert set(net.index("abe")) == {kept.oid}
    assert abe.broker_subscriptions == 0


def test_m24_a_node_that_comes_back_alone_has_what_it_knew() -> None:
    net = DcsNetwork({"ann": in_cell(0), "bea": in_cell(2)})
    key = net.insert("bea", "photo", tag_in(0))
    net.go("ann")
    net.come("ann")
    net.run(6)

    assert set(net.index("ann")) == {"photo"}
    net.subscribe("bea", tag_in(0))
    assert net.heard("bea") == ["photo"]
    assert net.holding(key) == {"bea"}


def test_d20_who_comes_back_elsewhere_drops_the_old_cell_s_state_but_keeps_its_own() -> None:
    net = DcsNetwork(STREET)
    net.insert("bea", "indexed", tag_in(0))
    own = net.insert("ann", "own", tag_in(4))
    held = net.insert("abe", "held", tag_in(4))
    net.go("ann")

    ann = net.come("ann", in_cell(2, 2))
    net.run(6)

    assert net.index("ann") == net.index("ben")
    assert ann.replicas.get(own) is not None
    assert ann.replicas.get(held) is None


def test_d20_a_node_does_nothing_for_others_before_it_joins() -> None:
    net = DcsNetwork(STREET, settle_s=2)

    assert not any(node.routing.serving for node in net.nodes.values())
    net.run(4)
    assert all(node.routing.serving for node in net.nodes.values())
