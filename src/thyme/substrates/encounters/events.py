"""Events: the objects that devices carry from encounter to encounter.

Entry points: `Event`, `pack_events` and `unpack_events`. An event is an object with its metadata:
name (key), topics (tags), time stamp and location (U4). Its reputation is counted by each device
for itself and is not sent: a received number would only be as trustworthy as its sender.
Clauses: U3, U4.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag
from thyme.substrates.encounters.location_topics import topics_of


class Event:
    """An event as a device keeps it."""

    __slots__ = ("data", "key", "metadata", "reputation", "topics")

    def __init__(self, metadata: Metadata, data: bytes) -> None:
        self.metadata = metadata
        self.key: Key = metadata.key
        self.data = data
        self.topics: frozenset[Tag] = topics_of(metadata.tags)
        self.reputation = 0
        """How often the event was received again or, in the irrelevant list, disseminated (U6)."""

    def __repr__(self) -> str:
        return f"Event({self.key}, reputation {self.reputation})"


def pack_events(events: Iterable[Event]) -> tuple[tuple[Metadata, ...], tuple[bytes, ...]]:
    """The metadata and the bytes of events, as messages carry them."""
    chosen = tuple(events)
    return tuple(event.metadata for event in chosen), tuple(event.data for event in chosen)


def unpack_events(
    items: tuple[Metadata, ...], data: tuple[bytes, ...]
) -> tuple[list[tuple[Metadata, bytes]], int]:
    """The events of a message, and how many lack their bytes or have others than described."""
    by_digest: dict[bytes, bytes] = {sha256(content).digest(): content for content in data}
    events: list[tuple[Metadata, bytes]] = []
    for metadata in items:
        content = by_digest.get(metadata.digest)
        if content is not None and len(content) == metadata.size:
            events.append((metadata, content))
    return events, len(items) - len(events)
