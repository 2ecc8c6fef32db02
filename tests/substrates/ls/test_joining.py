"""Joining (L5): the question, the coin, the answer in parts, and the one who is alone."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, BOB, subscribe
from tests.wire.strategies import subscriptions
from thyme.model.ids import NodeId
from thyme.model.subscriptions import SubscriptionRecord
from thyme.protocol.messages.replies import JoinReply
from thyme.protocol.messages.requests import JoinRequest
from thyme.protocol.node import Action, Broadcast, Send, SetTimer
from thyme.protocol.outbox import Outbox
from thyme.substrates.ls.subscription_fetch import (
    JoinReplyTimer,
    LsJoining,
    LsJoiningConfig,
    LsJoinPhase,
    LsJoinTimer,
    RecentNeighbours,
    split_by_bytes,
)


class Joiner:
    """The join protocol of one node, by itself."""

    def __init__(
        self, *held: SubscriptionRecord, config: LsJoiningConfig | None = None, seed: int = 1
    ) -> None:
        self.learnt: list[str] = []
        self._outbox = Outbox()
        self.joining = LsJoining(
            self._outbox,
            Random(seed),
            config or LsJoiningConfig(),
            lambda: held,
            lambda subscription, _, __: self.learnt.append(subscription.key.sid),
        )

    def start(self) -> JoinRequest:
        self.joining.start(0)
        [timer] = self.actions()
        assert isinstance(timer, SetTimer)
        assert timer.timer == LsJoinTimer()
        return asked(self.wait(timer.at_us))

    def wait(self, at_us: int) -> list[Action]:
        self.joining.on_join_timer(at_us)
        return self.actions()

    def hear(self, sender: NodeId, reply: JoinReply, at_us: int = 10) -> list[Action]:
        self.joining.on_reply(sender, reply, at_us)
        return self.actions()

    def alone(self) -> Joiner:
        """After all tries."""
        self.start()
        while self.joining.phase is LsJoinPhase.JOINING:
            self.wait(1)
        return self

    def is_asked(self, request: JoinRequest, at_us: int = 10) -> JoinReplyTimer | None:
        self.joining.on_request(ALICE, request, at_us)
        [*timers] = [a.timer for a in self.actions() if isinstance(a, SetTimer)]
        return timers[0] if timers else None  # type: ignore[return-value]

    def actions(self) -> list[Action]:
        self.joining.check()
        return self._outbox.drain_actions()


def asked(actions: list[Action]) -> JoinRequest:
    [message] = [action.message for action in actions if isinstance(action, Broadcast)]
    assert isinstance(message, JoinRequest)
    return message


def test_l5_a_question_without_an_answer_is_repeated_and_then_one_is_alone() -> None:
    joiner = Joiner(config=LsJoiningConfig(tries_max=3))
    first = joiner.start()
    assert first.attempt == 1
    assert asked(joiner.wait(100)) == JoinRequest(first.request_id, 2)
    assert asked(joiner.wait(200)) == JoinRequest(first.request_id, 3)
    assert not [action for action in joiner.wait(300) if isinstance(action, Broadcast)]
    assert joiner.joining.phase is LsJoinPhase.ALONE


def test_l5_nodes_that_come_up_together_do_not_speak_together() -> None:
    instants = []
    for seed in range(50):
        joiner = Joiner(seed=seed)
        joiner.joining.start(0)
        [timer] = joiner.actions()
        assert isinstance(timer, SetTimer)
        instants.append(timer.at_us)
    assert min(instants) < 20_000
    assert 180_000 < max(instants) <= 200_000


def test_l5_the_first_whole_answer_ends_the_question_and_others_are_welcome() -> None:
    joiner = Joiner()
    number = joiner.start().request_id
    joiner.hear(BOB, JoinReply(number, 0, 2, (subscribe(1),)))
    joiner.hear(ALICE, JoinReply(number, 1, 2, (subscribe(2),)))
    assert joiner.joining.phase is LsJoinPhase.JOINING, "two halves of two answers are no answer"
    joiner.hear(BOB, JoinReply(number, 1, 2, (subscribe(3),)))
    assert joiner.joining.phase is LsJoinPhase.JOINED
    joiner.hear(ALICE, JoinReply(number, 0, 2, (subscribe(4),)))
    assert joiner.learnt == ["sub1", "sub2", "sub3", "sub4"]


def test_l5_an_empty_answer_is_an_answer() -> None:
    joiner = Joiner()
    joiner.hear(BOB, JoinReply(joiner.start().request_id, 0, 1, ()))
    assert joiner.joining.phase is LsJoinPhase.JOINED


def test_an_answer_to_another_question_is_no_answer() -> None:
    joiner = Joiner()
    joiner.hear(BOB, JoinReply(joiner.start().request_id + 1, 0, 1, (subscribe(1),)))
    assert (joiner.joining.phase, joiner.learnt) == (LsJoinPhase.JOINING, [])


def test_l5_an_answer_comes_after_a_random_time_with_all_that_is_held() -> None:
    held = [subscribe(number) for number in range(50)]
    delays = []
    for seed in range(50):
        joiner = Joiner(*held, seed=seed).alone()
        joiner.joining.on_request(ALICE, JoinRequest(7, 1), 0)
        [timer] = joiner.actions()
        assert isinstance(timer, SetTimer)
        delays.append(timer.at_us)
    assert min(delays) < 50_000
    assert 450_000 < max(delays) <= 500_000

    joiner.joining.on_reply_timer(JoinReplyTimer(ALICE, 7))
    replies = [action.message for action in joiner.actions() if isinstance(action, Send)]
    assert all(isinstance(reply, JoinReply) and reply.request_id == 7 for reply in replies)
    assert [reply.part for reply in replies] == list(range(len(replies)))  # type: ignore[union-attr]
    assert [sub for reply in replies for sub in reply.subscriptions] == held  # type: ignore[union-attr]
    assert len(replies) > 1


def test_l5_of_many_neighbours_only_some_answer_and_more_when_asked_again() -> None:
    answers = []
    for attempt in (1, 3):
        answers.append(0)
        for seed in range(300):
            joiner = Joiner(seed=seed).alone()
            for number in range(30):
                joiner.joining.neighbours.record_message(NodeId(bytes([number])), 0)
            answers[-1] += joiner.is_asked(JoinRequest(7, attempt)) is not None
    # Each of the 300 answers with probability 3/30, then 9/30.
    assert 15 <= answers[0] <= 50
    assert 60 <= answers[1] <= 125


def test_l5_who_is_joining_itself_has_nothing_to_tell() -> None:
    joiner = Joiner(subscribe(1))
    joiner.start()
    assert joiner.is_asked(JoinRequest(7, 1)) is None


def test_l5_of_two_that_come_back_together_each_tells_the_other_what_it_held() -> None:
    """Both ask, neither answers a question while it has one of its own; nobody waits for ever."""
    config = LsJoiningConfig(tries_max=2, reply_later=True)
    one, other = Joiner(subscribe(1), config=config, seed=1), Joiner(config=config, seed=2)
    question, answer = other.start(), None
    one.start()
    assert one.is_asked(question) is None
    while one.joining.phase is LsJoinPhase.JOINING:
        actions = one.wait(1)
        answer = next((a.timer for a in actions if isinstance(a, SetTimer)), None)

    assert answer == JoinReplyTimer(ALICE, question.request_id)


def test_a_question_heard_twice_is_answered_once_at_a_time() -> None:
    joiner = Joiner(subscribe(1)).alone()
    assert joiner.is_asked(JoinRequest(7, 1)) is not None
    assert joiner.is_asked(JoinRequest(7, 1)) is None


def test_a_neighbour_counts_for_a_while_and_there_is_a_limit() -> None:
    neighbours = RecentNeighbours(LsJoiningConfig(neighbour_timeout_us=100, neighbours_max=3))
    assert neighbours.record_message(ALICE, 0), "it was not a neighbour before"
    neighbours.record_message(BOB, 50)
    assert not neighbours.record_message(ALICE, 60)
    assert neighbours.count_recent(150) == 2
    assert neighbours.count_recent(155) == 1
    for number in range(10):
        neighbours.record_message(NodeId(bytes([number])), 200)
    assert neighbours.count_recent(200) == 3


@given(st.lists(subscriptions, max_size=8), st.integers(1, 300))
def test_l5_bundles_are_bounded_and_lose_nothing(
    held: list[SubscriptionRecord], bytes_max: int
) -> None:
    bundles = split_by_bytes(held, bytes_max)
    assert [subscription for bundle in bundles for subscription in bundle] == held
    assert bundles
    for bundle in bundles:
        sizes = [len(msgspec.msgpack.encode(subscription)) for subscription in bundle]
        assert len(bundle) <= 1 or sum(sizes) <= bytes_max
