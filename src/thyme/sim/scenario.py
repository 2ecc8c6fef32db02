"""Scenarios: the parameters of a simulation run.

Entry points: `Scenario`, `synthetic_trace`, `lecture_of`, `check_trace`. A scenario gives the
number of nodes, their area, failures, movement and timeline. A scenario and its trace determine a
run completely. Defaults and the four series: Thyme (journal article), section 9.2.
`thyme.sim.deployment` makes the nodes of a scenario.
Clauses: S6, S7, S11–S13, S16.
"""

from __future__ import annotations

from enum import StrEnum
from math import sqrt

import msgspec

from thyme.model.errors import InputError
from thyme.model.metadata import Limits
from thyme.model.sampling import check_share
from thyme.model.time_frames import SECOND_US, check_instant_us
from thyme.model.worlds import Area
from thyme.routing.cells import Grid
from thyme.sim.mobility.models import SPEEDS_MAX_M_S, check_speeds
from thyme.traces.operations import (
    InsertOperation,
    Operation,
    SubscribeOperation,
    TraceError,
    error_context,
)
from thyme.traces.posts_to_trace import TraceRules, trace_from_posts
from thyme.traces.retrieve_behaviour import LECTURE_RETRIEVES, RetrieveBehaviour
from thyme.traces.synthetic.football_match import FootballMatch, FootballMatchConfig
from thyme.traces.synthetic.lecture_trace import LectureConfig, lecture_trace
from thyme.traces.trace import Trace

NODES_MAX = 100_000
AREA_SIDE_M_MAX = 10_000_000.0
"""The largest coordinate that recordings and playback pages can hold."""
AREA_M_PER_SQRT_NODE = 40.0, 20.0
"""Width and height per square root of the number of nodes, as in Thyme (journal article):
160 × 80 m for 16 nodes, 400 × 200 m for 100; two nodes per cell of 40 m."""
LIMITS = Limits()
"""Size limits of objects, the same for every node of a run."""
PUBLISHERS_SHARE = 0.5
"""Share of publishers where a node is either a publisher or a subscriber (S7)."""


class ScenarioError(InputError):
    """The parameters of a scenario are invalid or do not fit its trace (S11, S12)."""

    code = "bad_scenario"


class Substrate(StrEnum):
    """The substrate that all nodes of a run use."""

    ES = "es"
    LS = "ls"
    DCS = "dcs"


class Series(StrEnum):
    """The series of experiments in Thyme (journal article): no failures, publishers that crash,
    nodes that are switched off and on, nodes that move."""

    STATIC = "static"
    CRASH = "crash"
    TRANSIENT = "transient"
    MOBILE = "mobile"


class Profile(StrEnum):
    """The protocol as published, or with additions for cases that the papers leave open."""

    PAPER = "paper"
    ROBUST = "robust"


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The phases of a run (S11): routing alone, joining, operations, a quiet period."""

    starts_us: int = 30 * SECOND_US
    joins_us: int = 30 * SECOND_US
    operations_us: int = 600 * SECOND_US
    quiet_us: int = 60 * SECOND_US

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                raise ScenarioError(f"{name} must be 0 or more, not {getattr(self, name)}")

    @property
    def origin_us(self) -> int:
        """The instant at which operations begin."""
        return self.starts_us + self.joins_us

    @property
    def end_us(self) -> int:
        """The instant at which the run ends."""
        return self.origin_us + self.operations_us + self.quiet_us


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """All parameters of one run except its trace."""

    substrate: Substrate
    nodes: int = 100
    """Number of user devices; the server of ES is an additional node."""
    kind: Series = Series.STATIC
    profile: Profile = Profile.PAPER
    area_m: tuple[float, float] | None = None
    """Width and height; the default has the node density of Thyme (journal article)."""
    failing: float = 0.2
    """Share of the publishers that crash, or of the nodes that are switched off and on."""
    speed_m_s: float = SPEEDS_MAX_M_S["walk"]
    """Highest speed of a moving node."""
    reaction: RetrieveBehaviour = LECTURE_RETRIEVES
    """How likely and how soon users retrieve an object after its notification."""
    seed: int = 1
    topology: int | None = None
    """Seed of the node positions; None: the seed of the scenario (S16)."""
    timeline: Timeline = Timeline()

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= NODES_MAX:
            raise ScenarioError(f"nodes: from 1 to {NODES_MAX:,}, not {self.nodes}")
        if self.area_m is not None:
            Area(*self.area_m)
            if max(self.area_m) > AREA_SIDE_M_MAX:
                raise ScenarioError(
                    f"area: sides are at most {AREA_SIDE_M_MAX:,.0f} m, not {max(self.area_m):g}"
                )
        check_share(self.failing, "failing: the share of nodes that fail")
        check_speeds(min(0.1, self.speed_m_s), self.speed_m_s)
        if self.substrate is Substrate.DCS:
            grid_over(self.area)  # refuses an area of too many cells

    @property
    def area(self) -> Area:
        """The area in which the nodes are placed."""
        if self.area_m is not None:
            return Area(*self.area_m)
        root = sqrt(self.nodes)
        return Area(AREA_M_PER_SQRT_NODE[0] * root, AREA_M_PER_SQRT_NODE[1] * root)


def grid_over(area: Area) -> Grid:
    """Returns the grid of DCS cells, 40 m wide, that covers an area (D1)."""
    try:
        return Grid.covering(area.width_m, area.height_m)
    except ValueError as error:
        raise ScenarioError(f"area: {error}") from error


def synthetic_trace(scenario: Scenario, config: FootballMatchConfig | None = None) -> Trace:
    """Generates the default trace of a scenario: the synthetic football match, or another one.

    The match uses the scenario's seed and is compressed into the operations phase. In the crash
    series, publishers do not subscribe (S7).
    """
    share = PUBLISHERS_SHARE if scenario.kind is Series.CRASH else None
    rules = TraceRules(lasts_us=scenario.timeline.operations_us)
    match = FootballMatch(scenario.seed, config)
    return trace_from_posts(scenario.seed, match, scenario.nodes, rules, publishers_share=share)


def lecture_of(scenario: Scenario) -> Trace:
    """Generates the lecture trace for the users of a scenario, compressed into its operations.

    All students publish and subscribe, also in the crash series (S13).
    """
    lasts_us = scenario.timeline.operations_us
    return lecture_trace(scenario.seed, LectureConfig(users=scenario.nodes, lasts_us=lasts_us))


def check_trace(scenario: Scenario, trace: Trace) -> None:
    """Raises an error if a trace does not fit a scenario."""
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
    """Raises an error if an operation is outside the timeline or exceeds the limits of nodes."""
    if operation.at_us > timeline.operations_us:
        raise TraceError(
            "at_us",
            f"{operation.at_us / SECOND_US:g} s is later than the operations of the scenario, "
            f"which take {timeline.operations_us / SECOND_US:g} s",
        )
    if isinstance(operation, InsertOperation):
        for field, size, bytes_max in (
            ("size", operation.size, LIMITS.data_bytes_max),
            ("summary_size", operation.summary_size, LIMITS.summary_bytes_max),
        ):
            if size > bytes_max:
                raise TraceError(field, f"a node takes at most {bytes_max} bytes, not {size}")
        with error_context("life_us"):
            check_instant_us((operation.expires_us or 0) + timeline.origin_us)
    elif isinstance(operation, SubscribeOperation):
        with error_context("end_us"):
            operation.shift_frame(timeline.origin_us)
