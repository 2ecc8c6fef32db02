"""Soak workload: issues random operations and checks every event that applications receive.

Entry point: `RandomWorkload`. Every event of a node is compared with the operations issued so far;
an event that cannot be right is a violation. `thyme.testing.soak.runner` does the checks that need
a quiet network.
Clauses: M16, M23, M27, D15, B12.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from thyme.model.frames import ALWAYS, SECOND_US, TimeFrame
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.model.tags import Tag, as_tags
from thyme.protocol import requests
from thyme.protocol.requests import Begun, Failed, Finished, Found, Notified, Told
from thyme.query.query import Query, query_of

TAGS = as_tags(["goal", "eder", "final", "replay", "save", "fans"])
QUERIES = ("goal", "goal & !replay", "eder | final", "goal & eder | replay & !final", "save & fans")
BATCH = 200
ALL = 1_000
"""Number of results that a search requests; more than there are objects."""
SPREADS_US = SECOND_US // 2
"""Time for a delete to reach all nodes of a cell; the cell may acknowledge it earlier."""
SAFE_US = 3 * SECOND_US
"""Time after an acknowledgement until a record of a cell with one node is stored elsewhere, too."""
EXPECTED_FAILURES = {"timeout", "not_found", "rejected", "ended"}


class Air(Protocol):
    """The part of a simulated network that the workload uses."""

    @property
    def now_us(self) -> int:
        """The current instant."""
        ...

    def ask(self, node_id: NodeId, request: requests.Request) -> None:
        """Sends a request to a node."""
        ...


@dataclass(slots=True)
class Thing:
    """An object that an application inserted, and the state of its insert and delete."""

    tags: tuple[Tag, ...]
    data: bytes
    acknowledged_us: int | None = None
    delete_asked: bool = False
    deleted_us: int | None = None
    """When the delete was acknowledged."""


@dataclass(slots=True)
class Wish:
    """A subscription that has started, and the objects notified for it."""

    by: NodeId
    query: Query
    frame: TimeFrame
    asked_us: int
    heard: set[Key] = field(default_factory=set)
    revoke_asked: bool = False
    revoked_us: int | None = None


@dataclass(slots=True)
class Ask:
    """A request without a reply so far."""

    request: requests.Answered
    asked_us: int


class People:
    """The applications of all nodes, and a model of the objects and subscriptions they made."""

    def __init__(self, air: Air, names: list[NodeId], rng: Random, *, settled_us: int = 0) -> None:
        """From `agreement_us` on, all nodes of a cell must have the same records; before, some of
        them may be out of reach."""
        self._air = air
        self._settled_us = settled_us
        self.losses_us: list[int] = []
        """Instants at which devices lose their stores, with records not replicated yet."""
        self._rng = rng
        self.up: dict[NodeId, bool] = dict.fromkeys(names, False)
        self.things: dict[Key, Thing] = {}
        self.wishes: dict[SubscriptionId, Wish] = {}
        self.met: dict[NodeId, dict[Key, Metadata]] = {name: {} for name in names}
        """By node: metadata of the objects that the application was notified of or found."""
        self.waiting: dict[NodeId, dict[int, Ask]] = {name: {} for name in names}
        self.found: dict[int, Found] = {}
        """Results of searches, by request id."""
        self.fetched: set[int] = set()
        """Request ids of the retrieves that returned the right bytes."""
        self.ended: Counter[str] = Counter()
        self.violations: list[str] = []
        self._asks = 0

    # Power

    def on_life(self, name: NodeId, life: int) -> None:
        """Handles the start or stop of a device."""
        self.up[name] = life > 0
        self.waiting[name].clear()

    def take_up_again(self, name: NodeId, held: set[SubscriptionId]) -> None:
        """Resumes the subscriptions that a restarted device still stores."""
        for sid, wish in self.wishes.items():
            if wish.by == name and sid in held and not wish.revoke_asked:
                wish.asked_us = self._air.now_us
                self.ask(name, requests.Resume(ask=self._number(), sid=sid))

    # Operations

    def act(self, name: NodeId) -> None:
        """Issues a random operation at a node, if it is up."""
        if not self.up[name]:
            return
        rng = self._rng
        what = rng.choices(
            ("insert", "delete", "subscribe", "unsubscribe", "retrieve", "search"),
            (45, 10, 15, 4, 16, 10),
        )[0]
        match what:
            case "insert":
                self.insert(name, rng.sample(TAGS, rng.randint(1, 3)))
            case "delete" if own := self._own_things(name):
                key = rng.choice(own)
                self.things[key].delete_asked = True
                self.ask(name, requests.Delete(ask=self._number(), key=key))
            case "subscribe":
                self.subscribe(name, rng.choice(QUERIES), self._frame())
            case "unsubscribe" if own_sids := self._own_wishes(name):
                sid = rng.choice(own_sids)
                self.wishes[sid].revoke_asked = True
                self.ask(name, requests.Unsubscribe(ask=self._number(), sid=sid))
            case "retrieve" if met := list(self.met[name].values()):
                self.retrieve(name, rng.choice(met))
            case "search":
                self.search(name, rng.choice(QUERIES))
            case _:
                pass

    def _own_things(self, name: NodeId) -> list[Key]:
        return [
            key
            for key, thing in self.things.items()
            if key.owner == name and thing.acknowledged_us is not None
        ]

    def _own_wishes(self, name: NodeId) -> list[SubscriptionId]:
        return [
            sid for sid, wish in self.wishes.items() if wish.by == name and not wish.revoke_asked
        ]

    def _frame(self) -> TimeFrame:
        now_us = self._air.now_us
        return self._rng.choice(
            [
                ALWAYS,
                ALWAYS,
                TimeFrame(now_us - 30 * SECOND_US, now_us + 30 * SECOND_US),
                TimeFrame(now_us, None),
            ]
        )

    def insert(self, name: NodeId, tags: list[Tag]) -> Key:
        """Inserts an object."""
        number = self._number()
        key = Key(ObjectId(f"o{number}"), name)
        data = self._rng.randbytes(self._rng.randint(1, 300))
        self.things[key] = Thing(as_tags(tags), data)
        self.ask(name, requests.Insert(ask=number, data=data, tags=as_tags(tags), oid=key.oid))
        return key

    def subscribe(self, name: NodeId, query: str, frame: TimeFrame) -> None:
        """Starts a subscription."""
        conjunctions = Query(query).conjunctions
        request = requests.Subscribe(
            ask=self._number(), conjunctions=conjunctions, frame=frame, batch=BATCH
        )
        self.ask(name, request)

    def search(self, name: NodeId, query: str) -> int:
        """Searches for objects; returns the request id."""
        conjunctions = Query(query).conjunctions
        request = requests.Search(
            ask=self._number(), conjunctions=conjunctions, frame=ALWAYS, count=ALL
        )
        self.ask(name, request)
        return request.ask

    def retrieve(self, name: NodeId, metadata: Metadata) -> int:
        """Retrieves an object; returns the request id."""
        request = requests.Retrieve(ask=self._number(), metadata=metadata)
        self.ask(name, request)
        return request.ask

    def ask(self, name: NodeId, request: requests.Answered) -> None:
        """Sends a request and remembers that a reply is due."""
        self.waiting[name][request.ask] = Ask(request, self._air.now_us)
        self._air.ask(name, request)

    def _number(self) -> int:
        self._asks += 1
        return self._asks

    # Application events

    def on_told(self, name: NodeId, told: Told) -> None:
        """Checks an application event of a node."""
        match told:
            case Finished():
                self._on_end(name, told.ask, "ok", told)
            case Failed():
                self._on_end(name, told.ask, told.code, told)
            case Notified():
                self._on_notified(name, told.note)
            case _:
                pass

    def _on_end(self, name: NodeId, number: int, code: str, told: Finished | Failed) -> None:
        ask = self.waiting[name].pop(number, None)
        if ask is None:
            self.wrong("answered twice", f"request {number} of {name.decode()}: {told}")
            return
        kind = ask.request.label
        self.ended[f"{kind} {code}"] += 1
        if isinstance(told, Finished):
            self._on_finished(name, ask, told)
        elif code not in EXPECTED_FAILURES:
            self.wrong("unexpected failure", f"{kind} {number} of {name.decode()}: {told}")

    def _on_finished(self, name: NodeId, ask: Ask, told: Finished) -> None:
        match ask.request:
            case requests.Insert(oid=oid) if oid is not None:
                self.things[Key(oid, name)].acknowledged_us = self._air.now_us
            case requests.Delete(key=key):
                self.things[key].deleted_us = self._air.now_us
            case requests.Subscribe(conjunctions=conjunctions, frame=frame):
                assert isinstance(told.value, Begun)
                query = query_of(conjunctions)
                self.wishes[told.value.sid] = Wish(name, query, frame, ask.asked_us)
            case requests.Unsubscribe(sid=sid):
                self.wishes[sid].revoked_us = self._air.now_us
            case requests.Search():
                assert isinstance(told.value, Found)
                self.found[ask.request.ask] = told.value
                for note in told.value:
                    self._check_thing(note.metadata, ask.asked_us, "a search")
            case requests.Retrieve(metadata=metadata):
                if told.value == self.things[metadata.key].data:
                    self.fetched.add(ask.request.ask)
                else:
                    self.wrong("wrong bytes", f"{metadata.key} for {name.decode()}")
            case _:
                pass

    def _on_notified(self, name: NodeId, note: Notification) -> None:
        wish = self.wishes.get(note.sid)
        what = f"{note.key} for {name.decode()}'s {note.sid}"
        if wish is None or wish.by != name:
            self.wrong("spurious", f"{what}, which is not its subscription")
            return
        if note.key in wish.heard:
            self.wrong("notified twice", what)
        if not wish.query.matches(note.tags) or not wish.frame.contains(note.metadata.published_us):
            self.wrong("spurious", f"{what} does not match")
        if wish.revoked_us is not None:
            self.wrong("spurious", f"{what} after it was revoked")
        self._check_thing(note.metadata, wish.asked_us, "a notification")
        wish.heard.add(note.key)
        self.met[name][note.key] = note.metadata
        self._air.ask(name, requests.Take(sid=note.sid, key=note.key))

    def _check_thing(self, metadata: Metadata, asked_us: int, by: str) -> None:
        thing = self.things.get(metadata.key)
        if thing is None or thing.tags != metadata.tags or not metadata.describes(thing.data):
            self.wrong(
                "spurious", f"{by} returned {metadata.key}, which was not inserted like this"
            )
        elif (
            thing.deleted_us is not None
            and asked_us > max(thing.deleted_us + SPREADS_US, self._settled_us)
            and self.is_safe(thing.deleted_us)
        ):
            since_s = (asked_us - thing.deleted_us) / SECOND_US
            self.wrong(
                "resurrection",
                f"{by} returned {metadata.key}, {since_s:.1f} s after its delete was acknowledged",
            )

    def is_safe(self, at_us: int) -> bool:
        """Whether a record acknowledged at an instant was replicated before a store was lost."""
        return not any(at_us <= loss_us < at_us + SAFE_US for loss_us in self.losses_us)

    def wrong(self, what: str, detail: str) -> None:
        """Adds a violation."""
        self.violations.append(f"{self._air.now_us / SECOND_US:.3f} s: {what}: {detail}")
