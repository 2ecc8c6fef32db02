"""MobUser: devices exchange generated profiles, then the events that match them.

Entry point: `MobUser`. A device that discovers its neighbours broadcasts a generated profile. Each
neighbour replies with a profile of its own and the events that match; the device answers with the
events that match that profile. Events are sent before received ones are stored. With `one-for-one`
each device sends its next event only after it received one, so a device that gives nothing gets
one event at most. With `reconcile` they compare their events first (`reconciled_exchange`). This
module is compiled.
Clauses: U1, U2, U3, U6.
"""

from __future__ import annotations

from collections.abc import Iterable

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Metadata
from thyme.model.positions import Position
from thyme.model.tags import Tag
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.encounters import (
    EncounterEvents,
    EncounterProfile,
    EventData,
    EventDetails,
    EventSummary,
    ProfileReply,
    ReconcileProfile,
)
from thyme.protocol.node import Timer
from thyme.substrates.encounters.config import (
    EVENTS_PER_EXCHANGE_MAX,
    EXCHANGES_PER_MINUTE_MAX,
    PROFILE_TOPICS_MAX,
    ExchangeMode,
    MobUserConfig,
)
from thyme.substrates.encounters.demand import Demand
from thyme.substrates.encounters.dissemination import NodeServices, ReplyLimit, is_acceptable
from thyme.substrates.encounters.event_memory import Reception, ThreeLists
from thyme.substrates.encounters.events import CarriedEvent, pack_events, unpack_events
from thyme.substrates.encounters.reconciled_exchange import ReconciledExchange

ROUNDS_MAX = 8
"""Discoveries whose replies are still accepted."""
SESSIONS_MAX = 1_024
GIVEN_NEIGHBOURS_MAX = 1_024


class Session:
    """One exchange with one neighbour."""

    def __init__(self, generated: frozenset[Tag], one_for_one: bool) -> None:
        self.generated = generated
        """The profile sent to the neighbour; events in other topics are dropped (U6)."""
        self.one_for_one = one_for_one
        self.to_give: list[CarriedEvent] = []
        """With one for one, the events still to be sent, the next one first."""
        self.received: set[Key] = set()


class Given:
    """The events that a neighbour has, because this device exchanged them with it."""

    def __init__(self, since_us: int) -> None:
        self.since_us = since_us
        self.keys: set[Key] = set()


