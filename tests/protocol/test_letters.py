"""Letters: once and as they are, or until they are acknowledged; never once they are untrue."""

from __future__ import annotations

from random import Random

from tests.builders import ALICE, BOB
from thyme.protocol.letters import Letters, LetterTimer
from thyme.protocol.messages import Done, Letter, Message, Receipt
from thyme.protocol.node import Action, CancelTimer, Send, SetTimer
from thyme.protocol.operations import RetryPolicy
from thyme.protocol.outbox import Outbox

HELLO = Done(1)


class Office:
    """The letters of one node, and what it wants done."""

    def __init__(self, **policy: float) -> None:
        self.outbox = Outbox()
        self.letters = Letters(self.outbox, RetryPolicy(**policy), Random(1))  # type: ignore[arg-type]

    def post(self, message: Message | None = HELLO, at_us: int = 0) -> list[Action]:
        self.letters.post(BOB, lambda _: message, at_us)
        return self.outbox.take()

    def fire(self, letter: Letter, at_us: int) -> list[Action]:
        self.letters.on_timer(LetterTimer(letter.number), at_us)
        self.letters.check()
        return self.outbox.take()


def letter_in(actions: list[Action]) -> Letter:
    [letter] = [action.message for action in actions if isinstance(action, Send)]
    assert isinstance(letter, Letter)
    return letter


def test_l4_with_a_single_try_a_message_goes_as_it_is() -> None:
    office = Office(tries_max=1)
    assert office.post() == [Send(BOB, Done(1))]
    assert len(office.letters) == 0


def test_a_letter_is_sent_again_more_patiently_and_then_given_up() -> None:
    office = Office(tries_max=3, wait_us=100, backoff=2)
    actions = office.post()
    letter = letter_in(actions)
    assert letter.message == Done(1)
    timer = LetterTimer(letter.number)
    assert actions == [Send(BOB, letter), SetTimer(timer, 100)]
    assert office.fire(letter, 100) == [Send(BOB, letter), SetTimer(timer, 300)]
    assert office.fire(letter, 300) == [Send(BOB, letter), SetTimer(timer, 700)]
    assert office.fire(letter, 700) == []
    assert (office.letters.retransmissions, office.letters.given_up) == (2, 1)


def test_a_receipt_from_the_receiver_ends_it() -> None:
    office = Office()
    letter = letter_in(office.post())
    office.letters.on_receipt(ALICE, Receipt(letter.number))
    assert len(office.letters) == 1
    office.letters.on_receipt(BOB, Receipt(letter.number))
    assert office.outbox.take() == [CancelTimer(LetterTimer(letter.number))]
    office.letters.on_receipt(BOB, Receipt(letter.number))
    assert office.fire(letter, 100) == []


def test_m23_a_letter_is_written_anew_and_not_sent_when_there_is_nothing_to_say() -> None:
    office = Office()
    words: list[Message | None] = [Done(1), Done(2), None]
    office.letters.post(BOB, lambda _: words.pop(0), 0)
    letter = letter_in(office.outbox.take())
    assert letter_in(office.fire(letter, 1)).message == Done(2)
    assert office.fire(letter, 2) == []
    assert len(office.letters) == 0
    assert office.post(None) == []


def test_what_comes_is_acknowledged_each_time() -> None:
    office = Office()
    for _ in range(2):
        assert office.letters.on_letter(ALICE, Letter(7, Done(1))) == Done(1)
        assert office.outbox.take() == [Send(ALICE, Receipt(7))]


def test_beyond_the_limit_messages_go_as_they_are() -> None:
    office = Office(under_way_max=2)
    letter_in(office.post())
    letter_in(office.post())
    assert office.post() == [Send(BOB, Done(1))]
    office.letters.check()
