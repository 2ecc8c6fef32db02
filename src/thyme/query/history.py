"""The index of history: the stored metadata that a subscription into the past asks for.

Tells for a query and a time frame how many objects match, and which are the most recent before a
cursor, without walking them all. History is ordered by time of publication, then key, and cut into
chunks of consecutive objects; `chunk` does the matching inside one. A cursor is a place in that
order, so pages neither repeat nor skip an object while others come and go.
Clauses: M11, M14, M17.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import msgspec

from thyme.model.frames import INSTANT_MAX_US, TimeFrame
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.query.chunk import SLOTS_MAX, Bound, Chunk, position
from thyme.query.plan import plan_of

_BEGINNING: Bound = ()
_END: Bound = (INSTANT_MAX_US + 1,)


class Cursor(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A place in history: that of a page's last object, before which the next page lies (M17)."""

    published_us: int
    key: Key

    @classmethod
    def at(cls, metadata: Metadata) -> Cursor:
        """The place of an object."""
        return cls(metadata.published_us, metadata.key)


class HistoryIndex:
    """Stored metadata in the order of history, found by key, or by tags and time."""

    def __init__(self, chunk_size: int = SLOTS_MAX) -> None:
        assert 2 <= chunk_size <= SLOTS_MAX, f"a chunk has 2 to {SLOTS_MAX} slots, not {chunk_size}"
        self._chunk_size = chunk_size
        self._by_key: dict[Key, Metadata] = {}
        # Chunk n holds what lies from the nth start up to the next; there is always a first.
        self._chunks = [Chunk()]
        self._starts: list[Bound] = [_BEGINNING]

    def add(self, metadata: Metadata) -> bool:
        """Takes an object in; False, and nothing changes, if its key is there already."""
        if metadata.key in self._by_key:
            return False
        self._by_key[metadata.key] = metadata
        self._chunk_for(position(metadata)).add(metadata)
        return True

    def remove(self, key: Key) -> Metadata | None:
        """Forgets an object, so that no later answer holds it (M14); None if it is not there."""
        metadata = self._by_key.pop(key, None)
        if metadata is not None:
            number = self._number_of(position(metadata))
            chunk = self._chunks[number]
            chunk.remove(metadata)
            if 2 * chunk.live < chunk.slots:
                self._shrink(number)
        return metadata

    def get(self, key: Key) -> Metadata | None:
        """The object with this key, if it is there."""
        return self._by_key.get(key)

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[Metadata]:
        """All objects, oldest first."""
        for chunk in list(self._chunks):
            yield from chunk.in_order()

    def total(self, conjunctions: Sequence[Conjunction], frame: TimeFrame) -> int:
        """How many objects inside the frame satisfy at least one conjunction: the x of M17."""
        low, high = _bounds(frame)
        return sum(bits.bit_count() for _, bits in self._found(conjunctions, low, high))

    def latest(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        before: Cursor | None = None,
    ) -> list[Metadata]:
        """The `count` most recent matches that stand before the cursor, newest first (M17)."""
        low, high = _bounds(frame)
        if before is not None:
            high = min(high, (before.published_us, before.key))
        page: list[Metadata] = []
        if count > 0:
            for chunk, bits in self._found(conjunctions, low, high):
                page += chunk.newest(bits, count - len(page))
                if len(page) == count:
                    break
        return page

    def _found(
        self, conjunctions: Sequence[Conjunction], low: Bound, high: Bound
    ) -> Iterator[tuple[Chunk, int]]:
        """The chunks with matches from `low` up to `high`, newest first, and the matches' slots."""
        if not conjunctions:
            return
        plan = plan_of(conjunctions)
        first = self._number_of(low)
        last = bisect_left(self._starts, high) - 1
        for number in range(last, first - 1, -1):
            chunk = self._chunks[number]
            if chunk.untidy:
                chunk = self._chunks[number] = Chunk(chunk.in_order())
            bits = chunk.matches(plan)
            if bits and number == last:
                bits = chunk.before(bits, high)
            if bits and number == first:
                bits = chunk.since(bits, low)
            if bits:
                yield chunk, bits

    def _number_of(self, place: Bound) -> int:
        return bisect_right(self._starts, place) - 1

    def _chunk_for(self, place: Bound) -> Chunk:
        """The chunk that an object at this place belongs to, with room for it."""
        number = self._number_of(place)
        chunk = self._chunks[number]
        if chunk.slots < self._chunk_size:
            return chunk
        if number == len(self._chunks) - 1 and chunk.precedes(place):
            self._chunks.append(Chunk())
            self._starts.append(place)
            return self._chunks[-1]
        self._split(number)
        return self._chunks[self._number_of(place)]

    def _split(self, number: int) -> None:
        """Makes room in a full chunk: by filling its holes, or by cutting it in two."""
        objects = self._chunks[number].in_order()
        half = len(objects) // 2
        if 2 * len(objects) < self._chunk_size:
            self._chunks[number] = Chunk(objects)
        else:
            self._chunks[number : number + 1] = [Chunk(objects[:half]), Chunk(objects[half:])]
            self._starts.insert(number + 1, position(objects[half]))

    def _shrink(self, number: int) -> None:
        """Rebuilds a chunk that is mostly holes, together with a neighbour if half a chunk will do
        for both."""
        if not self._chunks[number].live and len(self._chunks) > 1:
            del self._chunks[number]
            del self._starts[max(number, 1)]
            return
        for left in (number - 1, number):
            pair = self._chunks[max(left, 0) : left + 2]
            if len(pair) == 2 and 2 * sum(chunk.live for chunk in pair) <= self._chunk_size:
                objects = [metadata for chunk in pair for metadata in chunk.in_order()]
                self._chunks[left : left + 2] = [Chunk(objects)]
                del self._starts[left + 1]
                return
        self._chunks[number] = Chunk(self._chunks[number].in_order())


def _bounds(frame: TimeFrame) -> tuple[Bound, Bound]:
    """A frame as places in history: both its ends belong to it (M11)."""
    low = _BEGINNING if frame.start_us is None else (frame.start_us,)
    return low, _END if frame.end_us is None else (frame.end_us + 1,)
