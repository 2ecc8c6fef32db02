"""Event memory: the events of a device, and the rules by which they leave it.

Entry points: `EventMemory`, the base with the device's own events, which are never discarded;
`ThreeLists`, the memory of MobUser; `SingleList`, the memory of its rivals. This module is
compiled.
Clauses: U6, U7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from enum import Enum, auto

from thyme.model.errors import RejectedError
from thyme.model.ids import Key
from thyme.model.tags import Tag
from thyme.substrates.encounters.events import CarriedEvent
from thyme.substrates.encounters.memory_config import ListSizes, WhenFull

OWN_EVENTS_MAX = 10_000


class Reception(Enum):
    """What became of a received event."""

    DROPPED = auto()
    """It has no topic of the generated profile, or there is no space."""
    IRRELEVANT = auto()
    """It is kept for others: a topic of the generated profile, but none of the user."""
    KNOWN = auto()
    """It is in a topic of the user, and was in the memory already."""
    NEW = auto()
    """It is in a topic of the user, and was added to the memory."""


class EventMemory(ABC):
    """The events of one device; its own events are never discarded."""

    def __init__(self) -> None:
        self.own: dict[Key, CarriedEvent] = {}
        self.version = 0
        """Grows with every event that is added."""

    def add_own(self, event: CarriedEvent) -> None:
        """Adds an event of this device."""
        if len(self.own) >= OWN_EVENTS_MAX:
            raise RejectedError(f"a device publishes at most {OWN_EVENTS_MAX:,} events")
        self.own[event.key] = event
        self.version += 1

    def __iter__(self) -> Iterator[CarriedEvent]:
        """All events, in the order in which they are sent."""
        yield from self.own.values()
        yield from self._kept()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def get(self, key: Key) -> CarriedEvent | None:
        """The event with a key; None if it is not in the memory."""
        return self.own.get(key) or self._find(key)

    def matching(self, topics: frozenset[Tag]) -> list[CarriedEvent]:
        """The events that have one of these topics and can be sent, in the order in which they are
        sent."""
        return [
            event
            for event in self
            if event.data is not None and not topics.isdisjoint(event.topics)
        ]

    def drop_expired(self, now_us: int) -> None:
        """Removes events whose time to live has ended (M29)."""
        for event in [event for event in self if event.metadata.has_expired(now_us)]:
            if self.own.pop(event.key, None) is None:
                self._remove(event.key)

    @abstractmethod
    def _kept(self) -> Iterator[CarriedEvent]:
        """The events of other devices, in the order in which they are sent."""

    @abstractmethod
    def _find(self, key: Key) -> CarriedEvent | None:
        """An event of another device."""

    @abstractmethod
    def _remove(self, key: Key) -> None:
        """Removes an event of another device."""

    @abstractmethod
    def check(self) -> None:
        """Asserts the limits of the memory."""


class EventList:
    """A bounded list of events, in the order of addition: a full list discards the event that was
    added to it longest ago (U6)."""

    def __init__(self, events_max: int, bytes_max: int | None) -> None:
        self.events: dict[Key, CarriedEvent] = {}
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._bytes = 0

    def add(self, event: CarriedEvent) -> bool:
        """Adds an event; returns False if it is too large for the list."""
        size = event.metadata.size
        if self._events_max == 0 or (self._bytes_max is not None and size > self._bytes_max):
            return False
        while len(self.events) >= self._events_max or (
            self._bytes_max is not None and self._bytes + size > self._bytes_max
        ):
            self.pop(next(iter(self.events)))
        self.events[event.key] = event
        self._bytes += size
        return True

    def pop(self, key: Key) -> CarriedEvent | None:
        """Removes and returns an event."""
        event = self.events.pop(key, None)
        if event is not None:
            self._bytes -= event.metadata.size
        return event

    def check(self) -> None:
        """Asserts the limits."""
        assert len(self.events) <= self._events_max
        assert self._bytes == sum(event.metadata.size for event in self.events.values())
        assert self._bytes_max is None or self._bytes <= self._bytes_max


class ThreeLists(EventMemory):
    """The memory of MobUser: recent, popular and irrelevant events (U6)."""

    def __init__(self, sizes: ListSizes) -> None:
        super().__init__()
        self._recent = EventList(sizes.recent, sizes.bytes_of(sizes.recent))
        self._popular = EventList(sizes.popular, sizes.bytes_of(sizes.popular))
        self._irrelevant = EventList(sizes.irrelevant, sizes.bytes_of(sizes.irrelevant))

    @property
    def recent(self) -> list[CarriedEvent]:
        """The recent events, newest first."""
        return list(reversed(self._recent.events.values()))

    @property
    def popular(self) -> list[CarriedEvent]:
        """The popular events, highest reputation first."""
        return sorted(self._popular.events.values(), key=lambda event: -event.reputation)

    @property
    def irrelevant(self) -> list[CarriedEvent]:
        """The events in topics of no interest to the user, least disseminated first."""
        return sorted(self._irrelevant.events.values(), key=lambda event: event.reputation)

    def receive(
        self, event: CarriedEvent, generated: frozenset[Tag], user_topics: frozenset[Tag]
    ) -> Reception:
        """Stores a received event by the rules of U6."""
        key, topics = event.key, event.topics
        if generated.isdisjoint(topics):
            return Reception.DROPPED
        if user_topics.isdisjoint(topics):
            return self._receive_irrelevant(event)
        known = self.own.get(key) or self._popular.events.get(key)
        if known is not None:
            known.reputation += 1
            return Reception.KNOWN
        known = self._recent.pop(key)
        if known is not None:
            known.reputation += 1
            self._add(self._popular, known)
            return Reception.KNOWN
        if self._irrelevant.pop(key) is not None:
            event.reputation = 0  # the user has subscribed to its topic meanwhile
        self._add(self._recent, event)
        return Reception.NEW

    def _receive_irrelevant(self, event: CarriedEvent) -> Reception:
        if self.get(event.key) is not None or self._add(self._irrelevant, event):
            return Reception.IRRELEVANT
        return Reception.DROPPED

    def _add(self, target: EventList, event: CarriedEvent) -> bool:
        added = target.add(event)
        if added:
            self.version += 1
        return added

    def on_sent(self, events: Collection[CarriedEvent]) -> None:
        """Counts that events of the irrelevant list were disseminated."""
        for event in events:
            if event.key in self._irrelevant.events:
                event.reputation += 1

    def _kept(self) -> Iterator[CarriedEvent]:
        yield from self.recent
        yield from self.popular
        yield from self.irrelevant

    def _find(self, key: Key) -> CarriedEvent | None:
        return (
            self._recent.events.get(key)
            or self._popular.events.get(key)
            or self._irrelevant.events.get(key)
        )

    def _remove(self, key: Key) -> None:
        for events in (self._recent, self._popular, self._irrelevant):
            events.pop(key)

    def check(self) -> None:
        for events in (self._recent, self._popular, self._irrelevant):
            events.check()


class SingleList(EventMemory):
    """The memory of MFPS and RAPID: one list of the same size as MobUser's three (U7)."""

    def __init__(self, memory_events: int, when_full: WhenFull) -> None:
        super().__init__()
        self._memory_events = memory_events
        self._when_full = when_full
        self._events: dict[Key, CarriedEvent] = {}

    def receive(self, event: CarriedEvent) -> Reception:
        """Stores a received event."""
        if self.get(event.key) is not None:
            return Reception.KNOWN
        if len(self._events) >= self._memory_events:
            if self._when_full is WhenFull.REFUSE:
                return Reception.DROPPED
            del self._events[next(iter(self._events))]
        self._events[event.key] = event
        self.version += 1
        return Reception.NEW

    def _kept(self) -> Iterator[CarriedEvent]:
        return reversed(self._events.values())

    def _find(self, key: Key) -> CarriedEvent | None:
        return self._events.get(key)

    def _remove(self, key: Key) -> None:
        self._events.pop(key, None)

    def check(self) -> None:
        assert len(self._events) <= self._memory_events
