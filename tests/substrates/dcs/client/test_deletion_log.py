"""Deletions: a cell that did not hear that something was deleted is told again (D15, B1, B2)."""

from __future__ import annotations

from tests.substrates.dcs.network import STREET, DcsNetwork, tag_in
from tests.substrates.dcs.robust.test_reannounce import RENEWED_S, RENEWING
from thyme.model.ids import Key
from thyme.model.time_frames import SECOND_US
from thyme.protocol import app_interface as asked
from thyme.protocol.messages.requests import DeleteObject
from thyme.substrates.dcs.client.deletion_log import DELETION_AGE_US_MAX, RECENT_US


def test_d15_a_cell_that_was_away_while_its_stand_in_was_told_learns_of_it() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    key = net.insert("ann", "photo", tag_in(4))
    for name in ("cat", "col"):
        net.go(name)
    net.run(6)
    net.finish("ann", asked.Delete, key=key)
    for name in ("bea", "ben", "dan", "dot"):  # whoever stood in for the cell
        net.go(name)
        del net.stores[name]
    for name in ("bea", "ben", "cat", "col", "dan", "dot"):
        net.come(name)
    net.run(RENEWED_S)

    assert net.indexing("photo") == set()
    assert net.found("dan", tag_in(4)) == set()


def test_what_was_deleted_long_ago_is_not_said_again() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    key = net.insert("ann", "photo", tag_in(2))
    net.finish("ann", asked.Delete, key=key)
    net.run(RENEWED_S)
    net.sent.clear()

    def told_after_topology_change() -> int:
        net.sent.clear()
        net.go("abe")
        net.run(10)
        net.come("abe")
        net.run(RENEWED_S)
        return len([name for name, _ in net.messages(DeleteObject) if name == "ann"])

    assert told_after_topology_change() > 0
    net.run(DELETION_AGE_US_MAX / SECOND_US)
    assert told_after_topology_change() == 0


def test_what_was_just_deleted_is_said_again_while_it_is_not_calm_but_not_for_long() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    key = net.insert("ann", "photo", tag_in(2))
    net.run(2 * RENEWED_S)

    def told_in(seconds: float) -> int:
        """Amid unrest."""
        net.sent.clear()
        for _ in range(round(seconds / 10)):
            net.go("abe")
            net.run(5)
            net.come("abe")
            net.run(5)
        return len([name for name, _ in net.messages(DeleteObject) if name == "ann"])

    told_in(20)
    net.finish("ann", asked.Delete, key=key)
    assert told_in(RECENT_US / SECOND_US) > 0
    assert told_in(60) == 0


def test_what_was_deleted_survives_a_restart() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    key = net.insert("ann", "photo", tag_in(2))
    net.finish("ann", asked.Delete, key=key)
    net.go("ann")
    net.run(10)
    net.sent.clear()
    net.come("ann")
    net.run(RENEWED_S)

    assert [packet.message.key for name, packet in net.messages(DeleteObject) if name == "ann"]


def fail_in_the_middle_of_a_delete(net: DcsNetwork) -> Key:
    """The owner fails before the cell of the tag, which is back by then, has answered."""
    key = net.insert("ann", "photo", tag_in(4))
    for name in ("cat", "col"):
        net.go(name)
    assert net.ask("ann", asked.Delete(request_id=99, key=key), 1) is None
    net.go("ann")
    for name in ("cat", "col", "ann"):
        net.come(name)
    net.run(6)
    assert net.indexing("photo") == {"cat", "col"}
    return key


def test_d15_a_delete_goes_on_after_its_owner_failed_in_the_middle() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    fail_in_the_middle_of_a_delete(net)
    net.run(RENEWED_S)
    assert net.indexing("photo") == set()


def test_d15_a_delete_that_was_not_answered_is_not_taken_for_done_after_a_restart() -> None:
    net = DcsNetwork(STREET)
    key = fail_in_the_middle_of_a_delete(net)
    net.finish("ann", asked.Delete, key=key)
    assert net.indexing("photo") == set()
    net.sent.clear()
    net.finish("ann", asked.Delete, key=key)
    assert not list(net.messages(DeleteObject))