class MobUser:
    """The MobUser protocol of one device; a `Dissemination`."""

    def __init__(self, services: NodeServices, config: MobUserConfig) -> None:
        self._services = services
        self._config = config
        self.memory = ThreeLists(config.lists)
        self.demand = Demand(config.topics_known, services.rng)
        self.user_topics: frozenset[Tag] = frozenset()
        self.exchanges = 0
        self.given_first = 0
        """One-for-one exchanges that this device began by giving an event."""
        self.returned = 0
        """How many of them brought an event in return."""
        self._rounds: BoundedDict[int, frozenset[Tag]] = BoundedDict(ROUNDS_MAX)
        self._sessions: BoundedDict[tuple[NodeId, int], Session] = BoundedDict(SESSIONS_MAX)
        self._given: BoundedDict[NodeId, Given] = BoundedDict(GIVEN_NEIGHBOURS_MAX)
        self._reply_limit = ReplyLimit(EXCHANGES_PER_MINUTE_MAX)
        self._mode = config.exchange
        self._reconciled = ReconciledExchange(
            services, self.memory, self._receive, self.memory.on_sent
        )

    @property
    def discovery_us(self) -> int:
        return self._config.discovery_us

    def discover(self, now_us: int) -> None:
        self.memory.drop_expired(now_us)
        exchange = self._services.rng.getrandbits(32)
        generated = self._generate_profile()
        self._rounds[exchange] = generated
        topics = tuple(sorted(generated))
        if self._mode is ExchangeMode.RECONCILE:
            self._services.outbox.broadcast(ReconcileProfile(exchange, topics))
        else:
            one_for_one = self._mode is ExchangeMode.ONE_FOR_ONE
            self._services.outbox.broadcast(EncounterProfile(exchange, topics, one_for_one))

    def on_message(self, sender: NodeId, message: Message, now_us: int) -> bool:
        match message:
            case EncounterProfile():
                self._on_profile(sender, message, now_us)
            case ProfileReply():
                self._on_reply(sender, message, now_us)
            case EncounterEvents():
                self._on_events(sender, message, now_us)
            case ReconcileProfile():
                self._on_reconcile_profile(sender, message, now_us)
            case EventSummary():
                self._on_summary(sender, message, now_us)
            case EventDetails():
                self._reconciled.on_details(sender, message, now_us)
            case EventData():
                self._reconciled.on_data(sender, message)
            case _:
                return False
        return True

    def on_timer(self, timer: Timer, now_us: int) -> None:
        """MobUser has no timers besides discovery."""

    def on_send_failed(self, to: NodeId) -> None:
        """Forgets what the neighbour has: the events sent last may not have arrived."""
        self._given.pop(to, None)
        self._reconciled.on_send_failed(to)

    def on_position(self, position: Position, now_us: int) -> None:
        """MobUser does not use positions; the node puts them into events."""

    def _generate_profile(self) -> frozenset[Tag]:
        return self.demand.generate_profile(self.user_topics, self._config.topics_added)

    # The exchange

    def _on_profile(self, sender: NodeId, message: EncounterProfile, now_us: int) -> None:
        """Replies to a neighbour that discovers this device."""
        if not self._accepts_profile(message.topics):
            return
        events = self._events_for(sender, frozenset(message.topics), now_us)
        if not events and self._gave_recently(sender, now_us):
            return
        if not self._allows_reply(now_us):
            return
        self.demand.record_profile(message.topics)
        generated = self._generate_profile()
        one_for_one = message.one_for_one or self._mode is ExchangeMode.ONE_FOR_ONE
        session = Session(generated, one_for_one)
        self._sessions[sender, message.exchange] = session
        items, data = pack_events(self._next_events(sender, session, events, now_us))
        topics = tuple(sorted(generated))
        self._services.outbox.send(
            sender, ProfileReply(message.exchange, topics, items, data, session.one_for_one)
        )

    def _on_reply(self, sender: NodeId, message: ProfileReply, now_us: int) -> None:
        """Sends the matching events to a neighbour that replied, then stores its events."""
        generated = self._rounds.get(message.exchange)
        key = sender, message.exchange
        if generated is None or key in self._sessions:
            self._services.dropped["unexpected reply"] += 1
            return
        if not self._accepts_profile(message.topics):
            return
        self.demand.record_profile(message.topics)
        one_for_one = message.one_for_one or self._mode is ExchangeMode.ONE_FOR_ONE
        session = self._sessions[key] = Session(generated, one_for_one)
        events = self._events_for(sender, frozenset(message.topics), now_us)
        self._send_events(sender, message.exchange, session, events, now_us)
        self._store_events(sender, session, message.items, message.data, now_us)

    def _on_reconcile_profile(self, sender: NodeId, message: ReconcileProfile, now_us: int) -> None:
        """Replies to a neighbour that wants to compare events, if this device does so, too."""
        if self._mode is not ExchangeMode.RECONCILE:
            profile = EncounterProfile(message.exchange, message.topics, False)
            self._on_profile(sender, profile, now_us)
            return
        if not self._accepts_profile(message.topics):
            return
        if self._reconciled.has_settled(sender, self._config.repeat_us, now_us):
            return
        if self._allows_reply(now_us):
            self.demand.record_profile(message.topics)
            self._reconciled.on_profile(sender, message, self._generate_profile(), now_us)

    def _on_summary(self, sender: NodeId, message: EventSummary, now_us: int) -> None:
        if not self._accepts_profile(message.topics):
            return
        if message.is_reply:
            self.demand.record_profile(message.topics)
        self.exchanges += 1
        generated = self._rounds.get(message.exchange)
        self._reconciled.on_summary(sender, message, generated, now_us)

    def _on_events(self, sender: NodeId, message: EncounterEvents, now_us: int) -> None:
        session = self._sessions.get((sender, message.exchange))
        if session is None:
            self._services.dropped["unsolicited events"] += len(message.items)
            return
        if session.one_for_one:
            if not session.received:
                self.returned += 1
            if any(metadata.key not in session.received for metadata in message.items):
                self._send_events(sender, message.exchange, session, session.to_give, now_us)
        self._store_events(sender, session, message.items, message.data, now_us)

    def _send_events(
        self,
        sender: NodeId,
        exchange: int,
        session: Session,
        events: list[CarriedEvent],
        now_us: int,
    ) -> None:
        items, data = pack_events(self._next_events(sender, session, events, now_us))
        if items:
            self._services.outbox.send(sender, EncounterEvents(exchange, items, data))

    def _next_events(
        self, neighbour: NodeId, session: Session, events: list[CarriedEvent], now_us: int
    ) -> list[CarriedEvent]:
        """The events to send now: all of them or, one for one, the first of them."""
        if session.one_for_one:
            if events and not session.received:
                self.given_first += 1
            session.to_give, events = events[1:], events[:1]
        self.memory.on_sent(events)
        self._record_given(neighbour, (event.key for event in events), now_us)
        return events

    def _events_for(
        self, neighbour: NodeId, topics: frozenset[Tag], now_us: int
    ) -> list[CarriedEvent]:
        """The events that match a neighbour's profile and that it does not have for certain."""
        events = self.memory.matching(topics)
        given = self._given.get(neighbour)
        if given is not None and now_us - given.since_us < self._config.repeat_us:
            events = [event for event in events if event.key not in given.keys]
        return events[:EVENTS_PER_EXCHANGE_MAX]

    # Storing (U6)

    def _store_events(
        self,
        sender: NodeId,
        session: Session,
        items: tuple[Metadata, ...],
        data: tuple[bytes, ...],
        now_us: int,
    ) -> None:
        self.exchanges += 1
        services = self._services
        space = max(0, EVENTS_PER_EXCHANGE_MAX - len(session.received))
        if len(items) > space:
            services.dropped["flooded events"] += len(items) - space
        events, corrupt = unpack_events(items[:space], data, self.memory.get)
        if corrupt:
            services.dropped["corrupt events"] += corrupt
        for event in events:
            session.received.add(event.key)
            self._receive(event, session.generated, now_us)
        self._record_given(sender, (event.key for event in events), now_us)

    def _receive(self, event: CarriedEvent, generated: frozenset[Tag], now_us: int) -> None:
        services = self._services
        if not is_acceptable(event, services.limits, now_us):
            services.dropped["unacceptable events"] += 1
            return
        match self.memory.receive(event, generated, self.user_topics):
            case Reception.NEW:
                services.on_new_event(event, now_us)
            case Reception.DROPPED:
                services.dropped["events in no generated topic"] += 1

    # Neighbours met recently

    def _gave_recently(self, neighbour: NodeId, now_us: int) -> bool:
        given = self._given.get(neighbour)
        return given is not None and now_us - given.since_us < self._config.repeat_us

    def _record_given(self, neighbour: NodeId, keys: Iterable[Key], now_us: int) -> None:
        if self._config.repeat_us == 0:
            return
        given = self._given.get(neighbour)
        if given is None or now_us - given.since_us >= self._config.repeat_us:
            given = Given(now_us)
            self._given.refresh(neighbour, given)
        given.keys.update(keys)

    def _allows_reply(self, now_us: int) -> bool:
        if self._reply_limit.allows_reply(now_us):
            return True
        self._services.dropped["too many exchanges"] += 1
        return False

    def _accepts_profile(self, topics: tuple[Tag, ...]) -> bool:
        if len(topics) <= PROFILE_TOPICS_MAX:
            return True
        self._services.dropped["oversized profiles"] += 1
        return False

    def check(self) -> None:
        self.memory.check()
        self._reconciled.check()
        assert len(self._sessions) <= SESSIONS_MAX
