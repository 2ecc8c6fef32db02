"""A swarm of Thyme-DCS: random doings, losses, crashes and returns, drawn from a seed.

Safety is held after every message (`check`) and at the end: no notification is wrong, none comes
twice, and what was deleted stays deleted for whoever asks later (M16, M23, D15). Liveness is asked
for once trouble stops: every operation has ended.
"""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tests.substrates.dcs.town import Town, in_cell
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.metadata import Metadata
from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame
from thyme.protocol import app_interface as asked
from thyme.protocol.app_interface import Failed, Finished, NotificationEvent, SubscriptionStarted
from thyme.query.query import Query
from thyme.substrates.dcs.config import PAPER, CellJoiningConfig

TAGS = ("goal", "eder", "final", "replay")
QUERIES = ("goal", "goal & !replay", "eder | final", "goal & eder | replay & !final")
PEOPLE = {f"{letter}{n}": in_cell(cell, n) for cell, letter in enumerate("abcde") for n in range(3)}
HASTE = msgspec.structs.replace(PAPER, joining=CellJoiningConfig(listen_us=2_000_000))


class Swarm:
    """A town in trouble, and a perfect memory of what happened."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.town = Town(PEOPLE, config=HASTE, seed=seed)
        self.town.links.loss = self.rng.choice([0.0, 0.05, 0.2])
        self.asks = 10_000
        self.asked: dict[int, str] = {}
        self.queries: dict[int, str] = {}
        self.inserted: list[Key] = []
        self.deletes: dict[int, Key] = {}

    def act(self, number: int) -> None:
        rng, town = self.rng, self.town
        name = rng.choice(list(town.nodes))
        self.asks += 1
        match rng.choices(
            ("insert", "delete", "subscribe", "crash", "return", "wait"), (10, 2, 4, 1, 2, 4)
        )[0]:
            case "insert":
                tags = as_tags(rng.sample(TAGS, rng.randint(1, 3)))
                oid = ObjectId(f"o{number}")
                self.inserted.append(Key(oid, NodeId(name.encode())))
                self._ask(name, asked.Insert(request_id=self.asks, data=b"x", tags=tags, oid=oid))
            case "delete" if own := [key for key in self.inserted if key.owner == name.encode()]:
                key = rng.choice(own)
                self.deletes[self.asks] = key
                self._ask(name, asked.Delete(request_id=self.asks, key=key))
            case "subscribe":
                query = rng.choice(QUERIES)
                self.queries[self.asks] = query
                self._ask(name, self._subscribe(query))
            case "crash" if len(town.nodes) > 8:
                town.go(name)
                self.asked = {ask: who for ask, who in self.asked.items() if who != name}
            case "return" if away := [name for name in PEOPLE if name not in town.nodes]:
                town.come(rng.choice(away))
            case _:
                pass
        town.run(rng.uniform(0, 1.5))

    def _subscribe(self, query: str) -> asked.Subscribe:
        conjunctions = Query(query).conjunctions
        return asked.Subscribe(
            request_id=self.asks, conjunctions=conjunctions, frame=TimeFrame(), batch=100
        )

    def _ask(self, name: str, request: asked.RequestWithReply) -> None:
        self.asked[request.request_id] = name
        self.town.links.ask(NodeId(name.encode()), request)

    def ended(self, name: str) -> dict[int, Finished | Failed]:
        told = self.town.told[name]
        return {item.request_id: item for item in told if isinstance(item, Finished | Failed)}


@pytest.mark.parametrize("seed", range(12))
def test_a_swarm_is_never_wrong_and_comes_to_rest(seed: int) -> None:
    swarm = Swarm(seed)
    for number in range(150):
        swarm.act(number)
    swarm.town.links.loss = 0.0
    swarm.town.run(60)

    town = swarm.town
    for ask, name in swarm.asked.items():
        assert ask in swarm.ended(name), f"seed {seed}: operation {ask} of {name} never ended"
    for name in PEOPLE:
        told = town.told[name]
        queries = {
            item.value.sid: swarm.queries[item.request_id]
            for item in told
            if isinstance(item, Finished) and isinstance(item.value, SubscriptionStarted)
        }
        notes = [item.notification for item in told if isinstance(item, NotificationEvent)]
        assert len({(note.sid, note.key) for note in notes}) == len(notes)
        assert all(Query(queries[note.sid]).matches(note.tags) for note in notes)
    for node in town.nodes.values():
        node.check()
        assert len(node.requests) == 0


@pytest.mark.parametrize("seed", range(6))
def test_what_was_deleted_is_not_found_by_whoever_asks_later(seed: int) -> None:
    """D15: nodes that were away and come back do not bring it back, as long as somebody of each
    cell stays."""
    rng = Random(seed)
    town = Town(PEOPLE, config=HASTE, seed=seed)
    keys = [town.insert("a0", f"o{number}", *rng.sample(TAGS, 2)) for number in range(6)]
    away = rng.sample([name for name in PEOPLE if not name.endswith("0")], 5)
    for name in away:
        town.go(name)
    town.run(6)
    for key in keys[:3]:
        town.finish("a0", asked.Delete, key=key)
    for name in away:
        town.come(name)
    town.run(10)

    for tag in TAGS:
        for name in ("b1", "c2", "e0"):
            found = town.finish(
                name,
                asked.Search,
                conjunctions=Query(tag).conjunctions,
                frame=TimeFrame(),
                count=50,
            )
            assert isinstance(found, asked.SearchResult)
            metadata: list[Metadata] = [note.metadata for note in found]
            assert not {item.key for item in metadata} & set(keys[:3])
