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


class ThreeLists(EventMemory):
    """The memory of MobUser: recent, popular and irrelevant events (U6).

    Each list is a dict in the order of addition, so its first entry was added longest ago and is
    the one that a full list discards.
    """

    def __init__(self, sizes: ListSizes) -> None:
        super().__init__()
        self._recent_max = sizes.recent
        self._popular_max = sizes.popular
        self._irrelevant_max = sizes.irrelevant
        self._recent: dict[Key, CarriedEvent] = {}
        self._popular: dict[Key, CarriedEvent] = {}
        self._irrelevant: dict[Key, CarriedEvent] = {}

    @property
    def recent(self) -> list[CarriedEvent]:
        """The recent events, newest first."""
        return list(reversed(self._recent.values()))

    @property
    def popular(self) -> list[CarriedEvent]:
        """The popular events, highest reputation first."""
        return sorted(self._popular.values(), key=lambda event: -event.reputation)

    @property
    def irrelevant(self) -> list[CarriedEvent]:
        """The events in topics of no interest to the user, least disseminated first."""
        return sorted(self._irrelevant.values(), key=lambda event: event.reputation)

    def receive(
        self, event: CarriedEvent, generated: frozenset[Tag], user_topics: frozenset[Tag]
    ) -> Reception:
        """Stores a received event by the rules of U6."""
        key, topics = event.key, event.topics
        if generated.isdisjoint(topics):
            return Reception.DROPPED
        if user_topics.isdisjoint(topics):
            return self._receive_irrelevant(event)
        known = self.own.get(key) or self._popular.get(key)
        if known is not None:
            known.reputation += 1
            return Reception.KNOWN
        known = self._recent.pop(key, None)
        if known is not None:
            known.reputation += 1
            self._put(self._popular, known, self._popular_max)
            return Reception.KNOWN
        if self._irrelevant.pop(key, None) is not None:
            event.reputation = 0  # the user has subscribed to its topic meanwhile
        self._put(self._recent, event, self._recent_max)
        return Reception.NEW

    def _receive_irrelevant(self, event: CarriedEvent) -> Reception:
        if self.get(event.key) is not None:
            return Reception.IRRELEVANT
        if self._irrelevant_max == 0:
            return Reception.DROPPED
        self._put(self._irrelevant, event, self._irrelevant_max)
        return Reception.IRRELEVANT

    def _put(self, events: dict[Key, CarriedEvent], event: CarriedEvent, size_max: int) -> None:
        if size_max == 0:
            return
        if len(events) >= size_max:
            del events[next(iter(events))]
        events[event.key] = event
        self.version += 1

    def on_sent(self, events: Collection[CarriedEvent]) -> None:
        """Counts that events of the irrelevant list were disseminated."""
        for event in events:
            if event.key in self._irrelevant:
                event.reputation += 1

    def _kept(self) -> Iterator[CarriedEvent]:
        yield from self.recent
        yield from self.popular
        yield from self.irrelevant

    def _find(self, key: Key) -> CarriedEvent | None:
        return self._recent.get(key) or self._popular.get(key) or self._irrelevant.get(key)

    def _remove(self, key: Key) -> None:
        for events in (self._recent, self._popular, self._irrelevant):
            events.pop(key, None)

    def check(self) -> None:
        assert len(self._recent) <= self._recent_max
        assert len(self._popular) <= self._popular_max
        assert len(self._irrelevant) <= self._irrelevant_max


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
