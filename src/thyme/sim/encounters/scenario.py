"""Encounter scenarios: the parameters of one run, and the operations of its users.

Entry points: `EncounterScenario`, `make_contacts` and `make_trace`. The defaults are the scenarios
of the MobUser paper, sections IV to VIII.
Clauses: U7, U8, U9.
"""

from __future__ import annotations

import math
from enum import StrEnum
from itertools import combinations

import msgspec

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.model.sampling import check_share
from thyme.model.tags import Tag, as_tag
from thyme.model.time_frames import SECOND_US
from thyme.model.worlds import Area
from thyme.sim.encounters.contact_files import ContactTrace
from thyme.sim.encounters.contacts import (
    RANGE_M,
    Contact,
    ContactSource,
    ListedContacts,
    MovementContacts,
)
from thyme.sim.encounters.mobuser_trace import (
    EVENT_BYTES,
    PUBLISH_US,
    MobUserPopulation,
    encounter_event,
    encounter_subscription,
    mobuser_trace,
)
from thyme.sim.encounters.segments import PathSegments, StreetSegments
from thyme.sim.mobility.manhattan import ManhattanGrid
from thyme.sim.mobility.models import AreasOfInterest, MobilityModel, RandomWaypoint, Rect
from thyme.substrates.encounters.config import (
    DISCOVERY_US,
    ExchangeMode,
    MfpsConfig,
    MobUserConfig,
    Protocol,
    RapidConfig,
)
from thyme.substrates.encounters.location_topics import cell_at_metres, location_topic
from thyme.substrates.encounters.memory_config import MEMORY_EVENTS, ListSizes, WhenFull
from thyme.traces.operations import Operation, SubscribeOperation
from thyme.traces.trace import Trace, merge_users

NODES_MAX = 100_000
HOUR_US = 3_600 * SECOND_US
DURATION_US_MAX = 366 * 24 * HOUR_US
AREAS_NODES, AREAS_WALKERS = 6, 4
AREAS_SIDE_M = 120.0
AREAS, AREAS_PER_NODE = 4, 2
AREA_SIDE_M, AREA_MARGIN_M = 20.0, 10.0
"""Side of an area of interest, and its distance to the edge; the paper gives neither."""
AREA_LEVEL = 1
"""Grid level of the location topics of areas: cells of 10 m."""


class EncounterScenarioError(InputError):
    """The parameters of an encounter scenario are invalid (U9)."""

    code = "bad_scenario"


class EncounterProtocol(StrEnum):
    """The protocol of all nodes of a run."""

    MOBUSER = "mobuser"
    MFPS = "mfps"
    RAPID = "rapid"


class EncounterKind(StrEnum):
    """How nodes meet: on streets, between areas of interest, at random, or as recorded."""

    MANHATTAN = "manhattan"
    AREAS = "areas"
    WAYPOINT = "waypoint"
    CONTACTS = "contacts"


