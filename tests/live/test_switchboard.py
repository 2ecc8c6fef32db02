"""The switchboard: many applications, one node, and nobody hears what is for another."""

from __future__ import annotations

import pytest

from tests.builders import conjunctions, frame, key, photo
from thyme.live.switchboard import READERS_MAX, Line, Switchboard
from thyme.model.errors import EndedError, StoreError, ThymeError
from thyme.model.ids import NodeId, SubscriptionId
from thyme.model.subscriptions import Notification
from thyme.protocol.port import Listener
from thyme.protocol.requests import (
    Begun,
    CatchUp,
    CaughtUp,
    Delete,
    Failed,
    Finished,
    Notified,
    Pause,
    Request,
    Resume,
    Subscribe,
    SubscriptionOver,
    Take,
    Told,
)


class FakeNode:
    """Keeps what it is asked."""

    node_id = NodeId(b"node")

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.asked: list[Request] = []
        self.closed = False

    def now_us(self) -> int:
        return 1_000 * len(self.asked)

    def ask(self, request: Request) -> None:
        self.asked.append(request)

    def close(self) -> None:
        self.closed = True


class Ear:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self.broken: ThymeError | None = None

    def on_told(self, told: Told) -> None:
        self.told.append(told)

    def on_broken(self, error: ThymeError) -> None:
        self.broken = error


def a_board() -> tuple[Switchboard, FakeNode]:
    nodes: list[FakeNode] = []

    def start(listener: Listener) -> FakeNode:
        nodes.append(FakeNode(listener))
        return nodes[0]

    return Switchboard(start), nodes[0]


def delete(ask: int) -> Delete:
    return Delete(ask=ask, key=key())


def subscribed(board: Switchboard, node: FakeNode, line: Line, sid: str) -> None:
    line.ask(Subscribe(ask=1, conjunctions=conjunctions("a"), frame=frame(), batch=1))
    asked = node.asked[-1]
    assert isinstance(asked, Subscribe)
    board.on_told(Finished(asked.ask, Begun(SubscriptionId(sid), 0)))


def test_an_answer_finds_who_asked_under_its_own_number() -> None:
    board, node = a_board()
    ears = Ear(), Ear()
    lines = [board.line(ear) for ear in ears]
    for line in lines:
        line.ask(delete(7))
    numbers = [request.ask for request in node.asked if isinstance(request, Delete)]
    assert len(set(numbers)) == 2

    board.on_told(Failed(numbers[1], "timeout", "late"))
    board.on_told(Finished(numbers[0], None))

    assert ears[0].told == [Finished(7, None)]
    assert ears[1].told == [Failed(7, "timeout", "late")]
    assert board.tally.finished == {"Delete": 1}
    assert board.tally.failed == {("Delete", "timeout"): 1}


def test_m27_who_resumes_what_another_left_hears_what_was_not_taken() -> None:
    board, node = a_board()
    first, second = Ear(), Ear()
    line = board.line(first)
    subscribed(board, node, line, "s")
    sid = SubscriptionId("s")
    for number in (1, 2):
        board.on_told(Notified(Notification(sid, photo(number), 1, past=False)))
    board.on_told(CaughtUp(sid, 2))
    line.ask(Take(sid=sid, key=key(1)))
    line.close()
    assert node.asked[-1] == Pause(sid=sid)
    board.on_told(Notified(Notification(sid, photo(3), 1, past=False)))  # before it knew

    board.line(second).ask(Resume(ask=9, sid=sid))
    catch_up = node.asked[-1]
    assert isinstance(catch_up, CatchUp)
    assert catch_up.refused == (key(2), key(3))
    note = Notified(Notification(sid, photo(2), 1, past=True))
    board.on_told(note)
    board.on_told(Finished(catch_up.ask, None))

    assert len(first.told) == 4
    assert second.told == [Finished(9, Begun(sid, 2)), note, CaughtUp(sid, 2)]


def test_m27_who_is_gone_before_its_subscription_stands_leaves_it_to_be_resumed() -> None:
    board, node = a_board()
    line = board.line(Ear())
    line.ask(Subscribe(ask=1, conjunctions=conjunctions("a"), frame=frame(), batch=1))
    line.close()
    asked = node.asked[-1]
    assert isinstance(asked, Subscribe)
    board.on_told(Finished(asked.ask, Begun(SubscriptionId("s"), 0)))

    assert node.asked[-1] == Pause(sid=SubscriptionId("s"))


def test_what_is_being_read_is_not_taken_away() -> None:
    """The node refuses to resume what is listened to."""
    board, node = a_board()
    subscribed(board, node, board.line(Ear()), "s")
    board.line(Ear()).ask(Resume(ask=4, sid=SubscriptionId("s")))

    assert isinstance(node.asked[-1], Resume)


def test_who_hangs_up_hears_nothing_and_the_node_goes_on() -> None:
    board, node = a_board()
    ear = Ear()
    line = board.line(ear)
    subscribed(board, node, line, "s")
    line.ask(delete(2))
    line.close()
    board.on_told(Notified(Notification(SubscriptionId("s"), photo(), 1, past=False)))
    board.on_told(Finished(2, None))

    assert len(ear.told) == 1
    assert not node.closed
    with pytest.raises(EndedError):
        line.ask(delete(3))


def test_what_is_over_is_remembered_only_so_long() -> None:
    """M33: bounded."""
    board, node = a_board()
    ear = Ear()
    line = board.line(ear)
    for number in range(READERS_MAX + 5):
        subscribed(board, node, line, f"s{number}")
        board.on_told(SubscriptionOver(SubscriptionId(f"s{number}"), "cancelled"))
    ear.told.clear()
    for sid in ("s0", f"s{READERS_MAX}"):
        board.on_told(Notified(Notification(SubscriptionId(sid), photo(), 1, past=True)))

    assert len(ear.told) == 1


def test_a_broken_node_tells_everybody() -> None:
    board, node = a_board()
    ears = Ear(), Ear()
    lines = [board.line(ear) for ear in ears]
    lines[0].ask(Take(sid=SubscriptionId("s"), key=key()))
    board.on_broken(StoreError("full"))

    assert [str(ear.broken) for ear in ears] == ["full", "full"]
    assert len(node.asked) == 1
    with pytest.raises(EndedError):
        board.line(Ear())
