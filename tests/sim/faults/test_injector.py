"""S7, S8: each fault has its effect, and ends, in the ideal network and on the radio alike."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.sim.faults.faulty_networks import (
    ALICE,
    BOB,
    CAROL,
    DAVE,
    GOODBYE,
    MS,
    NAMES,
    START_US,
    WORLDS,
    Village,
)
from thyme.model.ids import NodeId
from thyme.sim.faults.devices import LEAVE_GRACE_US
from thyme.sim.faults.schedule import (
    ClockSkew,
    Crash,
    CrashMemory,
    Duplication,
    Fault,
    FaultError,
    Heal,
    Leave,
    LossBurst,
    Partition,
    Reordering,
    Restart,
)
from thyme.sim.networks.ideal_network import IdealNetwork
from thyme.sim.networks.wireless_network import WirelessNetwork

MakeWorld = Callable[[int], IdealNetwork | WirelessNetwork]


@pytest.fixture(params=list(WORLDS.values()), ids=list(WORLDS))
def make_world(request: pytest.FixtureRequest) -> MakeWorld:
    make: MakeWorld = request.param
    return make


def longest_silence_ms(village: Village, listener: int, speaker: int) -> float:
    instants = [at_us for at_us, name, _ in village.node(listener).heard if name == NAMES[speaker]]
    return max(b - a for a, b in pairwise(instants)) / MS


def test_without_faults_everybody_hears_everything_once_and_in_order(
    make_world: MakeWorld,
) -> None:
    village = Village(make_world(1)).run(1_000)
    for listener in range(4):
        for speaker in set(range(4)) - {listener}:
            heard = village.node(listener).numbers(speaker)
            assert heard == list(range(len(heard)))
            assert 97 <= len(heard) <= 100


@pytest.mark.parametrize(
    ("memory", "remembered"), [(CrashMemory.LOST, []), (CrashMemory.KEPT, ["1"])]
)
def test_s7_a_node_that_crashes_is_silent_and_comes_back_with_its_memory_or_not(
    make_world: MakeWorld, memory: CrashMemory, remembered: list[str]
) -> None:
    faults: list[Fault] = [Crash(300 * MS, BOB, memory), Restart(600 * MS, BOB)]
    village = Village(make_world(1), faults).run(1_000)
    first, second = village.nodes[BOB]
    alice = village.node(ALICE)

    assert alice.numbers(BOB, 310 * MS, 600 * MS) == []
    assert alice.numbers(BOB, 600 * MS) == list(range(39))
    assert max(at_us for at_us, _, _ in first.heard) < 300 * MS, "it hears nothing more either"
    assert min(at_us for at_us, _, _ in second.heard) > 600 * MS
    assert second.remembered == remembered
    assert village.lives[4:] == [(300 * MS, NAMES[BOB], 0), (600 * MS, NAMES[BOB], 2)]
    assert first.left_us is None, "a crash comes without warning"
    assert village.fault_injector.applied == {Crash: 1, Restart: 1}


def test_s7_a_node_may_crash_and_restart_in_one_instant(make_world: MakeWorld) -> None:
    faults: list[Fault] = [Restart(300 * MS, BOB), Crash(300 * MS, BOB)]
    village = Village(make_world(1), faults).run(1_000)
    assert [node.life for node in village.nodes[BOB]] == [1, 2]
    assert len(village.node(ALICE).numbers(BOB)) >= 96


def test_s7_a_node_that_leaves_says_goodbye_and_is_gone_a_moment_later(
    make_world: MakeWorld,
) -> None:
    faults: list[Fault] = [Leave(305 * MS, BOB), Restart(900 * MS, BOB)]
    village = Village(make_world(1), faults).run(1_000)
    first, second = village.nodes[BOB]
    gone_us = 305 * MS + LEAVE_GRACE_US

    assert first.left_us == 305 * MS
    for listener in (ALICE, CAROL, DAVE):
        assert GOODBYE in village.node(listener).numbers(BOB)
    last_heard_us = max(at_us for at_us, _, _ in first.heard)
    assert 305 * MS < last_heard_us <= gone_us, "it hears what is answered"
    assert village.node(ALICE).numbers(BOB, gone_us + 10 * MS, 900 * MS) == []
    assert second.remembered == ["1"], "who says goodbye keeps its memory"
    assert village.lives[4:] == [(gone_us, NAMES[BOB], 0), (900 * MS, NAMES[BOB], 2)]


def test_s7_a_node_may_be_back_before_it_was_gone(make_world: MakeWorld) -> None:
    faults: list[Fault] = [Leave(300 * MS, BOB), Restart(350 * MS, BOB)]
    village = Village(make_world(1), faults).run(2_000)
    assert village.lives[4:] == [(350 * MS, NAMES[BOB], 0), (350 * MS, NAMES[BOB], 2)]
    assert len(village.node(ALICE).numbers(BOB, 400 * MS)) >= 158, "the old goodbye does not end it"


def test_s8_a_partition_separates_groups_and_the_unnamed_are_one(make_world: MakeWorld) -> None:
    faults: list[Fault] = [Partition(300 * MS, ((ALICE,),)), Heal(600 * MS)]
    village = Village(make_world(1), faults).run(1_000)
    alice, bob = village.node(ALICE), village.node(BOB)

    for other in (BOB, CAROL, DAVE):
        assert alice.numbers(other, 303 * MS, 600 * MS) == []
        assert len(alice.numbers(other, 600 * MS)) >= 38
    assert bob.numbers(ALICE, 303 * MS, 600 * MS) == []
    assert bob.numbers(CAROL) == list(range(len(bob.numbers(CAROL))))


def test_s8_a_partition_may_have_many_groups(make_world: MakeWorld) -> None:
    village = Village(make_world(1), [Partition(0, ((ALICE, BOB), (CAROL,)))]).run(500)
    heard = {
        (listener, speaker)
        for listener in range(4)
        for speaker in range(4)
        if village.node(listener).numbers(speaker)
    }
    assert heard == {(ALICE, BOB), (BOB, ALICE)}


def test_s8_a_loss_burst_takes_its_share_at_its_nodes_while_it_lasts(
    make_world: MakeWorld,
) -> None:
    faults = [LossBurst(1_000 * MS, 3_000 * MS, 0.4, nodes=(BOB,))]
    village = Village(make_world(1), faults).run(4_000)
    bob, carol = village.node(BOB), village.node(CAROL)

    assert 0.5 < len(bob.numbers(ALICE, 1_005 * MS, 3_000 * MS)) / 200 < 0.7
    assert len(bob.numbers(ALICE, 0, 1_000 * MS)) >= 98
    assert len(bob.numbers(ALICE, 3_005 * MS)) >= 98
    assert len(carol.numbers(ALICE)) >= 398, "nobody else is concerned"
    assert len(carol.numbers(BOB)) >= 398, "and it is heard itself"


def test_s8_a_loss_burst_for_all_spares_nobody(make_world: MakeWorld) -> None:
    village = Village(make_world(1), [LossBurst(100 * MS, 200 * MS, 1.0)]).run(300)
    for node in range(4):
        during = [at_us for at_us, _, _ in village.node(node).heard if 105 * MS < at_us < 200 * MS]
        assert during == []
        assert longest_silence_ms(village, node, (node + 1) % 4) < 125


def test_s8_one_burst_may_follow_another_without_a_gap(make_world: MakeWorld) -> None:
    faults = [LossBurst(100 * MS, 200 * MS, 1.0), LossBurst(200 * MS, 300 * MS, 1.0)]
    village = Village(make_world(1), faults).run(400)
    assert village.node(BOB).numbers(ALICE, 105 * MS, 300 * MS) == []
    assert len(village.node(BOB).numbers(ALICE, 300 * MS)) >= 8


def test_s8_duplicates_come_in_their_measure_while_the_window_is_open(
    make_world: MakeWorld,
) -> None:
    faults = [Duplication(1_000 * MS, 3_000 * MS, 0.3, nodes=(BOB,))]
    village = Village(make_world(1), faults).run(4_000)
    heard = village.node(BOB).numbers(ALICE)
    twice = {number for number in heard if heard.count(number) == 2}

    assert len(heard) == len(set(heard)) + len(twice), "nothing comes three times"
    assert 40 < len(twice) < 80
    assert min(twice) >= 98
    assert max(twice) <= 300
    carol = village.node(CAROL).numbers(ALICE)
    assert len(carol) == len(set(carol))


def test_s8_what_is_held_back_is_overtaken_but_not_lost(make_world: MakeWorld) -> None:
    faults = [Reordering(1_000 * MS, 2_000 * MS, 0.5, 50 * MS, nodes=(BOB,))]
    village = Village(make_world(1), faults).run(3_000)
    heard = village.node(BOB).numbers(ALICE)

    assert sorted(heard) == list(range(len(heard)))
    assert heard[:97] == list(range(97)), "before, all is in order"
    assert heard[-90:] == list(range(len(heard) - 90, len(heard))), "and after"
    overtaken = sum(b < a for a, b in pairwise(heard))
    assert overtaken > 15
    carol = village.node(CAROL).numbers(ALICE)
    assert carol == sorted(carol)


def test_s8_a_clock_that_jumps_takes_its_timers_along(make_world: MakeWorld) -> None:
    faults: list[Fault] = [
        ClockSkew(105 * MS, ALICE, 7 * MS),  # the next timer is due at 110: now it is 112
        ClockSkew(505 * MS, BOB, -200 * MS),  # the next is due at 510, which comes at 710
        Crash(800 * MS, ALICE, CrashMemory.KEPT),
        Restart(900 * MS, ALICE),
    ]
    village = Village(make_world(1), faults).run(1_000)
    carol = village.node(CAROL)

    alice_us = [at_us for at_us, name, _ in carol.heard if name == NAMES[ALICE]]
    assert any(105 * MS <= at_us <= 107 * MS for at_us in alice_us), "it fires at once"
    assert len(carol.numbers(ALICE, 105 * MS, 210 * MS)) == 11
    assert carol.numbers(BOB, 515 * MS, 710 * MS) == []
    assert len(carol.numbers(BOB, 710 * MS)) >= 28
    restarted_us = village.nodes[ALICE][1].clock_us[0]
    assert restarted_us == START_US + 907 * MS, "a wrong clock is still wrong after a restart"


def test_s8_what_befalls_a_node_that_is_not_there_is_an_error(make_world: MakeWorld) -> None:
    village = Village(make_world(1), [Crash(200 * MS, BOB)])
    village.devices.crash(BOB, CrashMemory.LOST)
    with pytest.raises(FaultError, match="node 1 is not up"):
        village.run(300)
    with pytest.raises(FaultError, match="node 0 is up"):
        village.devices.start(ALICE)


@pytest.mark.parametrize("seed", [1, 2])
def test_s8_the_same_seed_gives_the_same_trouble(make_world: MakeWorld, seed: int) -> None:
    faults: list[Fault] = [
        LossBurst(0, 900 * MS, 0.3),
        Duplication(0, 900 * MS, 0.3),
        Reordering(0, 900 * MS, 0.3, 30 * MS),
        Crash(300 * MS, DAVE),
        Restart(500 * MS, DAVE),
    ]

    def heard(seed: int) -> list[list[tuple[int, NodeId, int]]]:
        village = Village(make_world(seed), faults).run(1_000)
        return [node.heard for number in range(4) for node in village.nodes[number]]

    assert heard(seed) == heard(seed)
    assert heard(seed) != heard(seed + 1)


def test_s8_on_the_radio_a_message_that_a_fault_takes_is_sent_again_then_given_up() -> None:
    """To a sender, a partition is like a missing acknowledgement."""
    faults: list[Fault] = [Partition(100 * MS, ((ALICE,), (BOB,))), Heal(200 * MS)]
    world = WORLDS["radio"](1)
    assert isinstance(world, WirelessNetwork)
    village = Village(world, faults, to={ALICE: BOB}).run(300)
    alice, bob = village.node(ALICE), village.node(BOB)
    heard = bob.numbers(ALICE)

    assert sorted(heard + alice.failed) == list(range(len(heard) + len(alice.failed)))
    assert 9 <= len(alice.failed) <= 10
    assert world.traffic.repeated == 6 * len(alice.failed), "seven transmissions each"
    assert world.collect_measurements().dropped == {"exceeded": len(alice.failed)}


def test_s8_on_the_radio_a_burst_of_losses_costs_repetitions_rather_than_messages() -> None:
    world = WORLDS["radio"](1)
    assert isinstance(world, WirelessNetwork)
    village = Village(world, [LossBurst(0, 2_000 * MS, 0.5)], to={ALICE: BOB}).run(2_100)
    heard, failed = village.node(BOB).numbers(ALICE), village.node(ALICE).failed

    assert len(heard) + len(failed) >= 208
    assert len(failed) <= 6, "1 in 2 ** 7"
    assert 140 < world.traffic.repeated < 260
