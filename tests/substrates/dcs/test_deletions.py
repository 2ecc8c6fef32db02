"""Deletions: a cell that did not hear that something was deleted is told again (D15, B1, B2)."""

from __future__ import annotations

from tests.substrates.dcs.test_renewal import RENEWED_S, RENEWING
from tests.substrates.dcs.town import STREET, Town, tag_in
from thyme.model.time_frames import SECOND_US
from thyme.protocol import app_interface as asked
from thyme.protocol.messages.common import DeleteObject
from thyme.substrates.dcs.state.deletion_log import DELETION_AGE_US_MAX, RECENT_US


def test_d15_a_cell_that_was_away_while_its_stand_in_was_told_learns_of_it() -> None:
    town = Town(STREET, config=RENEWING)
    key = town.insert("ann", "photo", tag_in(4))
    for name in ("cat", "col"):
        town.go(name)
    town.run(6)
    town.finish("ann", asked.Delete, key=key)
    for name in ("bea", "ben", "dan", "dot"):  # whoever stood in for the cell
        town.go(name)
        del town.stores[name]
    for name in ("bea", "ben", "cat", "col", "dan", "dot"):
        town.come(name)
    town.run(RENEWED_S)

    assert town.indexing("photo") == set()
    assert town.found("dan", tag_in(4)) == set()


def test_what_was_deleted_long_ago_is_not_said_again() -> None:
    town = Town(STREET, config=RENEWING)
    key = town.insert("ann", "photo", tag_in(2))
    town.finish("ann", asked.Delete, key=key)
    town.run(RENEWED_S)
    town.sent.clear()

    def told_after_unrest() -> int:
        town.sent.clear()
        town.go("abe")
        town.run(10)
        town.come("abe")
        town.run(RENEWED_S)
        return len([name for name, _ in town.messages(DeleteObject) if name == "ann"])

    assert told_after_unrest() > 0
    town.run(DELETION_AGE_US_MAX / SECOND_US)
    assert told_after_unrest() == 0


def test_what_was_just_deleted_is_said_again_while_it_is_not_calm_but_not_for_long() -> None:
    town = Town(STREET, config=RENEWING)
    key = town.insert("ann", "photo", tag_in(2))
    town.run(2 * RENEWED_S)

    def told_in(seconds: float) -> int:
        """Amid unrest."""
        town.sent.clear()
        for _ in range(round(seconds / 10)):
            town.go("abe")
            town.run(5)
            town.come("abe")
            town.run(5)
        return len([name for name, _ in town.messages(DeleteObject) if name == "ann"])

    told_in(20)
    town.finish("ann", asked.Delete, key=key)
    assert told_in(RECENT_US / SECOND_US) > 0
    assert told_in(60) == 0


def test_what_was_deleted_survives_a_restart() -> None:
    town = Town(STREET, config=RENEWING)
    key = town.insert("ann", "photo", tag_in(2))
    town.finish("ann", asked.Delete, key=key)
    town.go("ann")
    town.run(10)
    town.sent.clear()
    town.come("ann")
    town.run(RENEWED_S)

    assert [packet.message.key for name, packet in town.messages(DeleteObject) if name == "ann"]
