"""Golden journals: a scenario and its seed give the same recording and tables as ever (S14, S17).

The runs are short, but have deletes, revoked subscriptions, formulas, retrieves, empty cells,
messages over several hops, and devices that crash, restart and move.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import re
import zlib
from pathlib import Path

import pytest

from tests.golden.frozen import Frozen, digest, read
from thyme.model.time_frames import SECOND_US
from thyme.sim.results.summary import summarise_run
from thyme.sim.results.tables import PAGE, RECORDING, SUMMARY, result_folder
from thyme.sim.run import run
from thyme.sim.scenario import PUBLISHERS_SHARE, Profile, Scenario, Series, Substrate, Timeline
from thyme.traces.posts_to_trace import TraceRules, trace_from_posts
from thyme.traces.retrieve_behaviour import RetrieveBehaviour
from thyme.traces.synthetic.football_match import FootballMatch, FootballMatchConfig
from thyme.traces.trace import Trace

FILE = "journals.json"
SEEDS = (1, 2, 3)
NODES = 12
OPERATIONS_S = {Series.STATIC: 40, Series.CRASH: 300, Series.TRANSIENT: 190, Series.MOBILE: 90}
"""Crashes happen between 200 and 300 s; a device that comes and goes is on for 120 s, then off
for 60 s."""
_DATA = re.compile(rb'<script type="text/plain" id="data">(.*?)</script>', re.DOTALL)


def a_scenario(substrate: Substrate, profile: Profile, kind: Series, seed: int) -> Scenario:
    """Few nodes in an area of twelve cells, so that some cells are empty."""
    timeline = Timeline(
        starts_us=5 * SECOND_US,
        joins_us=5 * SECOND_US,
        operations_us=OPERATIONS_S[kind] * SECOND_US,
        quiet_us=10 * SECOND_US,
    )
    return Scenario(
        substrate=substrate,
        nodes=NODES,
        kind=kind,
        profile=profile,
        area_m=(160.0, 120.0),
        failing=0.5,
        speed_m_s=2.5,
        reaction=RetrieveBehaviour(probability=0.7, within_us=5 * SECOND_US),
        seed=seed,
        timeline=timeline,
    )


def a_trace(scenario: Scenario) -> Trace:
    """A match of few posts, with more deletes and revoked subscriptions than in the papers."""
    rules = TraceRules(
        lasts_us=scenario.timeline.operations_us,
        candidate_share=0.5,
        boolean_share=0.4,
        deletes=6.0,
        unsubscribes=3.0,
        summary_size=20,
    )
    posts = FootballMatch(scenario.seed, FootballMatchConfig(posts=200, users=50))
    share = PUBLISHERS_SHARE if scenario.kind is Series.CRASH else None
    return trace_from_posts(scenario.seed, posts, scenario.nodes, rules, publishers_share=share)


def digests(folder: Path) -> dict[str, str]:
    """The digests of all files of a result, without wall-clock times and the text of the page."""
    found = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
    found[RECORDING] = gzip.decompress(found[RECORDING])
    [data] = _DATA.findall(found[PAGE])
    found[PAGE] = zlib.decompress(base64.b64decode(data))
    summary = json.loads(found[SUMMARY])
    del summary["wall_s"]
    found[SUMMARY] = json.dumps(summary).encode()
    return {name: digest(contents) for name, contents in found.items()}


def name_of(scenario: Scenario) -> str:
    return f"{scenario.substrate} {scenario.profile} {scenario.kind} {scenario.seed}"


@pytest.mark.parametrize("kind", Series, ids=str)
@pytest.mark.parametrize("profile", Profile, ids=str)
@pytest.mark.parametrize("substrate", Substrate, ids=str)
def test_a_scenario_and_its_seed_give_the_files_they_always_gave(
    substrate: Substrate, profile: Profile, kind: Series, frozen: Frozen, tmp_path: Path
) -> None:
    for seed in SEEDS:
        scenario = a_scenario(substrate, profile, kind, seed)
        with result_folder(tmp_path / str(seed)) as folder:
            with folder.open_recording() as record:
                found = run(scenario, a_trace(scenario), recording_file=record)
            folder.write_results(found, summarise_run(found))

        frozen.check(FILE, name_of(scenario), digests(tmp_path / str(seed)))


def test_every_recorded_run_is_still_made() -> None:
    cases = itertools.product(Substrate, Profile, Series, SEEDS)

    assert set(read(FILE)) == {name_of(a_scenario(*case)) for case in cases}
