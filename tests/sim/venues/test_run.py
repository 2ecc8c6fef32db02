"""Simulated venues: stations, wires, users that walk, stations that fail (I17–I23, S11, S13)."""

from __future__ import annotations

import math
from functools import cache

import msgspec
import pytest

from thyme.model.time_frames import SECOND_US
from thyme.sim.results.summary import RunSummary
from thyme.sim.scenario import Profile, ScenarioError, Timeline, lecture_of
from thyme.sim.venues.deployment import VenueDeployment
from thyme.sim.venues.run import simulate_venues
from thyme.sim.venues.scenario import VENUE_GAP_M, VenueScenario, VenueSeries
from thyme.sim.venues.summary import VenueSummary
from thyme.substrates.infra.station.settings import (
    GlobalSettings,
    PopularitySettings,
    StationSettings,
)

SHORT = Timeline(
    starts_us=5 * SECOND_US,
    joins_us=5 * SECOND_US,
    operations_us=90 * SECOND_US,
    quiet_us=20 * SECOND_US,
)
QUICK = StationSettings(
    popularity=PopularitySettings(decision_period_us=10 * SECOND_US),
    sharing=GlobalSettings(needs_period_us=5 * SECOND_US, reply_window_us=5 * SECOND_US),
)


def scenario(kind: VenueSeries = VenueSeries.STATIC, *, stations: int = 2) -> VenueScenario:
    return VenueScenario(
        stations=stations,
        nodes=10,
        kind=kind,
        profile=Profile.ROBUST,
        timeline=SHORT,
        settings=QUICK,
        seed=3,
    )


@cache
def lecture(kind: VenueSeries, stations: int = 2) -> VenueSummary:
    of = scenario(kind, stations=stations)
    return simulate_venues(of, lecture_of(of.without_stations()))


def test_s13_a_lecture_in_two_venues_is_served_and_shared() -> None:
    summary = lecture(VenueSeries.STATIC)

    assert all(ops.ok == ops.issued for ops in summary.ops.values())
    notes, own = summary.notifications, summary.notifications_in_venue
    assert (notes.spurious, notes.duplicates) == (0, 0)
    assert own.delivered == own.expected
    assert notes.delivered > own.delivered, "popular items reach the other venue"
    for station in summary.stations:
        assert station.is_up
        assert station.items_served > 0
        assert station.cell_data > 0
        assert station.items_sent > 0
        assert station.items_received > 0
        assert station.wired_bytes > 0
        assert set(station.caches["local_popularity"]) == {
            "entries", "capacity", "hits", "misses", "hit_ratio",
        }  # fmt: skip


def test_the_summary_has_the_keys_of_other_substrates_and_stations() -> None:
    found = msgspec.json.decode(msgspec.json.encode(lecture(VenueSeries.STATIC)))

    assert set(RunSummary.__struct_fields__) < set(found)
    assert found["scenario"]["substrate"] == "infra"
    assert len(found["stations"]) == 2


def test_m12_the_same_seed_gives_the_same_summary() -> None:
    of = scenario()
    again = simulate_venues(of, lecture_of(of.without_stations()))

    assert msgspec.structs.replace(again, wall_s=0.0) == msgspec.structs.replace(
        lecture(VenueSeries.STATIC), wall_s=0.0
    )


def test_b8_an_outage_of_all_stations_loses_nothing_within_a_venue() -> None:
    summary = lecture(VenueSeries.OUTAGE)

    assert all(ops.ok == ops.issued for ops in summary.ops.values())
    own = summary.notifications_in_venue
    assert (own.delivered, own.spurious, own.duplicates) == (own.expected, 0, 0)
    assert all(station.is_up for station in summary.stations), "they have returned"


def test_without_stations_the_venue_is_peer_to_peer() -> None:
    summary = lecture(VenueSeries.STATIC, stations=0)

    assert summary.stations == ()
    assert summary.notifications.delivered == summary.notifications.expected


def test_users_walk_to_the_next_venue_and_venues_do_not_hear_each_other() -> None:
    of = msgspec.structs.replace(scenario(VenueSeries.MOBILE), walking=0.5, speed_m_s=10.0)
    deployment = VenueDeployment(of)
    paths = deployment.make_paths()

    assert len(paths) == 5
    for node_id, path in paths.items():
        user = deployment.node_ids.index(node_id)
        *_, last = path
        corner = deployment.corner_of(1 - of.venue_of(user))
        assert corner[0] <= last.end[0] <= corner[0] + of.venue_m[0]
    venues = [[], []]  # type: list[list[tuple[float, float]]]
    for user in range(of.nodes):
        venues[of.venue_of(user)].append(deployment.positions[user])
    assert all(math.dist(a, b) >= VENUE_GAP_M for a in venues[0] for b in venues[1])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stations": -1}, "stations: from 0"),
        ({"stations": 101}, "stations: from 0 to 100"),
        ({"nodes": 0}, "nodes: from 1"),
        ({"gap_m": -61.0}, "gap: from -60, for venues at the same place, to 10,000 m, not -61"),
        ({"gap_m": math.nan}, "gap: from -60"),
        ({"worlds": 0}, "worlds: from 1 to 100"),
        ({"venue_m": (200.0, 10.0)}, "its diagonal is at most 100 m"),
        ({"kind": VenueSeries.MOBILE, "stations": 1}, "nobody can walk"),
        ({"kind": VenueSeries.OUTAGE, "stations": 0}, "none can fail"),
    ],
)
def test_s11_an_impossible_scenario_is_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        VenueScenario(**fields)  # type: ignore[arg-type]


def test_i1_in_venues_that_overlap_each_node_belongs_to_one_station() -> None:
    of = msgspec.structs.replace(scenario(), gap_m=-40.0)
    summary = simulate_venues(of, lecture_of(of.without_stations()))

    assert all(ops.ok == ops.issued for ops in summary.ops.values())
    notes = summary.notifications
    assert (notes.spurious, notes.duplicates) == (0, 0)
    assert all(station.cell_data > 0 for station in summary.stations)
