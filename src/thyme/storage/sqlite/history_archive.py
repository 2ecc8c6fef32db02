"""History archive: history in the file of an SQLite store, for a fast start and bounded memory.

Entry point: `ArchivedHistory`. The most recently arrived objects are indexed in memory. When they
would fill two chunks, the first half of them is written as a chunk of the archive: its slots and
postings; the records stay where they are. A chunk that lost more than half of its objects is
rewritten, merged with a neighbour if both are small. All changes are part of the transaction of the
input that causes them, so after kill -9 the archive agrees with the records. It is rebuilt from the
records if their number differs, i.e. if another program changed the table. Chunks are in order of
time as far as objects arrive in order; the results of overlapping chunks are merged.
`history_chunk` encodes the chunks, `history_tables` reads and writes them.
Clauses: M11, M14, M17, M24, M25, M29, M34.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import TimeFrame, earliest
from thyme.query.cursor import Cursor
from thyme.query.history_index.chunk import order_key
from thyme.storage.history import MemoryHistory
from thyme.storage.sqlite.history_chunk import (
    ChunkSummary,
    NumberedObject,
    TagBits,
    highest_bits,
    lowest_bits,
    matching_slots,
    summarise_chunk,
)
from thyme.storage.sqlite.history_tables import Database, HistoryTables
from thyme.storage.store import RecordTable

CHUNK_SIZE = 4_096
RECENT_SUMMARY_BYTES_MAX = 16 * 2**20
"""Maximum size of the summaries in memory; chunks with large summaries have fewer objects."""

ChunkMatches = list[tuple[ChunkSummary, int]]


class ArchivedHistory:
    """A history with the most recently arrived objects in memory and the others in the file."""

    def __init__(
        self, database: Database, table: RecordTable[Metadata], chunk_size: int = CHUNK_SIZE
    ) -> None:
        assert 2 <= chunk_size <= 2**16
        self._tables = HistoryTables(database, table)
        self._chunk_size = chunk_size
        self._oldest: Metadata | None = None
        self._last_query: tuple[tuple[Sequence[Conjunction], TimeFrame], ChunkMatches] | None = None
        """The last query and its matches."""
        self._load()
        if len(self) != self._tables.count_records():
            self._tables.clear()
            self._load()

    # The objects

    @property
    def summary_bytes(self) -> int:
        return self._recent.summary_bytes + self._summary_bytes

    @property
    def object_bytes(self) -> int:
        return self._recent.object_bytes + self._object_bytes

    def __len__(self) -> int:
        return len(self._recent) + self._archived_count

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def get(self, key: Key) -> Metadata | None:
        found = self._recent.get(key)
        if found is None and self._chunks:
            numbered = self._tables.find_object(key, self._last_record)
            return None if numbered is None else numbered[1]
        return found

    def add(self, metadata: Metadata) -> bool:
        if not self._recent.add(metadata):
            return False
        if self._oldest is not None and order_key(metadata) < order_key(self._oldest):
            self._oldest = None
        if self._is_recent_full():
            self._archive_first_half()
        return True

    def remove(self, key: Key) -> Metadata | None:
        if self._oldest is not None and self._oldest.key == key:
            self._oldest = None
        metadata = self._recent.remove(key)
        if (
            metadata is None
            and self._chunks
            and (numbered := self._tables.find_object(key, self._last_record)) is not None
        ):
            metadata = numbered[1]
            self._mark_removed(*numbered)
        return metadata

    def __iter__(self) -> Iterator[Metadata]:
        """Yields all objects, oldest first; overlapping chunks are merged."""
        if not self._chunks:
            yield from self._recent
            return
        overlapping: list[Iterator[Metadata]] = []
        high_us = 0
        recent = self._recent.oldest()
        parts: list[tuple[int, int, Iterable[Metadata]]] = [
            (chunk.low_us, chunk.high_us, self._chunk_objects(chunk)) for chunk in self._chunks
        ]
        if recent is not None:
            *_, newest = self._recent
            parts.append((recent.published_us, newest.published_us, self._recent))
        for low_us, end_us, objects in sorted(parts, key=lambda part: part[0]):
            if overlapping and low_us > high_us:
                yield from merge(*overlapping, key=order_key)
                overlapping = []
            high_us = max(high_us, end_us) if overlapping else end_us
            overlapping.append(iter(objects))
        yield from merge(*overlapping, key=order_key)

    def oldest(self) -> Metadata | None:
        if self._oldest is None:
            best = self._recent.oldest()
            for chunk in sorted(self._chunks, key=lambda chunk: chunk.low_us):
                if best is not None and chunk.low_us > best.published_us:
                    break
                first = next(self._tables.chunk_objects(chunk, 1))[1]
                if best is None or order_key(first) < order_key(best):
                    best = first
            self._oldest = best
        return self._oldest

    # Queries

    def count_matches(self, conjunctions: Sequence[Conjunction], frame: TimeFrame) -> int:
        found = self._matching_chunks(conjunctions, frame)
        archived = sum(bits.bit_count() for _, bits in found)
        return archived + self._recent.count_matches(conjunctions, frame)

    def latest_matches(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        before: Cursor | None = None,
    ) -> list[Metadata]:
        if count <= 0:
            return []
        page = self._recent.latest_matches(conjunctions, frame, count, before)
        times = [metadata.published_us for metadata in page]
        candidates: list[tuple[int, int]] = []  # when published, and the record's number
        for chunk, bits in sorted(
            self._matching_chunks(conjunctions, frame),
            key=lambda found: found[0].high_us,
            reverse=True,
        ):
            times = sorted(times, reverse=True)[:count]
            if len(times) == count and chunk.high_us < times[-1]:
                break
            if before is not None:
                bits = self._filter_before(chunk, bits, before)
            slots = self._tables.load_slots(chunk)
            for slot in highest_bits(bits, count):
                times.append(slots.times[slot])
                candidates.append((slots.times[slot], slots.records[slot]))
        if candidates:
            # All objects published at the instant where the page ends; their keys decide then.
            last_us = sorted(times, reverse=True)[:count][-1]
            records = [record for at_us, record in candidates if at_us >= last_us]
            page += (metadata for _, metadata in self._tables.load_objects(records))
            page = sorted(page, key=order_key, reverse=True)[:count]
        return page

    def earliest_matches(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        after: Cursor | None = None,
    ) -> list[Metadata]:
        if count <= 0:
            return []
        page = self._recent.earliest_matches(conjunctions, frame, count, after)
        times = [metadata.published_us for metadata in page]
        candidates: list[tuple[int, int]] = []  # when published, and the record's number
        for chunk, bits in sorted(
            self._matching_chunks(conjunctions, frame), key=lambda found: found[0].low_us
        ):
            times = sorted(times)[:count]
            if len(times) == count and chunk.low_us > times[-1]:
                break
            if after is not None:
                bits = self._filter_after(chunk, bits, after)
            slots = self._tables.load_slots(chunk) if bits else None
            for slot in lowest_bits(bits, count):
                assert slots is not None
                times.append(slots.times[slot])
                candidates.append((slots.times[slot], slots.records[slot]))
        if candidates:
            last_us = sorted(times)[:count][-1]
            records = [record for at_us, record in candidates if at_us <= last_us]
            page += (metadata for _, metadata in self._tables.load_objects(records))
            page = sorted(page, key=order_key)[:count]
        return page

    def next_expiry_us(self) -> int | None:
        return earliest(self._recent.next_expiry_us(), self._archived_expiry_us)

    def expired_keys(self, now_us: int) -> list[Key]:
        recent = [(self._recent.get(key), key) for key in self._recent.expired_keys(now_us)]
        found = [(metadata.expires_us or 0, key) for metadata, key in recent if metadata]
        if self._archived_expiry_us is not None and self._archived_expiry_us <= now_us:
            archived = self._tables.expired_objects(now_us)
            found += [(metadata.expires_us or 0, metadata.key) for metadata in archived]
        return [key for _, key in sorted(found)]

    def _matching_chunks(
        self, conjunctions: Sequence[Conjunction], frame: TimeFrame
    ) -> ChunkMatches:
        """Returns the chunks with matches inside the frame, and the slots of the matches."""
        query = (conjunctions, frame)
        if self._last_query is None or self._last_query[0] != query:
            self._last_query = (query, list(self._search_chunks(conjunctions, frame)))
        return self._last_query[1]

    def _search_chunks(
        self, conjunctions: Sequence[Conjunction], frame: TimeFrame
    ) -> Iterator[tuple[ChunkSummary, int]]:
        start_us, end_us = frame.start_us, frame.end_us
        chunks = [
            chunk
            for chunk in self._chunks
            if (start_us is None or start_us <= chunk.high_us)
            and (end_us is None or chunk.low_us <= end_us)
        ]
        if not chunks:
            return
        first, last = chunks[0].number, chunks[-1].number
        tag_bits: dict[Tag, TagBits] = {}
        for conjunction in conjunctions:
            for tag in (*conjunction.positive, *conjunction.negative):
                if tag not in tag_bits:
                    tag_bits[tag] = self._tables.load_tag_bits(tag, first, last)
        for chunk in chunks:
            bits = matching_slots(conjunctions, tag_bits, chunk.number)
            if bits:
                bits &= ~chunk.removed_bits
            if bits and end_us is not None and chunk.high_us > end_us:
                bits &= self._tables.load_slots(chunk).slots_before(end_us + 1)
            if bits and start_us is not None and chunk.low_us < start_us:
                bits &= ~self._tables.load_slots(chunk).slots_before(start_us)
            if bits:
                yield chunk, bits

    def _filter_before(self, chunk: ChunkSummary, bits: int, before: Cursor) -> int:
        """Returns the slots, of those in `bits`, that are before a cursor."""
        if chunk.high_us < before.published_us:
            return bits
        slots = self._tables.load_slots(chunk)
        inside = bits & slots.slots_before(before.published_us)
        for slot in slots.slots_at(before.published_us):
            if bits >> slot & 1:
                [(_, metadata)] = self._tables.load_objects([slots.records[slot]])
                if metadata.key < before.key:
                    inside |= 1 << slot
        return inside

    def _filter_after(self, chunk: ChunkSummary, bits: int, after: Cursor) -> int:
        """Returns the slots, of those in `bits`, that are after a cursor."""
        if chunk.high_us < after.published_us:
            return 0
        if chunk.low_us > after.published_us:
            return bits
        slots = self._tables.load_slots(chunk)
        outside = slots.slots_before(after.published_us)
        for slot in slots.slots_at(after.published_us):
            if bits >> slot & 1:
                [(_, metadata)] = self._tables.load_objects([slots.records[slot]])
                if metadata.key <= after.key:
                    outside |= 1 << slot
        return bits & ~outside

    # Reading

    def _load(self) -> None:
        """Loads the summaries of all chunks, and the records that are in no chunk."""
        self._recent = MemoryHistory()
        self._oldest = None
        self._last_query = None
        self._last_record, self._chunks_made = self._tables.read_progress()
        self._chunks = self._tables.load_summaries()  # in the order of their numbers
        self._archived_count = sum(chunk.live_count for chunk in self._chunks)
        self._summary_bytes = sum(chunk.summary_bytes for chunk in self._chunks)
        self._object_bytes = sum(chunk.object_bytes for chunk in self._chunks)
        self._archived_expiry_us = self._tables.next_expiry_us()
        last = self._last_record
        while numbered := self._tables.records_after(last, self._chunk_size):
            last = numbered[-1][0]
            for _, metadata in numbered:
                self._recent.add(metadata)
            while self._is_recent_full():
                self._archive_first_half()

    def _is_recent_full(self) -> bool:
        count = len(self._recent)
        return count >= 2 * self._chunk_size or (
            count > 1 and self._recent.summary_bytes > RECENT_SUMMARY_BYTES_MAX
        )

    def _chunk_objects(self, chunk: ChunkSummary) -> Iterator[Metadata]:
        return (metadata for _, metadata in self._tables.chunk_objects(chunk))

    # Writing

    def _archive_first_half(self) -> None:
        """Moves the first half of the objects in memory to a new chunk."""
        count = min(self._chunk_size, len(self._recent) // 2)
        numbers = self._tables.record_numbers_after(self._last_record, count)
        objects = list(self._recent)
        chunk = [(numbers[one.key], one) for one in objects if one.key in numbers]
        self._recent = MemoryHistory(one for one in objects if one.key not in numbers)
        self._last_record = max(numbers.values())
        self._write_chunk(chunk)
        expiries = [(one.expires_us, number) for number, one in chunk if one.expires_us is not None]
        if expiries:
            self._tables.add_expiries(expiries)
            self._archived_expiry_us = self._tables.next_expiry_us()

    def _write_chunk(self, objects: Sequence[NumberedObject]) -> None:
        chunk = summarise_chunk(self._chunks_made, objects)
        self._tables.write_chunk(chunk, objects)
        self._chunks_made += 1
        self._tables.write_progress(self._last_record, self._chunks_made)
        self._chunks.append(chunk)
        self._add_to_totals(chunk, 1)
        self._last_query = None

    def _add_to_totals(self, chunk: ChunkSummary, sign: int) -> None:
        self._archived_count += sign * chunk.live_count
        self._summary_bytes += sign * chunk.summary_bytes
        self._object_bytes += sign * chunk.object_bytes

    def _mark_removed(self, number: int, metadata: Metadata) -> None:
        """Marks an archived object as removed."""
        chunk, slot = self._find_slot(number, metadata.published_us)
        self._add_to_totals(chunk, -1)
        chunk.mark_removed(slot, metadata)
        self._add_to_totals(chunk, 1)
        self._last_query = None
        if metadata.expires_us is not None:
            self._tables.remove_expiry(metadata.expires_us, number)
            if metadata.expires_us == self._archived_expiry_us:
                self._archived_expiry_us = self._tables.next_expiry_us()
        if 2 * chunk.live_count < chunk.slot_count:
            self._compact(chunk)
        else:
            self._tables.write_summary(chunk)

    def _find_slot(self, number: int, published_us: int) -> tuple[ChunkSummary, int]:
        for chunk in self._chunks:
            if chunk.low_us <= published_us <= chunk.high_us:
                slots = self._tables.load_slots(chunk)
                for slot in slots.slots_at(published_us):
                    if slots.records[slot] == number:
                        return chunk, slot
        raise AssertionError(f"record {number} is archived but in no chunk")

    def _compact(self, chunk: ChunkSummary) -> None:
        """Rewrites a chunk of mostly removed objects; merges it with a neighbour if both together
        fill at most half a chunk."""
        old = [chunk]
        ordered = sorted(self._chunks, key=lambda chunk: (chunk.low_us, chunk.number))
        at = ordered.index(chunk)
        for other in (*ordered[max(0, at - 1) : at], *ordered[at + 1 : at + 2]):
            if 2 * (chunk.live_count + other.live_count) <= self._chunk_size:
                old.append(other)
                break
        objects = [one for part in old for one in self._tables.chunk_objects(part)]
        objects.sort(key=lambda numbered: order_key(numbered[1]))
        for part in old:
            self._drop_chunk(part)
        if objects:
            self._write_chunk(objects)

    def _drop_chunk(self, chunk: ChunkSummary) -> None:
        self._tables.drop_chunk(chunk)
        self._chunks.remove(chunk)
        self._add_to_totals(chunk, -1)
        self._last_query = None
