"""M25: whatever comes in, a node of Thyme-DCS goes on and keeps what it has."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import ALICE, photo, subscribe
from tests.substrates.dcs.network import ROW, STREET, DcsNetwork, in_cell, tag_in
from tests.wire.strategies import any_message
from thyme.model.ids import NodeId
from thyme.model.rng import derive_rng
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    CellTarget,
    IndexedMetadata,
    Replica,
)
from thyme.protocol.messages.common import CellPacket
from thyme.protocol.node import Received, SendFailed, Started, TimerFired
from thyme.routing.cells import Destination
from thyme.storage.store import MemoryStore
from thyme.substrates.dcs.cell_map import GridCellMap
from thyme.substrates.dcs.config import PAPER
from thyme.substrates.dcs.membership.cell_joining import CellJoinTimer
from thyme.substrates.dcs.node import DcsNode

ME, BEA = NodeId(b"me"), NodeId(b"bea")


def a_node() -> DcsNode:
    """A node in cell 3 that works for it."""
    rng = derive_rng(1, "node")
    node = DcsNode(ME, CellId(3), GridCellMap(ME, ROW, rng), MemoryStore(), rng, PAPER)
    node.handle(Started(), 0)
    node.handle(TimerFired(CellJoinTimer()), 3_000_000)
    assert node.routing.serving
    node.handle(Received(BEA, cell_wire.CellBeacon(CellId(3), True, bytes(12), b"")), 3_000_001)
    return node


@settings(max_examples=300)
@given(st.lists(st.tuples(any_message, st.booleans(), st.booleans()), max_size=12))
def test_no_message_harms_a_node(messages: list[tuple[wire.Message, bool, bool]]) -> None:
    node = a_node()
    now_us = 4_000_000
    for number, (message, carried, personal) in enumerate(messages):
        now_us += 1_000
        if carried:
            try:
                target = CellTarget(CellId(3), ME if personal else None)
                message = CellPacket(ALICE, CellId(4), number, 0, (target,), message)
            except ValueError:
                continue  # what holds a packet already
        for action in node.handle(Received(BEA, message), now_us):
            if type(action).__name__ == "Send":
                node.handle(SendFailed(action.to, action.message), now_us)  # type: ignore[union-attr]
        node.check()


NOWHERE = CellId(40_000)


@pytest.mark.parametrize(
    "message",
    [
        cell_wire.IndexObject(1, IndexedMetadata(photo(1, by=ALICE), (Replica(NOWHERE),))),
        cell_wire.CellNotify(IndexedMetadata(photo(1), (), (Replica(NOWHERE, ALICE),)), ()),
        wire.ReplyFromCell(
            CellId(1),
            cell_wire.CellPage(1, 1, (IndexedMetadata(photo(1), (Replica(NOWHERE),)),), False),
        ),
        cell_wire.CellState(1, 0, 1, subscriptions=(CellSubscription(subscribe(1), NOWHERE),)),
    ],
    ids=lambda message: type(message).__name__,
)
@pytest.mark.parametrize("personal", [False, True])
def test_d1_what_names_a_cell_that_is_not_there_is_dropped(
    message: wire.Message, personal: bool
) -> None:
    node = a_node()
    target = CellTarget(CellId(3), ME if personal else None)

    node.handle(Received(BEA, CellPacket(ALICE, CellId(4), 9, 0, (target,), message)), 4_000_000)

    assert node.dropped["no such cell"] == 1
    assert list(node.index.objects()) == []


def test_a_node_that_claims_another_s_name_cannot_make_it_lose_what_it_holds() -> None:
    """The bytes in a `HoldObject` must be those that its metadata describes (M19)."""
    net = DcsNetwork(STREET)
    key = net.insert("ann", "photo", tag_in(2))
    metadata = net.nodes["bea"].index.broker.catalogue.history.get(key)
    assert metadata is not None
    forged = cell_wire.StoreReplica(metadata, b"forged")
    dan = net.nodes["dan"]
    dan.routing.send([Destination(CellId(0))], forged, net.links.kernel.now_us)
    net.finish("dan", asked.ListSubscriptions)

    assert net.nodes["abe"].replicas.read_data(key) == b"pixels"


@pytest.mark.parametrize("step_ms", range(12))
@pytest.mark.parametrize("who", ["bea", "ann", "cat"])
def test_d19_whoever_vanishes_at_any_step_of_an_insert_the_rest_goes_on(
    who: str, step_ms: int
) -> None:
    """The owner, or the only node of the tag's cell, or the subscriber is gone in the middle."""
    places = {"ann": in_cell(0), "abe": in_cell(0, 1), "bea": in_cell(2), "cat": in_cell(4)}
    net = DcsNetwork({**places, "col": in_cell(4, 1)})
    net.subscribe("cat", tag_in(2))
    net.subscribe("col", tag_in(2))
    request = asked.Insert(request_id=7_000, data=b"x", tags=(tag_in(2),))
    net.links.ask(NodeId(b"ann"), request)
    net.run(step_ms / 1_000)
    net.go(who)
    net.run(30)

    for node in net.nodes.values():
        node.check()
        assert len(node.requests) == 0
    answers = [told for told in net.told["ann"] if getattr(told, "request_id", None) == 7_000]
    assert len(answers) <= 1
    if who == "cat":
        assert len(net.heard("col")) == 1