class EncounterScenario(msgspec.Struct, frozen=True, kw_only=True):
    """All parameters of one run except recorded contacts."""

    protocol: EncounterProtocol
    kind: EncounterKind = EncounterKind.MANHATTAN
    nodes: int = 1_000
    duration_us: int = 4 * HOUR_US
    side_m: float = 450.0
    range_m: float = RANGE_M
    rare_probability: float | None = None
    """Probability with which a node subscribes to the rarest of six topics, whose subscribers
    publish (paper, section VII); None: one topic, to which all subscribe."""
    publishers_share: float = 0.1
    """Share of the nodes that publish an event, if there is one topic."""
    event_bytes: int = EVENT_BYTES
    memory_events: int = MEMORY_EVENTS
    memory_bytes: int | None = None
    """Limit of the bytes in the memory of a device of MobUser; None: no limit."""
    joules_per_hour: float | None = None
    """Energy that a device may spend on encounters; None: no limit."""
    recent_share: float = ListSizes().recent_share
    topics_added: int = MobUserConfig().topics_added
    discovery_us: int = DISCOVERY_US
    """How often devices of MobUser and RAPID look for neighbours (U1)."""
    exchange: ExchangeMode = ExchangeMode.WHOLE
    """How devices of MobUser exchange events (U3)."""
    when_full: WhenFull = WhenFull.REFUSE
    """What MFPS and RAPID do with an event that reaches a full memory."""
    seed: int = 1

    def __post_init__(self) -> None:
        if not 2 <= self.nodes <= NODES_MAX:
            raise EncounterScenarioError(f"nodes: from 2 to {NODES_MAX:,}, not {self.nodes}")
        if not 0 < self.duration_us <= DURATION_US_MAX:
            raise EncounterScenarioError(
                f"hours: above 0 and at most {DURATION_US_MAX // HOUR_US:,}, "
                f"not {self.duration_us / HOUR_US:g}"
            )
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise EncounterScenarioError(f"memory: at least 1 byte, not {self.memory_bytes}")
        if self.joules_per_hour is not None and not 0 < self.joules_per_hour < math.inf:
            raise EncounterScenarioError(
                f"battery: above 0 joules per hour, not {self.joules_per_hour}"
            )
        if not (math.isfinite(self.side_m) and 20 <= self.side_m <= 1e7):
            raise EncounterScenarioError(f"side: from 20 m to 10,000 km, not {self.side_m} m")
        check_share(self.publishers_share, "the share of publishers")
        if self.rare_probability is not None:
            check_share(self.rare_probability, "the probability of the rarest topic")
        if self.kind is EncounterKind.AREAS:
            if self.nodes <= AREAS_WALKERS:
                raise EncounterScenarioError(
                    f"nodes: areas of interest need more than their {AREAS_WALKERS} walkers"
                )
            if self.side_m < 2 * (AREA_SIDE_M + AREA_MARGIN_M):
                raise EncounterScenarioError(f"side: the areas do not fit into {self.side_m} m")
        if not 0 <= self.event_bytes <= 64 * 2**10:
            raise EncounterScenarioError(f"events have 0 to 65,536 bytes, not {self.event_bytes}")


def protocol_config(scenario: EncounterScenario, topics: tuple[Tag, ...]) -> Protocol:
    """The settings of the protocol of a scenario."""
    match scenario.protocol:
        case EncounterProtocol.MOBUSER:
            lists = ListSizes(
                memory_events=scenario.memory_events,
                recent_share=scenario.recent_share,
                memory_bytes=scenario.memory_bytes,
            )
            return MobUserConfig(
                lists=lists,
                topics_added=scenario.topics_added,
                topics_known=topics,
                exchange=scenario.exchange,
                discovery_us=scenario.discovery_us,
            )
        case EncounterProtocol.MFPS:
            return MfpsConfig(memory_events=scenario.memory_events, when_full=scenario.when_full)
        case EncounterProtocol.RAPID:
            return RapidConfig(
                memory_events=scenario.memory_events,
                when_full=scenario.when_full,
                discovery_us=scenario.discovery_us,
            )


# Contacts


def make_contacts(scenario: EncounterScenario, trace: ContactTrace | None = None) -> ContactSource:
    """The contacts of a scenario: computed from movement, or recorded."""
    if scenario.kind is EncounterKind.CONTACTS:
        if trace is None or trace.nodes != scenario.nodes:
            raise EncounterScenarioError("recorded contacts need a trace with as many nodes")
        return ListedContacts(_cut_contacts(trace.contacts, scenario.duration_us), trace.nodes)
    if scenario.kind is EncounterKind.MANHATTAN:
        grid = ManhattanGrid(side_m=scenario.side_m)
        return MovementContacts(
            StreetSegments(grid, scenario.nodes, scenario.seed), scenario.range_m
        )
    paths = [
        mobility_of(scenario, node).path(
            derive_rng(scenario.seed, "mobility", node), scenario.duration_us
        )
        for node in range(scenario.nodes)
    ]
    return MovementContacts(PathSegments(paths), scenario.range_m)


