"""Venue scenarios: the parameters of a simulation of Thyme-Infrastructure.

Entry point: `VenueScenario`. Each station has a venue, a rectangle in which all nodes hear each
other and the station. Venues are in a row, by default too far apart to hear each other; they may
also overlap. The users of the trace are spread over the venues in turn.
`thyme.sim.venues.deployment` makes the nodes.
Clauses: I1, I28, S11, S13.
"""

from __future__ import annotations

from enum import StrEnum
from math import hypot

import msgspec

from thyme.model.sampling import check_share
from thyme.sim.mobility.models import SPEEDS_MAX_M_S, check_speeds
from thyme.sim.networks.wired_links import WireConfig
from thyme.sim.scenario import (
    NODES_MAX,
    Profile,
    Scenario,
    ScenarioError,
    Substrate,
    Timeline,
)
from thyme.substrates.infra.station.settings import PAPER, ROBUST, StationSettings
from thyme.traces.retrieve_behaviour import LECTURE_RETRIEVES, RetrieveBehaviour

STATIONS_MAX = 100
WORLDS_MAX = 100
VENUE_M = (60.0, 40.0)
"""The default width and height of a venue."""
VENUE_DIAGONAL_M_MAX = 100.0
"""The longest diagonal of a venue: all of its nodes hear each other."""
VENUE_GAP_M = 300.0
"""The default distance between two venues: more than twice the range of the radio."""


GAP_M_MAX = 10_000.0


class VenueSeries(StrEnum):
    """What happens during a run: nothing, users that walk to another venue, stations that fail and
    return, stable nodes of cells that fail just before they report (C31)."""

    STATIC = "static"
    MOBILE = "mobile"
    OUTAGE = "outage"
    FAILOVER = "failover"


class VenueScenario(msgspec.Struct, frozen=True, kw_only=True):
    """All parameters of one run except its trace."""

    stations: int = 1
    nodes: int = 100
    """The number of mobile nodes in all venues together."""
    worlds: int = 1
    """The number of worlds; the users of a venue are spread over them in turn."""
    kind: VenueSeries = VenueSeries.STATIC
    profile: Profile = Profile.PAPER
    venue_m: tuple[float, float] = VENUE_M
    gap_m: float = VENUE_GAP_M
    """The distance between two venues; negative if they overlap."""
    failing: float = 1.0
    """The share of the stations that fail during an outage."""
    walking: float = 0.3
    """The share of the nodes that walk to another venue."""
    speed_m_s: float = SPEEDS_MAX_M_S["walk"]
    reaction: RetrieveBehaviour = LECTURE_RETRIEVES
    seed: int = 1
    timeline: Timeline = Timeline()
    wires: WireConfig = WireConfig()
    rate_mbps: float = 6.0
    """The rate of the radio, one of 802.11g."""
    slow_answers: bool = False
    """Whether mobile nodes take up to 30 s to answer a request of the station (thesis, 5.3.5)."""
    settings: StationSettings | None = None
    """The settings of all stations; None for those of the profile."""

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= NODES_MAX:
            raise ScenarioError(f"nodes: from 1 to {NODES_MAX:,}, not {self.nodes}")
        if not 0 <= self.stations <= STATIONS_MAX:
            raise ScenarioError(f"stations: from 0 to {STATIONS_MAX}, not {self.stations}")
        if not 1 <= self.worlds <= WORLDS_MAX:
            raise ScenarioError(f"worlds: from 1 to {WORLDS_MAX}, not {self.worlds}")
        width_m, height_m = self.venue_m
        if not (width_m > 0 and height_m > 0 and hypot(width_m, height_m) <= VENUE_DIAGONAL_M_MAX):
            raise ScenarioError(
                "area: in a venue all nodes hear each other; its diagonal is at most "
                f"{VENUE_DIAGONAL_M_MAX:g} m, that of {width_m:g} × {height_m:g} m is longer"
            )
        if not -width_m <= self.gap_m <= GAP_M_MAX:
            raise ScenarioError(
                f"gap: from {-width_m:g}, for venues at the same place, to {GAP_M_MAX:,g} m, not "
                f"{self.gap_m:g}"
            )
        check_share(self.failing, "failing: the share of stations that fail")
        check_share(self.walking, "walking: the share of nodes that walk")
        check_speeds(min(0.1, self.speed_m_s), self.speed_m_s)
        if self.kind is VenueSeries.MOBILE and self.stations < 2:
            raise ScenarioError("stations: with one venue nobody can walk to another one")
        if self.kind is VenueSeries.OUTAGE and not self.stations:
            raise ScenarioError("stations: without a station none can fail")
        if self.kind is VenueSeries.FAILOVER and self.stations != 1:
            raise ScenarioError("stations: the failures of stable nodes are for one station")

    @property
    def venues(self) -> int:
        """The number of venues; one without a station if there are no stations."""
        return max(1, self.stations)

    @property
    def station_settings(self) -> StationSettings:
        """The settings of all stations."""
        if self.settings is not None:
            return self.settings
        return ROBUST if self.profile is Profile.ROBUST else PAPER

    def venue_of(self, user: int) -> int:
        """The venue in which a user starts."""
        return user % self.venues

    def world_of(self, user: int) -> int:
        """The world of a user."""
        return user // self.venues % self.worlds

    def without_stations(self) -> Scenario:
        """The same users on one substrate without stations: for traces and summaries."""
        return Scenario(
            substrate=Substrate.DCS,
            nodes=self.nodes,
            profile=self.profile,
            reaction=self.reaction,
            seed=self.seed,
            timeline=self.timeline,
        )
