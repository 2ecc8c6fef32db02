"""Reliable messages: sent once, or until acknowledged; never once they are obsolete."""

from __future__ import annotations

from random import Random

from tests.builders import ALICE, BOB
from thyme.protocol.messages.common import Done, Message, ReliableAck, ReliableMessage
from thyme.protocol.node import Action, CancelTimer, Send, SetTimer
from thyme.protocol.outbox import Outbox
from thyme.protocol.reliable_send import ReliableSender, ResendTimer
from thyme.protocol.retry import RetryPolicy

HELLO = Done(1)


class SenderHarness:
    """The reliable sender of one node, and its actions."""

    def __init__(self, **policy: float) -> None:
        self.outbox = Outbox()
        self.letters = ReliableSender(self.outbox, RetryPolicy(**policy), Random(1))  # type: ignore[arg-type]

    def post(self, message: Message | None = HELLO, at_us: int = 0) -> list[Action]:
        self.letters.send(BOB, lambda _: message, at_us)
        return self.outbox.drain_actions()

    def fire(self, letter: ReliableMessage, at_us: int) -> list[Action]:
        self.letters.on_timer(ResendTimer(letter.number), at_us)
        self.letters.check()
        return self.outbox.drain_actions()


def letter_in(actions: list[Action]) -> ReliableMessage:
    [letter] = [action.message for action in actions if isinstance(action, Send)]
    assert isinstance(letter, ReliableMessage)
    return letter


def test_l4_with_a_single_try_a_message_goes_as_it_is() -> None:
    office = SenderHarness(tries_max=1)
    assert office.post() == [Send(BOB, Done(1))]
    assert len(office.letters) == 0


def test_a_letter_is_sent_again_more_patiently_and_then_given_up() -> None:
    office = SenderHarness(tries_max=3, wait_us=100, backoff=2)
    actions = office.post()
    letter = letter_in(actions)
    assert letter.message == Done(1)
    timer = ResendTimer(letter.number)
    assert actions == [Send(BOB, letter), SetTimer(timer, 100)]
    assert office.fire(letter, 100) == [Send(BOB, letter), SetTimer(timer, 300)]
    assert office.fire(letter, 300) == [Send(BOB, letter), SetTimer(timer, 700)]
    assert office.fire(letter, 700) == []
    assert (office.letters.retransmissions, office.letters.given_up) == (2, 1)


def test_a_receipt_from_the_receiver_ends_it() -> None:
    office = SenderHarness()
    letter = letter_in(office.post())
    office.letters.on_ack(ALICE, ReliableAck(letter.number), 50)
    assert len(office.letters) == 1
    office.letters.on_ack(BOB, ReliableAck(letter.number), 50)
    assert office.outbox.drain_actions() == [CancelTimer(ResendTimer(letter.number))]
    office.letters.on_ack(BOB, ReliableAck(letter.number), 50)
    assert office.fire(letter, 100) == []


def test_m23_a_letter_is_written_anew_and_not_sent_when_there_is_nothing_to_say() -> None:
    office = SenderHarness()
    words: list[Message | None] = [Done(1), Done(2), None]
    office.letters.send(BOB, lambda _: words.pop(0), 0)
    letter = letter_in(office.outbox.drain_actions())
    assert letter_in(office.fire(letter, 1)).message == Done(2)
    assert office.fire(letter, 2) == []
    assert len(office.letters) == 0
    assert office.post(None) == []


def test_what_comes_is_acknowledged_each_time() -> None:
    office = SenderHarness()
    for _ in range(2):
        assert office.letters.on_message(ALICE, ReliableMessage(7, Done(1))) == Done(1)
        assert office.outbox.drain_actions() == [Send(ALICE, ReliableAck(7))]


def test_beyond_the_limit_messages_go_as_they_are() -> None:
    office = SenderHarness(pending_max=2)
    letter_in(office.post())
    letter_in(office.post())
    assert office.post() == [Send(BOB, Done(1))]
    office.letters.check()
