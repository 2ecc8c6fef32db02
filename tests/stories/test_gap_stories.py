"""M34: what a subscriber missed reaches it exactly once, in order, or its loss is told."""

from __future__ import annotations

from random import Random

import pytest

from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.rng import derive_rng
from thyme.model.tags import as_tags
from thyme.model.time_frames import SECOND_US, TimeFrame
from thyme.protocol.app_interface import (
    AppEvent,
    CatchUp,
    CaughtUp,
    Delete,
    Finished,
    Insert,
    MarkConsumed,
    NotificationEvent,
    NotificationsLost,
    Pause,
    Resume,
    Subscribe,
    SubscriptionStarted,
)
from thyme.protocol.node import Node
from thyme.query.query import Query
from thyme.routing.cells import Grid
from thyme.sim.networks.ideal_network import PERFECT, IdealNetwork, LinkConditions
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.common.notification_gaps import GAPS
from thyme.substrates.dcs.config import ROBUST as DCS_ROBUST
from thyme.substrates.es import ROBUST as ES_ROBUST
from thyme.substrates.es import EsNode
from thyme.substrates.factory import make_dcs_node
from thyme.substrates.ls.config import ROBUST as LS_ROBUST
from thyme.substrates.ls.node import LsNode

START_US = 1_700_000_000 * SECOND_US
SERVER, ALICE, BOB, CAROL = (NodeId(name) for name in (b"server", b"alice", b"bob", b"carol"))
NODES = (SERVER, ALICE, BOB, CAROL)
SUBSTRATES = ("es", "ls", "dcs")
KEEP_ALL = Retention()
GRID = Grid.covering(80.0, 40.0, 40.0, 200.0)
POSITIONS = ((20.0, 20.0), (60.0, 20.0))
TAG = next(
    tag
    for tag in ("goal", "eder", "save", "foul")
    if GRID.cell_of_key(tag) == GRID.cell_at(POSITIONS[0])
)
"""A tag whose key cell is not the one of Alice."""


def make_node(
    substrate: str, node_id: NodeId, store: Store, retention: Retention, seed: int = 0
) -> Node:
    rng = Random(int.from_bytes(node_id, "big") + seed)
    broker = BrokerConfig(retention=retention)
    match substrate:
        case "es":
            config = ES_ROBUST.__class__(**{**_fields(ES_ROBUST), "broker": broker})
            return EsNode(node_id, SERVER, store, rng, config)
        case "ls":
            return LsNode(
                node_id, store, rng, LS_ROBUST.__class__(**{**_fields(LS_ROBUST), "broker": broker})
            )
    cells = BrokerConfig(retention=retention, metadata_only=True)
    return make_dcs_node(
        node_id,
        GRID,
        POSITIONS[node_id == ALICE],
        store,
        cells_rng=derive_rng(1 + seed, node_id),
        rng=rng,
        config=DCS_ROBUST.__class__(**{**_fields(DCS_ROBUST), "broker": cells}),
    )


def _fields(config: object) -> dict[str, object]:
    return {name: getattr(config, name) for name in config.__struct_fields__}  # type: ignore[attr-defined]


