"""B1: a cell outlives the sudden death of its last nodes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tests.substrates.dcs.network import LONE, SETTLED_S, STREET, DcsNetwork, in_cell, tag_in
from thyme.model.ids import ObjectId
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellState
from thyme.substrates.dcs.config import PAPER, BackupConfig
from thyme.substrates.dcs.robust import cell_backup
from thyme.substrates.dcs.robust.cell_backup import BACKUPS_MAX, RECORD_BYTES, CellBackups
from thyme.substrates.dcs.state import cell_state
from thyme.substrates.dcs.state.cell_state import StateRecords

SAFE = msgspec.structs.replace(PAPER, backup=BackupConfig(nodes_max=1))
SAFER = msgspec.structs.replace(PAPER, backup=BackupConfig(nodes_max=2))


def backups_of(net: DcsNetwork, name: str) -> CellBackups:
    """The backups that a node stores."""
    backups = net.nodes[name].membership.backups
    assert backups is not None
    return backups


def test_b1_the_sudden_death_of_the_last_node_loses_nothing() -> None:
    net = DcsNetwork(LONE, config=SAFE)
    begun = net.subscribe("ann", tag_in(4))
    over = net.subscribe("dan", tag_in(4, 1))
    net.insert("dan", "photo", tag_in(4))
    gone = net.insert("dan", "gone", tag_in(4))
    net.finish("dan", asked.Delete, key=gone)
    net.finish("dan", asked.Unsubscribe, sid=over.sid)
    net.run(3)

    net.go("cat")
    net.run(6)

    assert net.found("ann", tag_in(4)) == {"photo"}
    net.insert("dan", "second", tag_in(4))
    assert net.heard("ann") == ["photo", "gone", "second"]
    assert net.standing() == {"bea": 1}
    assert begun.sid != over.sid


@pytest.mark.parametrize("summary_bytes", [0, 100])
def test_m35_a_large_backup_is_sent_in_rounds(
    summary_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node does not have all records of its cell in memory at once, with or without summaries."""
    bytes_max = (RECORD_BYTES + summary_bytes) * 3 // 2
    monkeypatch.setattr(cell_backup, "SENT_BYTES_MAX", bytes_max)
    net = DcsNetwork(LONE, config=SAFE)
    for number in range(6):
        oid = ObjectId(f"photo{number}")
        tags = (tag_in(4),)
        net.finish("dan", asked.Insert, data=b"x", tags=tags, oid=oid, summary=bytes(summary_bytes))
    rounds: list[int] = []

    def split_state(records: StateRecords, bytes_max: int) -> Iterator[CellState]:
        listed = list(records)
        rounds.append(sum(name == "objects" for name, _ in listed))
        return cell_state.split_state(listed, bytes_max)

    monkeypatch.setattr(cell_backup, "split_state", split_state)
    backups_of(net, "bea").stop()  # it has lost the backup, and refuses the next refresh
    net.run(60)

    assert len(backups_of(net, "bea")._stored_backups[CellId(4)].objects) == 6
    assert max(rounds) == 2
    net.go("cat")
    net.run(6)
    assert len(net.found("ann", tag_in(4))) == 6


def test_b1_a_node_that_comes_back_without_the_backup_gets_it_at_once() -> None:
    """It was not away for long enough to be missed, and the next refresh is far."""
    net = DcsNetwork({name: LONE[name] for name in ("bea", "cat")}, config=SAFE)
    net.insert("bea", "photo", tag_in(4))
    net.run(3)
    net.go("bea")
    net.come("bea")
    net.run(7)
    net.go("cat")
    net.run(6)

    assert net.found("bea", tag_in(4)) == {"photo"}


def test_b1_a_cell_does_not_take_itself_for_the_proxy_that_stores_its_backup() -> None:
    """The message to the cell that should store it comes back while that cell is empty."""
    net = DcsNetwork({name: LONE[name] for name in ("bea", "cat")}, config=SAFE)
    net.go("bea")
    net.insert("cat", "photo", tag_in(4))
    net.run(8)
    kept = backups_of(net, "cat")._sent_backups

    assert all(not backup.records for backup in kept.values())


