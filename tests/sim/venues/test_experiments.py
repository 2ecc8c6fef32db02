"""Experiments with stations: stable nodes that fail, slow answers, worlds, single operations."""

from __future__ import annotations

from random import Random

import pytest

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.pipeline.infra.workloads import StationWorkload, WorkloadKind
from thyme.protocol.messages.common import RouteToNode
from thyme.protocol.messages.stations import FetchStored
from thyme.protocol.node import Action, Input, Received, SetTimer, Started, TimerFired
from thyme.sim.scenario import Profile, ScenarioError, Timeline
from thyme.sim.venues.download_times import DownloadScenario, DownloadSource, measure_download
from thyme.sim.venues.measures import venue_measures
from thyme.sim.venues.move_costs import MoveScenario, measure_move
from thyme.sim.venues.operation_times import OperationScenario, measure_operations
from thyme.sim.venues.run import VenueRun, run_venues
from thyme.sim.venues.scenario import VenueScenario, VenueSeries
from thyme.sim.venues.slow_answers import SlowAnswers
from thyme.sim.venues.summary import summarise_venues

SHORT = Timeline(
    starts_us=5 * SECOND_US,
    joins_us=5 * SECOND_US,
    operations_us=60 * SECOND_US,
    quiet_us=40 * SECOND_US,
)


def simulate(workload: StationWorkload, **fields: object) -> VenueRun:
    scenario = VenueScenario(nodes=workload.users, timeline=SHORT, **fields)  # type: ignore[arg-type]
    return run_venues(scenario, workload.make())


def lecture(users: int, **fields: object) -> StationWorkload:
    return StationWorkload(seed=1, users=users, lasts_us=SHORT.operations_us, **fields)  # type: ignore[arg-type]


def test_c31_stable_nodes_fail_and_no_cell_data_are_lost() -> None:
    found = simulate(lecture(16), kind=VenueSeries.FAILOVER)

    assert found.cell_data is not None
    assert found.cell_data.failed_nodes >= 3
    assert found.cell_data.cycles >= 10
    assert found.cell_data.lost == 0


def test_c31_failures_of_stable_nodes_are_for_one_station() -> None:
    with pytest.raises(ScenarioError, match="are for one station"):
        VenueScenario(stations=2, kind=VenueSeries.FAILOVER)


def test_c30_deletes_leave_nothing_in_two_venues() -> None:
    found = simulate(lecture(10), stations=2)

    assert found.deletes > 0
    assert found.deletes_left == 0


def test_c26_users_of_several_worlds_share_a_station_but_not_their_objects() -> None:
    workload = lecture(9, kind=WorkloadKind.WORLDS, rates=(5.0, 1.0, 1.0))
    found = simulate(workload, worlds=3, profile=Profile.ROBUST)
    summary = summarise_venues(found.scenario, found.run, found.stations)

    [station] = found.stations
    assert set(station.cells) == {"simulation", "simulation-1", "simulation-2"}
    notes = summary.notifications
    assert (notes.delivered, notes.spurious) == (notes.expected, 0)
    measures = venue_measures(found, summary)
    parts = [
        measures[f"part.{number}"] for number in range(1, 1 + len(station.local_popularity_parts))
    ]
    assert sum(parts) == pytest.approx(1.0)
    assert parts[0] == max(parts)


def test_s13_workloads_of_worlds_have_tags_and_rates_of_their_own() -> None:
    even = lecture(9, kind=WorkloadKind.WORLDS, rates=(1.0, 1.0, 1.0)).make()
    odd = lecture(9, kind=WorkloadKind.WORLDS, rates=(5.0, 1.0, 1.0)).make()

    def inserts(trace: object, world: int) -> int:
        return sum(
            getattr(op, "oid", "").startswith(f"w{world}o") and hasattr(op, "tags")
            for op in trace.operations  # type: ignore[attr-defined]
        )

    assert inserts(odd, 0) > 3 * inserts(even, 0)
    assert inserts(odd, 1) == inserts(even, 1)
    users = {op.user % 3 for op in even.operations if getattr(op, "oid", "").startswith("w2")}
    assert users == {2}


class _Node:
    """A node that notes its inputs."""

    node_id = NodeId(b"phone")

    def __init__(self) -> None:
        self.inputs: list[Input] = []

    def handle(self, event: Input, now_us: int) -> list[Action]:
        self.inputs.append(event)
        return []

    def check(self) -> None: ...


def test_c28_slow_phones_answer_the_station_within_half_a_minute_and_others_at_once() -> None:
    node, waits = _Node(), []
    slow = SlowAnswers(node, Random(1))
    assert slow.handle(Started(), 0) == []
    assert node.inputs == [Started()]
    station = NodeId(b"station")
    for number in range(1_000):
        fetch = FetchStored(number, 1, "key")  # type: ignore[arg-type]
        asked = fetch if number % 2 else RouteToNode(station, slow.node_id, fetch)
        [timer] = slow.handle(Received(station, asked), 0)
        assert isinstance(timer, SetTimer)
        waits.append(timer.at_us)
        slow.handle(TimerFired(timer.timer), timer.at_us)

    assert len(node.inputs) == 1_001
    assert max(waits) <= 30 * SECOND_US
    assert 0.75 < sum(wait <= 20 * SECOND_US for wait in waits) / len(waits) < 0.85


def test_c33_a_move_costs_messages_with_geographic_cells_and_none_with_logical_ones() -> None:
    assert measure_move(MoveScenario(nodes_per_cell=2)).sent > 20
    logical = measure_move(MoveScenario(nodes_per_cell=2, is_logical=True))
    assert (logical.sent, logical.received) == (0, 0)


def test_c34_two_hops_take_longer_than_one() -> None:
    one, two = (measure_operations(OperationScenario(hops=hops)) for hops in (1, 2))

    assert set(one) == {"insert", "subscribe", "retrieve", "unsubscribe", "delete"}
    assert all(one[kind] < two[kind] for kind in one)


def test_i22_c37_the_nearest_place_is_the_fastest_and_the_cloud_the_slowest() -> None:
    took = {
        source: measure_download(DownloadScenario(source=source, size=5_000))
        for source in DownloadSource
    }

    assert took[DownloadSource.STATION] < took[DownloadSource.REPLICA]
    assert took[DownloadSource.FAR_STATION] < took[DownloadSource.FAR_REPLICA]
    assert max(took, key=lambda source: took[source]) is DownloadSource.CLOUD
