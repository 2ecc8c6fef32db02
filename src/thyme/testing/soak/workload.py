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

from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.model.tags import Tag, as_tags
from thyme.model.time_frames import ALWAYS, SECOND_US, TimeFrame
from thyme.protocol import app_interface
from thyme.protocol.app_interface import (
    AppEvent,
    Failed,
    Finished,
    NotificationEvent,
    SearchResult,
    SubscriptionStarted,
)
from thyme.query.query import Query, query_from_conjunctions

TAGS = as_tags(["goal", "eder", "final", "replay", "save", "fans"])
QUERIES = ("goal", "goal & !replay", "eder | final", "goal & eder | replay & !final", "save & fans")
BATCH = 200
SEARCH_COUNT = 1_000
"""Number of results that a search requests; more than there are objects."""
DELETE_SPREAD_US = SECOND_US // 2
"""Time for a delete to reach all nodes of a cell; the cell may acknowledge it earlier."""
DURABLE_US = 3 * SECOND_US
"""Time after an acknowledgement until a record of a cell with one node is stored elsewhere, too."""
EXPECTED_FAILURES = {"timeout", "not_found", "rejected", "ended"}


BURST_OBJECTS = 600
"""Inserts in one burst: more than a broker sends to a subscriber without acknowledgements."""


class SoakNetwork(Protocol):
    """The part of a simulated network that the workload uses."""

    @property
    def now_us(self) -> int:
        """The current instant."""
        ...

    def send_request(self, node_id: NodeId, request: app_interface.AppRequest) -> None:
        """Sends a request to a node."""
        ...


@dataclass(slots=True)
class InsertedObject:
    """An object that an application inserted, and the state of its insert and delete."""

    tags: tuple[Tag, ...]
    data: bytes
    acknowledged_us: int | None = None
    delete_requested: bool = False
    deleted_us: int | None = None
    """When the delete was acknowledged."""


@dataclass(slots=True)
class ActiveSubscription:
    """A subscription that has started, and the objects notified for it."""

    subscriber: NodeId
    query: Query
    frame: TimeFrame
    requested_us: int
    notified: set[Key] = field(default_factory=set)
    unsubscribe_requested: bool = False
    unsubscribed_us: int | None = None


@dataclass(slots=True)
class UnansweredRequest:
    """A request without a reply so far."""

    request: app_interface.RequestWithReply
    requested_us: int


