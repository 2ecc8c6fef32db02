"""Archived chunks: a few thousand objects of history in the file, as slots and postings.

The objects of a chunk stand in its slots in the order of history. Of each slot the file has the
time of publication and the number of the record; of each tag the slots that carry it, as a list
where they are few and as bits where they are many. Nothing of this changes but the mark of those
that left. Which chunks there are is the business of `archive`.
Clauses: M11, M14, M17.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag

_LIST, _BITS = b"l", b"b"
_LIST_MAX = 32
"""Up to so many slots, a list is smaller and about as fast."""

Column = Mapping[int, int]
"""The postings of a tag: for each chunk that has it, its slots as bits."""


class Outline(msgspec.Struct, array_like=True):
    """What is kept in memory of a chunk; `dead` are the slots of those that left, as bits."""

    number: int
    low_us: int
    high_us: int
    size: int
    live: int
    summary_bytes: int
    object_bytes: int
    dead_bytes: bytes = b""

    @property
    def dead(self) -> int:
        return int.from_bytes(self.dead_bytes, "little")

    def bury(self, slot: int, metadata: Metadata) -> None:
        """Marks a slot whose object left."""
        dead = self.dead | 1 << slot
        self.dead_bytes = dead.to_bytes((dead.bit_length() + 7) // 8, "little")
        self.live -= 1
        self.summary_bytes -= len(metadata.summary)
        self.object_bytes -= metadata.size


class Slots(msgspec.Struct, array_like=True):
    """When the objects of a chunk were published, where their records are, and all their tags."""

    times: bytes
    records: bytes
    tags: bytes

    def read(self) -> OpenSlots:
        """To look things up in."""
        return OpenSlots(array("q", self.times), array("q", self.records))

    def all_tags(self) -> list[str]:
        """The tags that its objects have, or had."""
        return msgspec.msgpack.decode(self.tags, type=list[str])


class OpenSlots:
    """The slots of a chunk, to look things up in."""

    __slots__ = ("records", "times")

    def __init__(self, times: array[int], records: array[int]) -> None:
        self.times = times
        self.records = records

    def before(self, at_us: int) -> int:
        """The slots of what was published before an instant, as bits."""
        return (1 << bisect_left(self.times, at_us)) - 1

    def at(self, at_us: int) -> range:
        """The slots of what was published at an instant."""
        return range(bisect_left(self.times, at_us), bisect_left(self.times, at_us + 1))


Numbered = tuple[int, Metadata]
"""An object, after the number of its record."""


def outline(number: int, objects: Sequence[Numbered]) -> Outline:
    """The outline of a chunk of these objects, which are in the order of history."""
    return Outline(
        number,
        objects[0][1].published_us,
        objects[-1][1].published_us,
        len(objects),
        len(objects),
        sum(len(metadata.summary) for _, metadata in objects),
        sum(metadata.size for _, metadata in objects),
    )


def postings(objects: Sequence[Numbered]) -> dict[Tag, bytes]:
    """For each tag, its slots as they are written."""
    slots_by_tag: dict[Tag, list[int]] = {}
    for slot, (_, metadata) in enumerate(objects):
        for tag in metadata.tags:
            slots_by_tag.setdefault(tag, []).append(slot)
    return {tag: _written(slots_by_tag[tag]) for tag in sorted(slots_by_tag)}


def slots(objects: Sequence[Numbered], tags: Sequence[Tag]) -> Slots:
    """The slots as they are written."""
    times = array("q", [metadata.published_us for _, metadata in objects])
    records = array("q", [number for number, _ in objects])
    return Slots(times.tobytes(), records.tobytes(), msgspec.msgpack.encode(tags))


def _written(slots: Sequence[int]) -> bytes:
    if len(slots) <= _LIST_MAX:
        return _LIST + array("H", slots).tobytes()
    octets = bytearray(slots[-1] // 8 + 1)
    for slot in slots:
        octets[slot >> 3] |= 1 << (slot & 7)
    return _BITS + octets


def bits_of(posting: bytes) -> int:
    """The slots of a posting, as bits."""
    if posting[:1] == _BITS:
        return int.from_bytes(posting[1:], "little")
    bits = 0
    for slot in array("H", posting[1:]):
        bits |= 1 << slot
    return bits


def matches(conjunctions: Sequence[Conjunction], columns: Mapping[Tag, Column], number: int) -> int:
    """The slots of a chunk that satisfy at least one conjunction, as bits."""
    found = 0
    for conjunction in conjunctions:
        bits = -1
        for tag in conjunction.positive:
            bits &= columns[tag].get(number, 0)
            if not bits:
                break
        else:
            for tag in conjunction.negative:
                bits &= ~columns[tag].get(number, 0)
            found |= bits
    return found


def highest(bits: int, count: int) -> Iterator[int]:
    """The numbers of the `count` highest bits, highest first."""
    while bits and count > 0:
        top = bits.bit_length() - 1
        yield top
        bits ^= 1 << top
        count -= 1
