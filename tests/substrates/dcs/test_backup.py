"""B1: a cell outlives the sudden death of its last nodes."""

from __future__ import annotations

import msgspec
import pytest

from tests.substrates.dcs.town import LONE, SETTLED_S, STREET, Town, in_cell, tag_in
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages.cell_records import CellId
from thyme.substrates.dcs.config import PAPER, BackupConfig
from thyme.substrates.dcs.robust.cell_backup import BACKUPS_MAX, CellBackups

SAFE = msgspec.structs.replace(PAPER, backup=BackupConfig(nodes_max=1))
SAFER = msgspec.structs.replace(PAPER, backup=BackupConfig(nodes_max=2))


def backups_of(town: Town, name: str) -> CellBackups:
    """The backups that a node stores."""
    backups = town.nodes[name].membership.backups
    assert backups is not None
    return backups


def test_b1_the_sudden_death_of_the_last_node_loses_nothing() -> None:
    town = Town(LONE, config=SAFE)
    begun = town.subscribe("ann", tag_in(4))
    over = town.subscribe("dan", tag_in(4, 1))
    town.insert("dan", "photo", tag_in(4))
    gone = town.insert("dan", "gone", tag_in(4))
    town.finish("dan", asked.Delete, key=gone)
    town.finish("dan", asked.Unsubscribe, sid=over.sid)
    town.run(3)

    town.go("cat")
    town.run(6)

    assert town.found("ann", tag_in(4)) == {"photo"}
    town.insert("dan", "second", tag_in(4))
    assert town.heard("ann") == ["photo", "gone", "second"]
    assert town.standing() == {"bea": 1}
    assert begun.sid != over.sid


def test_b1_without_it_they_are_lost() -> None:
    """The profile of the documents: nobody else has them."""
    town = Town(LONE)
    town.insert("dan", "photo", tag_in(4))
    town.run(3)
    town.go("cat")
    town.run(6)

    assert town.found("ann", tag_in(4)) == set()


def test_b1_what_is_kept_aside_is_not_served_while_its_cell_lives() -> None:
    town = Town(LONE, config=SAFE)
    town.subscribe("ann", tag_in(4))
    town.insert("dan", "photo", tag_in(4))
    town.run(3)

    assert CellId(4) in backups_of(town, "bea")
    assert town.indexing("photo") == {"cat"}
    assert town.standing() == {"cat": 1}


def test_b1_when_the_cell_fills_again_it_gets_all_back() -> None:
    town = Town({**LONE, "eve": in_cell(4, 2)}, config=SAFE, absent=("eve",))
    town.subscribe("ann", tag_in(4))
    town.insert("dan", "photo", tag_in(4))
    town.run(3)
    town.go("cat")
    town.run(6)
    town.insert("dan", "second", tag_in(4))

    town.come("eve")
    town.run(8)

    assert set(town.index("eve")) == {"photo", "second"}
    assert town.standing() == {"eve": 1}
    town.insert("dan", "third", tag_in(4))
    assert town.heard("ann") == ["photo", "second", "third"]


def test_b1_whoever_got_it_back_may_die_at_once_and_nothing_is_lost() -> None:
    """What the proxy gave away it keeps aside, so that nothing has to be sent back to it."""
    town = Town({**LONE, "eve": in_cell(4, 2)}, config=SAFE, absent=("eve",))
    town.subscribe("ann", tag_in(4))
    town.insert("dan", "photo", tag_in(4))
    town.run(3)
    town.go("cat")
    town.run(6)
    town.found("dan", tag_in(4))
    town.sent.clear()
    town.come("eve")
    town.run(5)
    assert set(town.index("eve")) == {"photo"}

    backups = [
        packet.message for name, packet in town.messages(cell_wire.BackupState) if name == "eve"
    ]
    assert all(not backup.state.objects for backup in backups)  # type: ignore[union-attr]
    town.go("eve")
    town.run(8)
    assert town.found("ann", tag_in(4)) == {"photo"}


def test_b1_changes_are_merged_over_a_short_time() -> None:
    town = Town(LONE, config=SAFE)
    town.sent.clear()
    for number in range(5):
        town.insert("dan", f"photo-{number}", tag_in(4), seconds=0.05)
    town.run(2)

    backups = [
        packet.message for name, packet in town.messages(cell_wire.BackupState) if name == "cat"
    ]
    assert [len(backup.state.objects) for backup in backups] == [5]  # type: ignore[union-attr]


