"""S7, S11, S14, S15: whole runs, small and short, of each substrate."""

from __future__ import annotations

import io
from functools import cache
from itertools import product

import pytest
from msgspec.structs import replace

from tests.sim.runs import AT_ONCE, cast, delete, insert, scenario, subscribe, trace, unsubscribe
from thyme.map.recording import Recording
from thyme.model.time_frames import SECOND_US
from thyme.sim.faults.schedule import Crash, Restart
from thyme.sim.progress import RunProgress
from thyme.sim.results.summary import RunSummary, summarise_run
from thyme.sim.run import Run, run
from thyme.sim.scenario import (
    Profile,
    Scenario,
    ScenarioError,
    Series,
    Substrate,
    Timeline,
    synthetic_trace,
)
from thyme.sim.users import Users
from thyme.traces.operations import InsertOperation, Operation
from thyme.traces.trace import Trace

ES, LS, DCS = Substrate.ES, Substrate.LS, Substrate.DCS
substrates = pytest.mark.parametrize("substrate", [ES, LS])
everywhere = pytest.mark.parametrize("substrate", [ES, LS, DCS])
LONG = Timeline(operations_us=300 * SECOND_US, quiet_us=10 * SECOND_US)
"""Long enough for the crashes and absences of the papers."""


@cache
def match(kind: Series) -> Trace:
    """The synthetic match for eight nodes."""
    return synthetic_trace(Scenario(substrate=LS, nodes=8, kind=kind, timeline=LONG))


@cache
def outcome(substrate: Substrate, kind: Series, profile: Profile = Profile.PAPER) -> RunSummary:
    """A run of eight nodes."""
    settled = Scenario(
        substrate=substrate, nodes=8, kind=kind, profile=profile, failing=0.5, timeline=LONG
    )
    return summarise_run(
        run(settled, match(Series.CRASH if kind is Series.CRASH else Series.STATIC))
    )


# The four series


@pytest.mark.parametrize(("substrate", "kind"), [*product([ES, LS, DCS], Series)])
def test_every_series_runs_and_tells_nothing_wrong(substrate: Substrate, kind: Series) -> None:
    """M16, M23."""
    found = outcome(substrate, kind)

    assert found.notifications.spurious == 0
    assert found.notifications.duplicates == 0
    assert found.notifications.unexpected == 0
    assert found.notifications.delivered > 20
    assert found.ops["retrieve"].ok > 0


@substrates
@pytest.mark.parametrize("kind", [Series.STATIC, Series.MOBILE])
def test_in_a_small_network_that_stays_together_nothing_is_lost(
    substrate: Substrate, kind: Series
) -> None:
    found = outcome(substrate, kind)

    assert found.notifications.recall == 1.0
    for operations in found.ops.values():
        assert operations.success in (1.0, None)


def test_in_dcs_every_operation_succeeds_and_little_news_is_lost() -> None:
    """D11, D18: broadcasts within a cell and notifications depend on the link."""
    found = outcome(DCS, Series.STATIC)

    assert found.notifications.recall is not None
    assert found.notifications.recall >= 0.95
    for operations in found.ops.values():
        assert operations.success in (1.0, None)


def test_inserts_and_deletes_of_ls_always_succeed_and_take_no_time() -> None:
    """L1, C6."""
    for kind in Series:
        found = outcome(LS, kind).ops["insert"]
        assert found.success == 1.0
        assert found.latency_ms.max == 0.0


@substrates
def test_the_robust_profile_runs_too(substrate: Substrate) -> None:
    notifications = outcome(substrate, Series.TRANSIENT, Profile.ROBUST).notifications

    assert notifications.spurious == 0
    assert notifications.recall is not None
    assert notifications.recall >= 0.9


def test_the_server_of_es_is_measured_like_any_other_node() -> None:
    """E3."""
    es, ls = run(scenario(ES, nodes=3), MEETING), run(scenario(LS, nodes=3), MEETING)

    assert len(es.measurements.nodes) == 4
    assert len(ls.measurements.nodes) == 3


# Single behaviours

MEETING = trace(
    3,
    insert(1, 0, "early"),
    subscribe(5, 1, "both", "goal", (None, None)),
    subscribe(6, 2, "new", "goal & !replay", (6, None)),
    insert(8, 0, "late"),
    insert(9, 0, "again", "goal replay"),
    delete(10, 0, "late"),
    unsubscribe(12, 1, "both"),
    insert(15, 0, "last"),
    subscribe(18, 1, "left"),
)


