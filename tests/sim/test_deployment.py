"""E3, S6, S7, S12: the deployment: nodes, positions, start times and faults."""

from __future__ import annotations

from itertools import islice
from math import dist

import pytest

from tests.sim.runs import cast, insert, scenario, subscribe, trace
from thyme.model.time_frames import SECOND_US
from thyme.sim.deployment import node_id_for
from thyme.sim.faults.schedule import Crash, CrashMemory, Restart
from thyme.sim.scenario import Scenario, Series, Substrate, Timeline
from thyme.storage.store import MemoryStore

ES, LS = Substrate.ES, Substrate.LS
TEN = trace(10, *(insert(1, user, f"o{user}") for user in range(5)), subscribe(2, 9, "s"))


def test_the_server_of_es_is_one_more_node_in_the_middle_and_there_from_the_start() -> None:
    """E3."""
    es, ls = cast(scenario(ES, nodes=10)), cast(scenario(LS, nodes=10))

    assert len(ls.node_ids) == 10
    assert es.node_ids[:10] == ls.node_ids
    assert es.positions == [*ls.positions, (30.0, 30.0)]
    assert es.joins_us == [*ls.joins_us, 3 * SECOND_US]


@pytest.mark.parametrize("kind", list(Series))
def test_the_server_neither_fails_nor_moves(kind: Series) -> None:
    """E3."""
    made = cast(scenario(ES, nodes=10, kind=kind, failing=1.0, timeline=Timeline()), TEN)

    assert made.node_ids[-1] not in made.make_paths()
    assert all(getattr(fault, "node", None) != 10 for fault in made.fault_schedule)


def test_every_device_of_es_knows_the_server() -> None:
    made = cast(scenario(ES, nodes=3))

    nodes = [made.make_node(name, MemoryStore(), 1) for name in made.node_ids]
    assert [node.node_id for node in nodes] == made.node_ids


def test_places_are_in_the_area_and_those_of_a_topology() -> None:
    """S12, S16: another seed with the same topology keeps the positions and changes the rest."""
    one = cast(scenario(nodes=16, seed=1, topology=7))
    other = cast(scenario(nodes=16, seed=2, topology=7))
    elsewhere = cast(scenario(nodes=16, seed=1, topology=8))

    assert all(0 <= x <= 60 and 0 <= y <= 60 for x, y in one.positions)
    assert one.positions == other.positions != elsewhere.positions
    assert one.joins_us == elsewhere.joins_us != other.joins_us


def test_nodes_join_at_random_in_thirty_seconds() -> None:
    """S11."""
    joins_us = cast(Scenario(substrate=LS, nodes=64)).joins_us

    assert all(30 * SECOND_US <= at_us < 60 * SECOND_US for at_us in joins_us)
    assert len(set(joins_us)) == 64


def test_nobody_fails_where_nobody_should() -> None:
    assert not list(cast(scenario(nodes=10, kind=Series.STATIC), TEN).fault_schedule)
    assert not list(cast(scenario(nodes=10, kind=Series.MOBILE), TEN).fault_schedule)


def test_a_share_of_the_publishers_crashes_for_good() -> None:
    """S7: at a random instant between 200 and 300 s; their stores are lost."""
    made = cast(scenario(nodes=10, kind=Series.CRASH, failing=0.6, timeline=Timeline()), TEN)

    crashes = [fault for fault in made.fault_schedule if isinstance(fault, Crash)]
    assert len(crashes) == len(list(made.fault_schedule)) == 3
    for crash in crashes:
        assert crash.node < 5
        assert 200 * SECOND_US <= crash.at_us <= 300 * SECOND_US
        assert crash.memory is CrashMemory.LOST


def test_a_share_of_the_nodes_comes_and_goes_with_what_it_knows() -> None:
    """S7: on for 120 s and off for 60 s, or two or three times as long."""
    made = cast(scenario(nodes=10, kind=Series.TRANSIENT, failing=0.4, timeline=Timeline()), TEN)

    faults = [fault for fault in made.fault_schedule if isinstance(fault, Crash | Restart)]
    restless = {fault.node: made.joins_us[fault.node] for fault in faults}
    assert len(faults) == len(list(made.fault_schedule))
    assert len(restless) == 4
    for fault in faults:
        since_us, restless[fault.node] = restless[fault.node], fault.at_us
        period_us = (60 if isinstance(fault, Restart) else 120) * SECOND_US
        assert (fault.at_us - since_us) % period_us == 0
        assert isinstance(fault, Restart) or fault.memory is CrashMemory.KEPT


def test_users_devices_walk_in_the_area_no_faster_than_they_may() -> None:
    """S6."""
    made = cast(scenario(nodes=10, kind=Series.MOBILE, speed_m_s=2.5, timeline=Timeline()))
    walked = 0.0
    for name, path in made.make_paths().items():
        assert name in made.node_ids
        for leg in islice(path, 100):
            metres = dist(leg.start, leg.end)
            walked += metres
            assert 0 <= leg.end[0] <= 60
            assert 0 <= leg.end[1] <= 60
            assert metres <= 2.5 * (leg.end_us - leg.start_us) / SECOND_US + 1e-3
    assert walked > 0
    assert not cast(scenario(nodes=10)).make_paths()


def test_names_are_short_and_different_however_many_there_are() -> None:
    names = [node_id_for(number) for number in (0, 1, 255, 256, 65_535, 65_536, 99_999)]

    assert [len(name) for name in names] == [2, 2, 2, 2, 2, 3, 3]
    assert len(set(names)) == len(names)