def _cut_contacts(contacts: list[Contact], until_us: int) -> list[Contact]:
    return [
        Contact(contact.start_us, min(contact.end_us, until_us), contact.first, contact.second)
        for contact in contacts
        if contact.start_us < until_us
    ]


def mobility_of(scenario: EncounterScenario, node: int) -> MobilityModel:
    """The mobility model of a node; with areas of interest, the last four nodes walk anywhere."""
    area = Area(scenario.side_m, scenario.side_m)
    if scenario.kind is EncounterKind.AREAS and node < scenario.nodes - AREAS_WALKERS:
        return AreasOfInterest(area=area, spots=spots_of(scenario, node))
    return RandomWaypoint(
        area=area, speed_m_s_min=0.5, speed_m_s_max=2.5, pause_us=0, move_probability=1.0
    )


def spots_of(scenario: EncounterScenario, node: int) -> tuple[Rect, ...]:
    """The two areas of a node, a different pair for each of the first six nodes."""
    return tuple(_spot(scenario, number) for number in _areas_of(node))


def _areas_of(node: int) -> tuple[int, ...]:
    """The numbers of a node's areas: four areas have six pairs, so that three of the six nodes
    share each area; the paper draws six nodes with two areas each, some shared by three."""
    pairs = tuple(combinations(range(AREAS), AREAS_PER_NODE))
    return pairs[node % len(pairs)]


def _spot(scenario: EncounterScenario, number: int) -> Rect:
    """An area of interest: a square near a corner."""
    far_m = scenario.side_m - AREA_SIDE_M - AREA_MARGIN_M
    x, y = ((AREA_MARGIN_M, far_m)[bit] for bit in (number % 2, number // 2))
    return Rect(x, y, AREA_SIDE_M, AREA_SIDE_M)


# Users


def make_trace(scenario: EncounterScenario) -> Trace:
    """The operations of the users of a scenario."""
    population = MobUserPopulation(
        users=scenario.nodes,
        publishers_share=scenario.publishers_share,
        rare_probability=scenario.rare_probability,
        event_bytes=scenario.event_bytes,
        publish_us=max(1, min(PUBLISH_US, scenario.duration_us // 2)),
    )
    if scenario.kind is EncounterKind.AREAS:
        return _areas_trace(scenario, population)
    return mobuser_trace(scenario.seed, population)


def _areas_trace(scenario: EncounterScenario, population: MobUserPopulation) -> Trace:
    """Each node with areas subscribes to their places and publishes an event in each (U5)."""
    places = [_place(_spot(scenario, number)) for number in range(AREAS)]
    topics = [location_topic(place, AREA_LEVEL) for place in places]
    operations: list[Operation] = []
    inserts = 0
    for node in range(scenario.nodes - AREAS_WALKERS):
        mine = _areas_of(node)
        wanted = tuple(sorted({topics[number] for number in mine}))
        operations.append(encounter_subscription(node, wanted))
        for number in mine:
            tags = as_tag("place"), location_topic(places[number])
            operations.append(encounter_event(scenario.seed, inserts, node, tags, population))
            inserts += 1
    return merge_users(scenario.nodes, operations)


def _place(spot: Rect) -> tuple[int, int]:
    return cell_at_metres((spot.x_m + spot.width_m / 2, spot.y_m + spot.height_m / 2))


def topics_of_trace(trace: Trace) -> tuple[Tag, ...]:
    """All topics to which somebody subscribes; devices know them from the start."""
    return tuple(
        sorted(
            {
                tag
                for operation in trace.operations
                if isinstance(operation, SubscribeOperation)
                for conjunction in operation.conjunctions
                for tag in conjunction.positive
            }
        )
    )
