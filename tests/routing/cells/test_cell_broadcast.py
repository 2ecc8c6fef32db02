"""Broadcast within a cell until all nodes have acknowledged (D7, B2)."""

from __future__ import annotations

from tests.builders import ALICE, BOB, CAROL, key, photo
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata
from thyme.protocol.messages.cells import (
    AnnounceReplica,
    CellBroadcastAck,
    IndexObject,
    StoreReplica,
)
from thyme.protocol.messages.common import CellBroadcast, Message
from thyme.protocol.messages.requests import DeleteObject, FetchObject
from thyme.protocol.node import Action, Broadcast, Send, SetTimer
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import CellRoutingConfig
from thyme.routing.cells.cell_broadcast import CellBroadcaster, CellBroadcastTimer

CELL = CellId(3)
DELETE = DeleteObject(1, key(1))
HEARD = CellBroadcastAck(ALICE, 7, CELL)
TIMER = CellBroadcastTimer(ALICE, 7, CELL)


class Spreader:
    """One node that broadcasts, and the time when all had acknowledged."""

    def __init__(
        self,
        tries: int = 3,
        *,
        questions: bool = True,
        spreads_max: int = 10,
        confirm_replicas: bool = False,
        insert_wait_tries: int = 2,
        answer_when_known: bool = False,
        ack_wait_us_max: int | None = None,
    ) -> None:
        self.outbox = Outbox()
        config = CellRoutingConfig(
            broadcast_tries_max=tries,
            broadcast_reads=questions,
            broadcasts_max=spreads_max,
            confirm_replicas=confirm_replicas,
            insert_wait_tries=insert_wait_tries,
            answer_when_known=answer_when_known,
            ack_wait_us_max=ack_wait_us_max,
        )
        self.spreading = CellBroadcaster(ALICE, self.outbox, config)
        self.heard_us: list[int] = []

    def start(self, message: Message, *others: NodeId, number: int = 7) -> list[Action]:
        spread = CellBroadcast(ALICE, CELL, number, 0, CELL, CELL, message)
        self.spreading.broadcast(spread, others, 0)
        self.spreading.when_acknowledged(ALICE, number, CELL, self.heard_us.append, 0)
        self.spreading.check()
        return self.outbox.drain_actions()

    def wait_us(self, number: int) -> int:
        """How long a new broadcast waits for acknowledgements at first."""
        self.outbox.drain_actions()
        actions = self.start(DELETE, BOB, number=number)
        [timer] = [action for action in actions if isinstance(action, SetTimer)]
        return timer.at_us


def ack(number: int) -> CellBroadcastAck:
    return CellBroadcastAck(ALICE, number, CELL)


def sent(actions: list[Action]) -> list[NodeId]:
    return [action.to for action in actions if isinstance(action, Send)]


def test_b2_who_did_not_say_that_it_heard_is_told_again_and_nobody_else() -> None:
    spreader = Spreader()
    first = spreader.start(DELETE, BOB, CAROL)
    assert len([action for action in first if isinstance(action, Broadcast)]) == 1

    spreader.spreading.on_ack(BOB, HEARD, 10)
    spreader.spreading.on_timer(TIMER, 50)
    assert sent(spreader.outbox.drain_actions()) == [CAROL]
    assert spreader.heard_us == []

    spreader.spreading.on_ack(CAROL, HEARD, 60)
    spreader.spreading.on_ack(CAROL, HEARD, 70)
    assert spreader.heard_us == [60]
    assert len(spreader.spreading) == 0


def test_b2_who_never_answers_or_is_not_there_holds_nothing_up_for_ever() -> None:
    spreader = Spreader(tries=2)
    spreader.start(DELETE, BOB, CAROL)
    spreader.spreading.on_timer(TIMER, 50)
    copy = CellBroadcast(ALICE, CELL, 7, 0, CELL, CELL, DELETE)
    spreader.spreading.on_send_failed(BOB, copy, 55)

    assert spreader.spreading.on_timer(TIMER, 150) == [CAROL]
    assert spreader.heard_us == [150]
    assert spreader.spreading.on_timer(TIMER, 250) == []