class World:
    """A world on an ideal network: Alice subscribes, Bob publishes; Carol does both."""

    def __init__(
        self,
        substrate: str,
        conditions: LinkConditions = PERFECT,
        retention: Retention = KEEP_ALL,
        seed: int = 0,
    ) -> None:
        self.substrate = substrate
        self.seed = seed
        self.retention = retention
        self.network = IdealNetwork(seed=5 + seed, conditions=conditions, start_us=START_US)
        self.stores = {node_id: MemoryStore() for node_id in NODES}
        self.events: dict[NodeId, list[AppEvent]] = {node_id: [] for node_id in NODES}
        self.nodes: dict[NodeId, Node] = {}
        self.requests = 0
        for node_id in NODES:
            self.start(node_id)
        self.run(10)

    def start(self, node_id: NodeId) -> None:
        node = make_node(self.substrate, node_id, self.stores[node_id], self.retention, self.seed)
        self.nodes[node_id] = node
        self.network.add(node, self.stores[node_id], self.events[node_id].append)

    def run(self, seconds: float) -> None:
        self.network.run(self.network.now_us + int(seconds * SECOND_US))
        for node in self.nodes.values():
            node.check()

    def next_id(self) -> int:
        self.requests += 1
        return self.requests

    def subscribe(self, node_id: NodeId) -> SubscriptionId:
        conjunctions = Query(TAG).conjunctions
        request = Subscribe(
            request_id=self.next_id(), conjunctions=conjunctions, frame=TimeFrame(), batch=5
        )
        self.network.send_request(node_id, request)
        self.run(3)
        return next(
            event.value.sid
            for event in self.events[node_id]
            if isinstance(event, Finished) and isinstance(event.value, SubscriptionStarted)
        )

    def publish(self, count: int, every_s: float, by: NodeId = BOB) -> list[str]:
        oids = []
        for _ in range(count):
            number = self.next_id()
            oids.append(f"photo-{number:05}")
            self.network.send_request(
                by,
                Insert(request_id=number, data=b"", tags=as_tags([TAG]), oid=ObjectId(oids[-1])),
            )
            self.run(every_s)
        return oids

    def notified(self, node_id: NodeId = ALICE) -> list[str]:
        return [
            str(event.notification.key.oid)
            for event in self.events[node_id]
            if isinstance(event, NotificationEvent)
        ]

    def lost(self, node_id: NodeId = ALICE) -> int:
        events = self.events[node_id]
        return sum(event.count for event in events if isinstance(event, NotificationsLost))

    def absent(self, node_id: NodeId) -> None:
        """The node hears nobody and is not heard, like a phone that sleeps."""
        self.network.partition([node_id], [other for other in NODES if other != node_id])


@pytest.mark.parametrize("seconds", [40, 100, 600])
@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_m34_a_subscriber_that_was_absent_gets_everything_once_and_in_order(
    substrate: str, seconds: int
) -> None:
    world = World(substrate)
    world.subscribe(ALICE)
    before = world.publish(3, 0.5)
    world.absent(ALICE)
    missed = world.publish(40, seconds / 40)
    world.network.heal()
    world.run(12)
    after = world.publish(5, 0.1)
    world.run(5)

    assert world.notified() == before + missed + after
    assert world.lost() == 0


@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_m34_nothing_is_missed_or_doubled_on_a_network_that_loses_a_third(substrate: str) -> None:
    world = World(substrate)
    world.subscribe(ALICE)
    world.network.conditions = LinkConditions(loss=0.35, delay_us_min=1_000, delay_us_max=300_000)
    published = world.publish(60, 0.2)
    world.network.heal()
    world.run(60)

    assert sorted(world.notified()) == published


@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_m34_an_absent_subscriber_costs_the_others_nothing(substrate: str) -> None:
    world = World(substrate)
    world.subscribe(ALICE)
    world.subscribe(CAROL)
    world.absent(ALICE)
    published = world.publish(700, 0.05)
    world.run(1)
    assert world.notified(CAROL) == published
    world.network.heal()
    world.run(20)
    assert sorted(world.notified()) == published


@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_m34_a_broker_that_restarts_remembers_whom_it_did_not_notify(substrate: str) -> None:
    world = World(substrate)
    world.subscribe(ALICE)
    broker = SERVER if substrate == "es" else BOB
    world.absent(ALICE)
    missed = world.publish(3, 0.1)  # not acknowledged yet
    world.network.remove(broker)
    world.start(broker)
    world.run(8)
    missed += world.publish(20, 3)  # given up
    world.network.remove(broker)
    world.start(broker)
    world.run(8)
    world.network.heal()
    world.run(20)

    # In DCS several nodes of the cell may each have a gap: in order each, not among themselves.
    notified = world.notified()
    assert (sorted(notified) if substrate == "dcs" else notified) == missed


@pytest.mark.parametrize(
    ("substrate", "seed"), [("es", 0), ("ls", 0), *(("dcs", seed) for seed in range(6))]
)
def test_m34_a_subscriber_is_told_how_many_are_gone_from_history(substrate: str, seed: int) -> None:
    """Objects are also removed while their notifications are still sent again."""
    world = World(substrate, retention=Retention(objects_max=10), seed=seed)
    world.subscribe(ALICE)
    world.absent(ALICE)
    missed = world.publish(30, 2)
    world.network.heal()
    world.run(20)

    assert world.notified() == missed[20:]
    assert world.lost() == 20


