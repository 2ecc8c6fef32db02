"""Events: the objects that devices carry from encounter to encounter.

Entry points: `CarriedEvent`, `pack_events` and `unpack_events`. An event is an object with its
metadata: name (key), topics (tags), time stamp and location (U4). Its reputation is counted by each
device for itself and is not sent: a received number would only be as trustworthy as its sender.
Clauses: U3, U4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag
from thyme.substrates.encounters.location_topics import topics_of


class CarriedEvent:
    """An event as a device keeps it."""

    __slots__ = ("data", "key", "metadata", "reputation", "topics")

    def __init__(self, metadata: Metadata, data: bytes | None) -> None:
        self.metadata = metadata
        self.key: Key = metadata.key
        self.data = data
        """The bytes of the event; None while only its metadata has arrived."""
        self.topics: frozenset[Tag] = topics_of(metadata.tags)
        self.reputation = 0
        """How often the event was received again or, in the irrelevant list, disseminated (U6)."""

    def __repr__(self) -> str:
        return f"CarriedEvent({self.key}, reputation {self.reputation})"


def pack_events(events: Iterable[CarriedEvent]) -> tuple[tuple[Metadata, ...], tuple[bytes, ...]]:
    """The metadata and the bytes of events, as messages carry them; events whose bytes have not
    arrived are left out."""
    chosen = [(event.metadata, event.data) for event in events if event.data is not None]
    return tuple(metadata for metadata, _ in chosen), tuple(data for _, data in chosen)


def unpack_events(
    items: tuple[Metadata, ...], data: tuple[bytes, ...], find: Callable[[Key], CarriedEvent | None]
) -> tuple[list[CarriedEvent], int]:
    """The events of a message, and how many lack their bytes or have others than described.

    An event that `find` knows with the same metadata is returned as it is: its bytes are not
    needed, and most events of an exchange are known.
    """
    events: list[CarriedEvent] = []
    by_digest: dict[bytes, bytes] | None = None
    for place, metadata in enumerate(items):
        known = find(metadata.key)
        if known is not None and known.metadata == metadata and known.data is not None:
            events.append(known)
            continue
        # The bytes are at the same place, unless an item before was refused for its signature.
        if place < len(data) and metadata.matches_content(data[place]):
            events.append(CarriedEvent(metadata, data[place]))
            continue
        if by_digest is None:
            by_digest = {sha256(content).digest(): content for content in data}
        content = by_digest.get(metadata.digest)
        if content is not None and len(content) == metadata.size:
            events.append(CarriedEvent(metadata, content))
    return events, len(items) - len(events)