@everywhere
def test_users_hear_what_a_perfect_execution_would_tell_them(substrate: Substrate) -> None:
    """S15, M14, M18: history and new objects, but not those deleted before or revoked."""
    found = run(scenario(substrate, nodes=3, reaction=AT_ONCE), MEETING)

    told = {(each.user, each.sid, each.oid) for each in found.notifications}
    assert told == {
        (1, "both", "early"),
        (1, "both", "late"),
        (1, "both", "again"),
        (2, "new", "late"),
        (2, "new", "last"),
        *((1, "left", oid) for oid in ("early", "again", "last")),
    }
    assert told == {(each.user, each.sid, each.oid) for each in found.expected}
    assert all(each.code in ("ok", "not_found") for each in found.attempts)
    assert {each.kind for each in found.attempts} == {
        "insert", "delete", "subscribe", "unsubscribe", "retrieve",
    }  # fmt: skip


@substrates
def test_the_whole_past_is_read_however_much_one_owner_has(substrate: Substrate) -> None:
    """M17, L7: 130 objects are three batches."""
    many = [insert(1, 0, f"o{number}", size=10) for number in range(130)]
    found = summarise_run(run(scenario(substrate, nodes=2), trace(2, *many, subscribe(5, 1, "s"))))

    assert found.notifications.expected == 130
    assert found.notifications.delivered == 130


@everywhere
def test_operations_at_the_very_end_are_done(substrate: Substrate) -> None:
    """S11: a quiet period follows for pending operations."""
    last = trace(2, insert(20, 0, "o"), subscribe(20, 1, "s"))

    assert summarise_run(run(scenario(substrate, nodes=2), last)).notifications.recall == 1.0


def test_a_node_alone_has_nobody_to_tell_but_itself() -> None:
    own = trace(1, insert(1, 0, "o"), subscribe(2, 0, "s"))

    assert summarise_run(run(scenario(LS, nodes=1), own)).notifications.recall == 1.0


@substrates
def test_who_is_out_of_reach_hears_nothing_and_that_is_counted(substrate: Substrate) -> None:
    apart = scenario(substrate, nodes=3, area_m=(90_000.0, 90_000.0))
    found = summarise_run(run(apart, trace(3, subscribe(1, 1, "s"), insert(5, 0, "o"))))

    assert found.notifications.recall == 0.0
    if substrate is ES:
        assert found.ops["insert"].ok == 0


def test_a_trace_for_others_is_refused() -> None:
    with pytest.raises(ScenarioError, match="3 users"):
        run(scenario(nodes=4), MEETING)


def test_an_area_of_too_many_cells_is_refused() -> None:
    """D1, M30."""
    with pytest.raises(ScenarioError, match="at most 65536 cells"):
        scenario(DCS, area_m=(90_000.0, 90_000.0))


# Crashes (C9)


def crash_story(substrate: Substrate) -> Run:
    """Users 0 to 3 publish until they all crash; user 4 subscribes afterwards."""
    planned = scenario(substrate, nodes=5, kind=Series.CRASH, failing=1.0, timeline=LONG)
    operations: list[Operation] = [insert(1, user, f"o{user}") for user in range(4)]
    return run(planned, trace(5, *operations, subscribe(260, 4, "s")))


def test_what_publishers_had_is_lost_with_them_in_ls_but_not_in_es() -> None:
    """L6, C9."""
    es, ls = (summarise_run(crash_story(each)).notifications for each in (ES, LS))

    assert (es.expected, es.recall) == (4, 1.0)
    assert (ls.expected, ls.recall) == (4, 0.0)


def test_who_has_crashed_does_nothing_any_more() -> None:
    """S7."""
    planned = scenario(LS, nodes=2, kind=Series.CRASH, failing=0.5, timeline=LONG)
    every_5_s = [
        insert(at_s, user, f"o{user}-{at_s}") for user in (0, 1) for at_s in range(0, 300, 5)
    ]
    found = run(planned, trace(2, *every_5_s))

    [(user, [(since_us, until_us)])] = found.downtimes.items()
    assert until_us is None
    mine = [each.issued_us for each in found.attempts if each.user == user]
    theirs = [each.issued_us for each in found.attempts if each.user != user]
    assert max(mine) < since_us
    assert max(theirs) == LONG.origin_us + 295 * SECOND_US
    assert len(found.trace) == len(mine) + len(theirs) < 120


# Transient churn (C11)


def absences(of: Scenario) -> dict[int, tuple[float, float]]:
    """The first absence of each transient node, in seconds from the start of the operations."""
    first: dict[int, list[float]] = {}
    for fault in cast(of).fault_schedule:
        assert isinstance(fault, Crash | Restart)
        at_s = (fault.at_us - of.timeline.origin_us) / SECOND_US
        first.setdefault(fault.node, []).append(at_s)
    return {node: (times[0], times[1]) for node, times in first.items()}


