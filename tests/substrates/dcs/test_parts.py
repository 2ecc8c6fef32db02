"""The parts of a node of Thyme-DCS, each for itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import (
    ALICE,
    BOB,
    CAROL,
    conjunction,
    conjunctions,
    frame,
    key,
    photo,
    subscribe,
)
from thyme.model.errors import NotFoundError, NotOwnerError, RejectedError
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId, CellSubscription, IndexedMetadata, Replica
from thyme.protocol.outbox import Outbox
from thyme.protocol.request_tracker import RetryPolicy
from thyme.routing.cells import Delivery, DeliveryFailure, Destination, Grid
from thyme.storage.store import MemoryStore
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.dcs.client.cell_requests import CellRequests, CellRequestTimer
from thyme.substrates.dcs.client.key_cells import ReplicaLocations
from thyme.substrates.dcs.client.key_choice import KeyChooser
from thyme.substrates.dcs.client.retrieve import Retriever
from thyme.substrates.dcs.config import PAPER, DcsConfig, KeyChoice, ReplicationConfig
from thyme.substrates.dcs.service.cell_service import CellService
from thyme.substrates.dcs.state.cell_index import REPLICATION_LISTS, SUBSCRIBER_CELLS, CellIndex
from thyme.substrates.dcs.state.replica_store import ReplicaRole, ReplicaStore, StoredReplica

GRID = Grid(columns=10, rows=10)
HERE = CellId(0)
BROKER = BrokerConfig(metadata_only=True)


class Notebook:
    """A routing that only writes down what it is asked to send."""

    cell = HERE
    serving = True

    def __init__(self) -> None:
        self.sent: list[tuple[list[Destination], wire.Message]] = []

    def start(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """Nothing to do."""

    def set_cell(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """Nothing to do."""

    def cell_of_key(self, key: str) -> CellId:
        return GRID.cell_of_key(key)

    def distance(self, one: CellId, other: CellId) -> float:
        return GRID.distance_m(one, other)

    def nodes_in(self, cell: CellId) -> list[NodeId]:
        return []

    def send(self, targets: Sequence[Destination], message: wire.Message, now_us: int) -> int:
        self.sent.append((list(targets), message))
        return len(self.sent)

    def broadcast_in_cell(self, message: wire.Message, now_us: int) -> int:
        raise NotImplementedError

    def when_acknowledged(
        self, arrival: Delivery, then: Callable[[int], None], now_us: int
    ) -> None:
        then(now_us)

    def on_received(self, sender: NodeId, message: wire.Message, now_us: int) -> bool:
        return False

    def on_timer(self, timer: object, now_us: int) -> bool:
        return False

    def on_send_failed(self, to: NodeId, message: wire.Message, now_us: int) -> bool:
        return False

    def check(self) -> None:
        """Nothing to check."""


class Question:
    """An operation under way, and what became of it."""

    def __init__(self, *targets: Destination, tries_max: int = 3) -> None:
        self.routing = Notebook()
        policy = RetryPolicy(tries_max=tries_max, wait_us=100)
        self.asks = CellRequests(self.routing, Outbox(), policy, Random(1))
        self.ends: list[object] = []
        self.asks.send_requests(
            lambda number: dict.fromkeys(targets, wire.FetchObject(number, key(1))),
            0,
            lambda replies, _: self.ends.append(list(replies)),
            lambda code, detail, _: self.ends.append(code),
        )

    @property
    def number(self) -> int:
        message = self.routing.sent[0][1]
        assert isinstance(message, wire.FetchObject)
        return message.request_id

    def wait(self) -> None:
        self.asks.on_timer(CellRequestTimer(self.number), 100)
        self.asks.check()


A, B, C = Destination(CellId(1)), Destination(CellId(2)), Destination(CellId(3), BOB)


def test_d11_those_who_answered_are_not_asked_again() -> None:
    question = Question(A, B, C)
    question.asks.on_cell_reply(B.cell, wire.Done(question.number), 1)
    question.wait()
    question.asks.on_reply(BOB, wire.Done(question.number), 2)
    question.wait()
    question.asks.on_cell_reply(A.cell, wire.Done(question.number), 3)

    assert [targets for targets, _ in question.routing.sent] == [[A, B, C], [A, C], [A]]
    assert question.ends == [[B, C, A]]
    assert len(question.asks) == 0


def test_d19_tries_end_in_a_timeout_and_late_answers_are_counted() -> None:
    question = Question(A, tries_max=2)
    for _ in range(4):
        question.wait()
    question.asks.on_cell_reply(A.cell, wire.Done(question.number), 9)

    assert len(question.routing.sent) == 2
    assert question.ends == ["timeout"]
    assert question.asks.unmatched_replies == 1


def test_d11_a_cell_that_was_not_asked_and_one_that_answers_twice_are_strays() -> None:
    question = Question(A, B)
    for cell in (A.cell, A.cell, C.cell):
        question.asks.on_cell_reply(cell, wire.Done(question.number), 1)
    question.asks.on_reply(CAROL, wire.Done(question.number), 1)

    assert question.ends == []
    assert question.asks.unmatched_replies == 3


def test_d11_the_first_refusal_ends_an_operation() -> None:
    question = Question(A, B)
    question.asks.on_cell_reply(A.cell, wire.Refused(question.number, "rejected", "no"), 1)
    question.asks.on_cell_reply(B.cell, wire.Done(question.number), 1)

    assert question.ends == ["rejected"]


def test_d8_a_node_that_is_gone_ends_an_operation_at_once() -> None:
    question = Question(C)

    assert question.asks.on_delivery_failure(DeliveryFailure(number=1, node=BOB, cell=C.cell), 1)
    assert question.ends == [NotFoundError.code]
    assert not question.asks.on_delivery_failure(
        DeliveryFailure(number=7, node=BOB, cell=C.cell), 1
    )


def test_operations_under_way_are_bounded() -> None:
    policy = RetryPolicy(pending_max=1)
    asks = CellRequests(Notebook(), Outbox(), policy, Random(1))
    codes: list[str] = []
    for _ in range(2):
        asks.send_requests(
            lambda number: {A: wire.FetchObject(number, key(1))},
            0,
            lambda _replies, _: None,
            lambda code, _detail, _: codes.append(code),
        )
    asks.check()
    assert codes == [RejectedError.code]


# Keys


def keys_of(store: MemoryStore, seed: int, choice: KeyChoice = KeyChoice.RANDOM) -> KeyChooser:
    return KeyChooser(store, Random(seed), choice, GRID.cell_of_key, choices_max=100)


@given(st.integers(0, 50))
def test_d16_a_key_is_a_positive_literal_and_stays_the_same(seed: int) -> None:
    keys = keys_of(MemoryStore(), seed)
    for query in ("a & b & c & !d", "a & b & c & !e", "z"):
        one = conjunction(query)
        chosen = keys.choose_key(one)
        assert chosen in one.positive
        assert [keys.choose_key(one) for _ in range(3)] == [chosen] * 3


def test_d16_random_choices_spread_over_the_literals_and_first_ones_do_not() -> None:
    one = conjunction("a & b & c")
    drawn = {keys_of(MemoryStore(), seed).choose_key(one) for seed in range(30)}
    assert drawn == {"a", "b", "c"}
    first = {keys_of(MemoryStore(), seed, KeyChoice.FIRST).choose_key(one) for seed in range(30)}
    assert first == {"a"}


def test_d16_the_cells_of_a_subscription_are_remembered_by_the_next_life() -> None:
    store = MemoryStore()
    subscription = subscribe(1, "a & b & c | d & e & f | g")
    keys = keys_of(store, 1)
    by_cell = keys.assign_cells(subscription)

    for seed in range(10):
        later = keys_of(store, seed)
        assert later.cells_of(subscription.key.sid) == list(by_cell)
        assert later.assign_cells(subscription) == by_cell
    later.forget_subscription(subscription.key.sid)
    assert keys_of(store, 1).cells_of(subscription.key.sid) == []


def test_what_keys_remember_is_bounded() -> None:
    store = MemoryStore()
    keys = keys_of(store, 1)
    for number in range(300):
        keys.assign_cells(subscribe(number, f"tag{number}"))
    keys.prune_ended(lambda sid: sid == "sub299", 1)
    assert keys.all_cells() == [GRID.cell_of_key("tag299")]


# The index of a cell


def index_of(store: MemoryStore | None = None, passive_max: int = 3) -> CellIndex:
    return CellIndex(store or MemoryStore(), BROKER, passive_max)


def indexed(number: int = 1, cell: int = 5) -> IndexedMetadata:
    return IndexedMetadata(photo(number, tags=["goal"], at_us=number), (Replica(CellId(cell)),))


def test_d12_the_active_replica_stays_and_of_the_passive_ones_the_latest() -> None:
    store = MemoryStore()
    index = index_of(store)
    index.add_object(indexed(), BOB, 10)
    names = [NodeId(bytes([number])) for number in (1, 2, 3, 4, 2)]
    for name in names:
        assert index.add_replica(key(1), Replica(CellId(name[0]), name))

    listed = index.with_replication_list(indexed().metadata)

    assert listed.active == (Replica(CellId(5)),)
    assert [replica.node for replica in listed.passive] == [b"\x02", b"\x04", b"\x03"]
    assert index_of(store).with_replication_list(indexed().metadata) == listed
    index.check()


def test_d13_a_replica_of_what_is_not_there_is_not_listed() -> None:
    index = index_of()
    assert not index.add_replica(key(1), Replica(CellId(1), ALICE))
    index.add_object(indexed(), BOB, 10)
    index.delete_object(key(1), BOB, 11)
    assert not index.add_replica(key(1), Replica(CellId(1), ALICE))


def test_d15_a_tombstone_outlasts_the_object_and_comes_before_it() -> None:
    index = index_of()
    index.delete_object(key(1), BOB, 5)
    with pytest.raises(RejectedError, match="deleted"):
        index.add_object(indexed(), BOB, 10)
    with pytest.raises(NotOwnerError):
        index.delete_object(key(2), ALICE, 11)
    assert [grave.key for grave in index.object_tombstones()] == [str(key(1))]


def test_d16_the_conjunctions_of_two_cells_are_one_subscription() -> None:
    index = index_of()
    for query in ("goal & eder", "final", "goal & eder"):
        index.add_subscription(CellSubscription(subscribe(1, query), CellId(7)), ALICE, 10)

    [interest] = index.cell_subscriptions()
    assert interest.subscription.conjunctions == conjunctions("goal & eder") + conjunctions("final")
    assert len(index.add_object(indexed_with("final", "goal", "eder"), BOB, 20)) == 1


def test_d16_a_subscriber_that_subscribes_from_elsewhere_is_notified_there() -> None:
    index = index_of()
    for cell in (7, 8):
        index.add_subscription(CellSubscription(subscribe(1), CellId(cell)), ALICE, 10)
    matched = index.add_object(indexed(), BOB, 20)
    assert index.recipients(matched) == {(CellId(8), ALICE): ["sub1"]}


def indexed_with(*tags: str) -> IndexedMetadata:
    return IndexedMetadata(photo(9, tags=tags, at_us=3), (Replica(CellId(5)),))


def test_m29_lists_of_what_expired_do_not_pile_up() -> None:
    store = MemoryStore()
    broker = BrokerConfig(metadata_only=True, retention=Retention(objects_max=10))
    index = CellIndex(store, broker, 3)
    for number in range(500):
        index.add_object(indexed(number), BOB, 1_000)
        index.check()
    assert len(list(store.load(REPLICATION_LISTS))) <= 2 * 10 + 65


def test_m18_cells_of_subscribers_that_ended_do_not_pile_up() -> None:
    store = MemoryStore()
    index = index_of(store)
    for number in range(300):
        ending = subscribe(number, "goal", frame(0, number + 1))
        index.add_subscription(CellSubscription(ending, CellId(7)), ALICE, number)
        index.check()
    assert len(list(store.load(SUBSCRIBER_CELLS))) <= 2 * 2 + 65


# Replicas


def replicas_of(store: MemoryStore | None = None, **retention: int) -> ReplicaStore:
    return ReplicaStore(store or MemoryStore(), Retention(**retention))


def held(number: int, role: ReplicaRole, data: bytes = b"12345") -> StoredReplica:
    return StoredReplica(photo(number, at_us=number, data=data), role)


def test_m29_what_was_retrieved_makes_room_first_and_the_own_never() -> None:
    replicas = replicas_of(bytes_max=15)
    for number, role in enumerate((ReplicaRole.OWN, ReplicaRole.ACTIVE, ReplicaRole.PASSIVE)):
        replicas.add_replica(held(number, role), b"12345", 10)

    replicas.add_replica(held(3, ReplicaRole.OWN), b"12345", 10)
    assert [one.role for one in replicas.with_role(ReplicaRole.PASSIVE)] == []
    replicas.add_replica(held(4, ReplicaRole.OWN), b"12345", 10)
    assert [one.role for one in replicas.with_role(ReplicaRole.ACTIVE)] == []
    with pytest.raises(RejectedError, match="no space"):
        replicas.add_replica(held(5, ReplicaRole.OWN), b"12345", 10)
    assert replicas.removed == {"evicted": 2}
    replicas.check()


def test_m29_a_replica_leaves_with_its_life_span_or_by_age() -> None:
    replicas = replicas_of(age_us_max=100)
    short = StoredReplica(photo(1, at_us=0, data=b"x", expires_us=50), ReplicaRole.OWN)
    replicas.add_replica(short, b"x", 0)
    replicas.add_replica(held(2, ReplicaRole.ACTIVE), b"12345", 2)
    assert replicas.next_expiry_us() == 50
    replicas.expire(50)
    assert replicas.get(key(1)) is None
    assert replicas.removal_reason(key(1)) == "expired"
    assert replicas.next_expiry_us() == 102
    replicas.expire(102)
    assert len(replicas) == 0


def test_m19_bytes_that_are_not_the_object_are_not_kept() -> None:
    replicas = replicas_of()
    with pytest.raises(RejectedError, match="do not match its metadata"):
        replicas.add_replica(held(1, ReplicaRole.ACTIVE), b"54321", 10)
    with pytest.raises(NotFoundError, match="unknown"):
        replicas.read_data(key(1))


def test_a_replica_is_held_for_the_strongest_reason_and_found_by_the_next_life() -> None:
    store = MemoryStore()
    replicas = replicas_of(store)
    for role in (ReplicaRole.PASSIVE, ReplicaRole.ACTIVE, ReplicaRole.PASSIVE):
        replicas.add_replica(held(1, role), b"12345", 10)
    again = replicas_of(store)
    known = again.get(key(1))
    assert known is not None
    assert known.role is ReplicaRole.ACTIVE
    assert again.read_data(key(1)) == b"12345"
    assert again.stored_bytes == 5


# Retrieving


def plan_of(indexed: IndexedMetadata, tries_max: int) -> list[tuple[int, NodeId | None]]:
    routing = Notebook()
    asks = CellRequests(routing, Outbox(), RetryPolicy(), Random(1))
    config = ReplicationConfig(retrieve_tries_max=tries_max)
    retrieving = Retriever(
        ALICE, routing, asks, replicas_of(), ReplicaLocations(10), RetryPolicy(), config
    )
    return [(to.cell, to.node) for to in retrieving.order_replicas(indexed)]


LISTED = IndexedMetadata(
    photo(1),
    (Replica(CellId(99)),),
    (Replica(CellId(55), BOB), Replica(CellId(11), CAROL), Replica(CellId(3), ALICE)),
)


@pytest.mark.parametrize(
    ("tries_max", "plan"),
    [
        (1, [(99, None)]),
        (2, [(11, CAROL), (99, None)]),
        (3, [(11, CAROL), (55, BOB), (99, None)]),
        (5, [(11, CAROL), (55, BOB), (99, None), (99, None), (99, None)]),
    ],
)
def test_d18_replicas_are_tried_by_distance_and_the_active_cell_at_last(
    tries_max: int, plan: list[tuple[int, NodeId | None]]
) -> None:
    assert plan_of(LISTED, tries_max) == plan


def test_d18_an_active_cell_that_is_close_comes_in_its_turn() -> None:
    near = msgspec.structs.replace(LISTED, active=(Replica(CellId(1)),))
    assert plan_of(near, 3) == [(1, None), (11, CAROL), (55, BOB)]


def test_whereabouts_are_bounded_and_the_latest_stay() -> None:
    whereabouts = ReplicaLocations(3)
    for number in (1, 2, 3, 1, 4):
        whereabouts.add(indexed(number))
    assert len(whereabouts) == 3
    assert whereabouts.get(key(2)) is None
    assert whereabouts.get(key(1)) is not None


# The service of a cell


def arrival(message: wire.Message, origin: NodeId, *, first: bool, cell: CellId = HERE) -> Delivery:
    return Delivery(
        origin=origin,
        origin_cell=CellId(7),
        number=1,
        cell=cell,
        is_unicast=False,
        is_first=first,
        hops=1,
        message=message,
    )


class Counter:
    """A service whose words are written down."""

    def __init__(self) -> None:
        self.routing = Notebook()
        self.index = index_of()
        config: DcsConfig = PAPER
        self.service = CellService(self.routing, Outbox(), self.index, replicas_of(), config)

    def hear(self, ask: wire.CellRequest, origin: NodeId, now_us: int, *, first: bool) -> None:
        self.service.on_request(arrival(ask, origin, first=first), ask, now_us)

    @property
    def said(self) -> list[str]:
        return [
            type(getattr(message, "message", message)).__name__ for _, message in self.routing.sent
        ]


SUBSCRIPTION = wire.StartSubscription(1, subscribe(1), 20)
INSERT = cell_wire.IndexObject(2, indexed())


def test_d7_d17_the_first_answers_and_notifies_and_the_others_keep_it_silently() -> None:
    one, other = Counter(), Counter()
    for counter, first in ((one, True), (other, False)):
        counter.hear(SUBSCRIPTION, ALICE, 10, first=first)
        counter.hear(INSERT, BOB, 10 + SECOND_US, first=first)

    assert one.said == ["CellPage", "CellNotify", "Done"]
    assert other.said == []
    assert list(one.index.objects()) == list(other.index.objects())
    assert list(one.index.cell_subscriptions()) == list(other.index.cell_subscriptions())


def test_d19_a_repeated_insert_is_answered_and_not_notified_again() -> None:
    counter = Counter()
    counter.hear(SUBSCRIPTION, ALICE, 10, first=True)
    for _ in range(3):
        counter.hear(INSERT, BOB, 20, first=True)
    assert counter.said == ["CellPage", "CellNotify", "Done", "Done", "Done"]


@pytest.mark.parametrize(("later_us", "notified"), [(0, 1), (400_000, 1), (600_000, 0)])
def test_m26_who_just_took_a_subscription_up_watches_over_the_seam(
    later_us: int, notified: int
) -> None:
    counter = Counter()
    counter.hear(SUBSCRIPTION, ALICE, 10, first=True)
    counter.hear(INSERT, BOB, 10 + later_us, first=False)
    assert counter.said.count("CellNotify") == notified


def test_d6_a_reply_names_the_cell_that_was_asked() -> None:
    counter = Counter()
    ask = wire.FetchStatus(3, key(1))
    counter.service.on_request(arrival(ask, ALICE, first=True, cell=CellId(42)), ask, 10)
    [(targets, reply)] = counter.routing.sent
    assert targets == [Destination(CellId(7), ALICE)]
    assert reply == wire.ReplyFromCell(CellId(42), cell_wire.CellStatus(3, "unknown", None))


def test_m25_what_must_not_be_done_is_refused_by_the_first_and_counted_by_the_others() -> None:
    one, other = Counter(), Counter()
    one.hear(INSERT, CAROL, 10, first=True)
    other.hear(INSERT, CAROL, 10, first=False)
    assert one.said == ["Refused"]
    assert other.said == []
    assert other.service.dropped == {"not_owner": 1}
