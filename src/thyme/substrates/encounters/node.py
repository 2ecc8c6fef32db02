"""Encounter node: a device that exchanges events with the devices it meets.

Entry point: `EncounterNode.handle`. Requests of the application are answered by the device itself:
an insert publishes an event, a subscription is matched against the events that arrive, a retrieve
returns the event from the memory. `mobuser`, `mfps` and `rapid` decide how events spread. Refused
with `unsupported`: deletes and searches, because nobody can reach all copies or count all events.
Clauses: U1, U4, U10, M13, M15–M19.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import assert_never

from msgspec.structs import replace

from thyme.model.errors import RejectedError, TagError, ThymeError, UnsupportedError
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.model.positions import Position
from thyme.model.subscriptions import Conjunction, SubscriptionRecord
from thyme.model.tags import Tag, as_tags
from thyme.model.time_frames import TimeFrame
from thyme.protocol import app_interface as app
from thyme.protocol.message_auth import MessageAuthenticator, verify_incoming
from thyme.protocol.node import (
    Action,
    AppRequested,
    Broadcast,
    ClocksCompared,
    Input,
    Leaving,
    PositionChanged,
    Received,
    Send,
    SendFailed,
    Started,
    TimerFired,
)
from thyme.protocol.outbox import Outbox
from thyme.storage.store import Store
from thyme.substrates.common.client import Client
from thyme.substrates.common.client_interfaces import Guarantees
from thyme.substrates.common.gap_reader import GapReader, refuse_missed_pages
from thyme.substrates.common.subscriber import FrameEndTimer, Subscriber
from thyme.substrates.common.world_lifetime import WorldEndTimer, WorldLifetime
from thyme.substrates.encounters.battery import Battery, estimate_bytes
from thyme.substrates.encounters.config import (
    PROFILE_TOPICS_MAX,
    EncounterConfig,
    MfpsConfig,
    MobUserConfig,
    Protocol,
    RapidConfig,
)
from thyme.substrates.encounters.dissemination import (
    DiscoveryTimer,
    Dissemination,
    NodeServices,
)
from thyme.substrates.encounters.events import CarriedEvent
from thyme.substrates.encounters.local_client import LocalBroker, LocalObjects
from thyme.substrates.encounters.location_topics import (
    cell_at_metres,
    has_semantic_topic,
    location_topic,
    parse_location_topic,
    topics_of,
)
from thyme.substrates.encounters.mfps import Mfps
from thyme.substrates.encounters.mobuser import MobUser
from thyme.substrates.encounters.rapid import Rapid

SEARCH_REFUSED = (
    "an encounter world cannot be searched: a device knows only the events it has met; subscribe, "
    "which also returns the matching events in this device's memory"
)
USER_TOPICS_MAX = PROFILE_TOPICS_MAX // 2


class EncounterNode:
    """A node of MobUser, MFPS or RAPID; all nodes are equal."""

    def __init__(
        self,
        node_id: NodeId,
        store: Store,
        rng: Random,
        config: EncounterConfig,
        authenticator: MessageAuthenticator | None = None,
        position: Position | None = None,
    ) -> None:
        self._node_id = node_id
        self._rng = rng
        self._config = config
        self._authenticator = authenticator
        signer = None if authenticator is None else authenticator.signer
        self._outbox = outbox = Outbox()
        self.dropped: Counter[str] = Counter() if authenticator is None else authenticator.dropped
        services = NodeServices(
            node_id, outbox, rng, config.limits, self.dropped, self._on_new_event
        )
        self.dissemination = make_dissemination(services, config.protocol)
        self._position = position
        self._world_lifetime = WorldLifetime(outbox, config.world_ends_us)
        self.subscriber = Subscriber(
            node_id, outbox, store, config.subscriber, signer, matches=_subscription_matches
        )
        memory = self.dissemination.memory
        self._client = Client(
            node_id,
            LocalObjects(memory, store, self._on_new_event),
            LocalBroker(node_id, memory, matches),
            outbox,
            self.subscriber,
            rng,
            config.limits,
            lambda: Guarantees(durable=store.durable),
            GapReader(self.subscriber, outbox, lambda: 0, refuse_missed_pages),
            signer,
        )
        budget = config.joules_per_hour
        self._battery = None if budget is None else Battery(budget)
        self._update_topics()

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Processes one input; returns the resulting actions in order."""
        match event:
            case Received():
                self._on_received(event, now_us)
            case TimerFired():
                self._on_timer(event, now_us)
            case AppRequested():
                self._on_request(event.request, now_us)
            case PositionChanged():
                self._position = event.position
                self.dissemination.on_position(event.position, now_us)
            case Started():
                self._start(now_us)
            case SendFailed():
                self.dropped["encounters broken off"] += 1
                self.dissemination.on_send_failed(event.to)
            case ClocksCompared():
                pass
            case Leaving():
                pass  # the next encounter of others does not need this device
            case _:
                assert_never(event)
        actions = self._outbox.drain_actions()
        if self._battery is not None:
            for action in actions:
                if isinstance(action, Send | Broadcast):
                    self._battery.spend_bytes(estimate_bytes(action.message))
        if self._authenticator is None:
            return actions
        return self._authenticator.sign_actions(actions, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self.subscriber.check()
        self.dissemination.check()

    def _start(self, now_us: int) -> None:
        self.subscriber.set_frame_end_timers()
        self._world_lifetime.set_timer()
        wait_us = self._config.first_discovery_us
        if wait_us is None:
            wait_us = int(self._rng.random() * self.dissemination.discovery_us)
        self._outbox.set_timer(DiscoveryTimer(), now_us + wait_us)

    def _on_received(self, event: Received, now_us: int) -> None:
        if event.sender == self._node_id:
            self.dropped["messages with this device's identifier"] += 1
            return
        if self._battery is not None:
            if not self._battery.can_answer(now_us):
                self.dropped["messages ignored to save the battery"] += 1
                return
            self._battery.spend_bytes(estimate_bytes(event.message))
        message = verify_incoming(self._authenticator, event.sender, event.message)
        if message is None:
            return
        if not self.dissemination.on_message(event.sender, message, now_us):
            self.dropped["not spoken here"] += 1

    def _on_timer(self, event: TimerFired, now_us: int) -> None:
        match event.timer:
            case DiscoveryTimer():
                next_us = now_us + self.dissemination.discovery_us
                self._outbox.set_timer(DiscoveryTimer(), next_us)
                if self._battery is None or self._battery.can_discover(now_us):
                    self.dissemination.discover(now_us)
                else:
                    self.dropped["discoveries left out to save the battery"] += 1
            case FrameEndTimer():
                self.subscriber.on_frame_end(event.timer.sid, now_us)
                self._update_topics()
            case WorldEndTimer():
                self.subscriber.end_all("the life span of its world is over")
                self._update_topics()
            case _:
                self.dissemination.on_timer(event.timer, now_us)

    # Requests of the application (U10)

    def _on_request(self, request: app.AppRequest | app.InsertBatch, now_us: int) -> None:
        if self._world_lifetime.reject_if_ended(request, now_us):
            return
        match request:
            case app.InsertBatch():
                self._insert_all(request.inserts, now_us)
            case app.Insert():
                self._insert_all((request,), now_us)
            case app.Search():
                self._refuse(request, UnsupportedError(SEARCH_REFUSED))
            case app.Subscribe() if (error := self._find_topics_error(request)) is not None:
                self._refuse(request, error)
            case _:
                self._client.on_request(request, now_us)
                self._update_topics()

    def _refuse(self, request: app.RequestWithReply, error: ThymeError) -> None:
        self._outbox.emit(app.Failed(request.request_id, error.code, str(error)))

    def _insert_all(self, requests: tuple[app.Insert, ...], now_us: int) -> None:
        located: list[app.Insert] = []
        for request in requests:
            try:
                located.append(self._with_location(request))
            except ThymeError as error:
                self._refuse(request, error)
        self._client.on_request(app.InsertBatch(tuple(located)), now_us)

    def _with_location(self, request: app.Insert) -> app.Insert:
        """Adds the location topic of this device to an event that has none (U4)."""
        tags = as_tags(request.tags)
        if not has_semantic_topic(tags):
            raise TagError("an event needs a tag besides its location")
        located = any(parse_location_topic(tag) is not None for tag in tags)
        if located or self._position is None:
            return request
        topic = location_topic(cell_at_metres(self._position))
        return replace(request, tags=(*request.tags, topic))

    def _find_topics_error(self, request: app.Subscribe) -> RejectedError | None:
        topics = self.dissemination.user_topics.union(_positive_tags(request.conjunctions))
        if len(topics) <= USER_TOPICS_MAX:
            return None
        return RejectedError(
            f"a profile has at most {USER_TOPICS_MAX} topics; with this subscription it would have "
            f"{len(topics)}: cancel others first"
        )

    def _update_topics(self) -> None:
        self.dissemination.user_topics = frozenset(
            tag
            for record in self.subscriber.active_records()
            for tag in _positive_tags(record.conjunctions)
        )

    def _on_new_event(self, event: CarriedEvent, now_us: int) -> None:
        self.subscriber.notify_matching(event.metadata, now_us)


def make_dissemination(services: NodeServices, config: Protocol) -> Dissemination:
    """Makes the dissemination that a configuration is for."""
    match config:
        case MobUserConfig():
            return MobUser(services, config)
        case MfpsConfig():
            return Mfps(services, config)
        case RapidConfig():
            return Rapid(services, config)
        case _:
            assert_never(config)


def matches(conjunctions: tuple[Conjunction, ...], frame: TimeFrame, metadata: Metadata) -> bool:
    """Whether an event matches a query: as everywhere, and by the levels of its location (U5)."""
    if not frame.contains(metadata.published_us):
        return False
    topics = topics_of(metadata.tags)
    return any(conjunction.matches(topics) for conjunction in conjunctions)


def _subscription_matches(record: SubscriptionRecord, metadata: Metadata) -> bool:
    return matches(record.conjunctions, record.frame, metadata)


def _positive_tags(conjunctions: tuple[Conjunction, ...]) -> set[Tag]:
    return {tag for conjunction in conjunctions for tag in conjunction.positive}
