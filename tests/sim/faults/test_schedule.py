"""Fault schedules: in order, possible, and drawn the same way every time."""

from __future__ import annotations

import math
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.model.time_frames import SECOND_US
from thyme.sim.faults.churn import ON_OFF_CHURN, OnOffChurn, permanent_crashes, transient_churn
from thyme.sim.faults.schedule import (
    ClockSkew,
    Crash,
    CrashMemory,
    Duplication,
    Fault,
    FaultError,
    FaultSchedule,
    Heal,
    Leave,
    LossBurst,
    Partition,
    Reordering,
    Restart,
    make_schedule,
)

S = SECOND_US

EVERYTHING: list[Fault] = [
    ClockSkew(5, 0, -200),
    Heal(20),
    Partition(20, ((0,), (1, 2))),
    Leave(20, 0),
    Crash(20, 1, CrashMemory.KEPT),
    Crash(20, 2),
    Restart(20, 2),
    LossBurst(20, 30, 0.5, (1,)),
    Duplication(20, 30, 0.1),
    Reordering(20, 30, 0.1, 5_000),
    Restart(31, 1),
]


def test_s8_schedules_are_merged_in_order_of_time_and_kind() -> None:
    before: list[Fault] = [Partition(10, ((0,),))]
    merged = make_schedule(list(reversed(EVERYTHING)), before, nodes=3)
    assert merged == (EVERYTHING[0], *before, *EVERYTHING[1:])


@given(st.randoms(use_true_random=False), st.integers(0, 11))
def test_s8_the_order_of_the_parts_does_not_matter(rng: Random, cut: int) -> None:
    faults: list[Fault] = [Partition(10, ((0,),)), *EVERYTHING]
    expected = make_schedule(faults, nodes=3)
    rng.shuffle(faults)
    assert make_schedule(faults[:cut], faults[cut:], nodes=3) == expected


def test_s8_an_empty_schedule_is_one() -> None:
    assert make_schedule(nodes=0) == make_schedule([], [], nodes=3) == ()


def test_s8_a_schedule_is_data_that_can_be_written_and_read() -> None:
    schedule = make_schedule([Partition(10, ((0,),)), *EVERYTHING], nodes=3)
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=FaultSchedule) == schedule


@pytest.mark.parametrize(
    "faults",
    [
        [Crash(1, 0), Restart(2, 0), Leave(3, 0), Restart(4, 0), Crash(5, 0)],
        [Crash(1, 0), Restart(1, 0)],
        [Partition(1, ((0,),)), Heal(2), Partition(2, ((0,), (1,)))],
        [LossBurst(1, 2, 0.5), LossBurst(2, 3, 1.0)],
        [LossBurst(1, 9, 0.5, (0,)), LossBurst(2, 3, 0.5, (1, 2)), Duplication(2, 3, 0.5)],
        [ClockSkew(1, 0, 5), ClockSkew(2, 0, 0)],
        [ClockSkew(1, 0, 5), Crash(1, 0)],
    ],
    ids=["up and down", "reboot", "anew", "one after another", "beside", "back again", "both"],
)
def test_s8_what_can_happen_may_be_scheduled(faults: list[Fault]) -> None:
    assert make_schedule(reversed(faults), nodes=3) == tuple(faults)


@pytest.mark.parametrize(
    ("faults", "why"),
    [
        ([Crash(1, 3)], "node 3 is unknown, there are 3"),
        ([Leave(1, -1)], "node -1 is unknown"),
        ([ClockSkew(1, 9, 5)], "node 9 is unknown"),
        ([Partition(1, ((0, 5),))], "node 5 is unknown"),
        ([LossBurst(1, 2, 0.5, (7,))], "node 7 is unknown"),
        ([Crash(-1, 0)], "cannot begin before 0"),
        ([Restart(1, 0)], "node 0 is up and cannot restart"),
        ([Crash(1, 0), Restart(2, 0), Restart(3, 0)], "node 0 is up and cannot restart"),
        ([Crash(1, 0), Crash(2, 0)], "node 0 has already crashed"),
        ([Leave(1, 0), Crash(2, 0)], "node 0 has already left"),
        ([Crash(1, 0), Leave(2, 0)], "node 0 has already crashed"),
        ([Heal(1)], "the network is not partitioned"),
        ([Partition(1, ((0,),)), Partition(2, ((1,),))], "already partitioned"),
        ([Partition(1, ())], "at least one group"),
        ([Partition(1, ((0,), ()))], "each group a node"),
        ([Partition(1, ((0, 1), (1, 2)))], "node 1 is named twice"),
        ([LossBurst(5, 5, 0.5)], "must end after it starts"),
        ([LossBurst(5, 6, 1.5)], "between 0 and 1"),
        ([LossBurst(5, 6, math.nan)], "between 0 and 1"),
        ([Duplication(5, 6, -0.5)], "between 0 and 1"),
        ([Reordering(5, 6, 0.5, 0)], "longer than 0 µs"),
        ([LossBurst(5, 6, 0.5, ())], "list of nodes is empty"),
        ([LossBurst(5, 6, 0.5, (1, 1))], "node 1 is named twice"),
        ([LossBurst(5, 9, 0.5, (1, 2)), LossBurst(8, 12, 0.5, (0, 2))], "at node 2"),
        ([LossBurst(5, 9, 0.5), LossBurst(8, 12, 0.5, (1,))], "overlaps"),
        ([Duplication(5, 9, 0.5), Duplication(5, 9, 0.5)], "overlaps"),
    ],
)
def test_s8_what_cannot_happen_is_refused(faults: list[Fault], why: str) -> None:
    with pytest.raises(FaultError, match=why):
        make_schedule(faults, nodes=3)


