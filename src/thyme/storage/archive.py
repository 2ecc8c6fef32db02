"""History archive: history in the file of an SQLite store, for a fast start and bounded memory.

Entry point: `ArchivedHistory`. The most recently arrived objects are indexed in memory. When they
would fill two chunks, the first half of them is written as a chunk of the archive: its slots and
postings; the records stay where they are. A chunk that lost more than half of its objects is
rewritten, merged with a neighbour if both are small. All changes are part of the transaction of the
input that causes them, so after kill -9 the archive agrees with the records. It is rebuilt from the
records if their number differs, i.e. if another program changed the table. Chunks are in order of
time as far as objects arrive in order; the results of overlapping chunks are merged.
`history_chunk` encodes the chunks, `history_tables` reads and writes them.
Clauses: M11, M14, M17, M24, M25, M29.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge

from thyme.model.frames import TimeFrame
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.query.chunk import position
from thyme.query.cursor import Cursor
from thyme.storage.archive_chunk import Column, Numbered, Outline, highest, matches, outline
from thyme.storage.archive_file import ArchiveFile, Tables
from thyme.storage.history import MemoryHistory
from thyme.storage.store import Shelf

CHUNK_SIZE = 4_096

Found = list[tuple[Outline, int]]


class ArchivedHistory:
    """A history with the most recently arrived objects in memory and the others in the file."""

    def __init__(
        self, tables: Tables, shelf: Shelf[Metadata], chunk_size: int = CHUNK_SIZE
    ) -> None:
        assert 2 <= chunk_size <= 2**16
        self._file = ArchiveFile(tables, shelf)
        self._chunk_size = chunk_size
        self._oldest: Metadata | None = None
        self._answered: tuple[tuple[Sequence[Conjunction], TimeFrame], Found] | None = None
        """The last query and its matches."""
        self._begin()
        if len(self) != self._file.count():
            self._file.clear()
            self._begin()

    # The objects

    @property
    def summary_bytes(self) -> int:
        return self._recent.summary_bytes + self._summary_bytes

    @property
    def object_bytes(self) -> int:
        return self._recent.object_bytes + self._object_bytes

    def __len__(self) -> int:
        return len(self._recent) + self._archived

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def get(self, key: Key) -> Metadata | None:
        found = self._recent.get(key)
        if found is None and self._chunks:
            numbered = self._file.look_up(key, self._last_record)
            return None if numbered is None else numbered[1]
        return found

    def add(self, metadata: Metadata) -> bool:
        if not self._recent.add(metadata):
            return False
        if self._oldest is not None and position(metadata) < position(self._oldest):
            self._oldest = None
        if len(self._recent) >= 2 * self._chunk_size:
            self._archive_some()
        return True

    def remove(self, key: Key) -> Metadata | None:
        if self._oldest is not None and self._oldest.key == key:
            self._oldest = None
        metadata = self._recent.remove(key)
        if (
            metadata is None
            and self._chunks
            and (numbered := self._file.look_up(key, self._last_record)) is not None
        ):
            metadata = numbered[1]
            self._take_out(*numbered)
        return metadata

    def __iter__(self) -> Iterator[Metadata]:
        """Yields all objects, oldest first; overlapping chunks are merged."""
        if not self._chunks:
            yield from self._recent
            return
        together: list[Iterator[Metadata]] = []
        high_us = 0
        recent = self._recent.oldest()
        parts: list[tuple[int, int, Iterable[Metadata]]] = [
            (chunk.low_us, chunk.high_us, self._objects_of(chunk)) for chunk in self._chunks
        ]
        if recent is not None:
            *_, newest = self._recent
            parts.append((recent.published_us, newest.published_us, self._recent))
        for low_us, end_us, objects in sorted(parts, key=lambda part: part[0]):
            if together and low_us > high_us:
                yield from merge(*together, key=position)
                together = []
            high_us = max(high_us, end_us) if together else end_us
            together.append(iter(objects))
        yield from merge(*together, key=position)

    def oldest(self) -> Metadata | None:
        if self._oldest is None:
            best = self._recent.oldest()
            for chunk in sorted(self._chunks, key=lambda chunk: chunk.low_us):
                if best is not None and chunk.low_us > best.published_us:
                    break
                first = next(self._file.objects_of(chunk, 1))[1]
                if best is None or position(first) < position(best):
                    best = first
            self._oldest = best
        return self._oldest

    # Queries

    def total(self, conjunctions: Sequence[Conjunction], frame: TimeFrame) -> int:
        found = self._found(conjunctions, frame)
        archived = sum(bits.bit_count() for _, bits in found)
        return archived + self._recent.total(conjunctions, frame)

    def latest(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        before: Cursor | None = None,
    ) -> list[Metadata]:
        if count <= 0:
            return []
        page = self._recent.latest(conjunctions, frame, count, before)
        times = [metadata.published_us for metadata in page]
        places: list[tuple[int, int]] = []  # when published, and the record's number
        for chunk, bits in sorted(
            self._found(conjunctions, frame), key=lambda found: found[0].high_us, reverse=True
        ):
            times = sorted(times, reverse=True)[:count]
            if len(times) == count and chunk.high_us < times[-1]:
                break
            if before is not None:
                bits = self._before(chunk, bits, before)
            held = self._file.slots(chunk)
            for slot in highest(bits, count):
                times.append(held.times[slot])
                places.append((held.times[slot], held.records[slot]))
        if places:
            # All objects published at the instant where the page ends; their keys decide then.
            least_us = sorted(times, reverse=True)[:count][-1]
            records = [record for at_us, record in places if at_us >= least_us]
            page += (metadata for _, metadata in self._file.objects(records))
            page = sorted(page, key=position, reverse=True)[:count]
        return page

    def next_end_us(self) -> int | None:
        ends = [at_us for at_us in (self._recent.next_end_us(), self._end_us) if at_us is not None]
        return min(ends, default=None)

    def ended(self, now_us: int) -> list[Key]:
        recent = [(self._recent.get(key), key) for key in self._recent.ended(now_us)]
        found = [(metadata.expires_us or 0, key) for metadata, key in recent if metadata]
        if self._end_us is not None and self._end_us <= now_us:
            archived = self._file.ended(now_us)
            found += [(metadata.expires_us or 0, metadata.key) for metadata in archived]
        return [key for _, key in sorted(found)]

    def _found(self, conjunctions: Sequence[Conjunction], frame: TimeFrame) -> Found:
        """Returns the chunks with matches inside the frame, and the slots of the matches."""
        asked = (conjunctions, frame)
        if self._answered is None or self._answered[0] != asked:
            self._answered = (asked, list(self._search(conjunctions, frame)))
        return self._answered[1]

    def _search(
        self, conjunctions: Sequence[Conjunction], frame: TimeFrame
    ) -> Iterator[tuple[Outline, int]]:
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
        columns: dict[Tag, Column] = {}
        for conjunction in conjunctions:
            for tag in (*conjunction.positive, *conjunction.negative):
                if tag not in columns:
                    columns[tag] = self._file.column(tag, first, last)
        for chunk in chunks:
            bits = matches(conjunctions, columns, chunk.number)
            if bits:
                bits &= ~chunk.dead
            if bits and end_us is not None and chunk.high_us > end_us:
                bits &= self._file.slots(chunk).before(end_us + 1)
            if bits and start_us is not None and chunk.low_us < start_us:
                bits &= ~self._file.slots(chunk).before(start_us)
            if bits:
                yield chunk, bits

    def _before(self, chunk: Outline, bits: int, before: Cursor) -> int:
        """Returns the slots, of those in `bits`, that are before a cursor."""
        if chunk.high_us < before.published_us:
            return bits
        held = self._file.slots(chunk)
        inside = bits & held.before(before.published_us)
        for slot in held.at(before.published_us):
            if bits >> slot & 1:
                [(_, metadata)] = self._file.objects([held.records[slot]])
                if metadata.key < before.key:
                    inside |= 1 << slot
        return inside

    # Reading

    def _begin(self) -> None:
        """Loads the summaries of all chunks, and the records that are in no chunk."""
        self._recent = MemoryHistory()
        self._oldest = None
        self._answered = None
        self._last_record, self._chunks_made = self._file.marks()
        self._chunks = self._file.outlines()  # in the order of their numbers
        self._archived = sum(chunk.live for chunk in self._chunks)
        self._summary_bytes = sum(chunk.summary_bytes for chunk in self._chunks)
        self._object_bytes = sum(chunk.object_bytes for chunk in self._chunks)
        self._end_us = self._file.first_end_us()
        last = self._last_record
        while numbered := self._file.records(last, self._chunk_size):
            last = numbered[-1][0]
            for _, metadata in numbered:
                self._recent.add(metadata)
            if len(self._recent) >= 2 * self._chunk_size:
                self._archive_some()

    def _objects_of(self, chunk: Outline) -> Iterator[Metadata]:
        return (metadata for _, metadata in self._file.objects_of(chunk))

    # Writing

    def _archive_some(self) -> None:
        """Moves the first half of the objects in memory to a new chunk."""
        numbers = self._file.numbers(self._last_record, self._chunk_size)
        objects = list(self._recent)
        chunk = [(numbers[one.key], one) for one in objects if one.key in numbers]
        self._recent = MemoryHistory(one for one in objects if one.key not in numbers)
        self._last_record = max(numbers.values())
        self._write_chunk(chunk)
        ends = [(one.expires_us, number) for number, one in chunk if one.expires_us is not None]
        if ends:
            self._file.add_ends(ends)
            self._end_us = self._file.first_end_us()

    def _write_chunk(self, objects: Sequence[Numbered]) -> None:
        chunk = outline(self._chunks_made, objects)
        self._file.write_chunk(chunk, objects)
        self._chunks_made += 1
        self._file.write_marks(self._last_record, self._chunks_made)
        self._chunks.append(chunk)
        self._count_chunk(chunk, 1)
        self._answered = None

    def _count_chunk(self, chunk: Outline, sign: int) -> None:
        self._archived += sign * chunk.live
        self._summary_bytes += sign * chunk.summary_bytes
        self._object_bytes += sign * chunk.object_bytes

    def _take_out(self, number: int, metadata: Metadata) -> None:
        """Marks an archived object as removed."""
        chunk, slot = self._place_of(number, metadata.published_us)
        self._count_chunk(chunk, -1)
        chunk.bury(slot, metadata)
        self._count_chunk(chunk, 1)
        self._answered = None
        if metadata.expires_us is not None:
            self._file.remove_end(metadata.expires_us, number)
            if metadata.expires_us == self._end_us:
                self._end_us = self._file.first_end_us()
        if 2 * chunk.live < chunk.size:
            self._shrink(chunk)
        else:
            self._file.write_outline(chunk)

    def _place_of(self, number: int, published_us: int) -> tuple[Outline, int]:
        for chunk in self._chunks:
            if chunk.low_us <= published_us <= chunk.high_us:
                held = self._file.slots(chunk)
                for slot in held.at(published_us):
                    if held.records[slot] == number:
                        return chunk, slot
        raise AssertionError(f"record {number} is archived but in no chunk")

    def _shrink(self, chunk: Outline) -> None:
        """Rewrites a chunk of mostly removed objects; merges it with a neighbour if both together
        fill at most half a chunk."""
        old = [chunk]
        ordered = sorted(self._chunks, key=lambda chunk: (chunk.low_us, chunk.number))
        at = ordered.index(chunk)
        for other in (*ordered[max(0, at - 1) : at], *ordered[at + 1 : at + 2]):
            if 2 * (chunk.live + other.live) <= self._chunk_size:
                old.append(other)
                break
        objects = [one for part in old for one in self._file.objects_of(part)]
        objects.sort(key=lambda numbered: position(numbered[1]))
        for part in old:
            self._drop(part)
        if objects:
            self._write_chunk(objects)

    def _drop(self, chunk: Outline) -> None:
        self._file.drop(chunk)
        self._chunks.remove(chunk)
        self._count_chunk(chunk, -1)
        self._answered = None
