"""Thyme-LS under random faults: never wrong meanwhile, and complete once the faults end.

Devices crash and restart, groups are partitioned, messages are lost, duplicated and reordered,
while users insert, delete, subscribe and unsubscribe.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
import pytest

from tests.stories.swarm import Swarm
from thyme.model.ids import NodeId
from thyme.model.rng import derive_rng
from thyme.model.subscriptions import Notification
from thyme.protocol.app_interface import (
    AppEvent,
    MarkConsumed,
    NotificationEvent,
    RequestWithReply,
    Resume,
)
from thyme.protocol.node import Action, Input
from thyme.sim.networks.ideal_network import PERFECT, IdealNetwork, LinkConditions
from thyme.storage.store import MemoryStore
from thyme.substrates.ls.config import PAPER, ROBUST, LsConfig
from thyme.substrates.ls.node import LsNode

SECOND_US = 1_000_000
NAMES = [NodeId(name) for name in (b"ann", b"ben", b"cat", b"dan", b"eve")]
LOSSY = LinkConditions(loss=0.3, duplication=0.2, delay_us_min=500, delay_us_max=300_000)


class LsSwarm(Swarm):
    """Five devices of Thyme-LS in an ideal network."""

    weights: ClassVar = {
        "insert": 8,
        "delete": 2,
        "subscribe": 3,
        "unsubscribe": 1,
        "crash": 1,
        "restart": 2,
        "conditions": 2,
    }
    tags = ("goal", "eder", "replay")
    tags_max = 2
    queries = ("goal", "goal & !replay", "eder | replay")
    batch = 1_000
    nodes_min = 0
    pause_s_max = 3

    def __init__(self, seed: int, config: LsConfig) -> None:
        super().__init__(NAMES, derive_rng(seed, "swarm"))
        self.journal: list[tuple[int, NodeId, Input | Action]] = []
        self.network = IdealNetwork(seed=seed, journal=lambda *entry: self.journal.append(entry))
        self.nodes: dict[NodeId, LsNode] = {}
        self._seed = seed
        self._config = config
        self._stores = {name: MemoryStore() for name in NAMES}
        self._starts = 0
        for name in NAMES:
            self.start(name)

    def running(self) -> list[NodeId]:
        return list(self.nodes)

    def now_us(self) -> int:
        return self.network.now_us

    def start(self, name: NodeId) -> None:
        self._starts += 1
        rng = derive_rng(self._seed, "node", name, self._starts)
        self.nodes[name] = LsNode(name, self._stores[name], rng, self._config)
        self.network.add(
            self.nodes[name], self._stores[name], lambda event: self.on_event(name, event)
        )
        for sid, subscription in self.subscriptions.items():
            if subscription.subscriber == name:
                self.send_request(name, Resume(request_id=self.next_request_id(), sid=sid))

    def crash(self, name: NodeId) -> None:
        self.network.remove(name)
        del self.nodes[name]

    def run(self, seconds: float) -> None:
        self.network.run(self.network.now_us + round(seconds * SECOND_US))

    def send_request(self, name: NodeId, request: RequestWithReply) -> None:
        self.network.send_request(name, request)

    def change_conditions(self) -> None:
        self.network.heal()
        self.network.conditions = self.rng.choice([PERFECT, LOSSY])
        if self.rng.random() < 0.5:
            cut = self.rng.randint(1, len(NAMES) - 1)
            order = self.rng.sample(NAMES, len(NAMES))
            self.network.partition(order[:cut], order[cut:])

    def end_faults(self) -> None:
        """Heals the network and starts all nodes that are down."""
        self.network.heal()
        for name in NAMES:
            if name not in self.nodes:
                self.start(name)

    def on_event(self, name: NodeId, event: AppEvent) -> None:
        super().on_event(name, event)
        if isinstance(event, NotificationEvent):
            consumed = MarkConsumed(sid=event.notification.sid, key=event.notification.key)
            self.network.send_request(name, consumed)

    def check_notification(self, name: NodeId, notification: Notification) -> None:
        super().check_notification(name, notification)
        # An owner's answer from before the delete may be in transit, or waiting to be merged.
        arrived_us = notification.arrived_us
        until_us = self._config.collecting.subscribe_wait_us + SECOND_US
        assert arrived_us <= self.deleted_us.get(notification.key, arrived_us) + until_us


def after_faults(seed: int, config: LsConfig = ROBUST) -> LsSwarm:
    swarm = LsSwarm(seed, config)
    for _ in range(60):
        swarm.step()
    swarm.end_faults()
    swarm.run(100)  # three rounds of comparing subscriptions
    return swarm


@pytest.mark.parametrize("seed", range(12))
def test_after_faults_every_subscriber_is_notified_of_every_new_object(seed: int) -> None:
    swarm = after_faults(seed)
    fresh = {
        swarm.insert(name, *tags): tags
        for name in NAMES
        for tags in (("goal",), ("eder",), ("goal", "replay"))
    }
    swarm.run(30)

    assert swarm.subscriptions, "a seed without subscriptions tests nothing"
    for subscription in swarm.subscriptions.values():
        expected = {key for key, tags in fresh.items() if subscription.query.matches(tags)}
        assert expected <= set(subscription.received)
    for node in swarm.nodes.values():
        node.check()
        assert {str(held.key) for held in node.broker.active_subscriptions()} == {
            f"{sid}@{one.subscriber.hex()}" for sid, one in swarm.subscriptions.items()
        }


@pytest.mark.parametrize("seed", range(12))
def test_the_paper_s_profile_is_never_wrong_either(seed: int) -> None:
    swarm = after_faults(seed, msgspec.structs.replace(PAPER, late_batch=1_000))
    assert any(subscription.received for subscription in swarm.subscriptions.values())


def test_the_same_seed_gives_the_same_journal() -> None:
    one, other = after_faults(5), after_faults(5)
    assert one.journal == other.journal
    assert len(one.journal) > 1_000
