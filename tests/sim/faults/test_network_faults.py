"""S8: network faults: which nodes reach each other, with which loss, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thyme.model.ids import NodeId
from thyme.sim.faults.network_faults import DUPLICATE_DELAY_US_MAX, NO_DELAY, NetworkFaults
from thyme.sim.faults.schedule import Duplication, LossBurst, Reordering

NODES = [NodeId(bytes([number])) for number in range(1, 9)]
ALICE, BOB, CAROL = NODES[:3]


def test_s8_without_faults_all_is_calm_and_costs_nothing() -> None:
    faults = NetworkFaults(1)
    assert faults.inactive
    assert faults.delivers(ALICE, BOB)
    assert faults.delays_us(BOB) is NO_DELAY


@given(st.lists(st.integers(0, 3), min_size=len(NODES), max_size=len(NODES)))
def test_s8_in_a_partition_one_hears_ones_group_and_the_unnamed_are_a_group(
    group_of: list[int],
) -> None:
    """Group 3 is the one that is not named."""
    faults = NetworkFaults(1)
    groups = [[NODES[i] for i in range(len(NODES)) if group_of[i] == g] for g in range(3)]
    faults.partition(*groups)
    for i, sender in enumerate(NODES):
        for j, receiver in enumerate(NODES):
            assert faults.delivers(sender, receiver) is (group_of[i] == group_of[j])
    faults.heal()
    assert faults.inactive
    assert all(faults.delivers(ALICE, node) for node in NODES)


def test_s8_there_is_calm_again_once_the_last_window_has_closed() -> None:
    faults = NetworkFaults(1)
    burst, doubles = LossBurst(0, 9, 1.0), Duplication(0, 9, 1.0)
    faults.begin_fault(burst, None)
    faults.begin_fault(doubles, [BOB])
    faults.partition([ALICE])
    faults.end_fault(burst, None)
    assert not faults.inactive
    faults.heal()
    assert not faults.inactive
    faults.end_fault(doubles, [BOB])
    assert faults.inactive


def test_s8_a_window_that_follows_at_once_is_not_closed_by_the_end_of_the_first() -> None:
    faults = NetworkFaults(1)
    first, second = LossBurst(0, 9, 1.0), LossBurst(9, 20, 1.0)
    faults.begin_fault(first, [ALICE, BOB])
    faults.begin_fault(second, [BOB])
    faults.end_fault(first, [ALICE, BOB])
    assert faults.delivers(BOB, ALICE)
    assert not faults.delivers(ALICE, BOB)


def test_s8_nor_is_one_for_all_nodes() -> None:
    faults = NetworkFaults(1)
    first, second = LossBurst(0, 9, 1.0), LossBurst(9, 20, 1.0)
    faults.begin_fault(first, None)
    faults.begin_fault(second, None)
    faults.end_fault(first, None)
    assert not faults.delivers(ALICE, BOB)
    faults.end_fault(second, None)
    assert faults.inactive


def test_s8_probabilities_of_0_and_1_mean_never_and_always() -> None:
    faults = NetworkFaults(1)
    faults.begin_fault(LossBurst(0, 9, 0.0), [ALICE])
    faults.begin_fault(LossBurst(0, 9, 1.0), [BOB])
    faults.begin_fault(Duplication(0, 9, 1.0), [ALICE])
    faults.begin_fault(Reordering(0, 9, 1.0, 5), [BOB])
    for _ in range(200):
        assert faults.delivers(CAROL, ALICE)
        assert not faults.delivers(CAROL, BOB)
        first_us, second_us = faults.delays_us(ALICE)
        assert first_us == 0
        assert 1 <= second_us <= DUPLICATE_DELAY_US_MAX
        [held_us] = faults.delays_us(BOB)
        assert 1 <= held_us <= 5
        assert faults.delays_us(CAROL) == (0,)


def test_s8_one_kind_of_faults_leaves_the_chances_of_the_others_as_they_were() -> None:
    alone, together = NetworkFaults(1), NetworkFaults(1)
    for faults in (alone, together):
        faults.begin_fault(Reordering(0, 9, 0.5, 1_000), None)
    together.begin_fault(LossBurst(0, 9, 0.5), None)
    together.begin_fault(Duplication(0, 9, 0.5), None)
    for _ in range(100):
        together.delivers(ALICE, BOB)
        assert alone.delays_us(BOB)[0] == together.delays_us(BOB)[0]