def test_b1_without_it_they_are_lost() -> None:
    """The profile of the documents: nobody else has them."""
    net = DcsNetwork(LONE)
    net.insert("dan", "photo", tag_in(4))
    net.run(3)
    net.go("cat")
    net.run(6)

    assert net.found("ann", tag_in(4)) == set()


def test_b1_what_is_kept_aside_is_not_served_while_its_cell_lives() -> None:
    net = DcsNetwork(LONE, config=SAFE)
    net.subscribe("ann", tag_in(4))
    net.insert("dan", "photo", tag_in(4))
    net.run(3)

    assert CellId(4) in backups_of(net, "bea")
    assert net.indexing("photo") == {"cat"}
    assert net.standing() == {"cat": 1}


def test_b1_when_the_cell_fills_again_it_gets_all_back() -> None:
    net = DcsNetwork({**LONE, "eve": in_cell(4, 2)}, config=SAFE, absent=("eve",))
    net.subscribe("ann", tag_in(4))
    net.insert("dan", "photo", tag_in(4))
    net.run(3)
    net.go("cat")
    net.run(6)
    net.insert("dan", "second", tag_in(4))

    net.come("eve")
    net.run(8)

    assert set(net.index("eve")) == {"photo", "second"}
    assert net.standing() == {"eve": 1}
    net.insert("dan", "third", tag_in(4))
    assert net.heard("ann") == ["photo", "second", "third"]


def test_b1_whoever_got_it_back_may_die_at_once_and_nothing_is_lost() -> None:
    """What the proxy gave away it keeps aside, so that nothing has to be sent back to it."""
    net = DcsNetwork({**LONE, "eve": in_cell(4, 2)}, config=SAFE, absent=("eve",))
    net.subscribe("ann", tag_in(4))
    net.insert("dan", "photo", tag_in(4))
    net.run(3)
    net.go("cat")
    net.run(6)
    net.found("dan", tag_in(4))
    net.sent.clear()
    net.come("eve")
    net.run(5)
    assert set(net.index("eve")) == {"photo"}

    backups = [
        packet.message for name, packet in net.messages(cell_wire.BackupState) if name == "eve"
    ]
    assert all(not backup.state.objects for backup in backups)  # type: ignore[union-attr]
    net.go("eve")
    net.run(8)
    assert net.found("ann", tag_in(4)) == {"photo"}


def test_b1_changes_are_merged_over_a_short_time() -> None:
    net = DcsNetwork(LONE, config=SAFE)
    net.sent.clear()
    for number in range(5):
        net.insert("dan", f"photo-{number}", tag_in(4), seconds=0.05)
    net.run(2)

    backups = [
        packet.message for name, packet in net.messages(cell_wire.BackupState) if name == "cat"
    ]
    assert [len(backup.state.objects) for backup in backups] == [5]  # type: ignore[union-attr]


def test_b1_a_cell_with_enough_nodes_needs_none() -> None:
    net = DcsNetwork(STREET, config=SAFE)
    net.insert("dan", "photo", tag_in(4))
    net.run(3)
    assert net.messages(cell_wire.BackupState) == []

    net = DcsNetwork(STREET, config=SAFER)
    net.insert("dan", "photo", tag_in(4))
    net.run(3)
    assert {name for name, _ in net.messages(cell_wire.BackupState)} >= {"cat"}
    assert "col" not in {name for name, _ in net.messages(cell_wire.BackupState)}, (
        "one of them is enough"
    )


def test_b1_when_a_cell_shrinks_all_of_it_is_kept_elsewhere() -> None:
    net = DcsNetwork({**LONE, "col": in_cell(4, 1)}, config=SAFE)
    net.insert("dan", "photo", tag_in(4))
    net.run(3)
    net.go("cat")
    net.run(9)

    net.go("col")
    net.run(6)

    assert net.found("ann", tag_in(4)) == {"photo"}


