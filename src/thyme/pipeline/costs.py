"""Costs: about how long runs take, known before they are run.

A sweep begins with the longest, so that no core waits long for another in the end, and says how
long the rest will take. The time of a run is a power of its nodes, another for each substrate,
times its simulated time; runs that have ended correct it for the machine at hand.
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
"""Seconds of a static run of 100 nodes and 720 s, and the power of the nodes they grow with; fitted
to single runs of 16 to 100 nodes (docs/pipeline.md)."""
BESIDE = {
    (Kind.CRASH, Substrate.ES): 0.65,
    (Kind.CRASH, Substrate.LS): 0.55,
    (Kind.CRASH, Substrate.DCS): 0.6,
    (Kind.MOBILE, Substrate.DCS): 1.9,
}
"""How much longer other runs take than static ones, where it is not about the same."""


class Work(msgspec.Struct, frozen=True):
    """As much of a run as tells how long it takes."""

    kind: Kind
    substrate: Substrate
    nodes: int
    lasts_us: int

    @property
    def seconds(self) -> float:
        """On a core of the machine that the laws were measured on."""
        at_nodes_s, power = LAWS[self.substrate]
        size = math.pow(self.nodes / AT_NODES, power)
        lasts = self.lasts_us / (AT_S * SECOND_US)
        return at_nodes_s * size * lasts * BESIDE.get((self.kind, self.substrate), 1.0)


def work_of(scenario: Scenario) -> Work:
    """What a run has to do."""
    lasts_us = scenario.timeline.end_us
    return Work(scenario.kind, scenario.substrate, scenario.nodes, lasts_us)


class Pace:
    """How fast this machine is: what runs took, beside what the laws say."""

    def __init__(self) -> None:
        self.runs = 0
        self._took: dict[Substrate, tuple[float, float]] = {}

    def learn(self, work: Work, took_s: float) -> None:
        """Takes note of a run that has ended."""
        took, said = self._took.get(work.substrate, (0.0, 0.0))
        self._took[work.substrate] = took + took_s, said + work.seconds
        self.runs += 1

    def seconds(self, work: Work) -> float:
        """How long a run takes here; as others of its substrate did, if some have ended."""
        known = self._took.get(work.substrate)
        pairs = [known] if known else self._took.values()
        took, said = (math.fsum(column) for column in zip((0.0, 0.0), *pairs, strict=True))
        return work.seconds * took / said if said else work.seconds


def spread_s(seconds: Iterable[float], cores: int) -> float:
    """How long a list of runs takes on so many cores, each core taking the next in the list."""
    free_s = [0.0] * max(1, cores)
    for each in seconds:
        heapreplace(free_s, free_s[0] + each)
    return max(free_s)
