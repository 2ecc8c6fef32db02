"""D27: a record that a living node holds returns to the cells that lost it, whatever happened."""

from __future__ import annotations

import msgspec
import pytest

from tests.substrates.dcs.network import STREET, DcsNetwork, tag_in
from thyme.model.time_frames import SECOND_US
from thyme.protocol import app_interface as asked
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import LocationUpdate
from thyme.protocol.round_trip import RoundTripTimes
from thyme.substrates.dcs.config import PAPER, DcsConfig, RecordCheckConfig
from thyme.substrates.dcs.robust.record_checks import RecordChecker

INTERVAL_S = 20
CHECKS = RecordCheckConfig(interval_us_max=INTERVAL_S * SECOND_US)
CHECKING = msgspec.structs.replace(PAPER, reannounce=True, record_checks=CHECKS)
UNCHECKED = msgspec.structs.replace(CHECKING, record_checks=None)
STATIC_S = 150
"""After this time a network in which nothing happens checks at its lowest rate."""


def a_static_network(config: DcsConfig = CHECKING) -> DcsNetwork:
    net = DcsNetwork(STREET, config=config)
    net.run(STATIC_S)
    return net


def checker(net: DcsNetwork, name: str) -> RecordChecker:
    found = net.nodes[name].membership.record_checker
    assert found is not None
    return found


@pytest.mark.parametrize(("config", "returns"), [(CHECKING, True), (UNCHECKED, False)])
def test_d27_an_object_that_its_cell_forgot_unnoticed_is_indexed_again(
    config: DcsConfig, returns: bool
) -> None:
    net = a_static_network(config)
    key = net.insert("ann", "photo", tag_in(2))
    for name in ("bea", "ben"):
        net.nodes[name].index.forget_object(key)
    assert net.found("dan", tag_in(2)) == set()

    net.run(3 * INTERVAL_S)

    assert net.found("dan", tag_in(2)) == ({"photo"} if returns else set())


def test_d27_so_is_one_that_only_an_active_replica_of_it_is_left() -> None:
    net = a_static_network()
    key = net.insert("ann", "photo", tag_in(2))
    net.go("ann")
    net.run(STATIC_S)
    for name in ("bea", "ben"):
        net.nodes[name].index.forget_object(key)

    net.run(3 * INTERVAL_S)

    assert net.indexing("photo") == {"bea", "ben"}


def test_d27_a_subscription_that_its_cell_forgot_unnoticed_is_notified_again() -> None:
    net = a_static_network()
    net.subscribe("dan", tag_in(2))
    for name in ("bea", "ben"):
        index = net.nodes[name].index
        [standing] = list(index.cell_subscriptions())
        index.forget_subscription(standing.subscription.key)
    net.insert("ann", "meanwhile", tag_in(2))
    assert net.heard("dan") == []

    net.run(3 * INTERVAL_S)
    net.insert("ann", "later", tag_in(2))

    assert net.heard("dan") == ["meanwhile", "later"]


def test_d27_d15_a_delete_that_a_cell_missed_is_repeated() -> None:
    net = a_static_network()
    key = net.insert("ann", "photo", tag_in(2))
    log = checker(net, "ann")._deletion_log
    log.add(key, [CellId(2)], STATIC_S * SECOND_US)  # as if the cell had not received it
    assert net.indexing("photo") == {"bea", "ben"}

    net.run(4 * INTERVAL_S)

    assert net.indexing("photo") == set()


def test_d27_in_a_static_network_the_rate_does_not_grow_with_the_records() -> None:
    net = a_static_network()
    for number in range(40):
        net.insert("ann", f"photo-{number}", tag_in(2), tag_in(4), tag_in(6))
    net.run(4 * INTERVAL_S)
    net.sent.clear()
    before = checker(net, "ann").checks_sent

    net.run(10 * INTERVAL_S)

    # A wait is between half an interval and a whole one.
    assert 5 <= checker(net, "ann").checks_sent - before <= 20
    by_ann = [packet for name, packet in net.messages(LocationUpdate) if name == "ann"]
    assert len(by_ann) <= 20
    assert {packet.origin for packet in by_ann} == {b"ann"}


def test_d27_after_a_join_checks_are_frequent_and_become_rarer_with_each_cycle() -> None:
    net = a_static_network()
    net.insert("ann", "photo", tag_in(2))
    net.run(2 * INTERVAL_S)
    assert checker(net, "ann")._interval_us == CHECKS.interval_us_max

    net.go("ann")
    net.run(5)
    net.come("ann")
    net.run(6)
    assert checker(net, "ann")._interval_us == CHECKS.interval_us_min

    net.run(STATIC_S)
    assert checker(net, "ann")._interval_us == CHECKS.interval_us_max


def test_d27_an_owner_that_lost_its_memory_tells_of_the_object_that_its_cell_gave_it() -> None:
    """No node of the cell did: the owner was not the first, and the first left it to the owner."""
    net = DcsNetwork(STREET, config=UNCHECKED)
    key = net.insert("ann", "photo", tag_in(2))
    for name in ("ann", "bea", "ben"):
        net.go(name)
        del net.stores[name]
    net.run(4)
    for name in ("ann", "bea", "ben"):
        net.come(name)
    net.run(6)
    assert net.holding(key) == {"ann", "abe"}
    assert net.indexing("photo") == set()

    net.run(60)

    assert net.indexing("photo") == {"bea", "ben"}
    found = net.nodes["bea"].index.get_object(key)
    assert net.finish("dan", asked.Retrieve, metadata=found) == b"pixels"


def test_d28_on_a_busy_channel_checks_are_rarer_but_do_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = {}
    for busy in (False, True):
        monkeypatch.setattr(RoundTripTimes, "is_busy", busy)
        net = a_static_network(msgspec.structs.replace(CHECKING, reply_wait_us_max=4 * SECOND_US))
        net.insert("ann", "photo", tag_in(2))
        before = checker(net, "ann").checks_sent
        net.run(20 * INTERVAL_S)
        sent[busy] = checker(net, "ann").checks_sent - before

    assert 0 < sent[True] < sent[False] / 2
