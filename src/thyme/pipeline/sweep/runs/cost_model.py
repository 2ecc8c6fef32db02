"""Cost model: estimates how long a run takes before it is simulated.

A sweep uses it to start the longest runs first and to estimate its remaining time. Every kind of
run estimates its own cost (`RunCost`). That of a run on the radio (`estimate_cost`) is its
simulated time times a power of its number of nodes, with one law per substrate. Finished runs
calibrate the estimates for the machine (`MachineSpeed`).
Clauses: P5, S16.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heapreplace

import msgspec

from thyme.model.time_frames import SECOND_US
from thyme.sim.scenario import Scenario, Series, Substrate

REFERENCE_NODES, REFERENCE_S = 100, 720
INFRA = "infra"
COST_LAWS: dict[str, tuple[float, float]] = {
    Substrate.ES: (95.0, 2.2),
    Substrate.LS: (145.0, 2.4),
    Substrate.DCS: (81.0, 1.7),
    INFRA: (250.0, 2.0),
}
"""Seconds for a static run of 100 nodes and 720 s, and the exponent of the number of nodes; fitted
to single runs of 16 to 100 nodes (docs/pipeline.md)."""
KIND_FACTORS: dict[tuple[str, str], float] = {
    (Series.CRASH, Substrate.ES): 0.65,
    (Series.CRASH, Substrate.LS): 0.55,
    (Series.CRASH, Substrate.DCS): 0.6,
    (Series.MOBILE, Substrate.DCS): 1.9,
}
"""Cost of other series relative to static runs, where it differs."""


class RunCost(msgspec.Struct, frozen=True):
    """The estimated cost of a run."""

    substrate: str
    """Estimates are calibrated for each substrate."""
    seconds: float
    """Seconds on one core of the machine on which the laws were measured."""


def estimate_cost(scenario: Scenario) -> RunCost:
    """The cost of a run on the radio."""
    seconds = law_seconds(scenario.substrate, scenario.nodes, scenario.timeline.end_us)
    factor = KIND_FACTORS.get((scenario.kind, scenario.substrate), 1.0)
    return RunCost(scenario.substrate.value, seconds * factor)


def law_seconds(substrate: str, nodes: int, lasts_us: int) -> float:
    """The seconds of a static run by the law of its substrate."""
    at_nodes_s, power = COST_LAWS[substrate]
    size = math.pow(nodes / REFERENCE_NODES, power)
    return at_nodes_s * size * lasts_us / (REFERENCE_S * SECOND_US)


class MachineSpeed:
    """Calibrates the cost laws for this machine by the durations of finished runs."""

    def __init__(self) -> None:
        self.runs = 0
        self._durations: dict[str, tuple[float, float]] = {}

    def calibrate(self, cost: RunCost, took_s: float) -> None:
        """Adds the duration of a finished run."""
        took_total_s, estimated_total_s = self._durations.get(cost.substrate, (0.0, 0.0))
        self._durations[cost.substrate] = took_total_s + took_s, estimated_total_s + cost.seconds
        self.runs += 1

    def estimate_s(self, cost: RunCost) -> float:
        """Estimated duration of a run here, calibrated by runs of its substrate if possible."""
        known = self._durations.get(cost.substrate)
        pairs = [known] if known else self._durations.values()
        took, estimated = (math.fsum(column) for column in zip((0.0, 0.0), *pairs, strict=True))
        return cost.seconds * took / estimated if estimated else cost.seconds


def makespan_s(seconds: Iterable[float], cores: int) -> float:
    """Duration of a list of runs on `cores` cores; each free core takes the next run."""
    free_s = [0.0] * max(1, cores)
    for each in seconds:
        heapreplace(free_s, free_s[0] + each)
    return max(free_s)
