"""Dynamic cells: keys follow as cells fill and empty, and nothing comes back to life."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.substrates.dcs.network import LONE, SETTLED_S, STREET, DcsNetwork, in_cell, tag_in
from thyme.model.ids import NodeId
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId, CellTarget
from thyme.routing.cells import Grid
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.dcs.config import PAPER

# Filling


def test_d24_a_cell_that_fills_receives_its_keys_from_its_proxy() -> None:
    net = DcsNetwork({**STREET, "eve": in_cell(3)}, absent=("eve",))
    net.subscribe("ann", tag_in(3))
    net.insert("dan", "photo", tag_in(3))
    assert net.indexing("photo") == {"bea", "ben"}, "the proxy of the empty cell"

    net.come("eve")
    net.run(10)

    assert net.indexing("photo") == {"eve"}
    assert set(net.standing()) == {"eve"}, "and it keeps them no longer"
    assert net.heard("ann") == ["photo"]
    net.insert("dan", "second", tag_in(3))
    assert net.heard("ann") == ["photo", "second"]


def test_d24_it_also_receives_those_of_empty_cells_for_which_it_is_now_the_proxy() -> None:
    places = {"ann": in_cell(0), "abe": in_cell(0, 1), "dan": in_cell(2), "eve": in_cell(4)}
    net = DcsNetwork(places, absent=("eve",))
    net.insert("ann", "photo", tag_in(5))
    assert net.indexing("photo") == {"dan"}

    net.come("eve")
    net.run(10)

    assert net.indexing("photo") == {"eve"}


def test_d24_what_is_of_the_own_cell_too_stays() -> None:
    net = DcsNetwork({**STREET, "eve": in_cell(3)}, absent=("eve",))
    net.subscribe("ann", f"{tag_in(2)} | {tag_in(3)}")
    net.insert("dan", "photo", tag_in(2), tag_in(3))

    net.come("eve")
    net.run(10)

    assert net.indexing("photo") == {"bea", "ben", "eve"}
    [there] = net.nodes["eve"].index.cell_subscriptions()
    [here] = net.nodes["bea"].index.cell_subscriptions()
    assert [c.positive for c in there.subscription.conjunctions] == [(tag_in(3),)]
    assert [c.positive for c in here.subscription.conjunctions] == [(tag_in(2),)]


def test_d24_only_one_of_the_proxy_hands_over_and_it_is_not_matched_again() -> None:
    net = DcsNetwork({**STREET, "eve": in_cell(3)}, absent=("eve",))
    net.subscribe("ann", tag_in(3))
    net.insert("dan", "photo", tag_in(3))
    net.sent.clear()

    net.come("eve")
    net.run(15)

    givers = {name for name, _ in net.messages(cell_wire.TransferState)}
    assert givers == {"bea"}
    assert net.messages(cell_wire.CellNotify) == []


def test_d24_an_object_published_before_the_keys_are_there_is_matched_when_they_come() -> None:
    """A subscription and an object that met nowhere else meet where both belong."""
    net = DcsNetwork({**STREET, "eve": in_cell(3)}, absent=("eve",))
    net.subscribe("ann", tag_in(3))
    net.come("eve")
    while not net.nodes["eve"].routing.serving:
        net.run(0.001)
    net.run(0.005)  # everybody knows, and it knows nothing yet

    net.insert("cat", "photo", tag_in(3), seconds=0.01)
    assert net.standing() == {"bea": 1, "ben": 1}
    assert net.indexing("photo") == {"eve"}
    assert net.heard("ann") == []
    net.run(5)

    assert net.heard("ann") == ["photo"]


# Emptying


@pytest.mark.parametrize("how", ["moves", "leaves"])
def test_d24_a_cell_that_becomes_empty_hands_all_its_keys_to_its_proxy(how: str) -> None:
    net = DcsNetwork(LONE)
    net.subscribe("ann", tag_in(4))
    net.insert("dan", "photo", tag_in(4))
    assert net.indexing("photo") == {"cat"}

    if how == "moves":
        net.move("cat", in_cell(5, 3), settle_s=SETTLED_S)
        net.move("cat", in_cell(7), settle_s=SETTLED_S)
    else:
        net.leave("cat")
        net.run(6)

    assert net.found("ann", tag_in(4)) == {"photo"}
    net.insert("dan", "second", tag_in(4))
    assert net.heard("ann") == ["photo", "second"]


def test_d24_cells_that_fill_and_empty_again_and_again_forget_nothing() -> None:
    net = DcsNetwork(LONE)
    net.subscribe("ann", tag_in(4))
    for turn in range(4):
        net.insert("dan", f"photo-{turn}", tag_in(4))
        net.move("cat", in_cell(3 if turn % 2 else 5), settle_s=SETTLED_S)
        net.insert("dan", f"other-{turn}", tag_in(4))
        net.move("cat", in_cell(4), settle_s=SETTLED_S)

    everything = {f"{kind}-{turn}" for turn in range(4) for kind in ("photo", "other")}
    assert set(net.heard("ann")) == everything
    assert net.found("dan", tag_in(4)) == everything


def test_d24_who_is_not_the_last_hands_nothing_over() -> None:
    net = DcsNetwork(STREET)
    net.insert("dan", "photo", tag_in(4))
    net.sent.clear()

    net.move("cat", in_cell(5), settle_s=SETTLED_S)

    assert net.messages(cell_wire.TransferState) == []


def test_d24_the_proxied_cells_of_a_cell_that_becomes_empty_go_to_their_own_proxies() -> None:
    square = Grid(columns=5, rows=3, range_m=200.0)
    corners = {
        name: in_cell(cell, 0, square) for name, cell in (("ann", 0), ("bea", 7), ("cat", 14))
    }
    net = DcsNetwork(corners, grid=square)
    net.insert("ann", "low", tag_in(2, 0, square))
    net.insert("ann", "high", tag_in(12, 0, square))
    assert net.indexing("low") == net.indexing("high") == {"bea"}

    net.leave("bea")
    net.run(8)

    assert net.indexing("low") == {"ann"}
    assert net.indexing("high") == {"cat"}


def test_d24_objects_that_only_the_last_of_a_cell_has_can_still_be_had() -> None:
    net = DcsNetwork(LONE)
    key = net.insert("cat", "photo", tag_in(1))

    net.leave("cat")
    net.run(6)

    net.subscribe("ann", tag_in(1))
    assert net.finish("ann", asked.Retrieve, metadata=net.metadata("ann", "photo")) == b"pixels"
    assert net.holding(key)


def test_d24_objects_held_for_others_stay_with_the_last_who_moves_away() -> None:
    """Nothing acknowledged is lost while somebody has it."""
    net = DcsNetwork({**LONE, "col": in_cell(4, 1)})
    key = net.insert("col", "photo", tag_in(1))
    net.go("col")
    net.run(6)
    assert net.holding(key) == {"cat"}

    net.move("cat", in_cell(6, 3), settle_s=SETTLED_S)

    net.subscribe("bea", tag_in(1))
    assert net.finish("bea", asked.Retrieve, metadata=net.metadata("bea", "photo")) == b"pixels"


def test_d24_objects_that_the_proxy_holds_go_back_when_the_cell_fills() -> None:
    net = DcsNetwork(LONE)
    key = net.insert("cat", "photo", tag_in(1))
    net.leave("cat")
    net.run(6)

    net.places["eve"] = in_cell(4, 2)
    net.told["eve"] = []
    net.move("eve", in_cell(4, 2))
    net.come("eve")
    net.run(12)

    assert net.nodes["eve"].replicas.get(key) is not None


# Tombstones


def test_d15_what_was_deleted_while_a_node_was_away_does_not_come_back_with_it() -> None:
    """D24, D15: it comes back alone to its cell, with old state; the proxy knows better."""
    net = DcsNetwork(LONE)
    begun = net.subscribe("ann", tag_in(4))
    gone = net.insert("dan", "gone", tag_in(4))
    net.insert("dan", "stays", tag_in(4))
    net.go("cat")
    net.run(8)
    net.finish("dan", asked.Delete, key=gone)
    net.finish("ann", asked.Unsubscribe, sid=begun.sid)

    net.come("cat")
    net.run(12)

    assert set(net.index("cat")) == {"stays"}
    assert net.standing() == {}
    assert net.found("bea", tag_in(4)) == {"stays"}


def test_d15_old_state_that_is_handed_over_does_not_bring_back_what_was_deleted() -> None:
    net = DcsNetwork(LONE)
    gone = net.insert("dan", "gone", tag_in(4))
    [old] = net.nodes["cat"].index.objects()
    net.finish("dan", asked.Delete, key=gone)

    late = cell_wire.TransferState(7, CellId(4), cell_wire.CellState(0, 0, 1, objects=(old,)))
    packet = wire.CellPacket(NodeId(b"old"), CellId(3), 1, 0, (CellTarget(CellId(4)),), late)
    net.receive("cat", "bea", packet)
    net.run(2)

    assert net.index("cat") == {}


# Strangers


def test_a_stranger_who_claims_a_cell_in_its_beacon_cannot_make_keys_vanish() -> None:
    """D24, M25: keys stay until whoever should have them says so."""
    net = DcsNetwork({**STREET, "mal": in_cell(3)}, absent=("mal",))
    net.subscribe("ann", tag_in(3))
    net.insert("dan", "photo", tag_in(3))

    for _ in range(10):
        for name in ("bea", "ben", "cat", "col"):
            beacon = cell_wire.CellBeacon(CellId(3), True, bytes(12), b"")
            net.receive(name, "mal", beacon)
        net.run(2)

    assert net.indexing("photo") == {"bea", "ben"}
    assert set(net.standing()) == {"bea", "ben"}
    net.run(30)  # it is silent, and nobody takes it for the cell any more
    assert net.found("dan", tag_in(3)) == {"photo"}


def test_a_stranger_cannot_have_a_cell_forget_by_saying_that_all_is_handed_over() -> None:
    net = DcsNetwork({**STREET, "eve": in_cell(3)}, absent=("eve",))
    key = net.insert("dan", "photo", tag_in(3))
    lie = cell_wire.StateTransferred(CellId(3), (key,))
    spread = wire.CellBroadcast(NodeId(b"ben"), CellId(2), 99, 0, CellId(2), CellId(2), lie)

    net.receive("bea", "ben", spread)

    assert "bea" in net.indexing("photo")


# Clocks


def test_m12_clocks_that_differ_by_two_seconds_lose_nothing_on_the_way() -> None:
    """D24: instants in what is handed over are those of others."""
    tolerant = replace(PAPER, broker=BrokerConfig(metadata_only=True, skew_us=2_000_000))
    skews = {"ann": 2.0, "bea": -2.0, "cat": 2.0, "dan": 0.0}
    net = DcsNetwork(LONE, config=tolerant, skews_s=skews)
    net.subscribe("ann", tag_in(4))
    net.insert("dan", "photo", tag_in(4))
    gone = net.insert("dan", "gone", tag_in(4))
    net.finish("dan", asked.Delete, key=gone)

    net.move("cat", in_cell(5), settle_s=SETTLED_S)
    net.insert("dan", "second", tag_in(4))
    net.move("cat", in_cell(4), settle_s=2 * SETTLED_S)

    assert net.found("dan", tag_in(4)) == {"photo", "second"}
    assert net.heard("ann") == ["photo", "gone", "second"]
    assert set(net.index("cat")) == {"photo", "second"}