# Permanent crashes


def test_s7_publishers_crash_for_good_between_200_and_300_seconds() -> None:
    crashes = permanent_crashes(1, range(0, 1000, 2))
    assert [crash.node for crash in crashes] == list(range(0, 1000, 2))
    assert all(200 * S <= crash.at_us <= 300 * S for crash in crashes)
    assert {crash.memory for crash in crashes} == {CrashMemory.LOST}
    mean_us = sum(crash.at_us for crash in crashes) / len(crashes)
    # Uniform over 100 s: a standard deviation of 28.9 s, and five of the mean are 6.5 s.
    assert mean_us == pytest.approx(250 * S, abs=6.5 * S)
    assert make_schedule(crashes, nodes=1000)


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.05, 5), (0.4, 40), (1.0, 100)])
def test_s7_a_share_of_the_publishers_crashes(share: float, count: int) -> None:
    assert len(permanent_crashes(1, range(100), share)) == count


def test_s7_a_node_crashes_at_the_same_instant_whoever_else_does() -> None:
    some = permanent_crashes(1, range(100), 0.2, memory=CrashMemory.KEPT)
    more = permanent_crashes(1, range(100), 0.4, memory=CrashMemory.KEPT)
    assert set(some) < set(more)
    assert permanent_crashes(2, range(100), 0.2) != some


def test_s7_a_span_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(FaultError, match="from 9 to 8"):
        permanent_crashes(1, range(3), from_us=9, to_us=8)


# Transient churn


def test_s7_a_restless_node_is_on_for_120_and_off_for_60_seconds() -> None:
    always = OnOffChurn(switch_probability=1.0, memory=CrashMemory.KEPT)
    assert list(always.draw_faults(derive_rng(1), 4, 10 * S, 320 * S)) == [
        Crash(130 * S, 4, CrashMemory.KEPT),
        Restart(190 * S, 4),
        Crash(310 * S, 4, CrashMemory.KEPT),
    ]
    assert (
        list(OnOffChurn(switch_probability=0.0).draw_faults(derive_rng(1), 4, 0, 10**6 * S)) == []
    )


def test_s7_a_restless_node_stays_a_whole_period_longer_one_time_in_four() -> None:
    faults = list(ON_OFF_CHURN.draw_faults(derive_rng(1, "churn", 0), 0, 0, 1_000_000 * S))
    ups = [b.at_us - a.at_us for a, b in zip(faults[1::2], faults[2::2], strict=False)]
    downs = [b.at_us - a.at_us for a, b in zip(faults[::2], faults[1::2], strict=False)]
    assert len(downs) > 4_000
    assert all(span_us % (120 * S) == 0 for span_us in ups)
    assert all(span_us % (60 * S) == 0 for span_us in downs)
    # Geometric with p = 0.75: a quarter stays for a second period; the mean is 1/p periods.
    assert sum(span_us == 60 * S for span_us in downs) / len(downs) == pytest.approx(0.75, abs=0.04)
    assert sum(ups) / len(ups) == pytest.approx(160 * S, rel=0.04)
    assert sum(downs) / len(downs) == pytest.approx(80 * S, rel=0.04)
    # So a node is on for 160 of 240 seconds.
    assert sum(ups) / (sum(ups) + sum(downs)) == pytest.approx(2 / 3, abs=0.02)


@given(
    seed=st.integers(0, 2**32),
    share=st.floats(0, 1),
    until_s=st.integers(0, 2000),
    start_s=st.integers(0, 60),
)
def test_s7_transient_churn_can_always_happen(
    seed: int, share: float, until_s: int, start_s: int
) -> None:
    churn = transient_churn(seed, range(20), share, until_us=until_s * S, from_us=start_s * S)
    merged = make_schedule(churn, nodes=20)
    assert len(merged) == len(churn)
    assert all(start_s * S + 120 * S <= fault.at_us < until_s * S for fault in merged)


def test_s7_nodes_come_up_each_in_their_time() -> None:
    joined_us = {node: (30 + node) * S for node in range(10)}
    churn = transient_churn(1, range(10), 1.0, until_us=720 * S, from_us=joined_us)
    assert {fault.node for fault in churn} == set(range(10))
    assert all((fault.at_us - joined_us[fault.node]) % (60 * S) == 0 for fault in churn)


def test_s7_a_node_comes_and_goes_the_same_way_whoever_else_does() -> None:
    some = transient_churn(1, range(100), 0.05, until_us=720 * S)
    more = transient_churn(1, range(100), 0.4, until_us=720 * S)
    assert len({fault.node for fault in some}) == 5
    assert set(some) < set(more)


@pytest.mark.parametrize("settings", [{"on_us": 0}, {"off_us": -1}, {"switch_probability": 1.5}])
def test_s7_settings_of_churn_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InputError):
        OnOffChurn(**settings)  # type: ignore[arg-type]
