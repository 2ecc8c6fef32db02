"""Thyme-LS: transcripts of the messages between nodes, and stories over several hops.

Every node stores its own objects and the subscriptions of all nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.links import Links, a_row
from tests.stories.transcript import Transcript
from thyme.model.ids import NodeId, ObjectId
from thyme.model.metadata import Metadata
from thyme.model.rng import derive_rng
from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    CaughtUp,
    Failed,
    FetchNextPage,
    Finished,
    Insert,
    NotificationEvent,
    Retrieve,
    Search,
    SearchResult,
    Subscribe,
    SubscriptionStarted,
    Unsubscribe,
)
from thyme.protocol.outbox import Outbox
from thyme.query.query import Query
from thyme.routing import Dsdv, DsdvConfig, RoutedNode
from thyme.sim.networks.ideal_network import IdealNetwork
from thyme.storage.store import MemoryStore
from thyme.substrates.ls.config import PAPER, ROBUST, LsConfig
from thyme.substrates.ls.node import LsNode
from thyme.substrates.ls.subscription_fetch import LsJoiningConfig, LsJoinPhase

START_US = 1_700_000_000_000_000
ALICE, BOB, CAROL = NodeId(b"alice"), NodeId(b"bob"), NodeId(b"carol")
ONE_QUESTION = msgspec.structs.replace(PAPER, joining=LsJoiningConfig(tries_max=1))


class Gathering:
    """Nodes of Thyme-LS, whose messages are recorded in a transcript."""

    def __init__(self, title: str, *names: NodeId, config: LsConfig = ONE_QUESTION) -> None:
        self.transcript = Transcript(title, START_US)
        self.network = IdealNetwork(seed=3, start_us=START_US, journal=self.transcript)
        self.told: list[AppEvent] = []
        self._config = config
        self._stores: dict[NodeId, MemoryStore] = {}
        for name in names:
            self.come(name)
        self.run(2)

    def come(self, name: NodeId) -> None:
        store = self._stores.setdefault(name, MemoryStore())
        node = LsNode(name, store, derive_rng(3, name), self._config)
        self.network.add(node, store, self.told.append)

    def run(self, seconds: float) -> None:
        self.network.run(self.network.now_us + round(seconds * 1_000_000))

    def ask(self, name: NodeId, request: AppRequest, run: float = 0.1) -> None:
        self.network.send_request(name, request)
        self.run(run)

    @property
    def begun(self) -> SubscriptionStarted:
        return begun(self.told)


def begun(told: list[AppEvent]) -> SubscriptionStarted:
    return next(
        item.value
        for item in told
        if isinstance(item, Finished) and isinstance(item.value, SubscriptionStarted)
    )


def insert(ask: int, oid: str, *tags: str) -> Insert:
    return Insert(request_id=ask, data=b"pixels", tags=as_tags(tags), oid=ObjectId(oid))


def subscribe(ask: int, query: str, batch: int = 20) -> Subscribe:
    conjunctions = Query(query).conjunctions
    return Subscribe(request_id=ask, conjunctions=conjunctions, frame=TimeFrame(), batch=batch)


def latecomer(rewrite: bool) -> None:
    world = Gathering(
        "A subscriber gets the stored objects of two owners, then new ones (L1, L2, L3, L7).",
        ALICE,
        BOB,
        CAROL,
    )
    world.transcript.note("An insert sends no message.")
    world.ask(BOB, insert(1, "photo-1", "goal", "eder"))
    world.ask(CAROL, insert(1, "photo-2", "goal"))
    world.ask(CAROL, insert(2, "photo-3", "goal", "replay"))
    world.ask(ALICE, subscribe(1, "goal & !replay", batch=1), run=1.1)
    world.transcript.note("She fetches the rest of the stored objects.")
    world.ask(ALICE, FetchNextPage(request_id=2, sid=world.begun.sid, count=5))
    world.transcript.note("A new photo is notified; after she has unsubscribed, the next is not.")
    world.ask(BOB, insert(4, "photo-4", "goal"))
    world.ask(ALICE, Unsubscribe(request_id=3, sid=world.begun.sid))
    world.ask(BOB, insert(5, "photo-5", "goal"))
    world.transcript.check("ls-latecomer", rewrite=rewrite)


def newcomer(rewrite: bool) -> None:
    world = Gathering(
        "A node learns a subscription by joining, and sends its matches (L5).",
        BOB,
    )
    world.ask(BOB, insert(1, "photo-1", "goal"))
    world.network.remove(BOB)
    world.transcript.note("Bob is gone; Alice starts, finds no neighbour, and subscribes.")
    world.come(ALICE)
    world.run(1.5)
    world.ask(ALICE, subscribe(1, "goal"), run=1.5)
    world.transcript.note("Bob starts again, with his photo in his store.")
    world.come(BOB)
    world.run(1)
    world.transcript.check("ls-newcomer", rewrite=rewrite)


def lost_notification(rewrite: bool) -> None:
    world = Gathering(
        "In the robust profile a notification that is lost is sent again (L4).",
        ALICE,
        BOB,
        config=msgspec.structs.replace(
            ROBUST,
            joining=LsJoiningConfig(tries_max=1),
            flooding=PAPER.flooding,
            comparing=None,
            collecting=PAPER.collecting,
        ),
    )
    world.ask(ALICE, subscribe(1, "goal"), run=1.1)
    world.transcript.note("For a moment no message passes between them.")
    world.network.partition([ALICE], [BOB])
    world.ask(BOB, insert(1, "photo-1", "goal"))
    world.network.heal()
    world.run(1)
    world.transcript.check("ls-lost-notification", rewrite=rewrite)


@pytest.mark.parametrize("story", [latecomer, newcomer, lost_notification])
def test_the_conversation_is_as_recorded(
    story: Callable[[bool], None], request: pytest.FixtureRequest
) -> None:
    story(bool(request.config.getoption("--rewrite")))


class Street:
    """Nodes in a row, each in range of the next only, with DSDV below Thyme-LS."""

    def __init__(self, size: int, config: LsConfig, *, loss: float = 0.0, seed: int = 1) -> None:
        self.names = [NodeId(f"house{number}".encode()) for number in range(size)]
        self.told: dict[NodeId, list[AppEvent]] = {}
        self.nodes: dict[NodeId, LsNode] = {}
        self.world = Links(a_row(self.names), seed=seed, loss=loss)
        for name in self.names:
            self.come(name, config, seed)
        self.world.run(40)  # routes are known, and all nodes have joined

    def come(self, name: NodeId, config: LsConfig, seed: int) -> None:
        outbox = Outbox()
        routing = Dsdv(name, outbox, derive_rng(seed, "dsdv", name), DsdvConfig())
        self.nodes[name] = LsNode(name, MemoryStore(), derive_rng(seed, "ls", name), config)
        self.told[name] = []
        self.world.add(RoutedNode(self.nodes[name], routing, outbox), self.told[name].append)

    def ask(self, number: int, request: AppRequest, run: float = 3) -> None:
        self.world.ask(self.names[number], request)
        self.world.run(run)

    def heard(self, number: int) -> list[Metadata]:
        told = self.told[self.names[number]]
        return [item.notification.metadata for item in told if isinstance(item, NotificationEvent)]


@pytest.mark.parametrize(("config", "loss"), [(PAPER, 0.0), (ROBUST, 0.1)], ids=["paper", "robust"])
def test_l2_l3_l4_over_several_hops_a_subscription_finds_its_objects(
    config: LsConfig, loss: float
) -> None:
    street = Street(6, config, loss=loss)
    street.ask(5, insert(1, "before", "goal"))
    street.ask(0, subscribe(1, "goal"), run=6)
    street.ask(5, insert(2, "after", "goal"), run=8)

    assert [metadata.oid for metadata in street.heard(0)] == ["before", "after"]
    street.ask(0, Retrieve(request_id=9, metadata=street.heard(0)[1]), run=15)
    assert Finished(9, b"pixels") in street.told[street.names[0]]
    assert all(node.broker.subscription_count == 1 for node in street.nodes.values())
    street.ask(0, Unsubscribe(request_id=10, sid=begun(street.told[street.names[0]]).sid), run=5)
    assert all(node.broker.subscription_count == 0 for node in street.nodes.values())


def test_m20_a_search_reaches_everybody_over_several_hops() -> None:
    street = Street(5, PAPER)
    for number in range(5):
        street.ask(number, insert(1, f"of-{number}", "goal"), run=0.1)
    search = Search(
        request_id=7, conjunctions=Query("goal").conjunctions, frame=TimeFrame(), count=3
    )
    street.ask(2, search)
    [found] = [
        item.value
        for item in street.told[street.names[2]]
        if isinstance(item, Finished) and isinstance(item.value, SearchResult)
    ]
    assert [note.key.oid for note in found] == ["of-4", "of-3", "of-2"]
    assert found.total == 5


def test_l6_when_the_owner_is_gone_its_objects_are_gone() -> None:
    street = Street(3, PAPER)
    street.ask(2, insert(1, "photo", "goal"))
    street.ask(0, subscribe(1, "goal"))
    [metadata] = street.heard(0)
    street.world.remove(street.names[2])
    street.ask(0, Retrieve(request_id=9, metadata=metadata), run=60)
    [failed] = [item for item in street.told[street.names[0]] if isinstance(item, Failed)]
    assert (failed.request_id, failed.code) == (9, "timeout")
    street.ask(1, subscribe(1, "goal"))
    assert street.heard(1) == []


def test_l5_a_newcomer_at_the_end_of_the_street_learns_what_its_neighbour_knows() -> None:
    street = Street(4, PAPER)
    last = street.names[3]
    street.world.remove(last)
    street.ask(0, subscribe(1, "goal"))
    street.come(last, PAPER, seed=9)
    street.world.ask(last, insert(1, "brought", "goal"))
    street.world.run(60)
    assert street.nodes[last].joining.phase is LsJoinPhase.JOINED
    assert street.nodes[last].broker.subscription_count == 1
    assert [metadata.oid for metadata in street.heard(0)] == ["brought"]


def test_m27_caught_up_comes_with_the_number_of_all_owners() -> None:
    street = Street(4, PAPER)
    for number in (1, 2, 3):
        street.ask(number, insert(1, f"of-{number}", "goal"), run=0.1)
    street.ask(0, subscribe(1, "goal", batch=2))
    told = street.told[street.names[0]]
    assert begun(told).total == 0, "nobody has answered yet"
    assert [item.total for item in told if isinstance(item, CaughtUp)] == [3]
    assert [metadata.oid for metadata in street.heard(0)] == ["of-3", "of-2"]


@pytest.mark.parametrize("seed", range(3))
def test_l5_in_the_robust_profile_a_subscription_that_a_flood_missed_comes_in_time(
    seed: int,
) -> None:
    street = Street(4, ROBUST, seed=seed)
    street.world.loss = 1.0
    street.ask(0, subscribe(1, "goal"), run=5)
    assert street.nodes[street.names[3]].broker.subscription_count == 0
    street.world.loss = 0.0
    street.world.run(200)
    assert all(node.broker.subscription_count == 1 for node in street.nodes.values())
