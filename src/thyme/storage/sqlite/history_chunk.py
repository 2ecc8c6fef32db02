"""History chunks: the encoding of some thousands of archived objects as slots and postings.

The objects of a chunk are in its slots in the order of history. For each slot the file stores the
publication time and the record number; for each tag the slots of its objects, as a list if they are
few and as bits if they are many. Only the bitmap of removed objects ever changes. `history_archive`
manages the chunks.
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
"""Up to this number of slots, a list is smaller than bits and about as fast."""

TagBits = Mapping[int, int]
"""The postings of a tag: for each chunk in which the tag occurs, its slots as bits."""


class ChunkSummary(msgspec.Struct, array_like=True):
    """The part of a chunk that is kept in memory; `removed_bits` are the removed slots."""

    number: int
    low_us: int
    high_us: int
    slot_count: int
    live_count: int
    summary_bytes: int
    object_bytes: int
    removed_bitmap: bytes = b""

    @property
    def removed_bits(self) -> int:
        return int.from_bytes(self.removed_bitmap, "little")

    def mark_removed(self, slot: int, metadata: Metadata) -> None:
        """Marks the object in a slot as removed."""
        removed = self.removed_bits | 1 << slot
        self.removed_bitmap = removed.to_bytes((removed.bit_length() + 7) // 8, "little")
        self.live_count -= 1
        self.summary_bytes -= len(metadata.summary)
        self.object_bytes -= metadata.size


class StoredSlots(msgspec.Struct, array_like=True):
    """The publication times, record numbers and tags of a chunk's objects, as stored."""

    times: bytes
    records: bytes
    tags: bytes

    def decode(self) -> ChunkSlots:
        """Decodes times and record numbers."""
        return ChunkSlots(array("q", self.times), array("q", self.records))

    def all_tags(self) -> list[str]:
        """Returns the tags of all objects, including removed ones."""
        return msgspec.msgpack.decode(self.tags, type=list[str])


class ChunkSlots:
    """The decoded slots of a chunk: publication times and record numbers."""

    __slots__ = ("records", "times")

    def __init__(self, times: array[int], records: array[int]) -> None:
        self.times = times
        self.records = records

    def slots_before(self, at_us: int) -> int:
        """Returns the slots of the objects published before an instant, as bits."""
        return (1 << bisect_left(self.times, at_us)) - 1

    def slots_at(self, at_us: int) -> range:
        """Returns the slots of the objects published at an instant."""
        return range(bisect_left(self.times, at_us), bisect_left(self.times, at_us + 1))


NumberedObject = tuple[int, Metadata]
"""A record number and its object."""


def summarise_chunk(number: int, objects: Sequence[NumberedObject]) -> ChunkSummary:
    """Makes the summary of a chunk; `objects` must be in the order of history."""
    return ChunkSummary(
        number,
        objects[0][1].published_us,
        objects[-1][1].published_us,
        len(objects),
        len(objects),
        sum(len(metadata.summary) for _, metadata in objects),
        sum(metadata.size for _, metadata in objects),
    )


def encode_postings(objects: Sequence[NumberedObject]) -> dict[Tag, bytes]:
    """Encodes the postings of each tag."""
    slots_by_tag: dict[Tag, list[int]] = {}
    for slot, (_, metadata) in enumerate(objects):
        for tag in metadata.tags:
            slots_by_tag.setdefault(tag, []).append(slot)
    return {tag: _encode_posting(slots_by_tag[tag]) for tag in sorted(slots_by_tag)}


def encode_slots(objects: Sequence[NumberedObject], tags: Sequence[Tag]) -> StoredSlots:
    """Encodes the slots of a chunk."""
    times = array("q", [metadata.published_us for _, metadata in objects])
    records = array("q", [number for number, _ in objects])
    return StoredSlots(times.tobytes(), records.tobytes(), msgspec.msgpack.encode(tags))


def _encode_posting(slots: Sequence[int]) -> bytes:
    if len(slots) <= _LIST_MAX:
        return _LIST + array("H", slots).tobytes()
    bitmap = bytearray(slots[-1] // 8 + 1)
    for slot in slots:
        bitmap[slot >> 3] |= 1 << (slot & 7)
    return _BITS + bitmap


def decode_posting(posting: bytes) -> int:
    """Decodes the slots of a posting, as bits."""
    if posting[:1] == _BITS:
        return int.from_bytes(posting[1:], "little")
    bits = 0
    for slot in array("H", posting[1:]):
        bits |= 1 << slot
    return bits


def matching_slots(
    conjunctions: Sequence[Conjunction], tag_bits: Mapping[Tag, TagBits], number: int
) -> int:
    """Returns the slots of a chunk that satisfy any conjunction, as bits."""
    found = 0
    for conjunction in conjunctions:
        bits = -1
        for tag in conjunction.positive:
            bits &= tag_bits[tag].get(number, 0)
            if not bits:
                break
        else:
            for tag in conjunction.negative:
                bits &= ~tag_bits[tag].get(number, 0)
            found |= bits
    return found


def highest_bits(bits: int, count: int) -> Iterator[int]:
    """Yields the numbers of the `count` highest set bits, highest first."""
    while bits and count > 0:
        top = bits.bit_length() - 1
        yield top
        bits ^= 1 << top
        count -= 1


def lowest_bits(bits: int, count: int) -> Iterator[int]:
    """Yields the numbers of the `count` lowest set bits, lowest first."""
    while bits and count > 0:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
        count -= 1
