"""Scenarios: what a run is about, as data.

Who is there and where, how they come, go and move, what they do and when. A scenario and its trace
determine a run completely. The defaults are those of F, 9.2; the presets are its four series.
Clauses: S6, S7, S11, S12, S16.
"""

from __future__ import annotations

from enum import StrEnum
from math import sqrt

import msgspec

from thyme.model.choice import check_share
from thyme.model.errors import InputError
from thyme.model.frames import SECOND_US, check_instant_us
from thyme.model.metadata import Limits
from thyme.model.worlds import Area
from thyme.routing.cells import Grid
from thyme.sim.mobility import SPEEDS_MAX_M_S, check_speeds
from thyme.traces.match import Match
from thyme.traces.operations import Insert, Operation, Subscribe, TraceError, about
from thyme.traces.reactions import LECTURE, Reaction
from thyme.traces.rules import Rules, match_trace
from thyme.traces.trace import Trace

NODES_MAX = 100_000
SIDE_M_MAX = 10_000_000.0
"""What recordings and their pages have room for; a quarter of the way round the Earth."""
AREA_M_PER_ROOT = 40.0, 20.0
"""F's areas: 160 × 80 m for 16 nodes, 400 × 200 m for 100; two nodes per cell of 40 m."""
LIMITS = Limits()
"""How large objects may be; the nodes of a run have no other."""
PUBLISHERS_SHARE = 0.5
"""Of the nodes where each is either a publisher or a subscriber (S7)."""


class ScenarioError(InputError):
    """A scenario that cannot be run (S11, S12)."""

    code = "bad_scenario"


class Substrate(StrEnum):
    """What the nodes run."""

    ES = "es"
    LS = "ls"
    DCS = "dcs"


class Kind(StrEnum):
    """The series of F: nothing fails, publishers crash, nodes come and go, nodes move."""

    STATIC = "static"
    CRASH = "crash"
    TRANSIENT = "transient"
    MOBILE = "mobile"


class Profile(StrEnum):
    """The protocol as the documents have it, or with what they left open."""

    PAPER = "paper"
    ROBUST = "robust"


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The order of a run (S11): the routing alone, then nodes join, then operations, then quiet."""

    starts_us: int = 30 * SECOND_US
    joins_us: int = 30 * SECOND_US
    operations_us: int = 600 * SECOND_US
    quiet_us: int = 60 * SECOND_US

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                raise ScenarioError(f"{name} is 0 or more, not {getattr(self, name)}")

    @property
    def origin_us(self) -> int:
        """When operations begin."""
        return self.starts_us + self.joins_us

    @property
    def end_us(self) -> int:
        """When the run ends."""
        return self.origin_us + self.operations_us + self.quiet_us


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One run, but for its trace."""

    substrate: Substrate
    nodes: int = 100
    """Devices with a user each; the server of ES comes on top."""
    kind: Kind = Kind.STATIC
    profile: Profile = Profile.PAPER
    area_m: tuple[float, float] | None = None
    """Width and height; by default as dense as F's."""
    failing: float = 0.2
    """The share of the publishers that crash, or of the nodes that come and go."""
    speed_m_s: float = SPEEDS_MAX_M_S["walk"]
    """The highest speed of those that move."""
    reaction: Reaction = LECTURE
    """Who retrieves what it is notified of, and how soon."""
    seed: int = 1
    topology: int | None = None
    """The seed of the places, where it is not that of the rest (S16)."""
    timeline: Timeline = Timeline()

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= NODES_MAX:
            raise ScenarioError(f"nodes: from 1 to {NODES_MAX:,}, not {self.nodes}")
        if self.area_m is not None:
            Area(*self.area_m)
            if max(self.area_m) > SIDE_M_MAX:
                raise ScenarioError(
                    f"area: sides are at most {SIDE_M_MAX:,.0f} m, not {max(self.area_m):g}"
                )
        check_share(self.failing, "failing: the share of nodes that fail")
        check_speeds(min(0.1, self.speed_m_s), self.speed_m_s)
        if self.substrate is Substrate.DCS:
            grid_over(self.area)  # refuses an area of too many cells

    @property
    def area(self) -> Area:
        """Where the nodes are."""
        if self.area_m is not None:
            return Area(*self.area_m)
        root = sqrt(self.nodes)
        return Area(AREA_M_PER_ROOT[0] * root, AREA_M_PER_ROOT[1] * root)


def grid_over(area: Area) -> Grid:
    """The cells of DCS, 40 m wide (D1)."""
    try:
        return Grid.covering(area.width_m, area.height_m)
    except ValueError as error:
        raise ScenarioError(f"area: {error}") from error


def synthetic_trace(scenario: Scenario) -> Trace:
    """The trace of a scenario that has none of its own: the synthetic match, of the scenario's
    seed, compressed into its operations' time; with publishers that do not subscribe where they
    are going to crash (S7)."""
    share = PUBLISHERS_SHARE if scenario.kind is Kind.CRASH else None
    rules = Rules(lasts_us=scenario.timeline.operations_us)
    match = Match(scenario.seed)
    return match_trace(scenario.seed, match, scenario.nodes, rules, publishers_share=share)


def check_trace(scenario: Scenario, trace: Trace) -> None:
    """Refuses a trace that does not fit."""
    if trace.users != scenario.nodes:
        raise ScenarioError(
            f"nodes: the trace has {trace.users} users and the scenario {scenario.nodes} nodes; "
            "each user has one node"
        )
    for number, operation in enumerate(trace.operations):
        try:
            _check_operation(operation, scenario.timeline)
        except TraceError as error:
            raise TraceError(f"operation {number}, {error.field}", error.problem) from error


def _check_operation(operation: Operation, timeline: Timeline) -> None:
    """Refuses what is sound by itself, but not at its time in the run or by its nodes' limits."""
    if operation.at_us > timeline.operations_us:
        raise TraceError(
            "at_us",
            f"{operation.at_us / SECOND_US:g} s is later than the operations of the scenario, "
            f"which take {timeline.operations_us / SECOND_US:g} s",
        )
    if isinstance(operation, Insert):
        for field, size, most in (
            ("size", operation.size, LIMITS.data_bytes_max),
            ("summary_size", operation.summary_size, LIMITS.summary_bytes_max),
        ):
            if size > most:
                raise TraceError(field, f"a node takes at most {most} bytes, not {size}")
        with about("life_us"):
            check_instant_us((operation.expires_us or 0) + timeline.origin_us)
    elif isinstance(operation, Subscribe):
        with about("end_us"):
            operation.frame_from(timeline.origin_us)
