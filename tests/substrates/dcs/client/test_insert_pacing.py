"""D28: inserts wait while the channel is busy, and are refused by name if they wait too long."""

from __future__ import annotations

from msgspec.structs import replace

from tests.substrates.dcs.network import STREET, DcsNetwork, tag_in
from thyme.model.time_frames import SECOND_US
from thyme.protocol import app_interface as asked
from thyme.protocol.node import SetTimer
from thyme.protocol.outbox import Outbox
from thyme.substrates.dcs.client.insert_pacing import InsertPacer, InsertPacingTimer
from thyme.substrates.dcs.config import PAPER, InsertPacingConfig

MS_US = 1_000
CONFIG = InsertPacingConfig(waiting_max=2, wait_us_max=10 * SECOND_US)


class Inserts:
    """Inserts of one node, by number: when they were started, and why they were refused."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.pacer = InsertPacer(self.outbox, CONFIG)
        self.started: dict[int, int] = {}
        self.refused: dict[int, str] = {}

    def insert(self, number: int, now_us: int) -> None:
        self.pacer.admit(
            lambda now_us: self.started.update({number: now_us}),
            lambda reason, now_us: self.refused.update({number: reason}),
            now_us,
        )

    def timer_us(self) -> int:
        """When the timer that was set last is due."""
        timers = [
            action
            for action in self.outbox.drain_actions()
            if isinstance(action, SetTimer) and action.timer == InsertPacingTimer()
        ]
        return timers[-1].at_us


def answer_late(pacer: InsertPacer, times: int) -> None:
    """Answers inserts late, one after the other."""
    for number in range(times):
        started_us = 2 * number * SECOND_US
        pacer.on_answered(started_us, started_us + 2 * SECOND_US)


def test_d28_while_answers_are_prompt_inserts_do_not_wait() -> None:
    inserts = Inserts()
    for number in range(5):
        inserts.insert(number, number)
        inserts.pacer.on_answered(number, number + SECOND_US // 2)

    assert inserts.started == {number: number for number in range(5)}
    assert inserts.pacer.interval_us == 0


def test_d28_after_late_answers_an_insert_waits_for_the_interval() -> None:
    inserts = Inserts()
    inserts.insert(0, 0)
    answer_late(inserts.pacer, 2)
    assert inserts.pacer.interval_us == 2 * CONFIG.interval_us_min
    inserts.insert(1, 10 * SECOND_US)
    assert inserts.started == {0: 0, 1: 10 * SECOND_US}, "the interval is over long since"

    inserts.insert(2, 10 * SECOND_US)
    due_us = inserts.timer_us()
    assert 2 not in inserts.started
    assert due_us == 10 * SECOND_US + inserts.pacer.interval_us

    inserts.pacer.on_timer(due_us)
    assert inserts.started[2] == due_us
    inserts.pacer.check()


def test_d28_one_late_moment_counts_once_however_many_inserts_were_under_way() -> None:
    """A busy application has many inserts under way: all of them are late if a node pauses for a
    moment, and the application would wait for minutes."""
    inserts = Inserts()
    for number in range(64):
        inserts.pacer.on_answered(number, number + 2 * SECOND_US)
    assert inserts.pacer.interval_us == CONFIG.interval_us_min

    inserts.pacer.on_answered(3 * SECOND_US, 5 * SECOND_US)
    assert inserts.pacer.interval_us == 2 * CONFIG.interval_us_min


def test_d28_a_single_lost_message_slows_a_fast_application_down_and_does_not_stop_it() -> None:
    """One late answer of thousands made it one insert in 0.5 s, and refused those that waited."""
    inserts = Inserts()
    for number in range(1_100):
        inserts.insert(number, number * MS_US)
    last_us = 1_099 * MS_US
    inserts.pacer.on_answered(0, last_us + MS_US)
    assert inserts.pacer.interval_us == 2 * MS_US

    for number in range(1_100, 1_164):
        inserts.insert(number, last_us + MS_US)
    assert inserts.refused == {}
    while len(inserts.started) < 1_164:
        inserts.pacer.on_timer(inserts.timer_us())
    assert inserts.started[1_163] <= last_us + 200 * MS_US

    inserts.pacer.on_answered(last_us, last_us + 300 * MS_US)
    assert inserts.pacer.interval_us == 0, "a prompt answer later it is as fast as before"


def test_d28_a_fast_application_is_stopped_if_the_channel_stays_busy() -> None:
    inserts = Inserts()
    for number in range(100):
        inserts.insert(number, number * MS_US)
    for number in range(20):
        inserts.pacer.on_answered(number * 2 * SECOND_US, (number + 1) * 2 * SECOND_US)

    assert inserts.pacer.interval_us == CONFIG.interval_us_max
    for number in range(100, 104):
        inserts.insert(number, 40 * SECOND_US)
    assert list(inserts.refused) == [103], "one starts, two may wait"
    inserts.pacer.check()


def test_d28_prompt_answers_end_the_waiting() -> None:
    inserts = Inserts()
    answer_late(inserts.pacer, 20)
    assert inserts.pacer.interval_us == CONFIG.interval_us_max

    for _ in range(40):
        inserts.pacer.on_answered(0, SECOND_US)
    assert inserts.pacer.interval_us == 0


def test_d28_an_insert_that_finds_the_queue_full_or_waits_too_long_is_refused_by_name() -> None:
    inserts = Inserts()
    answer_late(inserts.pacer, 10)
    for number in range(4):
        inserts.insert(number, SECOND_US)
    assert list(inserts.refused) == [2, 3], "two may wait"
    assert all("channel is busy" in reason for reason in inserts.refused.values())

    inserts.pacer.on_timer(inserts.timer_us())

    assert set(inserts.refused) == {0, 1, 2, 3}
    assert inserts.pacer.refused == 4


def test_d28_the_application_learns_that_an_insert_was_refused() -> None:
    pacing = replace(CONFIG, interval_us_min=8 * SECOND_US, waiting_max=1)
    net = DcsNetwork(STREET, config=replace(PAPER, insert_pacing=pacing))
    pacer = net.nodes["ann"].parts.client.insert_pacer
    assert pacer is not None
    pacer.on_answered(0, 2 * SECOND_US)
    net.insert("ann", "first", tag_in(2))
    pacer.on_answered(2 * SECOND_US, 4 * SECOND_US)

    waits = asked.Insert(request_id=901, data=b"pixels", tags=(tag_in(2),))
    assert net.ask("ann", waits, 0.1) is None
    code = net.fail("ann", asked.Insert, data=b"pixels", tags=(tag_in(2),))

    assert code == "rejected"
    assert pacer.refused == 1
    net.run(20)
    assert len(net.found("dan", tag_in(2))) == 2
