"""Venue deployment: the nodes of a venue scenario, their positions, their paths and their faults.

Entry point: `VenueDeployment`. Mobile nodes come first, stations last. Venues are in a row, each
with its station in the centre.
Clauses: I1, S6, S7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from thyme.model.ids import Key, NodeId
from thyme.model.positions import Position
from thyme.model.rng import derive_rng
from thyme.model.sampling import sample_nodes
from thyme.model.worlds import Area
from thyme.protocol.node import Node
from thyme.sim.deployment import node_id_for
from thyme.sim.faults.schedule import Crash, FaultSchedule, Restart, make_schedule
from thyme.sim.mobility.models import random_positions
from thyme.sim.mobility.paths import Leg, pause_leg, straight_leg
from thyme.sim.scenario import Profile
from thyme.sim.venues.scenario import VenueScenario, VenueSeries
from thyme.sim.venues.slow_answers import SlowAnswers
from thyme.sim.venues.timed_content import TimedContent
from thyme.storage.store import Store
from thyme.substrates.dcs.config import LOGICAL_ROBUST
from thyme.substrates.dcs.config import PAPER as DCS_PAPER
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.infra.factory import make_mobile_node
from thyme.substrates.infra.mobile.extension import MobileConfig, MobileExtension
from thyme.substrates.infra.station.node import StationNode

WORLD_NAME = "simulation"
OnStationDownload = Callable[[NodeId, Key, str | None], None]
"""A station looked for an object in its caches; the name of the one that had it."""


def world_name(world: int) -> str:
    """The name of a world, by its number in the scenario."""
    return WORLD_NAME if not world else f"{WORLD_NAME}-{world}"


class VenueDeployment:
    """The devices of a venue scenario."""

    def __init__(
        self,
        scenario: VenueScenario,
        on_download: OnStationDownload = lambda station, key, cache: None,
    ) -> None:
        self._scenario = scenario
        self._on_download = on_download
        self.users = scenario.nodes
        self.node_ids = [node_id_for(number) for number in range(self.users + scenario.stations)]
        self.station_ids = self.node_ids[self.users :]
        self.mobiles: dict[int, tuple[DcsNode, MobileExtension]] = {}
        """The latest node of each user, with its extension."""
        self.contents: dict[NodeId, list[TimedContent]] = {}
        """The caches of each station, one for each time that it was started."""
        self.positions = self._draw_positions()
        self.joins_us = [self._draw_join_us(number) for number in range(self.users)]
        self.fault_schedule = self._make_fault_schedule()

    def make_node(self, node_id: NodeId, store: Store, incarnation: int) -> Node:
        """Makes the node of a device for one incarnation."""
        number = self.node_ids.index(node_id)
        if number >= self.users:
            return self._make_station(node_id, incarnation)
        scenario, seed = self._scenario, self._scenario.seed
        settings = scenario.station_settings
        node, extension = make_mobile_node(
            node_id,
            store,
            cells_rng=derive_rng(seed, "cells", number, incarnation),
            rng=derive_rng(seed, "dcs", node_id, incarnation),
            station_rng=derive_rng(seed, "station link", number, incarnation),
            config=LOGICAL_ROBUST if scenario.profile is Profile.ROBUST else DCS_PAPER,
            mobile=MobileConfig(
                world_name=world_name(scenario.world_of(number)), cells=settings.cells_min
            ),
            join_at_us=self.joins_us[number],
        )
        self.mobiles[number] = node, extension
        if not scenario.slow_answers:
            return node
        return SlowAnswers(node, derive_rng(seed, "slow answers", number, incarnation))

    def _make_station(self, node_id: NodeId, incarnation: int) -> StationNode:
        settings = self._scenario.station_settings
        rng = derive_rng(self._scenario.seed, "station", node_id, incarnation)
        content = TimedContent(settings.caches)
        self.contents.setdefault(node_id, []).append(content)

        def on_download(world: int, key: Key, cache: str | None) -> None:
            self._on_download(node_id, key, cache)

        return StationNode(
            node_id, self.station_ids, content, rng, settings, on_download=on_download
        )

    def corner_of(self, venue: int) -> Position:
        """The corner of a venue with the lowest coordinates."""
        return venue * (self._scenario.venue_m[0] + self._scenario.gap_m), 0.0

    def _draw_positions(self) -> list[Position]:
        scenario = self._scenario
        width_m, height_m = scenario.venue_m
        rng = derive_rng(scenario.seed, "places")
        drawn = random_positions(rng, self.users, Area(width_m, height_m))
        mobiles = [
            self._in_venue(scenario.venue_of(user), position) for user, position in enumerate(drawn)
        ]
        centre = width_m / 2, height_m / 2
        stations = [self._in_venue(venue, centre) for venue in range(scenario.stations)]
        return [*mobiles, *stations]

    def _in_venue(self, venue: int, position: Position) -> Position:
        x_m, y_m = self.corner_of(venue)
        return x_m + position[0], y_m + position[1]

    def _draw_join_us(self, number: int) -> int:
        timeline = self._scenario.timeline
        rng = derive_rng(self._scenario.seed, "join", number)
        return timeline.starts_us + int(rng.random() * timeline.joins_us)

    # Movement

    def make_paths(self) -> dict[NodeId, Iterator[Leg]]:
        """Makes the paths of the nodes that walk to the next venue, once, during the operations."""
        scenario = self._scenario
        if scenario.kind is not VenueSeries.MOBILE:
            return {}
        walkers = sample_nodes(scenario.seed, "walk", range(self.users), scenario.walking)
        return {self.node_ids[user]: iter(self._walk(user)) for user in walkers}

    def _walk(self, user: int) -> list[Leg]:
        scenario = self._scenario
        timeline = scenario.timeline
        rng = derive_rng(scenario.seed, "walk", user)
        leaves_us = timeline.origin_us + int(rng.random() * timeline.operations_us / 2)
        width_m, height_m = scenario.venue_m
        [place] = random_positions(rng, 1, Area(width_m, height_m))
        venue = (scenario.venue_of(user) + 1) % scenario.venues
        start, end = self.positions[user], self._in_venue(venue, place)
        walk = straight_leg(leaves_us, start, end, scenario.speed_m_s)
        return [pause_leg(0, leaves_us, start), walk]

    # Faults

    def _make_fault_schedule(self) -> FaultSchedule:
        """In an outage, stations fail after a third of the operations and return after two."""
        scenario = self._scenario
        size = len(self.node_ids)
        if scenario.kind is not VenueSeries.OUTAGE:
            return make_schedule(nodes=size)
        third_us = scenario.timeline.operations_us // 3
        fails_us = scenario.timeline.origin_us + third_us
        numbers = range(self.users, size)
        failing = sample_nodes(scenario.seed, "outage", numbers, scenario.failing)
        crashes = [Crash(fails_us, number) for number in failing]
        restarts = [Restart(fails_us + third_us, number) for number in failing]
        return make_schedule(crashes, restarts, nodes=size)
