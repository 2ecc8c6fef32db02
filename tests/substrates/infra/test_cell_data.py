"""I5–I7: cell data, the stable node, and cycles that are confirmed once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.stories.test_infra_stories import ONE_VENUE, popular_photo
from tests.substrates.infra.venues import Venues
from thyme.model.tags import as_tag
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import Subscribe
from thyme.protocol.messages.stations import CellCycle, CellData, TagNeed
from thyme.query.query import Query
from thyme.substrates.infra.mobile.stability import CYCLES_MAX, StabilityPart, stability_index

HOUR_US = 3_600_000_000


def reports(net: Venues, cell: int) -> list[tuple[str, tuple[CellCycle, ...]]]:
    """The cell data that a cell's nodes sent, with their senders; empty reports left out."""
    return [
        (name, message.cycles)
        for name, _, message in net.sent
        if isinstance(message, CellData) and message.cell == cell and message.cycles
    ]


def test_i6_stability_grows_with_battery_and_time_in_the_system() -> None:
    assert stability_index(0, 0.0) == 0
    assert stability_index(HOUR_US, 1.0) == 65_535
    assert stability_index(0, 0.81) > stability_index(0, 0.77)
    assert stability_index(HOUR_US, 0.5) > stability_index(HOUR_US // 2, 0.5)
    assert stability_index(9 * HOUR_US, 7.0) == 65_535, "values out of range are cut"


@given(
    st.integers(0, 65_535), st.booleans(), st.lists(st.integers(0, 2**32 - 1), max_size=CYCLES_MAX)
)
def test_i6_i7_beacons_carry_stability_and_confirmed_cycles(
    index: int, ready: bool, cycles: list[int]
) -> None:
    part = StabilityPart(index, ready, tuple(cycles))

    assert StabilityPart.decode(part.encode()) == part
    assert len(part.encode()) <= 80


@given(st.binary(max_size=100))
def test_m25_a_malformed_part_of_a_beacon_is_ignored(part: bytes) -> None:
    decoded = StabilityPart.decode(part)

    assert decoded is None or len(decoded.encode()) <= 80


def test_i5_a_cell_reports_subscriptions_with_the_widest_frame_and_downloads() -> None:
    net = Venues(ONE_VENUE)
    net.subscribe("ida", "goal", TimeFrame(5, 10**18))
    net.subscribe("joe", "goal", TimeFrame(3, 10**17))
    net.insert("ann", "goal1", "goal")
    net.run(1)
    net.retrieve("ida", net.metadata("ida", "goal1")) if net.heard("ida") else None
    net.run(12)

    cycles = [cycle for _, sent in reports(net, 0) for cycle in sent]
    needs = [need for cycle in cycles for need in cycle.needs]
    total = needs[0]
    for need in needs[1:]:
        total = total.joined_with(need)
    assert total == TagNeed(total.tag, 2, 3, 10**18)


def test_i6_the_node_with_the_fullest_battery_reports_and_the_lowest_id_among_equals() -> None:
    net = Venues(ONE_VENUE)
    popular_photo(net)
    net.run(12)
    assert {name for name, _ in reports(net, 0)} == {"ann"}, "lower than bob, same battery"

    net.extensions["ann"].cell_data.battery = 0.2
    net.run(3)
    net.sent.clear()
    net.subscribe("joe", "goal")
    net.run(12)

    assert {name for name, _ in reports(net, 0)} == {"bob"}


def test_i5_subscriptions_of_one_cycle_are_reported_together() -> None:
    net = Venues(ONE_VENUE)
    net.run(4)  # a cycle of ten seconds has just begun
    conjunctions = Query("goal").conjunctions
    for name, frame in (("ida", TimeFrame(5, 10**18)), ("joe", TimeFrame(3, 10**17))):
        net.finish(name, Subscribe, conjunctions=conjunctions, frame=frame, batch=5, seconds=1.0)
    net.run(12)

    [(_, [cycle])] = reports(net, 0)
    assert cycle.needs == (TagNeed(as_tag("goal"), 2, 3, 10**18),)


def test_i6_a_new_node_waits_before_it_reports() -> None:
    """A cycle is ten seconds, the wait fifteen. Ann is more stable than Bob, but new."""
    net = Venues(ONE_VENUE)
    net.extensions["bob"].cell_data.battery = 0.2
    net.go("ann")
    net.run(4)
    net.come("ann")
    net.run(2)
    net.subscribe("joe", "goal")
    net.run(6)
    assert {name for name, _ in reports(net, 0)} == {"bob"}

    net.sent.clear()
    net.subscribe("ida", "goal")
    net.run(22)
    assert {name for name, _ in reports(net, 0)} == {"ann"}


def test_i7_c31_when_the_stable_node_dies_the_next_one_reports_what_was_not_confirmed() -> None:
    net = Venues(ONE_VENUE)
    station = net.stations["north"]
    net.run(13)  # a cycle has just ended
    net.sent.clear()
    net.subscribe("joe", "goal")
    net.go("ann")  # the stable node of cell 0, before the end of the cycle
    net.run(15)

    assert {name for name, _ in reports(net, 0)} == {"bob"}
    [need] = station.needs._needs.values()
    assert need.count == 1


def test_i7_after_a_confirmation_the_other_nodes_drop_the_cycle() -> None:
    net = Venues(ONE_VENUE)
    net.run(12)
    net.subscribe("joe", "goal")
    net.run(9)

    assert all(not each.cell_data.unconfirmed_cycles for each in net.extensions.values())
    assert [name for name, _ in reports(net, 0)] == ["ann"]


def test_i7_without_a_station_cycles_are_kept_and_reported_to_the_next_one() -> None:
    net = Venues(ONE_VENUE)
    net.run(12)
    net.stop_station("north")
    net.run(6)
    net.subscribe("joe", "goal")
    net.run(12)
    assert net.extensions["bob"].cell_data.unconfirmed_cycles

    station = net.start_station("north")
    net.run(30)

    [need] = station.needs._needs.values()
    assert need.count == 1
    assert not net.extensions["bob"].cell_data.unconfirmed_cycles
