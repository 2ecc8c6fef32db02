"""Presets: the runs of an evaluation.

`paper` is the matrix of Thyme (journal article): six static sizes, and at 100 nodes the series with
crashes, transient churn and mobility; 15 runs per point. `quick` is a small part of it, with a
shorter match at the same rates. Entry point: `make_scenarios`.
Clauses: P5, S6, S7, S11, S12, S16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from thyme.model.errors import OptionError, safe_repr
from thyme.model.time_frames import SECOND_US
from thyme.sim.scenario import Profile, Scenario, ScenarioError, Series, Substrate, Timeline
from thyme.traces.retrieve_behaviour import LECTURE_RETRIEVES, RetrieveBehaviour

POSTS = 20_600
"""Posts of the synthetic match; the 100 most active users write about 4,500 of them (C21)."""


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """The points of each series and the runs per point."""

    name: str
    sizes: tuple[int, ...]
    nodes: int
    """Network size in the series that vary something else."""
    crashing: tuple[float, ...]
    transient: tuple[float, ...]
    speeds_m_s: tuple[float, ...]
    topologies: int
    repetitions: int
    timeline: Timeline = Timeline()
    posts: int = POSTS
    tags_max: int | None = None
    """Of imported posts, one in so many is simulated that the inserts of the largest network have
    at most this number of tags together; None: all posts are."""


PAPER = Preset(
    name="paper",
    sizes=(16, 36, 64, 100, 144, 196),
    nodes=100,
    crashing=(0.05, 0.1, 0.2, 0.4),
    transient=(0.05, 0.1, 0.2, 0.4),
    speeds_m_s=(0.6, 1.4, 2.5),
    topologies=5,
    repetitions=3,
)
QUICK = Preset(
    name="quick",
    sizes=(16, 36),
    nodes=16,
    crashing=(0.2, 0.8),
    transient=(0.1, 0.4),
    speeds_m_s=(0.6, 2.5),
    topologies=2,
    repetitions=1,
    # Long enough for the crashes, which happen between 200 and 300 s.
    timeline=Timeline(operations_us=300 * SECOND_US, quiet_us=30 * SECOND_US),
    posts=POSTS // 2,
    # About as many as the synthetic match has: more would not be quick.
    tags_max=2_500,
)
PRESETS = {preset.name: preset for preset in (QUICK, PAPER)}
SERIES = tuple(kind.value for kind in Series)


def make_scenarios(
    preset: Preset,
    only: Sequence[Series] = tuple(Series),
    profiles: Sequence[Profile] = (Profile.PAPER,),
    reaction: RetrieveBehaviour = LECTURE_RETRIEVES,
) -> list[Scenario]:
    """The scenarios of all runs of a preset, without those the simulator rejects."""
    return [
        scenario
        for kind in Series
        if kind in only
        for settings in _point_settings(preset, kind)
        for profile in profiles
        for substrate in Substrate
        for topology in range(1, preset.topologies + 1)
        for repetition in range(1, preset.repetitions + 1)
        if (
            scenario := make_scenario_or_none(
                kind=kind,
                profile=profile,
                substrate=substrate,
                topology=topology,
                seed=repetition,
                timeline=preset.timeline,
                reaction=reaction,
                **settings,
            )
        )
        is not None
    ]


def make_scenario_or_none(**settings: Any) -> Scenario | None:
    """Makes a scenario; None if the simulator rejects the settings."""
    try:
        return Scenario(**settings)
    except ScenarioError:
        return None


def _point_settings(preset: Preset, kind: Series) -> Iterator[dict[str, Any]]:
    """The settings that vary in a series, one dictionary per point."""
    match kind:
        case Series.STATIC:
            # The other series use this point as their value without failures.
            for nodes in sorted({*preset.sizes, preset.nodes}):
                yield {"nodes": nodes}
        case Series.CRASH:
            for share in preset.crashing:
                yield {"nodes": preset.nodes, "failing": share}
        case Series.TRANSIENT:
            for share in preset.transient:
                yield {"nodes": preset.nodes, "failing": share}
        case Series.MOBILE:
            for speed in preset.speeds_m_s:
                yield {"nodes": preset.nodes, "speed_m_s": speed}


def parse_series(text: str | None) -> tuple[Series, ...]:
    """Parses the option `--only static,crash`; all series if it is absent."""
    if text is None:
        return tuple(Series)
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in SERIES:
            raise OptionError(f"--only {safe_repr(name)} is unknown; there is {', '.join(SERIES)}")
    return tuple(kind for kind in Series if kind.value in names)