def test_b2_an_insert_is_answered_after_two_tries_and_those_who_did_not_hear_are_told_on() -> None:
    spreader = Spreader(tries=5)
    spreader.start(IndexObject(1, IndexedMetadata(photo(1), ())), BOB)
    spreader.spreading.on_timer(TIMER, 50)
    assert spreader.heard_us == []

    spreader.spreading.on_timer(TIMER, 150)
    spreader.spreading.on_timer(TIMER, 350)
    assert spreader.heard_us == [150]
    assert sent(spreader.outbox.drain_actions()) == [BOB] * 3

    spreader.spreading.on_ack(BOB, HEARD, 360)
    assert spreader.heard_us == [150], "once"
    assert len(spreader.spreading) == 0


def test_b2_where_nothing_is_forwarded_an_insert_waits_for_more_tries() -> None:
    spreader = Spreader(tries=5, insert_wait_tries=3)
    spreader.start(IndexObject(1, IndexedMetadata(photo(1), ())), BOB)
    for at_us in (50, 150, 350):
        assert spreader.heard_us == []
        spreader.spreading.on_timer(TIMER, at_us)

    assert spreader.heard_us == [350]


INSERT = IndexObject(1, IndexedMetadata(photo(1), ()))


def test_b8_in_a_venue_an_insert_is_answered_when_all_nodes_that_are_heard_know_it() -> None:
    spreader = Spreader(tries=5, answer_when_known=True)
    spreader.start(INSERT, BOB, CAROL)
    for at_us in (50, 150, 350):
        spreader.spreading.on_timer(TIMER, at_us)
    spreader.spreading.on_ack(BOB, HEARD, 400)
    assert spreader.heard_us == []

    spreader.spreading.on_timer(TIMER, 750, lambda node_id: node_id != CAROL)
    assert spreader.heard_us == [750], "nobody waits for a node that has left"
    assert len(spreader.spreading) == 0


def test_b8_a_repeated_insert_is_not_answered_before_the_first_one() -> None:
    """The origin repeats a request that is not answered in time, under another number. The node
    that received the first copy does not broadcast it again, and does not answer it either until
    the cell knows the object."""
    spreader = Spreader(tries=5, answer_when_known=True)
    spreader.start(INSERT, BOB)
    assert spreader.spreading.is_waiting_for(ALICE, INSERT, CELL)
    assert not spreader.spreading.is_waiting_for(BOB, INSERT, CELL), "a request of another node"
    again_us: list[int] = []
    spreader.spreading.when_acknowledged(ALICE, 8, CELL, again_us.append, 20, INSERT)
    assert again_us == []

    spreader.spreading.on_ack(BOB, HEARD, 60)
    assert (spreader.heard_us, again_us) == ([60], [60])
    assert not spreader.spreading.is_waiting_for(ALICE, INSERT, CELL)
    spreader.spreading.when_acknowledged(ALICE, 9, CELL, again_us.append, 70, INSERT)
    assert again_us == [60, 70]


def test_b8_a_node_that_never_acknowledges_delays_one_insert_only() -> None:
    spreader = Spreader(tries=4, answer_when_known=True)
    spreader.start(INSERT, BOB)
    for at_us in (50, 150, 350):
        assert spreader.spreading.on_timer(TIMER, at_us) == []
        assert spreader.heard_us == []
    assert spreader.spreading.on_timer(TIMER, 750) == [BOB]
    assert spreader.heard_us == [750]

    spreader.start(INSERT, BOB, number=8)
    spreader.spreading.on_timer(CellBroadcastTimer(ALICE, 8, CELL), 50)
    spreader.spreading.on_timer(CellBroadcastTimer(ALICE, 8, CELL), 150)
    assert spreader.heard_us == [750, 150], "after two tries"
    spreader.spreading.on_ack(BOB, CellBroadcastAck(ALICE, 8, CELL), 160)

    spreader.start(INSERT, BOB, number=9)
    spreader.spreading.on_timer(CellBroadcastTimer(ALICE, 9, CELL), 50)
    spreader.spreading.on_timer(CellBroadcastTimer(ALICE, 9, CELL), 150)
    assert spreader.heard_us == [750, 150], "waited for again since it acknowledged"


def test_d7_replicas_are_spread_once_and_where_nothing_is_sure_so_is_the_rest() -> None:
    for tries, message in (
        (3, AnnounceReplica(key(1))),
        (3, StoreReplica(photo(1), b"pixels")),
        (1, DELETE),
    ):
        spreader = Spreader(tries=tries)
        spreader.start(message, BOB)
        assert spreader.heard_us == [0]
        spreader.spreading.on_broadcast(BOB, CellBroadcast(BOB, CELL, 9, 0, CELL, CELL, message))
        assert sent(spreader.outbox.drain_actions()) == []