def test_b1_the_proxied_cells_of_a_cell_are_kept_elsewhere_too() -> None:
    net = DcsNetwork({"ann": in_cell(1), "bea": in_cell(3), "cat": in_cell(4)}, config=SAFE)
    net.insert("ann", "photo", tag_in(7))
    assert net.indexing("photo") == {"cat"}
    net.run(3)

    net.go("cat")
    net.run(6)

    assert net.found("ann", tag_in(7)) == {"photo"}
    assert net.indexing("photo") == {"bea"}


def test_b1_what_is_not_kept_up_to_date_is_thrown_away() -> None:
    brief = BackupConfig(nodes_max=1, ttl_us=30_000_000)
    net = DcsNetwork(
        {**LONE, "col": in_cell(4, 1)}, config=msgspec.structs.replace(PAPER, backup=brief)
    )
    net.go("col")
    net.run(6)
    net.insert("dan", "photo", tag_in(4))
    net.run(25)
    assert CellId(4) in backups_of(net, "bea")
    net.come("col")

    net.run(70)

    assert CellId(4) not in backups_of(net, "bea")


@pytest.mark.parametrize("name", ["moves", "leaves", "dies"])
def test_b1_however_the_last_of_a_cell_goes_nothing_is_lost(name: str) -> None:
    net = DcsNetwork(LONE, config=SAFE)
    net.subscribe("ann", tag_in(4))
    net.insert("dan", "photo", tag_in(4))
    net.run(3)
    if name == "moves":
        net.move("cat", in_cell(5, 3), settle_s=SETTLED_S)
    elif name == "leaves":
        net.leave("cat")
    else:
        net.go("cat")
    net.run(6)

    assert net.found("dan", tag_in(4)) == {"photo"}
    net.insert("dan", "second", tag_in(4))
    assert net.heard("ann") == ["photo", "second"]


def test_b1_a_backup_is_bounded() -> None:
    backups = backups_of(DcsNetwork(LONE, config=SAFE), "bea")
    for cell in range(100, 100 + BACKUPS_MAX + 1):
        backups.store_backup(CellId(cell), CellId(1), cell_wire.CellState(0, 0, 1), 10_000_000)
    backups.check()

    last = 100 + BACKUPS_MAX
    assert [CellId(cell) in backups for cell in (100, 101, last)] == [False, True, True]


def test_b1_who_comes_later_to_the_cell_that_keeps_it_gets_all_of_it() -> None:
    """The cell that gave it counts on the other; that one's nodes may all be new."""
    quick = BackupConfig(nodes_max=1, refresh_us=4_000_000)
    places = {**LONE, "eve": in_cell(3, 2)}
    net = DcsNetwork(places, config=msgspec.structs.replace(PAPER, backup=quick), absent=("eve",))
    net.insert("dan", "photo", tag_in(4))
    net.run(3)
    net.come("eve")
    net.run(6)
    net.go("bea")
    net.run(20)

    net.go("cat")
    net.run(8)

    assert net.found("ann", tag_in(4)) == {"photo"}
    assert net.indexing("photo") == {"eve"}


def test_b1_all_of_a_proxy_keep_aside_what_one_of_them_gave_back() -> None:
    places = {**LONE, "ben": in_cell(3, 1), "eve": in_cell(4, 2)}
    net = DcsNetwork(places, config=SAFE, absent=("eve",))
    net.insert("dan", "photo", tag_in(4))
    net.run(3)
    net.go("cat")
    net.run(6)
    net.found("dan", tag_in(4))
    net.come("eve")
    net.run(6)
    assert net.indexing("photo") == {"eve"}

    net.go("bea")
    net.run(3)
    net.go("eve")
    net.run(8)

    assert net.found("ann", tag_in(4)) == {"photo"}
