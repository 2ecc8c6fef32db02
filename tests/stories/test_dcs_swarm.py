"""Thyme-DCS under random operations, losses, crashes and restarts, from a seed.

Nodes are checked after every message, notifications as they come: none is wrong, none comes twice,
and deleted objects stay deleted for later searches (M16, M23, D15). Once the faults end, every
operation has ended.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import ClassVar

import msgspec
import pytest

from tests.stories.swarm import Swarm
from tests.substrates.dcs.network import DcsNetwork, in_cell
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.model.time_frames import TimeFrame
from thyme.protocol import app_interface as asked
from thyme.query.query import Query
from thyme.substrates.dcs.config import PAPER, CellJoiningConfig

TAGS = ("goal", "eder", "final", "replay")
PEOPLE = {f"{letter}{n}": in_cell(cell, n) for cell, letter in enumerate("abcde") for n in range(3)}
FAST_JOIN = msgspec.structs.replace(PAPER, joining=CellJoiningConfig(listen_us=2_000_000))


class DcsSwarm(Swarm):
    """Fifteen devices of Thyme-DCS in five cells."""

    weights: ClassVar = {
        "insert": 10,
        "delete": 2,
        "subscribe": 4,
        "crash": 1,
        "restart": 2,
        "nothing": 4,
    }
    tags = TAGS
    tags_max = 3
    queries = ("goal", "goal & !replay", "eder | final", "goal & eder | replay & !final")
    batch = 100
    nodes_min = 8
    pause_s_max = 1.5

    def __init__(self, seed: int) -> None:
        super().__init__([NodeId(name.encode()) for name in PEOPLE], Random(seed))
        self.network = DcsNetwork(PEOPLE, config=FAST_JOIN, seed=seed)
        self.network.links.loss = self.rng.choice([0.0, 0.05, 0.2])
        self._seen: Counter[str] = Counter()

    def running(self) -> list[NodeId]:
        return [NodeId(name.encode()) for name in self.network.nodes]

    def now_us(self) -> int:
        return self.network.links.kernel.now_us

    def start(self, name: NodeId) -> None:
        self.network.come(name.decode())

    def crash(self, name: NodeId) -> None:
        self.network.go(name.decode())

    def run(self, seconds: float) -> None:
        self.network.run(seconds)
        for name, events in self.network.told.items():
            for event in events[self._seen[name] :]:
                self.on_event(NodeId(name.encode()), event)
            self._seen[name] = len(events)

    def send_request(self, name: NodeId, request: asked.RequestWithReply) -> None:
        self.network.links.ask(name, request)


@pytest.mark.parametrize("seed", range(12))
def test_random_operations_are_never_wrong_and_all_end(seed: int) -> None:
    swarm = DcsSwarm(seed)
    for _ in range(150):
        swarm.step()
    swarm.network.links.loss = 0.0
    swarm.run(60)

    assert not swarm.pending, f"seed {seed}: operations never ended: {swarm.pending}"
    assert any(subscription.received for subscription in swarm.subscriptions.values())
    for node in swarm.network.nodes.values():
        node.check()
        assert len(node.requests) == 0


@pytest.mark.parametrize("seed", range(6))
def test_d15_deleted_objects_are_not_found_by_later_searches(seed: int) -> None:
    """Nodes that were away do not bring deleted objects back, as long as one node of each cell
    stays."""
    rng = Random(seed)
    net = DcsNetwork(PEOPLE, config=FAST_JOIN, seed=seed)
    keys = [net.insert("a0", f"o{number}", *rng.sample(TAGS, 2)) for number in range(6)]
    away = rng.sample([name for name in PEOPLE if not name.endswith("0")], 5)
    for name in away:
        net.go(name)
    net.run(6)
    for key in keys[:3]:
        net.finish("a0", asked.Delete, key=key)
    for name in away:
        net.come(name)
    net.run(10)

    for tag in TAGS:
        for name in ("b1", "c2", "e0"):
            found = net.finish(
                name,
                asked.Search,
                conjunctions=Query(tag).conjunctions,
                frame=TimeFrame(),
                count=50,
            )
            assert isinstance(found, asked.SearchResult)
            metadata: list[Metadata] = [one.metadata for one in found]
            assert not {item.key for item in metadata} & set(keys[:3])
