"""Cost model: estimates how long a run takes before it is simulated.

A sweep uses it to start the longest runs first and to estimate its remaining time. The cost of a
run is its simulated time times a power of its number of nodes, with one law per substrate
(`RunSize.seconds`); finished runs calibrate it for the machine (`MachineSpeed`).
Clauses: P5, S16.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heapreplace

import msgspec

from thyme.model.frames import SECOND_US
from thyme.sim.scenario import Kind, Scenario, Substrate

AT_NODES, AT_S = 100, 720
LAWS = {Substrate.ES: (95.0, 2.2), Substrate.LS: (145.0, 2.4), Substrate.DCS: (81.0, 1.7)}
"""Seconds for a static run of 100 nodes and 720 s, and the exponent of the number of nodes; fitted
to single runs of 16 to 100 nodes (docs/pipeline.md)."""
BESIDE = {
    (Kind.CRASH, Substrate.ES): 0.65,
    (Kind.CRASH, Substrate.LS): 0.55,
    (Kind.CRASH, Substrate.DCS): 0.6,
    (Kind.MOBILE, Substrate.DCS): 1.9,
}
"""Cost of other series relative to static runs, where it differs."""


class Work(msgspec.Struct, frozen=True):
    """The properties of a run that determine its cost."""

    kind: Kind
    substrate: Substrate
    nodes: int
    lasts_us: int

    @property
    def seconds(self) -> float:
        """Seconds on one core of the machine on which the laws were measured."""
        at_nodes_s, power = LAWS[self.substrate]
        size = math.pow(self.nodes / AT_NODES, power)
        lasts = self.lasts_us / (AT_S * SECOND_US)
        return at_nodes_s * size * lasts * BESIDE.get((self.kind, self.substrate), 1.0)


def work_of(scenario: Scenario) -> Work:
    """The size of a scenario's run."""
    lasts_us = scenario.timeline.end_us
    return Work(scenario.kind, scenario.substrate, scenario.nodes, lasts_us)


class Pace:
    """Calibrates the cost laws for this machine by the durations of finished runs."""

    def __init__(self) -> None:
        self.runs = 0
        self._took: dict[Substrate, tuple[float, float]] = {}

    def learn(self, work: Work, took_s: float) -> None:
        """Adds the duration of a finished run."""
        took, estimated = self._took.get(work.substrate, (0.0, 0.0))
        self._took[work.substrate] = took + took_s, estimated + work.seconds
        self.runs += 1

    def seconds(self, work: Work) -> float:
        """Estimated duration of a run here, calibrated by runs of its substrate if possible."""
        known = self._took.get(work.substrate)
        pairs = [known] if known else self._took.values()
        took, estimated = (math.fsum(column) for column in zip((0.0, 0.0), *pairs, strict=True))
        return work.seconds * took / estimated if estimated else work.seconds


def spread_s(seconds: Iterable[float], cores: int) -> float:
    """Duration of a list of runs on `cores` cores; each free core takes the next run."""
    free_s = [0.0] * max(1, cores)
    for each in seconds:
        heapreplace(free_s, free_s[0] + each)
    return max(free_s)
