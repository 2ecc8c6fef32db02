"""Nodes of a soak run that sleep (B12, M34)."""

from __future__ import annotations

from random import Random

from thyme.model.ids import NodeId
from thyme.protocol.messages.replies import Done
from thyme.protocol.node import Action, Input, Received, SetTimer, TimerFired
from thyme.testing.soak.checked_node import CheckedNode, WakeTimer
from thyme.testing.soak.faults import FaultLimits, draw_sleeps

ALICE, BOB = NodeId(b"alice"), NodeId(b"bob")
MESSAGE = Received(BOB, Done(1))


class Recorder:
    """A node that records its inputs."""

    node_id = ALICE

    def __init__(self) -> None:
        self.inputs: list[tuple[int, Input]] = []

    def handle(self, event: Input, now_us: int) -> list[Action]:
        self.inputs.append((now_us, event))
        return []

    def check(self) -> None:
        """Nothing to check."""


def test_b12_a_sleeping_node_loses_messages_and_its_timers_fire_when_it_wakes() -> None:
    inner = Recorder()
    node = CheckedNode(inner, (10, 20))
    node.handle(MESSAGE, 9)
    assert node.handle(MESSAGE, 10) == [SetTimer(WakeTimer(), 20)]
    assert node.handle(TimerFired("late"), 15) == [SetTimer(WakeTimer(), 20)]
    node.handle(TimerFired(WakeTimer()), 20)
    node.handle(MESSAGE, 21)
    assert inner.inputs == [(9, MESSAGE), (20, TimerFired("late")), (21, MESSAGE)]


def test_b12_devices_sleep_only_where_lost_messages_are_survived() -> None:
    second = 1_000_000
    sleeps = draw_sleeps(Random(1), 100, 0, 100 * second, FaultLimits())
    assert 5 < len(sleeps) < 30
    assert all(0 <= from_us < until_us <= 100 * second for from_us, until_us in sleeps.values())
    paper = FaultLimits(message_loss=False)
    assert draw_sleeps(Random(1), 100, 0, 100 * second, paper) == {}