def test_b1_a_cell_with_enough_nodes_needs_none() -> None:
    town = Town(STREET, config=SAFE)
    town.insert("dan", "photo", tag_in(4))
    town.run(3)
    assert town.messages(cell_wire.BackupState) == []

    town = Town(STREET, config=SAFER)
    town.insert("dan", "photo", tag_in(4))
    town.run(3)
    assert {name for name, _ in town.messages(cell_wire.BackupState)} >= {"cat"}
    assert "col" not in {name for name, _ in town.messages(cell_wire.BackupState)}, (
        "one of them is enough"
    )


def test_b1_when_a_cell_shrinks_all_of_it_is_kept_elsewhere() -> None:
    town = Town({**LONE, "col": in_cell(4, 1)}, config=SAFE)
    town.insert("dan", "photo", tag_in(4))
    town.run(3)
    town.go("cat")
    town.run(9)

    town.go("col")
    town.run(6)

    assert town.found("ann", tag_in(4)) == {"photo"}


def test_b1_the_wards_of_a_cell_are_kept_elsewhere_too() -> None:
    town = Town({"ann": in_cell(1), "bea": in_cell(3), "cat": in_cell(4)}, config=SAFE)
    town.insert("ann", "photo", tag_in(7))
    assert town.indexing("photo") == {"cat"}
    town.run(3)

    town.go("cat")
    town.run(6)

    assert town.found("ann", tag_in(7)) == {"photo"}
    assert town.indexing("photo") == {"bea"}


def test_b1_what_is_not_kept_up_to_date_is_thrown_away() -> None:
    brief = BackupConfig(nodes_max=1, ttl_us=30_000_000)
    town = Town({**LONE, "col": in_cell(4, 1)}, config=msgspec.structs.replace(PAPER, backup=brief))
    town.go("col")
    town.run(6)
    town.insert("dan", "photo", tag_in(4))
    town.run(25)
    assert CellId(4) in backups_of(town, "bea")
    town.come("col")

    town.run(70)

    assert CellId(4) not in backups_of(town, "bea")


@pytest.mark.parametrize("name", ["moves", "leaves", "dies"])
def test_b1_however_the_last_of_a_cell_goes_nothing_is_lost(name: str) -> None:
    town = Town(LONE, config=SAFE)
    town.subscribe("ann", tag_in(4))
    town.insert("dan", "photo", tag_in(4))
    town.run(3)
    if name == "moves":
        town.move("cat", in_cell(5, 3), settle_s=SETTLED_S)
    elif name == "leaves":
        town.leave("cat")
    else:
        town.go("cat")
    town.run(6)

    assert town.found("dan", tag_in(4)) == {"photo"}
    town.insert("dan", "second", tag_in(4))
    assert town.heard("ann") == ["photo", "second"]


def test_b1_a_backup_is_bounded() -> None:
    backups = backups_of(Town(LONE, config=SAFE), "bea")
    for cell in range(100, 100 + BACKUPS_MAX + 1):
        backups.store_backup(CellId(cell), CellId(1), cell_wire.CellState(0, 0, 1), 10_000_000)
    backups.check()

    last = 100 + BACKUPS_MAX
    assert [CellId(cell) in backups for cell in (100, 101, last)] == [False, True, True]


def test_b1_who_comes_later_to_the_cell_that_keeps_it_gets_all_of_it() -> None:
    """The cell that gave it counts on the other; that one's nodes may all be new."""
    quick = BackupConfig(nodes_max=1, refresh_us=4_000_000)
    places = {**LONE, "eve": in_cell(3, 2)}
    town = Town(places, config=msgspec.structs.replace(PAPER, backup=quick), absent=("eve",))
    town.insert("dan", "photo", tag_in(4))
    town.run(3)
    town.come("eve")
    town.run(6)
    town.go("bea")
    town.run(20)

    town.go("cat")
    town.run(8)

    assert town.found("ann", tag_in(4)) == {"photo"}
    assert town.indexing("photo") == {"eve"}


def test_b1_all_of_a_proxy_keep_aside_what_one_of_them_gave_back() -> None:
    places = {**LONE, "ben": in_cell(3, 1), "eve": in_cell(4, 2)}
    town = Town(places, config=SAFE, absent=("eve",))
    town.insert("dan", "photo", tag_in(4))
    town.run(3)
    town.go("cat")
    town.run(6)
    town.found("dan", tag_in(4))
    town.come("eve")
    town.run(6)
    assert town.indexing("photo") == {"eve"}

    town.go("bea")
    town.run(3)
    town.go("eve")
    town.run(8)

    assert town.found("ann", tag_in(4)) == {"photo"}
