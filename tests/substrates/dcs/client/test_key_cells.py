"""Locations of replicas that notifications have named (D18)."""

from __future__ import annotations

from tests.builders import key
from tests.substrates.dcs.components import indexed
from thyme.substrates.dcs.client.replica_locations import ReplicaLocations


def test_replica_locations_are_bounded_and_the_latest_stay() -> None:
    locations = ReplicaLocations(3)
    for number in (1, 2, 3, 1, 4):
        locations.add(indexed(number))
    assert len(locations) == 3
    assert locations.get(key(2)) is None
    assert locations.get(key(1)) is not None
