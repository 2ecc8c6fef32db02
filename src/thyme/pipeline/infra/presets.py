"""Presets of Thyme-Infrastructure: the runs behind each figure of the thesis, chapter 5.

`infra` has the thesis's sizes; `infra-quick` has fewer nodes, points and seconds. A series is an
experiment: `addresses` (figures 5.3, 5.4), `ranking` (5.5, 5.6), `worlds` (5.7), `consumption`
(5.8), `batches` (5.10, 5.11), `failover` (section 5.3.7), `traffic` (5.12, 5.13), `move` (5.14),
`operations` (5.15), `downloads` (5.16, 5.23, 5.24), `goal` (5.20, 5.21). Unpublishes (5.3.6) are
judged in all of them. Figures 5.17 to 5.19 are measurements of phones, which the simulator takes as
inputs. Entry point: `plan_infra`.
Clauses: P5, S13, S16, C23–C37.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from thyme.distribution import VERSION
from thyme.model.time_frames import SECOND_US
from thyme.pipeline.infra.workloads import StationWorkload, WorkloadKind
from thyme.pipeline.sweep.runs.infra_run import Experiment, InfraRun
from thyme.sim.scenario import Scenario, Substrate, Timeline
from thyme.sim.venues.download_times import DownloadScenario, DownloadSource
from thyme.sim.venues.move_costs import MoveScenario
from thyme.sim.venues.operation_times import OperationScenario
from thyme.sim.venues.scenario import VenueScenario, VenueSeries
from thyme.substrates.infra.caches.config import PAPER_CACHES
from thyme.substrates.infra.station.settings import (
    PAPER,
    GlobalSettings,
    PopularitySettings,
    StationSettings,
)
from thyme.traces.retrieve_behaviour import RetrieveBehaviour

SERIES = (
    "addresses",
    "ranking",
    "worlds",
    "consumption",
    "batches",
    "failover",
    "traffic",
    "move",
    "operations",
    "downloads",
    "goal",
)
WORLD_RATES = ((1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (5.0, 1.0, 1.0))
NINE_CELLS = 9
_NINE_CELLS_M = (120.0, 120.0)
"""The area of nine geographic cells."""
_SMALL_VENUE_M = (24.0, 18.0)
"""A venue in which all nodes hear each other at 54 Mb/s."""
_FAST_MBPS = 54.0
_GOAL_S = 300


class InfraPreset(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of the experiments, and the runs per point."""

    name: str
    nodes: int
    """Mobile nodes of a venue."""
    consumption_nodes: int
    """Mobile nodes of both venues in the experiment with two stations."""
    operations_s: int
    ranking_nodes: int
    ranking_s: int | None
    """How long the ranking is observed, at the lecture's original pace: 30 decisions in the thesis.
    None: a compressed lecture with more decisions."""
    seeds: int
    address_shares: tuple[float, ...]
    """Sizes of the address store, as shares of the nodes."""
    batches: tuple[int, ...]
    cache_size: int
    """Entries of the local popularity cache where it has to be full."""
    traffic_nodes: int
    traffic_bytes: tuple[int, int]
    """The size of an object and of its summary in the comparison of traffic."""
    nodes_per_cell: tuple[int, ...]
    sizes: tuple[int, ...]
    """The sizes of downloads."""
    goal_nodes: int
    goal_summary: int


INFRA = InfraPreset(
    name="infra",
    nodes=100,
    consumption_nodes=200,
    operations_s=600,
    ranking_nodes=100,
    ranking_s=960,
    seeds=5,
    address_shares=(0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0),
    batches=(1, 2, 3, 4, 5, 6),
    cache_size=200,
    traffic_nodes=100,
    traffic_bytes=(5_000, 1_000),
    nodes_per_cell=(2, 5, 10, 20),
    sizes=(5_000, 500_000, 1_000_000, 5_000_000, 10_000_000),
    goal_nodes=30,
    goal_summary=1_000,
)
QUICK = replace(
    INFRA,
    name="infra-quick",
    nodes=16,
    consumption_nodes=20,
    operations_s=300,
    ranking_nodes=20,
    ranking_s=None,
    seeds=3,
    address_shares=(0.0, 0.25, 0.5, 1.0),
    batches=(1, 2, 6),
    cache_size=40,
    traffic_nodes=24,
    nodes_per_cell=(2, 5),
    sizes=(5_000, 1_000_000, 5_000_000),
    goal_nodes=16,
)
PRESETS = {preset.name: preset for preset in (INFRA, QUICK)}


