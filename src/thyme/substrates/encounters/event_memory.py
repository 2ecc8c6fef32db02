"""Event memory: the events of a device, and the rules by which they leave it.

Entry points: `EventMemory`, the base with the device's own events, which are never discarded;
`ThreeLists`, the memory of MobUser; `SingleList`, the memory of its rivals.
Clauses: U6, U7.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from enum import Enum, auto

import msgspec

from thyme.model.errors import OptionError, RejectedError
from thyme.model.ids import Key
from thyme.model.tags import Tag
from thyme.substrates.encounters.events import Event

MEMORY_EVENTS = 20
"""The number of foreign events a device keeps, in all protocols of the MobUser paper."""
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
        self.own: dict[Key, Event] = {}
        self.version = 0
        """Grows with every event that is added."""

    def add_own(self, event: Event) -> None:
        """Adds an event of this device."""
        if len(self.own) >= OWN_EVENTS_MAX:
            raise RejectedError(f"a device publishes at most {OWN_EVENTS_MAX:,} events")
        self.own[event.key] = event
        self.version += 1

    def __iter__(self) -> Iterator[Event]:
        """All events, in the order in which they are sent."""
        yield from self.own.values()
        yield from self._kept()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def get(self, key: Key) -> Event | None:
        """The event with a key; None if it is not in the memory."""
        return self.own.get(key) or self._find(key)

    def matching(self, topics: frozenset[Tag]) -> list[Event]:
        """The events that have one of these topics, in the order in which they are sent."""
        return [event for event in self if not topics.isdisjoint(event.topics)]

    def drop_expired(self, now_us: int) -> None:
        """Removes events whose time to live has ended (M29)."""
        for event in [event for event in self if event.metadata.has_expired(now_us)]:
            if self.own.pop(event.key, None) is None:
                self._remove(event.key)

    @abstractmethod
    def _kept(self) -> Iterator[Event]:
        """The events of other devices, in the order in which they are sent."""

    @abstractmethod
    def _find(self, key: Key) -> Event | None:
        """An event of another device."""

    @abstractmethod
    def _remove(self, key: Key) -> None:
        """Removes an event of another device."""

    @abstractmethod
    def check(self) -> None:
        """Asserts the limits of the memory."""


class ListSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of MobUser: the number of events, and the shares of the three lists (U6)."""

    memory_events: int = MEMORY_EVENTS
    recent_share: float = 0.7
    irrelevant_share: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.memory_events <= 1_000_000:
            raise OptionError(f"a memory has 1 to 1,000,000 events, not {self.memory_events}")
        shares = self.recent_share, self.irrelevant_share
        if not (min(shares) >= 0 and sum(shares) <= 1 + 1e-9):
            raise OptionError(
                "the recent and the irrelevant list have shares of at least 0, together at most 1, "
                f"not {self.recent_share} and {self.irrelevant_share}"
            )

    @property
    def recent(self) -> int:
        """Capacity of the recent list."""
        return min(round(self.memory_events * self.recent_share), self.memory_events)

    @property
    def irrelevant(self) -> int:
        """Capacity of the irrelevant list."""
        return min(
            round(self.memory_events * self.irrelevant_share), self.memory_events - self.recent
        )

    @property
    def popular(self) -> int:
        """Capacity of the popular list: the rest of the memory."""
        return self.memory_events - self.recent - self.irrelevant


class ThreeLists(EventMemory):
    """The memory of MobUser: recent, popular and irrelevant events (U6).

    Each list is a dict in the order of addition, so its first entry was added longest ago and is
    the one that a full list discards.
    """

    def __init__(self, sizes: ListSizes) -> None:
        super().__init__()
        self._sizes = sizes
        self._recent: dict[Key, Event] = {}
        self._popular: dict[Key, Event] = {}
        self._irrelevant: dict[Key, Event] = {}

    @property
    def recent(self) -> list[Event]:
        """The recent events, newest first."""
        return list(reversed(self._recent.values()))

    @property
    def popular(self) -> list[Event]:
        """The popular events, highest reputation first."""
        return sorted(self._popular.values(), key=lambda event: -event.reputation)

    @property
    def irrelevant(self) -> list[Event]:
        """The events in topics of no interest to the user, least disseminated first."""
        return sorted(self._irrelevant.values(), key=lambda event: event.reputation)

    def receive(
        self, event: Event, generated: frozenset[Tag], user_topics: frozenset[Tag]
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
            self._put(self._popular, known, self._sizes.popular)
            return Reception.KNOWN
        self._irrelevant.pop(key, None)  # the user has subscribed to its topic meanwhile
        self._put(self._recent, event, self._sizes.recent)
        return Reception.NEW

    def _receive_irrelevant(self, event: Event) -> Reception:
        if self.get(event.key) is not None:
            return Reception.IRRELEVANT
        if self._sizes.irrelevant == 0:
            return Reception.DROPPED
        self._put(self._irrelevant, event, self._sizes.irrelevant)
        return Reception.IRRELEVANT

    def _put(self, events: dict[Key, Event], event: Event, size_max: int) -> None:
        if size_max == 0:
            return
        if len(events) >= size_max:
            del events[next(iter(events))]
        events[event.key] = event
        self.version += 1

    def on_sent(self, events: Collection[Event]) -> None:
        """Counts that events of the irrelevant list were disseminated."""
        for event in events:
            if event.key in self._irrelevant:
                event.reputation += 1

    def _kept(self) -> Iterator[Event]:
        yield from self.recent
        yield from self.popular
        yield from self.irrelevant

    def _find(self, key: Key) -> Event | None:
        return self._recent.get(key) or self._popular.get(key) or self._irrelevant.get(key)

    def _remove(self, key: Key) -> None:
        for events in (self._recent, self._popular, self._irrelevant):
            events.pop(key, None)

    def check(self) -> None:
        assert len(self._recent) <= self._sizes.recent
        assert len(self._popular) <= self._sizes.popular
        assert len(self._irrelevant) <= self._sizes.irrelevant


class WhenFull(Enum):
    """What a rival of MobUser does with an event that reaches a full memory."""

    REFUSE = "refuse"
    """The memory takes no more events: the MobUser paper says that rivals store events until
    their memory is full, and that their reliability suffers from it."""
    REPLACE = "replace"
    """The event that was added longest ago makes place, as in the lists of MobUser."""


class SingleList(EventMemory):
    """The memory of MFPS and RAPID: one list of the same size as MobUser's three (U7)."""

    def __init__(self, memory_events: int, when_full: WhenFull) -> None:
        super().__init__()
        self._memory_events = memory_events
        self._when_full = when_full
        self._events: dict[Key, Event] = {}

    def receive(self, event: Event) -> Reception:
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

    def _kept(self) -> Iterator[Event]:
        return reversed(self._events.values())

    def _find(self, key: Key) -> Event | None:
        return self._events.get(key)

    def _remove(self, key: Key) -> None:
        self._events.pop(key, None)

    def check(self) -> None:
        assert len(self._events) <= self._memory_events