@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_m34_deleted_objects_are_neither_notified_nor_lost(substrate: str) -> None:
    world = World(substrate)
    world.subscribe(ALICE)
    world.absent(ALICE)
    missed = world.publish(30, 2)
    for oid in missed[:10]:
        key = Key(ObjectId(oid), BOB)
        world.network.send_request(BOB, Delete(request_id=world.next_id(), key=key))
    world.run(5)
    world.network.heal()
    world.run(20)

    assert (world.notified(), world.lost()) == (missed[10:], 0)


@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_m34_a_slow_reader_gets_everything_at_its_own_speed(substrate: str) -> None:
    """M33: the application takes ten at a time; the node keeps no queue for it."""
    world = World(substrate)
    sid = world.subscribe(ALICE)
    world.network.send_request(ALICE, Pause(sid=sid))
    published = world.publish(100, 0.1)
    taken: list[str] = []
    for _ in range(30):
        refused = [
            event.notification.key
            for event in world.events[ALICE]
            if isinstance(event, NotificationEvent)
        ]
        for key in refused[:10]:
            world.network.send_request(ALICE, MarkConsumed(sid=sid, key=key))
        taken += [str(key.oid) for key in refused[:10]]
        world.events[ALICE].clear()
        world.network.send_request(
            ALICE, CatchUp(request_id=world.next_id(), sid=sid, refused=tuple(refused[10:]))
        )
        world.run(1)
        world.network.send_request(ALICE, Pause(sid=sid))

    assert taken == published


@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_m34_caught_up_is_said_when_the_missed_objects_were_emitted(substrate: str) -> None:
    """M27: a node that restarts after an absence resumes its subscription."""
    world = World(substrate)
    sid = world.subscribe(ALICE)
    before = world.publish(3, 0.2)
    for oid in before:
        key = Key(ObjectId(oid), BOB)
        world.network.send_request(ALICE, MarkConsumed(sid=sid, key=key))
    world.absent(ALICE)
    missed = world.publish(30, 2)
    world.network.remove(ALICE)
    world.network.heal()
    world.start(ALICE)
    world.run(6)
    world.events[ALICE].clear()
    world.network.send_request(ALICE, Resume(request_id=world.next_id(), sid=sid))
    world.run(20)

    assert sorted(world.notified()) == missed
    kinds = [type(event) for event in world.events[ALICE]]
    last = max(at for at, kind in enumerate(kinds) if kind is NotificationEvent)
    assert kinds.index(CaughtUp) > last
    [caught_up] = [event for event in world.events[ALICE] if isinstance(event, CaughtUp)]
    assert not caught_up.code


def test_m34_an_object_stamped_before_those_already_read_is_read_in_another_round() -> None:
    """M12: Carol's clock is behind; her objects arrive while Alice reads later ones."""
    world = World("es")
    world.subscribe(ALICE)
    world.absent(ALICE)
    published = world.publish(500, 0.05)
    world.network.set_skew(CAROL, -20 * SECOND_US)
    world.network.heal()
    for _ in range(20):
        published += world.publish(1, 0.002, by=CAROL)
        published += world.publish(1, 0.002)
    world.run(15)

    assert sorted(world.notified()) == sorted(published)


@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_m34_a_gap_takes_no_memory_for_what_is_missed(substrate: str) -> None:
    """M35: the broker remembers a position, however many objects are missed."""
    world = World(substrate)
    world.subscribe(ALICE)
    world.absent(ALICE)
    world.publish(100, 0.5)
    stored = [len(list(store.load(GAPS))) for store in world.stores.values()]
    assert sum(stored) == 1
    world.network.heal()
    world.run(20)
    assert not any(list(store.load(GAPS)) for store in world.stores.values())


@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_m34_a_subscriber_that_restarts_before_it_consumed_missed_objects_gets_them(
    substrate: str,
) -> None:
    """M27: of what it read late, it consumed the newest objects only."""
    world = World(substrate)
    sid = world.subscribe(ALICE)
    world.absent(ALICE)
    missed = world.publish(40, 2)
    world.network.heal()
    world.run(20)
    assert world.notified() == missed
    for oid in missed[30:]:
        key = Key(ObjectId(oid), BOB)
        world.network.send_request(ALICE, MarkConsumed(sid=sid, key=key))
    world.run(1)
    world.network.remove(ALICE)
    world.start(ALICE)
    world.run(6)
    world.events[ALICE].clear()
    world.network.send_request(ALICE, Resume(request_id=world.next_id(), sid=sid))
    world.run(20)

    assert sorted(world.notified()) == missed[:30]
