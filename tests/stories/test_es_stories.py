"""Transcripts of Thyme-ES: the messages between a server and its clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.stories.transcript import Transcript
from thyme.model.ids import NodeId, ObjectId
from thyme.model.rng import derive_rng
from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    FetchNextPage,
    Finished,
    Insert,
    Subscribe,
    SubscriptionStarted,
)
from thyme.protocol.retry import RetryPolicy
from thyme.query.query import Query
from thyme.sim.networks.ideal_network import PERFECT, IdealNetwork, LinkConditions
from thyme.storage.store import MemoryStore
from thyme.substrates.es import EsConfig, EsNode

START_US = 1_700_000_000_000_000
SERVER, ALICE, BOB = NodeId(b"server"), NodeId(b"alice"), NodeId(b"bob")


class Gathering:
    """A server and two clients, whose messages are recorded in a transcript."""

    def __init__(self, title: str, conditions: LinkConditions = PERFECT) -> None:
        self.transcript = Transcript(title, START_US)
        self.network = IdealNetwork(
            seed=3, conditions=conditions, start_us=START_US, journal=self.transcript
        )
        self.told: list[AppEvent] = []
        config = EsConfig(retries=RetryPolicy(tries_max=3))
        for node_id in (SERVER, ALICE, BOB):
            rng = derive_rng(3, node_id)
            node = EsNode(node_id, SERVER, MemoryStore(), rng, config)
            self.network.add(node, MemoryStore(), self.told.append)

    def ask(self, node_id: NodeId, request: AppRequest, run_us: int = 10_000) -> None:
        self.network.send_request(node_id, request)
        self.network.run(self.network.now_us + run_us)

    @property
    def begun(self) -> SubscriptionStarted:
        return next(
            told.value
            for told in self.told
            if isinstance(told, Finished) and isinstance(told.value, SubscriptionStarted)
        )


def insert(ask: int, oid: str, *tags: str) -> Insert:
    return Insert(request_id=ask, data=b"pixels", tags=as_tags(tags), oid=ObjectId(oid))


def subscribe(ask: int, query: str, batch: int = 20) -> Subscribe:
    conjunctions = Query(query).conjunctions
    return Subscribe(request_id=ask, conjunctions=conjunctions, frame=TimeFrame(), batch=batch)


def latecomer(rewrite: bool) -> None:
    world = Gathering("A late subscriber is notified of stored objects, then of new ones.")
    world.ask(BOB, insert(1, "photo-1", "goal", "eder"))
    world.ask(BOB, insert(2, "photo-2", "goal"))
    world.ask(BOB, insert(3, "photo-3", "goal", "replay"))
    world.ask(ALICE, subscribe(1, "goal & !replay", batch=1))
    world.transcript.note("She fetches the rest of the stored objects.")
    world.ask(ALICE, FetchNextPage(request_id=2, sid=world.begun.sid, count=5))
    world.transcript.note("A new photo is notified at once.")
    world.ask(BOB, insert(4, "photo-4", "goal"))
    world.transcript.check("es-latecomer", rewrite=rewrite)


def lost_reply(rewrite: bool) -> None:
    world = Gathering("A reply is lost: the insert is repeated, and nobody is notified twice.")
    world.ask(ALICE, subscribe(1, "goal"))
    world.network.send_request(BOB, insert(1, "photo-1", "goal"))
    world.transcript.note("His request is in transit; from now on no message reaches him.")
    world.network.partition([SERVER, ALICE], [BOB])
    world.network.run(world.network.now_us + 300_000)
    world.transcript.note("Messages reach him again.")
    world.network.heal()
    world.network.run(world.network.now_us + 1_000_000)
    world.transcript.check("es-lost-reply", rewrite=rewrite)


def nobody_there(rewrite: bool) -> None:
    world = Gathering(
        "The server does not answer: after three tries the insert fails with a timeout."
    )
    world.network.partition([SERVER], [ALICE, BOB])
    world.ask(BOB, insert(1, "photo-1", "goal"), run_us=5_000_000)
    world.transcript.check("es-nobody-there", rewrite=rewrite)


@pytest.mark.parametrize("story", [latecomer, lost_reply, nobody_there])
def test_the_conversation_is_as_recorded(
    story: Callable[[bool], None], request: pytest.FixtureRequest
) -> None:
    story(bool(request.config.getoption("--rewrite")))
