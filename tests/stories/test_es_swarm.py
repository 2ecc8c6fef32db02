"""S7, S8: faults of every kind drawn from a seed, then calm: Thyme-ES keeps its promises.

Safety is checked after every input; that all is well again is asked for once faults has ended.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.stories.test_es_stories import insert, subscribe
from tests.stories.test_fault_stories import (
    ALICE,
    BOB,
    CAROL,
    NAMES,
    PLACES,
    START_US,
    S,
    ServerAndClients,
    found,
    search,
)
from thyme.model.ids import NodeId
from thyme.model.rng import derive_rng
from thyme.protocol.app_interface import Failed, Finished
from thyme.protocol.node import Action, Input
from thyme.sim.faults.schedule import (
    ClockSkew,
    Crash,
    CrashMemory,
    Duplication,
    Fault,
    Heal,
    Leave,
    LossBurst,
    Partition,
    Reordering,
    Restart,
)
from thyme.sim.networks.ideal_network import IdealNetwork
from thyme.sim.networks.wireless_network import WirelessNetwork

FAULTS_US = 60 * S


def spans(rng: Random, longest_us: int) -> list[tuple[int, int]]:
    """Some spans of time that do not overlap."""
    found, at_us = [], rng.randrange(20 * S)
    while (end_us := at_us + rng.randrange(1, longest_us)) < FAULTS_US:
        found.append((at_us, end_us))
        at_us = end_us + rng.randrange(20 * S)
    return found


def some(rng: Random) -> tuple[int, ...] | None:
    """Some of the nodes, or all."""
    return rng.choice([None, *((number,) for number in range(4)), (ALICE, BOB)])


def faults(seed: int) -> list[Fault]:
    """A minute of everything that may go wrong; whoever crashes keeps its store."""
    rng = derive_rng(seed, "swarm")
    faults: list[Fault] = []
    for node in range(4):
        for start_us, end_us in spans(rng, 10 * S):
            gone = Leave(start_us, node) if rng.random() < 0.3 else None
            faults += [gone or Crash(start_us, node, CrashMemory.KEPT), Restart(end_us, node)]
        faults.append(ClockSkew(rng.randrange(FAULTS_US), node, rng.randint(-S, S)))
    for start_us, end_us in spans(rng, 8 * S):
        group = rng.sample(range(4), rng.randint(1, 3))
        faults += [Partition(start_us, (tuple(group),)), Heal(end_us)]
    faults += [LossBurst(*span, rng.uniform(0, 0.6), some(rng)) for span in spans(rng, 10 * S)]
    faults += [Duplication(*span, rng.random(), some(rng)) for span in spans(rng, 10 * S)]
    faults += [Reordering(*span, rng.random(), S // 2, some(rng)) for span in spans(rng, 10 * S)]
    return faults


class WatchedTown(ServerAndClients):
    """A net whose nodes are checked after every input."""

    def __init__(self, seed: int, *, radio: bool) -> None:
        world: IdealNetwork | WirelessNetwork
        if radio:
            world = WirelessNetwork(PLACES, seed=seed, start_us=START_US, journal=self.check)
        else:
            world = IdealNetwork(seed=seed, start_us=START_US, journal=self.check)
        self.checks = 0
        super().__init__(world, faults(seed))

    def check(self, now_us: int, node_id: NodeId, entry: Input | Action) -> None:
        number = NAMES.index(node_id)
        if hasattr(self, "devices") and (node := self.devices.node_of(number)) is not None:
            node.check()
            self.checks += 1


@pytest.mark.parametrize("radio", [False, True], ids=["network", "radio"])
@pytest.mark.parametrize("seed", range(6))
def test_s8_swarm(seed: int, radio: bool) -> None:
    net = WatchedTown(seed, radio=radio)
    net.at(0.001, ALICE, subscribe(1, "goal"))
    for number in range(60):
        net.at(1 + number, BOB if number % 2 else CAROL, insert(number, f"photo-{number}", "goal"))
    net.run(90)
    assert net.world.faults.inactive
    assert all(net.devices.node_of(number) is not None for number in range(4))

    answers = Counter(
        (node, told.request_id)
        for node in (BOB, CAROL)
        for told in net.told[node]
        if isinstance(told, Finished | Failed)
    )
    assert set(answers.values()) == {1}, "one answer to one request"
    net.at(91, CAROL, search(1_000))
    net.at(92, BOB, insert(1_001, "after", "goal"))
    net.run(100)
    stored = {
        f"photo-{told.request_id}"
        for node in (BOB, CAROL)
        for told in net.told[node]
        if isinstance(told, Finished) and told.request_id < 1_000
    }
    assert len(stored) > 15
    assert found(net.answer(CAROL, 1_000)) >= len(stored), "what was acknowledged is there"
    assert isinstance(net.answer(BOB, 1_001), Finished)
    assert set(Counter(net.notes(ALICE)).values()) <= {1}, "nothing is told twice"
    assert net.checks > 500
