"""History index: finds the stored metadata that match a query and a time frame.

Entry point: `HistoryIndex`. It returns the number of matches, the most recent ones before a cursor
and the earliest ones after it without visiting all objects. History is ordered by publication time,
then key, and divided into chunks of consecutive objects (`chunk`); `postings` indexes the tags. A
cursor is a position in that order, so pages neither repeat nor skip an object while others are
added or removed.
Clauses: M11, M14, M17, M34.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.time_frames import INSTANT_MAX_US, TimeFrame
from thyme.query.cursor import Cursor
from thyme.query.history_index.chunk import Bound, Chunk, order_key
from thyme.query.history_index.postings import SLOTS_MAX, Postings, matching_slots

_BEGINNING: Bound = ()
_END: Bound = (INSTANT_MAX_US + 1,)


class HistoryIndex:
    """Stored metadata in the order of history, indexed by key, tags and time."""

    def __init__(self, chunk_size: int = SLOTS_MAX) -> None:
        assert 2 <= chunk_size <= SLOTS_MAX, f"a chunk has 2 to {SLOTS_MAX} slots, not {chunk_size}"
        self._chunk_size = chunk_size
        # Appending stops before a chunk is full, to leave free slots for late objects.
        self._append_size_max = chunk_size * 4 // 5
        self._by_key: dict[Key, Metadata] = {}
        self._postings = Postings()
        self._chunks_made = 0
        # The nth chunk contains the objects from the nth start up to the next start.
        self._chunks = [self._make_chunk([])]
        self._starts: list[Bound] = [_BEGINNING]

    def add(self, metadata: Metadata) -> bool:
        """Adds an object; returns False, without a change, if its key exists."""
        if metadata.key in self._by_key:
            return False
        self._by_key[metadata.key] = metadata
        chunk = self._chunk_with_free_slot(order_key(metadata))
        self._postings.add(metadata.tags, chunk.number, chunk.add(metadata))
        return True

    def remove(self, key: Key) -> Metadata | None:
        """Removes and returns an object (M14); None if the key is unknown."""
        metadata = self._by_key.pop(key, None)
        if metadata is not None:
            at = self._chunk_index(order_key(metadata))
            chunk = self._chunks[at]
            slot = chunk.find_slot(metadata)
            if slot is None:
                bits = self._postings.intersect(metadata.tags, chunk.number)
                slot = chunk.find_late_slot(bits, metadata)
            chunk.remove(slot)
            self._postings.remove(metadata.tags, chunk.number, slot)
            if 2 * chunk.live_count < len(chunk.objects):
                self._compact_sparse(at)
        return metadata

    def get(self, key: Key) -> Metadata | None:
        """Returns the object with this key, or None."""
        return self._by_key.get(key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[Metadata]:
        """All objects, oldest first."""
        for at, chunk in enumerate(list(self._chunks)):
            yield from self._compacted(at) if chunk.needs_reorder else chunk

    def count_matches(self, conjunctions: Sequence[Conjunction], frame: TimeFrame) -> int:
        """Counts the objects inside the frame that satisfy any conjunction: the x of M17."""
        low, high = _bounds(frame)
        return sum(bits.bit_count() for _, bits in self._matching_chunks(conjunctions, low, high))

    def latest_matches(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        before: Cursor | None = None,
    ) -> list[Metadata]:
        """Returns the `count` most recent matches before the cursor, newest first (M17)."""
        low, high = _bounds(frame)
        if before is not None:
            high = min(high, (before.published_us, before.key))
        page: list[Metadata] = []
        if count > 0:
            for chunk, bits in self._matching_chunks(conjunctions, low, high):
                page += chunk.newest_objects(bits, count - len(page))
                if len(page) == count:
                    break
        return page

    def earliest_matches(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        after: Cursor | None = None,
    ) -> list[Metadata]:
        """Returns the `count` earliest matches after the cursor, oldest first (M34)."""
        low, high = _bounds(frame)
        if after is not None:
            low = max(low, (after.published_us, after.key, 0))  # sorts after the object itself
        page: list[Metadata] = []
        if count > 0 and low < high:
            for chunk, bits in self._matching_chunks(conjunctions, low, high, oldest_first=True):
                page += chunk.oldest_objects(bits, count - len(page))
                if len(page) == count:
                    break
        return page

    def _matching_chunks(
        self,
        conjunctions: Sequence[Conjunction],
        low: Bound,
        high: Bound,
        *,
        oldest_first: bool = False,
    ) -> Iterator[tuple[Chunk, int]]:
        """Yields the chunks with matches from `low` to `high`, newest first unless `oldest_first`,
        with the slots."""
        lookups = self._postings.plan_lookups(conjunctions)
        if not lookups:
            return
        first = self._chunk_index(low)
        last = bisect_left(self._starts, high) - 1
        chunks = range(first, last + 1) if oldest_first else range(last, first - 1, -1)
        for at in chunks:
            chunk = self._chunks[at]
            if chunk.needs_reorder:
                chunk = self._compacted(at)
            bits = matching_slots(lookups, chunk.number, chunk.objects)
            if not bits:
                continue
            if at == last:
                bits = chunk.filter_before(bits, high)
            if at == first:
                bits ^= chunk.filter_before(bits, low)
            if bits:
                yield chunk, bits

    def _chunk_index(self, key: Bound) -> int:
        return bisect_right(self._starts, key) - 1

    def _chunk_with_free_slot(self, key: Bound) -> Chunk:
        """Returns the chunk for an object with this sort key, with a free slot."""
        at = self._chunk_index(key)
        chunk = self._chunks[at]
        if at == len(self._chunks) - 1 and chunk.precedes(key):
            if len(chunk.objects) < self._append_size_max:
                return chunk
            self._chunks.append(self._make_chunk([]))
            self._starts.append(key)
            return self._chunks[-1]
        if len(chunk.objects) == self._chunk_size:
            self._split(at)
            return self._chunks[self._chunk_index(key)]
        return chunk

    def _split(self, at: int) -> None:
        """Frees slots in a full chunk: removes empty slots, or divides the chunk in two."""
        objects = list(self._chunks[at])
        if 2 * len(objects) <= self._chunk_size:
            self._replace_chunks(at, at + 1, objects)
        else:
            half = len(objects) // 2
            self._replace_chunks(at, at + 1, objects[:half])
            self._chunks.insert(at + 1, self._make_chunk(objects[half:]))
            self._starts.insert(at + 1, order_key(objects[half]))

    def _compact_sparse(self, at: int) -> None:
        """Rebuilds a chunk of mostly empty slots; merges it with a neighbour if both together fill
        at most half a chunk."""
        if not self._chunks[at].live_count and len(self._chunks) > 1:
            del self._chunks[at]
            del self._starts[max(at, 1)]  # the first chunk always starts at the beginning
            return
        for low in (at - 1, at):
            pair = self._chunks[max(low, 0) : low + 2]
            if len(pair) == 2 and 2 * sum(chunk.live_count for chunk in pair) <= self._chunk_size:
                self._replace_chunks(
                    low, low + 2, [metadata for chunk in pair for metadata in chunk]
                )
                return
        self._compacted(at)

    def _compacted(self, at: int) -> Chunk:
        return self._replace_chunks(at, at + 1, list(self._chunks[at]))

    def _replace_chunks(self, low: int, high: int, objects: Sequence[Metadata]) -> Chunk:
        """Replaces some chunks by one chunk with these objects."""
        # Add before removing: a running query keeps references to the postings of its tags.
        rebuilt = self._make_chunk(objects)
        for chunk in self._chunks[low:high]:
            self._postings.remove_chunk(chunk, chunk.number)
        self._chunks[low:high] = [rebuilt]
        del self._starts[low + 1 : high]
        return rebuilt

    def _make_chunk(self, objects: Sequence[Metadata]) -> Chunk:
        chunk = Chunk(self._chunks_made, objects)
        self._chunks_made += 1
        self._postings.add_chunk(objects, chunk.number)
        return chunk


def _bounds(frame: TimeFrame) -> tuple[Bound, Bound]:
    """Returns the sort keys that bound a frame, both ends included (M11)."""
    low = _BEGINNING if frame.start_us is None else (frame.start_us,)
    return low, _END if frame.end_us is None else (frame.end_us + 1,)
