"""Presets of encounters: the runs behind each figure of the MobUser paper.

`mobuser` has the paper's sizes; `mobuser-quick` has the same densities with fewer nodes, points and
hours. Series: `lists` (figure 1), `time` (figure 2), `density` (3 and 4), `rare` (5 and 6), `areas`
(section VIII). In the series `time` the rivals also run with a memory that replaces its oldest
event, to show how much of the difference is due to their full memories.
Entry point: `plan_encounters`.
Clauses: P5, U9, S16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from thyme.distribution import VERSION
from thyme.model.errors import OptionError, safe_repr
from thyme.pipeline.sweep.runs.encounter_run import EncounterRun
from thyme.sim.encounters.scenario import (
    AREAS_NODES,
    AREAS_SIDE_M,
    AREAS_WALKERS,
    HOUR_US,
    EncounterKind,
    EncounterProtocol,
    EncounterScenario,
)
from thyme.substrates.encounters.memory_config import WhenFull

SERIES = ("lists", "time", "density", "rare", "areas")


class EncounterPreset(msgspec.Struct, frozen=True, kw_only=True):
    """The points of each series, and the runs per point."""

    name: str
    nodes: int
    side_m: float
    time_hours: float
    hours: float
    sides_m: tuple[float, ...]
    probabilities: tuple[float, ...]
    recent_shares: tuple[float, ...]
    seeds: int
    areas_seeds: int
    publishers_share: float = 0.1
    """Share of the nodes that publish, in the series with one topic."""


PAPER = EncounterPreset(
    name="mobuser",
    nodes=1_000,
    side_m=450.0,
    time_hours=24.0,
    hours=4.0,
    sides_m=tuple(450.0 * step for step in range(1, 11)),
    probabilities=(0.05, 0.1, 0.2, 0.3, 0.4, 0.5),
    recent_shares=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    seeds=5,
    areas_seeds=20,
)
QUICK = replace(
    PAPER,
    name="mobuser-quick",
    nodes=100,
    side_m=142.0,
    time_hours=1.5,
    hours=0.75,
    sides_m=(142.0, 284.0, 568.0),
    probabilities=(0.15, 0.3, 0.45),
    recent_shares=(0.1, 0.3, 0.5, 0.7, 0.8, 0.9),
    # More events than a memory holds: 50, in the paper 100.
    publishers_share=0.5,
)
PRESETS = {preset.name: preset for preset in (PAPER, QUICK)}


def plan_encounters(preset: EncounterPreset, only: Sequence[str] = SERIES) -> list[EncounterRun]:
    """The runs of a preset, of all series or some."""
    return [run for series in SERIES if series in only for run in _series_runs(preset, series)]


def parse_encounter_series(text: str | None) -> tuple[str, ...]:
    """Parses the option `--only time,rare`; all series if it is absent."""
    if text is None:
        return SERIES
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in SERIES:
            raise OptionError(
                f"--only {safe_repr(name)} is unknown for encounters; there is {', '.join(SERIES)}"
            )
    return tuple(name for name in SERIES if name in names)


def _series_runs(preset: EncounterPreset, series: str) -> Iterator[EncounterRun]:
    seeds = preset.areas_seeds if series == "areas" else preset.seeds
    for protocol in EncounterProtocol:
        for parameter, settings in _points(preset, series):
            if series == "lists" and protocol is not EncounterProtocol.MOBUSER:
                continue
            memories = [WhenFull.REFUSE]
            if series == "time" and protocol is not EncounterProtocol.MOBUSER:
                memories.append(WhenFull.REPLACE)
            for when_full in memories:
                for seed in range(1, seeds + 1):
                    scenario = EncounterScenario(
                        protocol=protocol, seed=seed, when_full=when_full, **settings
                    )
                    yield EncounterRun(
                        series=series, parameter=parameter, scenario=scenario, version=VERSION
                    )


def _points(preset: EncounterPreset, series: str) -> Iterator[tuple[float, dict[str, Any]]]:
    """The value that varies and the settings of each point of a series."""
    streets = {
        "nodes": preset.nodes,
        "side_m": preset.side_m,
        "publishers_share": preset.publishers_share,
    }
    hours_us = round(preset.hours * HOUR_US)
    match series:
        case "lists":
            for share in preset.recent_shares:
                small = {"nodes": 100, "side_m": 100.0, "duration_us": HOUR_US}
                # Half of the nodes publish: with fewer events no list would ever be full.
                yield share, {**small, "recent_share": share, "publishers_share": 0.5}
        case "time":
            yield preset.time_hours, {**streets, "duration_us": round(preset.time_hours * HOUR_US)}
        case "density":
            for side_m in preset.sides_m:
                yield side_m, {**streets, "side_m": side_m, "duration_us": hours_us}
        case "rare":
            for probability in preset.probabilities:
                yield (
                    probability,
                    {**streets, "rare_probability": probability, "duration_us": hours_us},
                )
        case "areas":
            yield (
                AREAS_SIDE_M,
                {
                    "kind": EncounterKind.AREAS,
                    "nodes": AREAS_NODES + AREAS_WALKERS,
                    "side_m": AREAS_SIDE_M,
                    "duration_us": HOUR_US,
                },
            )