def test_b2_a_new_object_is_broadcast_until_one_of_its_holders_has_it() -> None:
    spreader = Spreader(confirm_replicas=True)
    replica = StoreReplica(photo(1), b"pixels", (BOB, CAROL))
    dave = NodeId(b"dave")
    spreader.start(replica, BOB, CAROL, dave)
    spreader.spreading.on_ack(dave, HEARD, 10)
    spreader.spreading.on_timer(TIMER, 50)
    [again] = [each for each in spreader.outbox.drain_actions() if isinstance(each, Broadcast)]
    assert isinstance(again.message, CellBroadcast)
    assert again.message.message is replica
    assert spreader.heard_us == []

    spreader.spreading.on_ack(CAROL, HEARD, 60)
    assert spreader.heard_us == [60]
    assert len(spreader.spreading) == 0


def test_b2_only_the_holders_of_an_object_acknowledge_it() -> None:
    spreader = Spreader(confirm_replicas=True)
    for holders, acknowledged in (((BOB,), []), ((ALICE, BOB), [BOB]), ((), [BOB])):
        replica = StoreReplica(photo(1), b"pixels", holders)
        spreader.spreading.on_broadcast(BOB, CellBroadcast(BOB, CELL, 9, 0, CELL, CELL, replica))
        assert sent(spreader.outbox.drain_actions()) == acknowledged


def test_b2_the_wait_for_an_acknowledgement_grows_with_the_object() -> None:
    waits_us = []
    for size in (10, 60_000, 70_000):
        spreader = Spreader(confirm_replicas=True)
        actions = spreader.start(StoreReplica(photo(1), bytes(size)), BOB)
        waits_us += [action.at_us for action in actions if isinstance(action, SetTimer)]
    assert waits_us == [50_000, 50_000 + 58 * 4_000], "a large object is broadcast once"


def test_b2_a_question_concerns_one_node_if_so_set() -> None:
    question = FetchObject(1, key(1))
    assert Spreader().spreading.is_for_all(question)
    assert not Spreader(questions=False).spreading.is_for_all(question)
    assert Spreader(questions=False).spreading.is_for_all(DELETE)


def test_b2_what_is_under_way_is_bounded() -> None:
    spreader = Spreader(spreads_max=2)
    for number in range(5):
        spreader.start(DELETE, BOB, number=number)
    assert len(spreader.spreading) == 2
    assert spreader.heard_us == [0, 0, 0], "the others are spread once"


def test_b2_who_hears_late_is_told_again_later() -> None:
    spreader = Spreader(ack_wait_us_max=400_000)
    usual_us = spreader.wait_us(1)
    for number in range(2, 40):
        spreader.start(DELETE, BOB, number=number)
        spreader.spreading.on_ack(BOB, ack(number), 60_000)
    assert usual_us == 50_000
    assert 120_000 <= spreader.wait_us(40) < 160_000
    for number in range(41, 80):
        spreader.start(DELETE, BOB, number=number)
        spreader.spreading.on_ack(BOB, ack(number), 900_000)
    assert spreader.wait_us(80) == 400_000


def test_b2_a_lost_message_is_no_reason_to_wait_and_a_late_acknowledgement_is() -> None:
    lossy, late = Spreader(ack_wait_us_max=400_000), Spreader(ack_wait_us_max=400_000)
    for number in range(40):
        for spreader in (lossy, late):
            spreader.start(DELETE, BOB, number=number)
            timer = CellBroadcastTimer(ALICE, number, CELL)
            spreader.spreading.on_timer(timer, 50_000)
            spreader.spreading.on_ack(BOB, ack(number), 90_000)
        late.spreading.on_ack(BOB, ack(number), 95_000)
    assert lossy.wait_us(40) == 50_000
    assert late.wait_us(40) >= 180_000


def test_b2_waits_are_always_the_same_unless_they_are_measured() -> None:
    spreader = Spreader()
    for number in range(40):
        spreader.start(DELETE, BOB, number=number)
        spreader.spreading.on_ack(BOB, ack(number), 90_000)
    assert spreader.wait_us(40) == 50_000
