"""Reconciled exchange: devices compare their events, then send only what the other lacks.

Entry point: `ReconciledExchange`, the part of MobUser for `ExchangeMode.RECONCILE`. Subscriptions
come first, as profiles, with the comparison (`range_reconciliation`); then the metadata of all
missing events, so that users are notified; then the bytes, small events before large ones. A
contact that breaks off has moved the most useful part. An event that both devices have counts as
received again (U6), although it is not sent. This module is compiled.
Clauses: U3, U6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256

from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag
from thyme.protocol.messages.encounters import (
    EventData,
    EventDetails,
    EventSummary,
    ReconcileProfile,
)
from thyme.protocol.range_reconciliation import (
    Item,
    RangeComparison,
    compare_ranges,
    open_ranges,
    short_id,
)
from thyme.substrates.encounters.config import EVENTS_PER_EXCHANGE_MAX
from thyme.substrates.encounters.dissemination import NodeServices
from thyme.substrates.encounters.event_memory import EventMemory
from thyme.substrates.encounters.events import CarriedEvent

BATCH_BYTES = 8 * 1024
"""Events are sent in batches of at least one event and about this size."""
ROUNDS_MAX = 16
"""Limit of the summaries that a device answers in one exchange."""
SESSIONS_MAX = 1_024


class ReconcileSession:
    """One exchange with one neighbour."""

    def __init__(
        self, generated: frozenset[Tag], theirs: frozenset[Tag], events: list[CarriedEvent]
    ) -> None:
        self.generated = generated
        self.theirs = theirs
        self.by_id = {short_id(event.key): event for event in events}
        self.items: list[Item] = sorted(
            (event.metadata.published_us, name) for name, event in self.by_id.items()
        )
        self.listed: set[bytes] = set()
        """Identifiers that the neighbour compares; those it does not want, it has."""
        self.announced: dict[bytes, CarriedEvent] = {}
        """Events whose bytes are to follow, by their digest."""
        self.sent: set[bytes] = set()
        self.accepted = 0
        self.rounds = 0


Receive = Callable[[CarriedEvent, frozenset[Tag], int], None]


class ReconciledExchange:
    """The reconciled exchanges of one device."""

    def __init__(
        self,
        services: NodeServices,
        memory: EventMemory,
        receive: Receive,
        on_sent: Callable[[list[CarriedEvent]], None],
    ) -> None:
        """`receive` stores an event that arrived, or that a neighbour has as well."""
        self._services = services
        self._memory = memory
        self._receive = receive
        self._on_sent = on_sent
        self._sessions: BoundedDict[tuple[NodeId, int], ReconcileSession] = BoundedDict(
            SESSIONS_MAX
        )
        self._settled: BoundedDict[NodeId, tuple[int, int]] = BoundedDict(SESSIONS_MAX)
        """When this device last compared its events with a neighbour, and their version then."""
        self.completed = 0
        """Exchanges in which a neighbour's summary or events arrived."""

    def has_settled(self, neighbour: NodeId, within_us: int, now_us: int) -> bool:
        """Whether a neighbour has compared all events of this device within some time."""
        at_us, version = self._settled.get(neighbour, (-within_us, -1))
        return version == self._memory.version and now_us - at_us < within_us

    def on_send_failed(self, to: NodeId) -> None:
        """The encounter broke off: the neighbour may lack events."""
        self._settled.pop(to, None)

    def on_profile(
        self, sender: NodeId, message: ReconcileProfile, generated: frozenset[Tag], now_us: int
    ) -> None:
        """Answers a neighbour that discovers this device: profile and ranges."""
        session = self._open(sender, message.exchange, generated, frozenset(message.topics))
        ranges = open_ranges(session.items)
        for each in ranges:
            session.listed.update(each.ids or ())
        topics = tuple(sorted(generated))
        self._settled.refresh(sender, (now_us, self._memory.version))
        summary = EventSummary(message.exchange, topics, ranges, (), True)
        self._services.outbox.send(sender, summary)

    def _open(
        self, sender: NodeId, exchange: int, generated: frozenset[Tag], theirs: frozenset[Tag]
    ) -> ReconcileSession:
        events = self._memory.matching(generated | theirs)
        session = ReconcileSession(generated, theirs, events)
        self._sessions[sender, exchange] = session
        return session

    def on_summary(
        self, sender: NodeId, message: EventSummary, generated: frozenset[Tag] | None, now_us: int
    ) -> None:
        """Compares events with a neighbour's; sends those it lacks. `generated` is the profile of
        the discovery that the message answers; None: there was none."""
        key = sender, message.exchange
        session = self._sessions.get(key)
        if message.is_reply and session is None and generated is not None:
            session = self._open(sender, message.exchange, generated, frozenset(message.topics))
        if session is None or session.rounds >= ROUNDS_MAX:
            self._services.dropped["unexpected summaries"] += 1
            return
        session.rounds += 1
        self.completed += 1
        found = compare_ranges(session.items, message.ranges)
        self._answer(sender, message, session, found)
        lacking = [session.by_id[name] for _, name in found.only_here]
        lacking += [session.by_id[name] for name in message.wanted if name in session.by_id]
        self._send_events(sender, message.exchange, session, lacking)
        self._count_common(session, found, message, now_us)

    def _answer(
        self,
        sender: NodeId,
        message: EventSummary,
        session: ReconcileSession,
        found: RangeComparison,
    ) -> None:
        """Sends what is left to compare; also the end of a comparison, for its count of events."""
        if not (message.is_reply or found.answer or found.only_there):
            return
        wanted = tuple(found.only_there[:EVENTS_PER_EXCHANGE_MAX])
        answer = EventSummary(message.exchange, (), tuple(found.answer), wanted, False)
        self._services.outbox.send(sender, answer)

    def _count_common(
        self, session: ReconcileSession, found: RangeComparison, message: EventSummary, now_us: int
    ) -> None:
        """Events that the neighbour has, too, count as received again (U6)."""
        names = {name for _, name in found.common}
        if not message.is_reply:
            names |= session.listed - set(message.wanted)
            session.listed.clear()
        for each in found.answer:
            session.listed.update(each.ids or ())
        for name in sorted(names):
            event = session.by_id.get(name)
            if event is None or session.generated.isdisjoint(event.topics):
                continue
            if name not in session.sent:
                self._receive(event, session.generated, now_us)

    # Sending

    def _send_events(
        self, to: NodeId, exchange: int, session: ReconcileSession, events: list[CarriedEvent]
    ) -> None:
        """Sends events in topics of the neighbour: metadata, then bytes, the smallest first."""
        wanted = [event for event in events if not session.theirs.isdisjoint(event.topics)]
        wanted = [event for event in wanted if short_id(event.key) not in session.sent]
        wanted = sorted(wanted, key=_size_order)[: EVENTS_PER_EXCHANGE_MAX - len(session.sent)]
        if not wanted:
            return
        session.sent.update(short_id(event.key) for event in wanted)
        self._on_sent(wanted)
        items = tuple(event.metadata for event in wanted)
        self._services.outbox.send(to, EventDetails(exchange, items))
        for batch in _batches(event.data for event in wanted):
            self._services.outbox.send(to, EventData(exchange, batch))

    # Receiving

    def on_details(self, sender: NodeId, message: EventDetails, now_us: int) -> None:
        """Stores the metadata of events, whose bytes follow."""
        session = self._sessions.get((sender, message.exchange))
        if session is None:
            self._services.dropped["unsolicited events"] += len(message.items)
            return
        space = max(0, EVENTS_PER_EXCHANGE_MAX - session.accepted)
        if len(message.items) > space:
            self._services.dropped["flooded events"] += len(message.items) - space
        session.accepted += len(message.items[:space])
        for metadata in message.items[:space]:
            self._expect(session, metadata, now_us)

    def _expect(self, session: ReconcileSession, metadata: Metadata, now_us: int) -> None:
        event = self._memory.get(metadata.key)
        if event is None or event.metadata != metadata:
            event = CarriedEvent(metadata, None)
            self._receive(event, session.generated, now_us)
        session.announced[metadata.digest] = event

    def on_data(self, sender: NodeId, message: EventData) -> None:
        """Stores the bytes of events whose metadata arrived before."""
        session = self._sessions.get((sender, message.exchange))
        for content in message.data:
            event = None
            if session is not None:
                event = session.announced.pop(sha256(content).digest(), None)
            if event is None or len(content) != event.metadata.size:
                self._services.dropped["corrupt events"] += 1
            else:
                event.data = content

    def check(self) -> None:
        """Asserts the limits."""
        assert len(self._sessions) <= SESSIONS_MAX


def _size_order(event: CarriedEvent) -> tuple[int, int]:
    """Small events first, of equal size the newest first."""
    return event.metadata.size, -event.metadata.published_us


def _batches(contents: Iterable[bytes | None]) -> list[tuple[bytes, ...]]:
    """Groups contents, in order, into batches of a limited size."""
    batches: list[list[bytes]] = []
    left = 0
    for content in contents:
        if content is None:
            continue
        if not batches or left < len(content):
            batches.append([])
            left = BATCH_BYTES
        batches[-1].append(content)
        left -= len(content)
    return [tuple(batch) for batch in batches]