class RandomWorkload:
    """The applications of all nodes, and a model of the objects and subscriptions they made."""

    def __init__(
        self, network: SoakNetwork, node_ids: list[NodeId], rng: Random, *, agreement_us: int = 0
    ) -> None:
        """From `agreement_us` on, all nodes of a cell must have the same records; before, some of
        them may be out of reach."""
        self._network = network
        self._agreement_us = agreement_us
        self.memory_losses_us: list[int] = []
        """Instants at which devices lose their stores, with records not replicated yet."""
        self._rng = rng
        self.up: dict[NodeId, bool] = dict.fromkeys(node_ids, False)
        self.objects: dict[Key, InsertedObject] = {}
        self.subscriptions: dict[SubscriptionId, ActiveSubscription] = {}
        self.known_metadata: dict[NodeId, dict[Key, Metadata]] = {name: {} for name in node_ids}
        """By node: metadata of the objects that the application was notified of or found."""
        self.pending: dict[NodeId, dict[int, UnansweredRequest]] = {name: {} for name in node_ids}
        self.search_results: dict[int, SearchResult] = {}
        """Results of searches, by request id."""
        self.retrieved: set[int] = set()
        """Request ids of the retrieves that returned the right bytes."""
        self.ended: Counter[str] = Counter()
        self.violations: list[str] = []
        self._last_request_id = 0

    # Power

    def on_power(self, node_id: NodeId, incarnation: int) -> None:
        """Handles the start or stop of a device."""
        self.up[node_id] = incarnation > 0
        self.pending[node_id].clear()

    def resume_subscriptions(self, node_id: NodeId, stored_sids: set[SubscriptionId]) -> None:
        """Resumes the subscriptions that a restarted device still stores."""
        for sid, subscription in self.subscriptions.items():
            if (
                subscription.subscriber == node_id
                and sid in stored_sids
                and not subscription.unsubscribe_requested
            ):
                subscription.requested_us = self._network.now_us
                self.send_request(
                    node_id, app_interface.Resume(request_id=self._next_request_id(), sid=sid)
                )

    # Operations

    def run_random_operation(self, node_id: NodeId) -> None:
        """Issues a random operation at a node, if it is up."""
        if not self.up[node_id]:
            return
        rng = self._rng
        operation = rng.choices(
            ("insert", "delete", "subscribe", "unsubscribe", "retrieve", "search"),
            (45, 10, 15, 4, 16, 10),
        )[0]
        match operation:
            case "insert":
                self.insert(node_id, rng.sample(TAGS, rng.randint(1, 3)))
            case "delete" if own := self._own_objects(node_id):
                key = rng.choice(own)
                self.objects[key].delete_requested = True
                self.send_request(
                    node_id, app_interface.Delete(request_id=self._next_request_id(), key=key)
                )
            case "subscribe":
                self.subscribe(node_id, rng.choice(QUERIES), self._draw_frame())
            case "unsubscribe" if own_sids := self._own_subscriptions(node_id):
                sid = rng.choice(own_sids)
                self.subscriptions[sid].unsubscribe_requested = True
                self.send_request(
                    node_id, app_interface.Unsubscribe(request_id=self._next_request_id(), sid=sid)
                )
            case "retrieve" if known := list(self.known_metadata[node_id].values()):
                self.retrieve(node_id, rng.choice(known))
            case "search":
                self.search(node_id, rng.choice(QUERIES))
            case _:
                pass

    def _own_objects(self, node_id: NodeId) -> list[Key]:
        return [
            key
            for key, inserted in self.objects.items()
            if key.owner == node_id and inserted.acknowledged_us is not None
        ]

    def _own_subscriptions(self, node_id: NodeId) -> list[SubscriptionId]:
        return [
            sid
            for sid, subscription in self.subscriptions.items()
            if subscription.subscriber == node_id and not subscription.unsubscribe_requested
        ]

    def _draw_frame(self) -> TimeFrame:
        now_us = self._network.now_us
        return self._rng.choice(
            [
                ALWAYS,
                ALWAYS,
                TimeFrame(now_us - 30 * SECOND_US, now_us + 30 * SECOND_US),
                TimeFrame(now_us, None),
            ]
        )

    def insert_burst(self, node_id: NodeId) -> None:
        """Inserts more objects at once than brokers and subscribers take, if the node is up."""
        for _ in range(BURST_OBJECTS if self.up[node_id] else 0):
            self.insert(node_id, [TAGS[0]])

    def insert(self, node_id: NodeId, tags: list[Tag]) -> Key:
        """Inserts an object."""
        request_id = self._next_request_id()
        key = Key(ObjectId(f"o{request_id}"), node_id)
        data = self._rng.randbytes(self._rng.randint(1, 300))
        self.objects[key] = InsertedObject(as_tags(tags), data)
        self.send_request(
            node_id,
            app_interface.Insert(request_id=request_id, data=data, tags=as_tags(tags), oid=key.oid),
        )
        return key

    def subscribe(self, node_id: NodeId, query: str, frame: TimeFrame) -> None:
        """Starts a subscription."""
        conjunctions = Query(query).conjunctions
        request = app_interface.Subscribe(
            request_id=self._next_request_id(), conjunctions=conjunctions, frame=frame, batch=BATCH
        )
        self.send_request(node_id, request)

    def search(self, node_id: NodeId, query: str) -> int:
        """Searches for objects; returns the request id."""
        conjunctions = Query(query).conjunctions
        request = app_interface.Search(
            request_id=self._next_request_id(),
            conjunctions=conjunctions,
            frame=ALWAYS,
            count=SEARCH_COUNT,
        )
        self.send_request(node_id, request)
        return request.request_id

    def retrieve(self, node_id: NodeId, metadata: Metadata) -> int:
        """Retrieves an object; returns the request id."""
        request = app_interface.Retrieve(request_id=self._next_request_id(), metadata=metadata)
        self.send_request(node_id, request)
        return request.request_id

    def send_request(self, node_id: NodeId, request: app_interface.RequestWithReply) -> None:
        """Sends a request and remembers that a reply is due."""
        self.pending[node_id][request.request_id] = UnansweredRequest(request, self._network.now_us)
        self._network.send_request(node_id, request)

    def _next_request_id(self) -> int:
        self._last_request_id += 1
        return self._last_request_id

    # Application events

    def on_event(self, node_id: NodeId, event: AppEvent) -> None:
        """Checks an application event of a node."""
        match event:
            case Finished():
                self._on_reply(node_id, event.request_id, "ok", event)
            case Failed():
                self._on_reply(node_id, event.request_id, event.code, event)
            case NotificationEvent():
                self._on_notified(node_id, event.notification)
            case _:
                pass

    def _on_reply(
        self, node_id: NodeId, request_id: int, code: str, event: Finished | Failed
    ) -> None:
        unanswered = self.pending[node_id].pop(request_id, None)
        if unanswered is None:
            self.report_violation(
                "answered twice", f"request {request_id} of {node_id.decode()}: {event}"
            )
            return
        kind = unanswered.request.label
        self.ended[f"{kind} {code}"] += 1
        if isinstance(event, Finished):
            self._on_finished(node_id, unanswered, event)
        elif code not in EXPECTED_FAILURES:
            self.report_violation(
                "unexpected failure", f"{kind} {request_id} of {node_id.decode()}: {event}"
            )

    def _on_finished(self, node_id: NodeId, unanswered: UnansweredRequest, event: Finished) -> None:
        match unanswered.request:
            case app_interface.Insert(oid=oid) if oid is not None:
                self.objects[Key(oid, node_id)].acknowledged_us = self._network.now_us
            case app_interface.Delete(key=key):
                self.objects[key].deleted_us = self._network.now_us
            case app_interface.Subscribe(conjunctions=conjunctions, frame=frame):
                assert isinstance(event.value, SubscriptionStarted)
                query = query_from_conjunctions(conjunctions)
                self.subscriptions[event.value.sid] = ActiveSubscription(
                    node_id, query, frame, unanswered.requested_us
                )
            case app_interface.Unsubscribe(sid=sid):
                self.subscriptions[sid].unsubscribed_us = self._network.now_us
            case app_interface.Search():
                assert isinstance(event.value, SearchResult)
                self.search_results[unanswered.request.request_id] = event.value
                for note in event.value:
                    self._check_metadata(note.metadata, unanswered.requested_us, "a search")
            case app_interface.Retrieve(metadata=metadata):
                if event.value == self.objects[metadata.key].data:
                    self.retrieved.add(unanswered.request.request_id)
                else:
                    self.report_violation("wrong bytes", f"{metadata.key} for {node_id.decode()}")
            case _:
                pass

    def _on_notified(self, node_id: NodeId, notification: Notification) -> None:
        subscription = self.subscriptions.get(notification.sid)
        detail = f"{notification.key} for {node_id.decode()}'s {notification.sid}"
        if subscription is None or subscription.subscriber != node_id:
            self.report_violation("spurious", f"{detail}, which is not its subscription")
            return
        if notification.key in subscription.notified:
            self.report_violation("notified twice", detail)
        if not subscription.query.matches(notification.tags) or not subscription.frame.contains(
            notification.metadata.published_us
        ):
            self.report_violation("spurious", f"{detail} does not match")
        if subscription.unsubscribed_us is not None:
            self.report_violation("spurious", f"{detail} after it was revoked")
        self._check_metadata(notification.metadata, subscription.requested_us, "a notification")
        subscription.notified.add(notification.key)
        self.known_metadata[node_id][notification.key] = notification.metadata
        self._network.send_request(
            node_id, app_interface.MarkConsumed(sid=notification.sid, key=notification.key)
        )

    def _check_metadata(self, metadata: Metadata, requested_us: int, source: str) -> None:
        inserted = self.objects.get(metadata.key)
        if (
            inserted is None
            or inserted.tags != metadata.tags
            or not metadata.matches_content(inserted.data)
        ):
            self.report_violation(
                "spurious", f"{source} returned {metadata.key}, which was not inserted like this"
            )
        elif (
            inserted.deleted_us is not None
            and requested_us > max(inserted.deleted_us + DELETE_SPREAD_US, self._agreement_us)
            and self.is_durable(inserted.deleted_us)
        ):
            since_s = (requested_us - inserted.deleted_us) / SECOND_US
            self.report_violation(
                "resurrection",
                f"{source} returned {metadata.key}, {since_s:.1f} s after its delete was "
                f"acknowledged",
            )

    def is_durable(self, at_us: int) -> bool:
        """Whether a record acknowledged at an instant was replicated before a store was lost."""
        return not any(at_us <= loss_us < at_us + DURABLE_US for loss_us in self.memory_losses_us)

    def report_violation(self, kind: str, detail: str) -> None:
        """Adds a violation."""
        self.violations.append(f"{self._network.now_us / SECOND_US:.3f} s: {kind}: {detail}")