class PlannedExperiment(NamedTuple):
    """A run without its trace file, and the trace that it needs."""

    run: InfraRun
    workload: StationWorkload | None


def plan_infra(preset: InfraPreset, only: tuple[str, ...] = SERIES) -> list[PlannedExperiment]:
    """All runs of a preset."""
    return [
        planned
        for name in SERIES
        if name in only
        for seed in range(1, preset.seeds + 1)
        for planned in _Experiments(preset, seed).of(name)
    ]


class _Experiments:
    """The runs of a preset with one seed."""

    def __init__(self, preset: InfraPreset, seed: int) -> None:
        self._preset = preset
        self._seed = seed

    def of(self, series: str) -> Iterator[PlannedExperiment]:
        """The runs of one series."""
        runs: Iterator[PlannedExperiment] = getattr(self, f"_{series}")()
        return runs

    # Parts of runs

    def _lecture(self, users: int | None = None, **fields: object) -> StationWorkload:
        made = StationWorkload(
            seed=self._seed,
            users=users or self._preset.nodes,
            lasts_us=self._preset.operations_s * SECOND_US,
        )
        return replace(made, **fields)

    def _venues(
        self, workload: StationWorkload, settings: StationSettings = PAPER, **fields: object
    ) -> VenueScenario:
        made = VenueScenario(
            nodes=workload.users,
            seed=self._seed,
            timeline=Timeline(operations_us=workload.lasts_us),
            settings=settings,
        )
        return replace(made, **fields)

    def _run(
        self,
        series: str,
        variant: str,
        parameter: float,
        experiment: Experiment,
        workload: StationWorkload | None = None,
    ) -> PlannedExperiment:
        run = InfraRun(
            series=series,
            variant=variant,
            parameter=float(parameter),  # as it comes back from JSON
            seed=self._seed,
            experiment=experiment,
            version=VERSION,
        )
        return PlannedExperiment(run, workload)

    # Experiments with a trace

    def _addresses(self) -> Iterator[PlannedExperiment]:
        workload = self._lecture()
        for share in self._preset.address_shares:
            size = round(share * workload.users)
            venues = self._venues(workload, replace(PAPER, mobile_addresses=size))
            yield self._run("addresses", "infra", share, Experiment(venues=venues), workload)

    def _ranking(self) -> Iterator[PlannedExperiment]:
        preset = self._preset
        workload = self._lecture(users=preset.ranking_nodes)
        period_us = PAPER.popularity.decision_period_us // 3
        if preset.ranking_s is not None:
            lasts_us = preset.ranking_s * SECOND_US
            kind = WorkloadKind.LECTURE_UNCOMPRESSED
            workload = replace(workload, kind=kind, lasts_us=lasts_us)
            period_us = PAPER.popularity.decision_period_us
        for ranking in (True, False):
            popularity = PopularitySettings(
                ranking=ranking, items_max=70, decision_period_us=period_us
            )
            venues = self._venues(workload, self._with_cache(popularity))
            variant = "ranking" if ranking else "no-ranking"
            yield self._run("ranking", variant, 0.0, Experiment(venues=venues), workload)

    def _with_cache(self, popularity: PopularitySettings) -> StationSettings:
        """Settings with a local popularity cache that is soon full."""
        caches = replace(PAPER_CACHES, local_popularity_size=self._preset.cache_size)
        return replace(PAPER, caches=caches, popularity=popularity)

    def _worlds(self) -> Iterator[PlannedExperiment]:
        for kind, variant in (
            (WorkloadKind.WORLDS, "publishes"),
            (WorkloadKind.WORLDS_ALL, "all-operations"),
        ):
            for rates in WORLD_RATES:
                workload = self._lecture(kind=kind, rates=rates)
                settings = self._with_cache(PAPER.popularity)
                venues = self._venues(workload, settings, worlds=len(rates))
                yield self._run("worlds", variant, rates[0], Experiment(venues=venues), workload)

    def _consumption(self) -> Iterator[PlannedExperiment]:
        workload = self._lecture(users=self._preset.consumption_nodes)
        for notices in (True, False):
            sharing = GlobalSettings(
                needs_period_us=30 * SECOND_US,
                reply_window_us=15 * SECOND_US,
                consumption_notices=notices,
            )
            venues = self._venues(workload, replace(PAPER, sharing=sharing), stations=2)
            variant = "notices" if notices else "no-notices"
            yield self._run("consumption", variant, 0.0, Experiment(venues=venues), workload)

    def _batches(self) -> Iterator[PlannedExperiment]:
        workload = self._lecture()
        for batches in self._preset.batches:
            settings = replace(
                PAPER,
                popularity=PopularitySettings(batch_inserts=batches),
                mobile_timeout_us=PAPER.popularity.decision_period_us,
                tries_max=1,
            )
            venues = self._venues(workload, settings, slow_answers=True)
            yield self._run("batches", "infra", batches, Experiment(venues=venues), workload)

    def _failover(self) -> Iterator[PlannedExperiment]:
        workload = self._lecture()
        venues = self._venues(workload, kind=VenueSeries.FAILOVER)
        yield self._run("failover", "infra", 0.0, Experiment(venues=venues), workload)

    def _traffic(self) -> Iterator[PlannedExperiment]:
        preset = self._preset
        size, summary = preset.traffic_bytes
        workload = self._lecture(users=preset.traffic_nodes, size=size, summary_size=summary)
        settings = replace(PAPER, cells_min=NINE_CELLS, cells_max=NINE_CELLS)
        venues = self._venues(workload, settings)
        yield self._run("traffic", "infra", 0.0, Experiment(venues=venues), workload)
        geographic = self._geographic(workload)
        experiment = Experiment(without_stations=geographic)
        yield self._run("traffic", "dcs", 0.0, experiment, workload)

    def _geographic(self, workload: StationWorkload, **fields: object) -> Scenario:
        made = Scenario(
            substrate=Substrate.DCS,
            nodes=workload.users,
            area_m=_NINE_CELLS_M,
            seed=self._seed,
            timeline=Timeline(operations_us=workload.lasts_us),
        )
        return replace(made, **fields)

    def _goal(self) -> Iterator[PlannedExperiment]:
        preset = self._preset
        workload = StationWorkload(
            kind=WorkloadKind.GOAL,
            seed=self._seed,
            users=preset.goal_nodes,
            lasts_us=_GOAL_S * SECOND_US,
            summary_size=preset.goal_summary,
        )
        reaction = RetrieveBehaviour(probability=0.5, within_us=10 * SECOND_US)
        # Five objects every ten seconds, also those that nobody downloaded lately.
        popularity = PopularitySettings(
            decision_period_us=10 * SECOND_US, items_max=5, active_window=1_000
        )
        settings = replace(PAPER, popularity=popularity, cells_min=NINE_CELLS, cells_max=NINE_CELLS)
        venues = self._venues(workload, settings, reaction=reaction)
        with_station = Experiment(venues=venues, has_hot_tag=True)
        yield self._run("goal", "infra", 0.0, with_station, workload)
        geographic = self._geographic(workload, reaction=reaction)
        experiment = Experiment(without_stations=geographic, has_hot_tag=True)
        yield self._run("goal", "dcs", 0.0, experiment, workload)

    # Measurements of single operations

    def _move(self) -> Iterator[PlannedExperiment]:
        for nodes in self._preset.nodes_per_cell:
            for variant, is_logical in (("dcs", False), ("infra", True)):
                move = MoveScenario(nodes_per_cell=nodes, is_logical=is_logical, seed=self._seed)
                yield self._run("move", variant, nodes, Experiment(move=move))

    def _operations(self) -> Iterator[PlannedExperiment]:
        for hops in (1, 2):
            operations = OperationScenario(hops=hops, seed=self._seed)
            yield self._run("operations", "dcs", hops, Experiment(operations=operations))

    def _downloads(self) -> Iterator[PlannedExperiment]:
        for size in self._preset.sizes:
            for hops in (1, 2):
                operations = OperationScenario(hops=hops, size=size, seed=self._seed)
                variant = f"dcs-{hops}"
                yield self._run("downloads", variant, size, Experiment(operations=operations))
            for source in DownloadSource:
                downloads = DownloadScenario(source=source, size=size, seed=self._seed)
                experiment = Experiment(downloads=downloads)
                yield self._run("downloads", source.replace(" ", "-"), size, experiment)
