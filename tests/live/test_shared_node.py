"""The shared node: several applications use one node, and each gets its own events only."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import conjunctions, frame, key, photo
from thyme.live.shared_node import (
    ENDED_SUBSCRIPTIONS_MAX,
    INSERTS_MAX,
    UNCONSUMED_BYTES_MAX,
    UNCONSUMED_MAX,
    AppSession,
    SharedNode,
)
from thyme.model.errors import ClosedError, StoreError, ThymeError
from thyme.model.ids import NodeId, SubscriptionId
from thyme.model.subscriptions import Notification
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    CatchUp,
    CaughtUp,
    Delete,
    Failed,
    Finished,
    Insert,
    MarkConsumed,
    NotificationEvent,
    Pause,
    Resume,
    Subscribe,
    SubscriptionEnded,
    SubscriptionStarted,
)
from thyme.protocol.port import NodeListener


class FakeNode:
    """A node that records its requests."""

    node_id = NodeId(b"node")

    def __init__(self, listener: NodeListener) -> None:
        self.listener = listener
        self.asked: list[AppRequest] = []
        self.closed = False

    def now_us(self) -> int:
        return 1_000 * len(self.asked)

    def send_request(self, request: AppRequest) -> None:
        self.asked.append(request)

    def close(self) -> None:
        self.closed = True


class Ear:
    """A listener that records its events."""

    def __init__(self) -> None:
        self.told: list[AppEvent] = []
        self.broken: ThymeError | None = None

    def on_event(self, told: AppEvent) -> None:
        self.told.append(told)

    def on_node_failed(self, error: ThymeError) -> None:
        self.broken = error


def a_board() -> tuple[SharedNode, FakeNode]:
    nodes: list[FakeNode] = []

    def start(listener: NodeListener) -> FakeNode:
        nodes.append(FakeNode(listener))
        return nodes[0]

    return SharedNode(start), nodes[0]


def delete(ask: int) -> Delete:
    return Delete(request_id=ask, key=key())


def subscribed(board: SharedNode, node: FakeNode, line: AppSession, sid: str) -> None:
    line.send_request(
        Subscribe(request_id=1, conjunctions=conjunctions("a"), frame=frame(), batch=1)
    )
    asked = node.asked[-1]
    assert isinstance(asked, Subscribe)
    board.on_event(Finished(asked.request_id, SubscriptionStarted(SubscriptionId(sid), 0)))


def test_an_answer_finds_who_asked_under_its_own_number() -> None:
    board, node = a_board()
    ears = Ear(), Ear()
    lines = [board.open_session(ear) for ear in ears]
    for line in lines:
        line.send_request(delete(7))
    numbers = [request.request_id for request in node.asked if isinstance(request, Delete)]
    assert len(set(numbers)) == 2

    board.on_event(Failed(numbers[1], "timeout", "late"))
    board.on_event(Finished(numbers[0], None))

    assert ears[0].told == [Finished(7, None)]
    assert ears[1].told == [Failed(7, "timeout", "late")]
    assert board.stats.finished == {"Delete": 1}
    assert board.stats.failed == {("Delete", "timeout"): 1}


def test_m27_who_resumes_what_another_left_hears_what_was_not_taken() -> None:
    board, node = a_board()
    first, second = Ear(), Ear()
    line = board.open_session(first)
    subscribed(board, node, line, "s")
    sid = SubscriptionId("s")
    for number in (1, 2):
        board.on_event(NotificationEvent(Notification(sid, photo(number), 1, from_history=False)))
    board.on_event(CaughtUp(sid, 2))
    line.send_request(MarkConsumed(sid=sid, key=key(1)))
    line.close()
    assert node.asked[-1] == Pause(sid=sid)
    board.on_event(
        NotificationEvent(Notification(sid, photo(3), 1, from_history=False))
    )  # before the node got the pause

    board.open_session(second).send_request(Resume(request_id=9, sid=sid))
    catch_up = node.asked[-1]
    assert isinstance(catch_up, CatchUp)
    assert catch_up.refused == (key(2), key(3))
    note = NotificationEvent(Notification(sid, photo(2), 1, from_history=True))
    board.on_event(note)
    board.on_event(Finished(catch_up.request_id, None))

    assert len(first.told) == 4
    assert second.told == [Finished(9, SubscriptionStarted(sid, 2)), note, CaughtUp(sid, 2)]


def test_m27_who_is_gone_before_its_subscription_stands_leaves_it_to_be_resumed() -> None:
    board, node = a_board()
    line = board.open_session(Ear())
    line.send_request(
        Subscribe(request_id=1, conjunctions=conjunctions("a"), frame=frame(), batch=1)
    )
    line.close()
    asked = node.asked[-1]
    assert isinstance(asked, Subscribe)
    board.on_event(Finished(asked.request_id, SubscriptionStarted(SubscriptionId("s"), 0)))

    assert node.asked[-1] == Pause(sid=SubscriptionId("s"))


def test_what_is_being_read_is_not_taken_away() -> None:
    """The node refuses to resume a subscription that another session reads."""
    board, node = a_board()
    subscribed(board, node, board.open_session(Ear()), "s")
    board.open_session(Ear()).send_request(Resume(request_id=4, sid=SubscriptionId("s")))

    assert isinstance(node.asked[-1], Resume)


def test_who_hangs_up_hears_nothing_and_the_node_goes_on() -> None:
    board, node = a_board()
    ear = Ear()
    line = board.open_session(ear)
    subscribed(board, node, line, "s")
    line.send_request(delete(2))
    line.close()
    board.on_event(
        NotificationEvent(Notification(SubscriptionId("s"), photo(), 1, from_history=False))
    )
    board.on_event(Finished(2, None))

    assert len(ear.told) == 1
    assert not node.closed
    with pytest.raises(ClosedError):
        line.send_request(delete(3))


def test_what_is_over_is_remembered_only_so_long() -> None:
    """M33: bounded."""
    board, node = a_board()
    ear = Ear()
    line = board.open_session(ear)
    for number in range(ENDED_SUBSCRIPTIONS_MAX + 5):
        subscribed(board, node, line, f"s{number}")
        board.on_event(SubscriptionEnded(SubscriptionId(f"s{number}"), "cancelled"))
    ear.told.clear()
    for sid in ("s0", f"s{ENDED_SUBSCRIPTIONS_MAX}"):
        board.on_event(
            NotificationEvent(Notification(SubscriptionId(sid), photo(), 1, from_history=True))
        )

    assert len(ear.told) == 1


def test_a_broken_node_tells_everybody() -> None:
    board, node = a_board()
    ears = Ear(), Ear()
    lines = [board.open_session(ear) for ear in ears]
    lines[0].send_request(MarkConsumed(sid=SubscriptionId("s"), key=key()))
    board.on_node_failed(StoreError("full"))

    assert [str(ear.broken) for ear in ears] == ["full", "full"]
    assert len(node.asked) == 1
    with pytest.raises(ClosedError):
        board.open_session(Ear())


def notified(number: int, summary: bytes = b"") -> NotificationEvent:
    metadata = photo(number, summary=summary)
    return NotificationEvent(Notification(SubscriptionId("s"), metadata, 0, False))


@pytest.mark.parametrize(
    ("summary", "fits"), [(b"", UNCONSUMED_MAX), (bytes(2**16), UNCONSUMED_BYTES_MAX // 2**16)]
)
def test_m35_a_session_that_consumes_nothing_gets_a_bounded_number(
    summary: bytes, fits: int
) -> None:
    """M34: the rest waits in history and is requested once half is consumed."""
    board, node = a_board()
    ear = Ear()
    line = board.open_session(ear)
    subscribed(board, node, line, "s")
    for number in range(fits):
        assert Pause(sid=SubscriptionId("s")) not in node.asked
        board.on_event(notified(number, summary))
    assert node.asked[-1] == Pause(sid=SubscriptionId("s"))

    for number in range(fits // 2):
        assert not any(isinstance(request, CatchUp) for request in node.asked)
        line.send_request(MarkConsumed(sid=SubscriptionId("s"), key=key(number)))
    catch_up = node.asked[-1]
    assert isinstance(catch_up, CatchUp)
    assert catch_up.refused == ()
    board.on_event(Finished(catch_up.request_id, None))
    assert not any(isinstance(event, CaughtUp) for event in ear.told)


def test_m35_sessions_wait_while_too_many_inserts_are_unfinished() -> None:
    async def story() -> None:
        board, node = a_board()
        line = board.open_session(Ear())
        for number in range(INSERTS_MAX):
            await asyncio.wait_for(board.wait_until_ready(), 5)
            line.send_request(Insert(request_id=number, data=b"", tags=()))
        waiting = asyncio.create_task(board.wait_until_ready())
        await asyncio.sleep(0)
        assert not waiting.done()
        insert = node.asked[0]
        assert isinstance(insert, Insert)
        board.on_event(Finished(insert.request_id, key()))
        await asyncio.wait_for(waiting, 5)

    asyncio.run(story())
