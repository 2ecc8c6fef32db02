"""Budgets of a device: bytes of memory, and energy for encounters (U1, U6)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import photo
from tests.substrates.encounters.devices import Device, meet
from thyme.model.errors import OptionError
from thyme.model.tags import as_tag
from thyme.protocol.messages.encounters import EncounterEvents, NeighbourProbe
from thyme.protocol.node import Broadcast, Started, TimerFired
from thyme.sim.encounters.run import run_encounters
from thyme.sim.encounters.scenario import HOUR_US, EncounterProtocol, EncounterScenario
from thyme.storage.store import MemoryStore
from thyme.substrates.encounters.battery import BYTE_J, DISCOVERY_J, Battery, estimate_bytes
from thyme.substrates.encounters.config import EncounterConfig, MobUserConfig
from thyme.substrates.encounters.dissemination import DiscoveryTimer
from thyme.substrates.encounters.event_memory import EventList, Reception, ThreeLists
from thyme.substrates.encounters.events import CarriedEvent
from thyme.substrates.encounters.memory_config import ListSizes
from thyme.substrates.encounters.node import EncounterNode

GOAL = frozenset({as_tag("goal")})
SCENARIO = EncounterScenario(
    protocol=EncounterProtocol.MOBUSER, nodes=30, duration_us=HOUR_US, side_m=80.0
)


def event(number: int, size: int) -> CarriedEvent:
    return CarriedEvent(replace(photo(number, tags={"goal"}), size=size), b"x" * size)


@given(st.lists(st.integers(0, 60)), st.integers(1, 100), st.integers(1, 8))
def test_u6_a_list_keeps_to_its_events_and_bytes_whatever_arrives(
    sizes: list[int], bytes_max: int, events_max: int
) -> None:
    kept = EventList(events_max, bytes_max)
    for number, size in enumerate(sizes):
        added = kept.add(event(number, size))
        kept.check()
        assert added is (size <= bytes_max)
        assert not added or list(kept.events.values())[-1].metadata.size == size


def test_u6_large_events_leave_when_the_bytes_are_used_up() -> None:
    memory = ThreeLists(ListSizes(memory_bytes=1_000))
    for number in range(5):
        assert memory.receive(event(number, 300), GOAL, GOAL) is Reception.NEW
    memory.check()

    assert [each.key.oid for each in memory.recent] == ["photo4", "photo3"]  # 700 bytes of 1,000


def test_a_battery_budget_leaves_discoveries_out_and_counts_them() -> None:
    config = EncounterConfig(joules_per_hour=4 * DISCOVERY_J)
    node = EncounterNode(Device("x").node_id, MemoryStore(), Random(1), config)
    node.handle(Started(), 0)
    made = 0
    for step in range(48):  # four hours, one discovery in five minutes
        actions = node.handle(TimerFired(DiscoveryTimer()), step * 300_000_000)
        made += any(isinstance(action, Broadcast) for action in actions)

    assert 16 <= made <= 21  # what accrued in the first hour may be spent at once
    assert node.dropped["discoveries left out to save the battery"] == 48 - made


def test_a_device_without_energy_ignores_its_neighbours_until_some_has_accrued() -> None:
    ana, ben = Device("ana"), Device("ben", MobUserConfig())
    ana.publish("goal1", "goal", data=b"x" * 30_000)
    ben.subscribe("goal")
    ben.node._battery = battery = Battery(1e-3)
    battery.spend_bytes(round(2 * DISCOVERY_J / BYTE_J) + 1)
    meet(ana, ben)
    assert ben.notified == []
    assert ben.node.dropped["messages ignored to save the battery"] == 1

    ben.now_us = 24 * HOUR_US
    meet(ana, ben)
    assert ben.notified == ["goal1"]


def test_the_energy_of_a_run_is_estimated_and_a_budget_lowers_it() -> None:
    free = run_encounters(SCENARIO)
    saving = run_encounters(replace(SCENARIO, joules_per_hour=30.0))

    assert free.traffic.joules_per_node_hour > 12 * DISCOVERY_J * 0.9
    assert saving.traffic.joules_per_node_hour < 0.7 * free.traffic.joules_per_node_hour
    assert saving.dropped["discoveries left out to save the battery"] > 0
    assert saving.events.delivered <= free.events.delivered


def test_the_size_of_a_message_is_estimated_from_its_events() -> None:
    one = EncounterEvents(1, (photo(1),), (b"x" * 500,))

    assert estimate_bytes(NeighbourProbe(True)) < 100
    assert 600 < estimate_bytes(one) < 800


@pytest.mark.parametrize("joules", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_that_makes_no_sense_is_refused(joules: float) -> None:
    with pytest.raises(OptionError):
        Battery(joules)
    with pytest.raises(OptionError):
        ListSizes(memory_bytes=0)
