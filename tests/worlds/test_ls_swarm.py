"""Trouble drawn from a seed: Thyme-LS stays right all the time, and complete once trouble ends.

Devices come and go, groups lose sight of each other, messages are lost, doubled and overtaken,
while people insert, delete, subscribe and unsubscribe. A failure names its seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest

from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.rng import derive_rng
from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import (
    AppEvent,
    Delete,
    Finished,
    Insert,
    MarkConsumed,
    NotificationEvent,
    Resume,
    Subscribe,
    SubscriptionStarted,
    Unsubscribe,
)
from thyme.protocol.node import Action, Input
from thyme.query.query import Query
from thyme.sim.networks.ideal_network import PERFECT, IdealNetwork, LinkConditions
from thyme.storage.store import MemoryStore
from thyme.substrates.ls.node import PAPER, ROBUST, LsConfig, LsNode

SECOND_US = 1_000_000
NAMES = [NodeId(name) for name in (b"ann", b"ben", b"cat", b"dan", b"eve")]
TAGS = ("goal", "eder", "replay")
QUERIES = ("goal", "goal & !replay", "eder | replay")
BAD_AIR = LinkConditions(loss=0.3, duplication=0.2, delay_us_min=500, delay_us_max=300_000)


@dataclass
class Wish:
    """A subscription, and what came of it."""

    by: NodeId
    query: Query
    heard: list[str] = field(default_factory=list)


class Swarm:
    """Five devices and their troubles."""

    def __init__(self, seed: int, config: LsConfig) -> None:
        self.rng = derive_rng(seed, "swarm")
        self.journal: list[tuple[int, NodeId, Input | Action]] = []
        self.ether = IdealNetwork(seed=seed, journal=lambda *entry: self.journal.append(entry))
        self.wishes: dict[SubscriptionId, Wish] = {}
        self.asked: dict[tuple[NodeId, int], Query] = {}
        self.keys: dict[Key, tuple[str, ...]] = {}
        self.deleted_us: dict[Key, int] = {}
        self.nodes: dict[NodeId, LsNode] = {}
        self._seed = seed
        self._config = config
        self._stores = {name: MemoryStore() for name in NAMES}
        self._asks = 0
        self._lives = 0
        for name in NAMES:
            self.come(name)

    def come(self, name: NodeId) -> None:
        self._lives += 1
        rng = derive_rng(self._seed, "node", name, self._lives)
        self.nodes[name] = LsNode(name, self._stores[name], rng, self._config)
        self.ether.add(self.nodes[name], self._stores[name], lambda told: self._on_told(name, told))
        for sid, wish in self.wishes.items():
            if wish.by == name:
                self.ether.send_request(name, Resume(request_id=self._ask(), sid=sid))

    def go(self, name: NodeId) -> None:
        self.ether.remove(name)
        del self.nodes[name]

    def run(self, seconds: float) -> None:
        self.ether.run(self.ether.now_us + round(seconds * SECOND_US))

    def insert(self, name: NodeId, *tags: str) -> None:
        ask = self._ask()
        key = Key(ObjectId(f"o{ask}"), name)
        self.keys[key] = tags
        self.ether.send_request(
            name, Insert(request_id=ask, data=b"x", tags=as_tags(tags), oid=key.oid)
        )

    def step(self) -> None:
        """Something happens."""
        name = self.rng.choice(list(self.nodes) or NAMES)
        if name not in self.nodes:
            self.come(name)
        match self.rng.choices(
            ("insert", "delete", "subscribe", "unsubscribe", "go", "come", "weather"),
            (8, 2, 3, 1, 1, 2, 2),
        )[0]:
            case "insert":
                self.insert(name, *self.rng.sample(TAGS, self.rng.randint(1, 2)))
            case "delete" if mine := [key for key in self.keys if key.owner == name]:
                key = self.rng.choice(mine)
                self.deleted_us.setdefault(key, self.ether.now_us)
                self.ether.send_request(name, Delete(request_id=self._ask(), key=key))
            case "subscribe":
                self._subscribe(name)
            case "unsubscribe" if mine := [s for s, w in self.wishes.items() if w.by == name]:
                sid = self.rng.choice(mine)
                self.ether.send_request(name, Unsubscribe(request_id=self._ask(), sid=sid))
                del self.wishes[sid]
            case "go":
                self.go(name)
            case "come" if away := [other for other in NAMES if other not in self.nodes]:
                self.come(self.rng.choice(away))
            case "weather":
                self._weather()
        self.run(self.rng.uniform(0, 3))

    def calm(self) -> None:
        """Trouble ends: everybody is there and hears everybody."""
        self.ether.heal()
        for name in NAMES:
            if name not in self.nodes:
                self.come(name)

    def _weather(self) -> None:
        self.ether.heal()
        self.ether.conditions = self.rng.choice([PERFECT, BAD_AIR])
        if self.rng.random() < 0.5:
            cut = self.rng.randint(1, len(NAMES) - 1)
            order = self.rng.sample(NAMES, len(NAMES))
            self.ether.partition(order[:cut], order[cut:])

    def _subscribe(self, name: NodeId) -> None:
        ask = self._ask()
        query = self.asked[name, ask] = Query(self.rng.choice(QUERIES))
        request = Subscribe(
            request_id=ask, conjunctions=query.conjunctions, frame=TimeFrame(), batch=1_000
        )
        self.ether.send_request(name, request)

    def _on_told(self, name: NodeId, told: AppEvent) -> None:
        if isinstance(told, Finished) and isinstance(told.value, SubscriptionStarted):
            if (query := self.asked.get((name, told.request_id))) is not None:
                self.wishes[told.value.sid] = Wish(name, query)
        elif isinstance(told, NotificationEvent):
            self._check(name, told)
            self.ether.send_request(
                name, MarkConsumed(sid=told.notification.sid, key=told.notification.key)
            )

    def _check(self, name: NodeId, told: NotificationEvent) -> None:
        """M16, M23: it matches, it is there, it was not told before."""
        note, wish = told.notification, self.wishes[told.notification.sid]
        assert wish.by == name
        assert wish.query.matches(note.tags)
        assert tuple(sorted(self.keys[note.key])) == note.tags
        # What an owner answered before it deleted may be on its way, or waiting to be merged.
        until_us = self._config.collecting.subscribe_wait_us + SECOND_US
        assert note.arrived_us <= self.deleted_us.get(note.key, note.arrived_us) + until_us
        assert str(note.key) not in wish.heard, "told twice"
        wish.heard.append(str(note.key))

    def _ask(self) -> int:
        self._asks += 1
        return self._asks


def after_trouble(seed: int, config: LsConfig = ROBUST) -> Swarm:
    swarm = Swarm(seed, config)
    for _ in range(60):
        swarm.step()
    swarm.calm()
    swarm.run(100)  # three rounds of comparing subscriptions
    return swarm


@pytest.mark.parametrize("seed", range(12))
def test_after_trouble_everybody_hears_of_everything(seed: int) -> None:
    swarm = after_trouble(seed)
    fresh = []
    for name in NAMES:
        for tags in (("goal",), ("eder",), ("goal", "replay")):
            fresh.append((f"o{swarm._asks + 1}@{name.hex()}", tags))
            swarm.insert(name, *tags)
    swarm.run(30)

    assert swarm.wishes, "a seed without wishes tests nothing"
    for wish in swarm.wishes.values():
        expected = {written for written, tags in fresh if wish.query.matches(tags)}
        assert expected <= set(wish.heard)
    for node in swarm.nodes.values():
        node.check()
        assert {str(held.key) for held in node.broker.active_subscriptions()} == {
            f"{sid}@{wish.by.hex()}" for sid, wish in swarm.wishes.items()
        }


@pytest.mark.parametrize("seed", range(12))
def test_the_paper_s_profile_is_never_wrong_either(seed: int) -> None:
    swarm = after_trouble(seed, msgspec.structs.replace(PAPER, late_batch=1_000))
    assert any(wish.heard for wish in swarm.wishes.values())


def test_the_same_seed_brings_the_same_story() -> None:
    one, other = after_trouble(5), after_trouble(5)
    assert one.journal == other.journal
    assert len(one.journal) > 1_000