def transient_story(substrate: Substrate) -> tuple[RunSummary, float]:
    """The device of an owner is off when another user subscribes; it has matching objects."""
    planned = scenario(substrate, nodes=4, kind=Series.TRANSIENT, failing=0.25, timeline=LONG)
    [(owner, (off_s, on_s))] = absences(planned).items()
    asked_s = off_s + 5
    subscriber = (owner + 1) % 4
    story = trace(4, insert(5, owner, "o"), subscribe(asked_s, subscriber, "s"))
    return summarise_run(run(planned, story)), (on_s - asked_s) * 1_000


def test_an_owner_that_was_off_when_a_subscription_was_flooded_tells_when_it_is_back() -> None:
    """L5, C11: this causes the long latencies of LS."""
    found, away_ms = transient_story(LS)

    assert found.notifications.recall == 1.0
    assert found.notifications.latency_ms.max is not None
    assert away_ms < found.notifications.latency_ms.max < away_ms + 20_000


def test_an_owner_that_is_back_tells_all_it_has_however_much() -> None:
    """L5, M17: the owner sends a batch, and the subscriber fetches the rest."""
    planned = scenario(LS, nodes=4, kind=Series.TRANSIENT, failing=0.25, timeline=LONG)
    [(owner, (off_s, _))] = absences(planned).items()
    many = [insert(5, owner, f"o{number}", size=10) for number in range(70)]
    asked = subscribe(off_s + 5, (owner + 1) % 4, "s")
    found = summarise_run(run(planned, trace(4, *many, asked)))

    assert found.notifications.delivered == found.notifications.expected == 70


def test_in_es_the_server_answers_for_the_owner_that_is_off() -> None:
    """C11."""
    found, _ = transient_story(ES)

    assert found.notifications.recall == 1.0
    assert found.notifications.latency_ms.max is not None
    assert found.notifications.latency_ms.max < 1_000


@substrates
def test_a_subscriber_that_was_off_hears_what_it_missed_and_no_time_is_held_against_it(
    substrate: Substrate,
) -> None:
    """M27: the subscription is resumed."""
    planned = scenario(substrate, nodes=4, kind=Series.TRANSIENT, failing=0.25, timeline=LONG)
    [(subscriber, (off_s, on_s))] = absences(planned).items()
    other = (subscriber + 1) % 4
    story = trace(4, subscribe(5, subscriber, "s"), insert(off_s + 5, other, "o"))
    found = run(planned, story)

    [heard] = found.notifications
    assert heard.told_us >= LONG.origin_us + on_s * SECOND_US
    latency_ms = summarise_run(found).notifications.latency_ms.max
    assert latency_ms is not None
    assert latency_ms < 20_000 < (on_s - off_s - 5) * 1_000


@substrates
def test_users_do_nothing_while_their_devices_are_off(substrate: Substrate) -> None:
    """S7: a device that is off gets no request, and none later instead."""
    planned = scenario(substrate, nodes=4, kind=Series.TRANSIENT, failing=0.25, timeline=LONG)
    [(owner, (off_s, on_s))] = absences(planned).items()
    moments = [off_s - 1, off_s, off_s + 1, on_s - 1e-6, on_s, on_s + 1]
    found = run(planned, trace(4, *(insert(at_s, owner, f"o{at_s}") for at_s in moments)))

    done_s = [
        operation.at_us / SECOND_US
        for operation in found.trace.operations
        if isinstance(operation, InsertOperation)
    ]
    assert done_s == pytest.approx([off_s - 1, on_s, on_s + 1])
    assert [each.code for each in found.attempts] == ["ok", "ok", "ok"]


# Determinism and progress


@everywhere
def test_the_same_scenario_and_seed_give_the_same_run(substrate: Substrate) -> None:
    planned = scenario(substrate, nodes=3, kind=Series.MOBILE, reaction=AT_ONCE)

    def everything(of: Scenario) -> Run:
        return replace(run(of, MEETING), wall_s=0.0)

    assert everything(planned) == everything(planned)
    other = everything(replace(planned, seed=2))
    assert other.measurements != everything(planned).measurements


def test_a_run_is_not_disturbed_by_being_watched_and_recorded() -> None:
    """S17."""
    progress: list[tuple[int, int]] = []

    def watch(how_far: RunProgress, users: Users) -> None:
        progress.append((how_far.done_us, users.notification_count))

    file = io.BytesIO()
    seen = run(scenario(LS, nodes=3), MEETING, on_progress=watch, recording_file=file)

    assert replace(seen, wall_s=0.0) == replace(run(scenario(LS, nodes=3), MEETING), wall_s=0.0)
    assert progress[-1] == (30 * SECOND_US, len(seen.notifications))
    file.seek(0)
    assert len(Recording(file).header.nodes) == 3


def test_nobody_does_anything_in_an_empty_trace() -> None:
    found = summarise_run(run(scenario(LS, nodes=2), Trace(2, ())))

    assert found.notifications.recall is None
    assert found.ops["insert"].success is None
    assert found.traffic.control_bytes > 0
