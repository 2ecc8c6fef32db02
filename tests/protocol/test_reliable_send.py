"""Reliable messages: sent once, or until acknowledged; never once they are obsolete."""

from __future__ import annotations

from random import Random

from tests.builders import ALICE, BOB
from thyme.protocol.messages.common import Message, ReliableAck, ReliableMessage
from thyme.protocol.messages.replies import Done
from thyme.protocol.node import Action, CancelTimer, Send, SetTimer
from thyme.protocol.outbox import Outbox
from thyme.protocol.reliable_send import ReliableSender, ResendTimer
from thyme.protocol.retry import RetryPolicy

HELLO = Done(1)


class SenderHarness:
    """The reliable sender of one node, and its actions."""

    def __init__(self, **policy: float) -> None:
        self.outbox = Outbox()
        self.sender = ReliableSender(self.outbox, RetryPolicy(**policy), Random(1))  # type: ignore[arg-type]

    def post(self, message: Message | None = HELLO, at_us: int = 0) -> list[Action]:
        self.sender.send(BOB, lambda _: message, at_us)
        return self.outbox.drain_actions()

    def fire(self, reliable: ReliableMessage, at_us: int) -> list[Action]:
        self.sender.on_timer(ResendTimer(reliable.number), at_us)
        self.sender.check()
        return self.outbox.drain_actions()


def message_in(actions: list[Action]) -> ReliableMessage:
    [reliable] = [action.message for action in actions if isinstance(action, Send)]
    assert isinstance(reliable, ReliableMessage)
    return reliable


def test_l4_with_a_single_try_a_message_goes_as_it_is() -> None:
    node = SenderHarness(tries_max=1)
    assert node.post() == [Send(BOB, Done(1))]
    assert len(node.sender) == 0


def test_a_message_is_sent_again_more_patiently_and_then_given_up() -> None:
    node = SenderHarness(tries_max=3, wait_us=100, backoff=2)
    actions = node.post()
    reliable = message_in(actions)
    assert reliable.message == Done(1)
    timer = ResendTimer(reliable.number)
    assert actions == [Send(BOB, reliable), SetTimer(timer, 100)]
    assert node.fire(reliable, 100) == [Send(BOB, reliable), SetTimer(timer, 300)]
    assert node.fire(reliable, 300) == [Send(BOB, reliable), SetTimer(timer, 700)]
    assert node.fire(reliable, 700) == []
    assert (node.sender.retransmissions, node.sender.given_up) == (2, 1)


def test_a_receipt_from_the_receiver_ends_it() -> None:
    node = SenderHarness()
    reliable = message_in(node.post())
    node.sender.on_ack(ALICE, ReliableAck(reliable.number), 50)
    assert len(node.sender) == 1
    node.sender.on_ack(BOB, ReliableAck(reliable.number), 50)
    assert node.outbox.drain_actions() == [CancelTimer(ResendTimer(reliable.number))]
    node.sender.on_ack(BOB, ReliableAck(reliable.number), 50)
    assert node.fire(reliable, 100) == []


def test_m23_a_message_is_written_anew_and_not_sent_when_there_is_nothing_to_say() -> None:
    node = SenderHarness()
    words: list[Message | None] = [Done(1), Done(2), None]
    node.sender.send(BOB, lambda _: words.pop(0), 0)
    reliable = message_in(node.outbox.drain_actions())
    assert message_in(node.fire(reliable, 1)).message == Done(2)
    assert node.fire(reliable, 2) == []
    assert len(node.sender) == 0
    assert node.post(None) == []


def test_what_comes_is_acknowledged_each_time() -> None:
    node = SenderHarness()
    for _ in range(2):
        assert node.sender.on_message(ALICE, ReliableMessage(7, Done(1))) == Done(1)
        assert node.outbox.drain_actions() == [Send(ALICE, ReliableAck(7))]


def test_beyond_the_limit_messages_go_as_they_are() -> None:
    node = SenderHarness(pending_max=2)
    message_in(node.post())
    message_in(node.post())
    assert node.post() == [Send(BOB, Done(1))]
    node.sender.check()
