"""Infra run: one simulation of the evaluation of Thyme-Infrastructure.

Entry point: `InfraRun`. Its experiment is a scenario with stations, the same users without stations
(for comparisons), or a measurement of single operations, which has no trace.
Clauses: P5, S16.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from thyme.model.time_frames import SECOND_US
from thyme.pipeline.sweep.runs.cost_model import INFRA, RunCost, law_seconds
from thyme.pipeline.sweep.runs.planned_run import RESULT_FORMAT, shipped_name
from thyme.sim.scenario import Scenario
from thyme.sim.venues.download_times import DownloadScenario
from thyme.sim.venues.move_costs import MoveScenario
from thyme.sim.venues.operation_times import OperationScenario
from thyme.sim.venues.scenario import VenueScenario

_MEASUREMENT_US = 100 * SECOND_US
"""The simulated time of a measurement of single operations, about."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """What a run simulates: exactly one of these."""

    venues: VenueScenario | None = None
    without_stations: Scenario | None = None
    downloads: DownloadScenario | None = None
    operations: OperationScenario | None = None
    move: MoveScenario | None = None
    has_hot_tag: bool = False
    """Whether a cell is much busier than all others, and the busiest nodes are measured apart."""

    @property
    def nodes(self) -> int:
        """The number of mobile nodes."""
        if self.venues is not None:
            return self.venues.nodes
        if self.without_stations is not None:
            return self.without_stations.nodes
        return 7 if self.move is None else 9 * self.move.nodes_per_cell

    @property
    def lasts_us(self) -> int:
        """The simulated time."""
        scenario = self.venues or self.without_stations
        return _MEASUREMENT_US if scenario is None else scenario.timeline.end_us


class InfraRun(msgspec.Struct, frozen=True, kw_only=True, tag="infra"):
    """One run of the evaluation (P5)."""

    series: str
    variant: str
    """What differs between the lines of a figure."""
    parameter: float
    """The value that varies in the series."""
    seed: int
    experiment: Experiment
    trace_file: str | None = None
    """Path or URI of the trace file; None for a measurement without a trace."""
    trace_digest: str = ""
    version: str

    @property
    def run_id(self) -> str:
        """The id of the run: equal for equal inputs, wherever the files are."""
        inputs = (RESULT_FORMAT, self.version, self.series, self.variant, self.parameter)
        encoded = msgspec.json.encode((inputs, self.seed, self.experiment, self.trace_digest))
        digest = blake2b(encoded, digest_size=5).hexdigest()
        return f"{self.series}-{self.variant}-{self.parameter:g}-r{self.seed}-{digest}"

    @property
    def cost(self) -> RunCost:
        """The estimated cost of the run."""
        experiment = self.experiment
        return RunCost(INFRA, law_seconds(INFRA, experiment.nodes, experiment.lasts_us))

    @property
    def shipped_trace(self) -> str | None:
        """Name of the trace file on workers; None if there is none."""
        if self.trace_file is None:
            return None
        return shipped_name(self.trace_file, self.trace_digest)
