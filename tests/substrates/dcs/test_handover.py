"""Dynamic cells: keys follow as cells fill and empty, and nothing comes back to life."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.substrates.dcs.town import LONE, SETTLED_S, STREET, Town, in_cell, tag_in
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
    town = Town({**STREET, "eve": in_cell(3)}, absent=("eve",))
    town.subscribe("ann", tag_in(3))
    town.insert("dan", "photo", tag_in(3))
    assert town.indexing("photo") == {"bea", "ben"}, "the proxy of the empty cell"

    town.come("eve")
    town.run(10)

    assert town.indexing("photo") == {"eve"}
    assert set(town.standing()) == {"eve"}, "and it keeps them no longer"
    assert town.heard("ann") == ["photo"]
    town.insert("dan", "second", tag_in(3))
    assert town.heard("ann") == ["photo", "second"]


def test_d24_it_also_receives_those_of_empty_cells_for_which_it_is_now_the_proxy() -> None:
    places = {"ann": in_cell(0), "abe": in_cell(0, 1), "dan": in_cell(2), "eve": in_cell(4)}
    town = Town(places, absent=("eve",))
    town.insert("ann", "photo", tag_in(5))
    assert town.indexing("photo") == {"dan"}

    town.come("eve")
    town.run(10)

    assert town.indexing("photo") == {"eve"}


def test_d24_what_is_of_the_own_cell_too_stays() -> None:
    town = Town({**STREET, "eve": in_cell(3)}, absent=("eve",))
    town.subscribe("ann", f"{tag_in(2)} | {tag_in(3)}")
    town.insert("dan", "photo", tag_in(2), tag_in(3))

    town.come("eve")
    town.run(10)

    assert town.indexing("photo") == {"bea", "ben", "eve"}
    [there] = town.nodes["eve"].index.cell_subscriptions()
    [here] = town.nodes["bea"].index.cell_subscriptions()
    assert [c.positive for c in there.subscription.conjunctions] == [(tag_in(3),)]
    assert [c.positive for c in here.subscription.conjunctions] == [(tag_in(2),)]


def test_d24_only_one_of_the_proxy_hands_over_and_it_is_not_matched_again() -> None:
    town = Town({**STREET, "eve": in_cell(3)}, absent=("eve",))
    town.subscribe("ann", tag_in(3))
    town.insert("dan", "photo", tag_in(3))
    town.sent.clear()

    town.come("eve")
    town.run(15)

    givers = {name for name, _ in town.messages(cell_wire.TransferState)}
    assert givers == {"bea"}
    assert town.messages(cell_wire.CellNotify) == []


def test_d24_an_object_published_before_the_keys_are_there_is_matched_when_they_come() -> None:
    """A subscription and an object that met nowhere else meet where both belong."""
    town = Town({**STREET, "eve": in_cell(3)}, absent=("eve",))
    town.subscribe("ann", tag_in(3))
    town.come("eve")
    while not town.nodes["eve"].routing.serving:
        town.run(0.001)
    town.run(0.005)  # everybody knows, and it knows nothing yet

    town.insert("cat", "photo", tag_in(3), seconds=0.01)
    assert town.standing() == {"bea": 1, "ben": 1}
    assert town.indexing("photo") == {"eve"}
    assert town.heard("ann") == []
    town.run(5)

    assert town.heard("ann") == ["photo"]


# Emptying


@pytest.mark.parametrize("how", ["moves", "leaves"])
def test_d24_a_cell_that_becomes_empty_hands_all_its_keys_to_its_proxy(how: str) -> None:
    town = Town(LONE)
    town.subscribe("ann", tag_in(4))
    town.insert("dan", "photo", tag_in(4))
    assert town.indexing("photo") == {"cat"}

    if how == "moves":
        town.move("cat", in_cell(5, 3), settle_s=SETTLED_S)
        town.move("cat", in_cell(7), settle_s=SETTLED_S)
    else:
        town.leave("cat")
        town.run(6)

    assert town.found("ann", tag_in(4)) == {"photo"}
    town.insert("dan", "second", tag_in(4))
    assert town.heard("ann") == ["photo", "second"]


def test_d24_cells_that_fill_and_empty_again_and_again_forget_nothing() -> None:
    town = Town(LONE)
    town.subscribe("ann", tag_in(4))
    for turn in range(4):
        town.insert("dan", f"photo-{turn}", tag_in(4))
        town.move("cat", in_cell(3 if turn % 2 else 5), settle_s=SETTLED_S)
        town.insert("dan", f"other-{turn}", tag_in(4))
        town.move("cat", in_cell(4), settle_s=SETTLED_S)

    everything = {f"{kind}-{turn}" for turn in range(4) for kind in ("photo", "other")}
    assert set(town.heard("ann")) == everything
    assert town.found("dan", tag_in(4)) == everything


def test_d24_who_is_not_the_last_hands_nothing_over() -> None:
    town = Town(STREET)
    town.insert("dan", "photo", tag_in(4))
    town.sent.clear()

    town.move("cat", in_cell(5), settle_s=SETTLED_S)

    assert town.messages(cell_wire.TransferState) == []


def test_d24_the_wards_of_a_cell_that_becomes_empty_go_to_their_own_proxies() -> None:
    square = Grid(columns=5, rows=3, range_m=200.0)
    corners = {
        name: in_cell(cell, 0, square) for name, cell in (("ann", 0), ("bea", 7), ("cat", 14))
    }
    town = Town(corners, grid=square)
    town.insert("ann", "low", tag_in(2, 0, square))
    town.insert("ann", "high", tag_in(12, 0, square))
    assert town.indexing("low") == town.indexing("high") == {"bea"}

    town.leave("bea")
    town.run(8)

    assert town.indexing("low") == {"ann"}
    assert town.indexing("high") == {"cat"}


def test_d24_objects_that_only_the_last_of_a_cell_has_can_still_be_had() -> None:
    town = Town(LONE)
    key = town.insert("cat", "photo", tag_in(1))

    town.leave("cat")
    town.run(6)

    town.subscribe("ann", tag_in(1))
    assert town.finish("ann", asked.Retrieve, metadata=town.metadata("ann", "photo")) == b"pixels"
    assert town.holding(key)


def test_d24_objects_held_for_others_stay_with_the_last_who_moves_away() -> None:
    """Nothing acknowledged is lost while somebody has it."""
    town = Town({**LONE, "col": in_cell(4, 1)})
    key = town.insert("col", "photo", tag_in(1))
    town.go("col")
    town.run(6)
    assert town.holding(key) == {"cat"}

    town.move("cat", in_cell(6, 3), settle_s=SETTLED_S)

    town.subscribe("bea", tag_in(1))
    assert town.finish("bea", asked.Retrieve, metadata=town.metadata("bea", "photo")) == b"pixels"


def test_d24_objects_that_the_proxy_holds_go_back_when_the_cell_fills() -> None:
    town = Town(LONE)
    key = town.insert("cat", "photo", tag_in(1))
    town.leave("cat")
    town.run(6)

    town.places["eve"] = in_cell(4, 2)
    town.told["eve"] = []
    town.move("eve", in_cell(4, 2))
    town.come("eve")
    town.run(12)

    assert town.nodes["eve"].replicas.get(key) is not None


# Tombstones


def test_d15_what_was_deleted_while_a_node_was_away_does_not_come_back_with_it() -> None:
    """D24, D15: it comes back alone to its cell, with old state; the proxy knows better."""
    town = Town(LONE)
    begun = town.subscribe("ann", tag_in(4))
    gone = town.insert("dan", "gone", tag_in(4))
    town.insert("dan", "stays", tag_in(4))
    town.go("cat")
    town.run(8)
    town.finish("dan", asked.Delete, key=gone)
    town.finish("ann", asked.Unsubscribe, sid=begun.sid)

    town.come("cat")
    town.run(12)

    assert set(town.index("cat")) == {"stays"}
    assert town.standing() == {}
    assert town.found("bea", tag_in(4)) == {"stays"}


def test_d15_old_state_that_is_handed_over_does_not_bring_back_what_was_deleted() -> None:
    town = Town(LONE)
    gone = town.insert("dan", "gone", tag_in(4))
    [old] = town.nodes["cat"].index.objects()
    town.finish("dan", asked.Delete, key=gone)

    late = cell_wire.TransferState(7, CellId(4), cell_wire.CellState(0, 0, 1, objects=(old,)))
    packet = wire.CellPacket(NodeId(b"old"), CellId(3), 1, 0, (CellTarget(CellId(4)),), late)
    town.receive("cat", "bea", packet)
    town.run(2)

    assert town.index("cat") == {}


# Strangers


def test_a_stranger_who_claims_a_cell_in_its_beacon_cannot_make_keys_vanish() -> None:
    """D24, M25: keys stay until whoever should have them says so."""
    town = Town({**STREET, "mal": in_cell(3)}, absent=("mal",))
    town.subscribe("ann", tag_in(3))
    town.insert("dan", "photo", tag_in(3))

    for _ in range(10):
        for name in ("bea", "ben", "cat", "col"):
            beacon = cell_wire.CellBeacon(CellId(3), True, bytes(12), b"")
            town.receive(name, "mal", beacon)
        town.run(2)

    assert town.indexing("photo") == {"bea", "ben"}
    assert set(town.standing()) == {"bea", "ben"}
    town.run(30)  # it is silent, and nobody takes it for the cell any more
    assert town.found("dan", tag_in(3)) == {"photo"}


def test_a_stranger_cannot_have_a_cell_forget_by_saying_that_all_is_handed_over() -> None:
    town = Town({**STREET, "eve": in_cell(3)}, absent=("eve",))
    key = town.insert("dan", "photo", tag_in(3))
    lie = cell_wire.StateTransferred(CellId(3), (key,))
    spread = wire.CellBroadcast(NodeId(b"ben"), CellId(2), 99, 0, CellId(2), CellId(2), lie)

    town.receive("bea", "ben", spread)

    assert "bea" in town.indexing("photo")


# Clocks


def test_m12_clocks_that_differ_by_two_seconds_lose_nothing_on_the_way() -> None:
    """D24: instants in what is handed over are those of others."""
    tolerant = replace(PAPER, broker=BrokerConfig(metadata_only=True, skew_us=2_000_000))
    skews = {"ann": 2.0, "bea": -2.0, "cat": 2.0, "dan": 0.0}
    town = Town(LONE, config=tolerant, skews_s=skews)
    town.subscribe("ann", tag_in(4))
    town.insert("dan", "photo", tag_in(4))
    gone = town.insert("dan", "gone", tag_in(4))
    town.finish("dan", asked.Delete, key=gone)

    town.move("cat", in_cell(5), settle_s=SETTLED_S)
    town.insert("dan", "second", tag_in(4))
    town.move("cat", in_cell(4), settle_s=2 * SETTLED_S)

    assert town.found("dan", tag_in(4)) == {"photo", "second"}
    assert town.heard("ann") == ["photo", "gone", "second"]
    assert set(town.index("cat")) == {"photo", "second"}
