"""Posting lists: for each tag, the slots of the objects that have the tag, by chunk.

Entry points: `Postings` and `matching_slots`. The posting list of a frequent tag is an integer
whose bit n stands for slot n: a query takes a few `&` and `|`, and counting is `bit_count`. The
posting list of a rare tag is a text: per object one character for the slot and one for each of the
object's tags, so that `rfind` finds the objects with a second tag without reading the objects. Both
are small, and the lists of one tag are stored together, because memory access dominates the cost of
a query in a large history.
Clauses: M7, M17.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_

from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag

SLOTS_MAX = 16_384
# From about 25 objects of three or four tags on, bits are faster.
_TEXT_CHARS_MAX = 96
# Characters below this one stand for slots, the others for tags. Characters of tags are reused when
# they run out: a tag's character in a text is a hint, and the object's tags decide.
_FIRST_TAG_CHAR = chr(SLOTS_MAX)
_TAG_CHARS = 0x110000 - SLOTS_MAX

Posting = int | str


class TagPostings:
    """The posting lists of one tag, by chunk, and the tag's character in texts."""

    __slots__ = ("by_chunk", "tag_char")

    def __init__(self, sign: str) -> None:
        self.tag_char = sign
        self.by_chunk: dict[int, Posting] = {}


PostingLookup = tuple[
    Sequence[Conjunction], list[TagPostings], list[TagPostings], list[TagPostings]
]
"""Conjunctions to look up together, and their tags: all of the first list, any of the second unless
it is empty, none of the third. `a & b & !d | a & c & !d` is one lookup: `a & (b | c) & !d`."""


class Postings:
    """The posting lists of all tags."""

    def __init__(self) -> None:
        self._by_tag: dict[Tag, TagPostings] = {}
        self._chars_assigned = 0

    def add(self, tags: Iterable[Tag], chunk: int, slot: int) -> None:
        """Adds an object to the posting lists of its tags."""
        tag_postings = [self._by_tag.get(tag) or self._add_tag(tag) for tag in tags]
        record = chr(slot) + "".join([column.tag_char for column in tag_postings])
        for column in tag_postings:
            postings = column.by_chunk
            posting = postings.get(chunk, "")
            if isinstance(posting, int):
                postings[chunk] = posting | 1 << slot
            elif len(posting) < _TEXT_CHARS_MAX:
                postings[chunk] = posting + record
            else:
                postings[chunk] = _bits(_slots_in(posting)) | 1 << slot

    def add_chunk(self, objects: Sequence[Metadata], chunk: int) -> None:
        """Adds all objects of a new chunk, in slots from 0."""
        slots_by_tag: dict[Tag, list[int]] = {}
        for slot, metadata in enumerate(objects):
            for tag in metadata.tags:
                if tag in slots_by_tag:
                    slots_by_tag[tag].append(slot)
                else:
                    slots_by_tag[tag] = [slot]
        tag_postings = {tag: self._by_tag.get(tag) or self._add_tag(tag) for tag in slots_by_tag}
        char_of = {tag: column.tag_char for tag, column in tag_postings.items()}.__getitem__
        records = [
            chr(slot) + "".join(map(char_of, metadata.tags))
            for slot, metadata in enumerate(objects)
        ]
        for tag, slots in slots_by_tag.items():
            text = "".join([records[slot] for slot in slots[:_TEXT_CHARS_MAX]])
            dense = len(text) > _TEXT_CHARS_MAX
            tag_postings[tag].by_chunk[chunk] = _many_bits(slots) if dense else text

    def remove(self, tags: Sequence[Tag], chunk: int, slot: int) -> None:
        """Removes an object from the posting lists of its tags."""
        for tag in tags:
            postings = self._by_tag[tag].by_chunk
            posting = postings[chunk]
            if isinstance(posting, int):
                rest: Posting = posting ^ 1 << slot
            else:
                start = posting.index(chr(slot))
                rest = posting[:start] + posting[start + 1 + len(tags) :]
            if rest:
                postings[chunk] = rest
            else:
                self._drop(tag, chunk)

    def remove_chunk(self, objects: Iterable[Metadata], chunk: int) -> None:
        """Removes all posting lists of a chunk with these objects."""
        for tag in dict.fromkeys(tag for metadata in objects for tag in metadata.tags):
            self._drop(tag, chunk)

    def intersect(self, tags: Iterable[Tag], chunk: int) -> int:
        """Returns the slots of a chunk that have all these tags, as bits; all must occur there."""
        postings = (self._by_tag[tag].by_chunk[chunk] for tag in tags)
        return reduce(and_, (p if isinstance(p, int) else _bits(_slots_in(p)) for p in postings))

    def plan_lookups(self, conjunctions: Sequence[Conjunction]) -> list[PostingLookup]:
        """Plans the lookups that find the objects satisfying any of the conjunctions."""
        shared = _shared_tags(conjunctions)
        if not shared:
            lookups = [
                self._make_lookup((one,), one.positive, one.negative) for one in conjunctions
            ]
            return [lookup for lookup in lookups if lookup]
        lookup = self._make_lookup(conjunctions, shared, conjunctions[0].negative)
        if not lookup:
            return []
        for one in conjunctions:
            for tag in one.positive:
                if tag not in shared and tag in self._by_tag:
                    lookup[2].append(self._by_tag[tag])
        return [lookup] if lookup[2] else []

    def _make_lookup(
        self, conjunctions: Sequence[Conjunction], positive: Sequence[Tag], negative: Sequence[Tag]
    ) -> PostingLookup | None:
        """Returns the lookup for required and excluded tags; None if a required tag is unknown."""
        columns = self._by_tag
        all_of: list[TagPostings] = []
        for tag in positive:
            if tag not in columns:
                return None
            all_of.append(columns[tag])
        none_of: list[TagPostings] = []
        for tag in negative:
            if tag in columns:
                none_of.append(columns[tag])
        return conjunctions, all_of, [], none_of

    def _add_tag(self, tag: Tag) -> TagPostings:
        postings = self._by_tag[tag] = TagPostings(
            chr(SLOTS_MAX + self._chars_assigned % _TAG_CHARS)
        )
        self._chars_assigned += 1
        return postings

    def _drop(self, tag: Tag, chunk: int) -> None:
        postings = self._by_tag[tag].by_chunk
        del postings[chunk]
        if not postings:
            del self._by_tag[tag]


def matching_slots(
    lookups: Sequence[PostingLookup], chunk: int, objects: Sequence[Metadata | None]
) -> int:
    """Returns the slots of a chunk's objects that satisfy any lookup, as bits."""
    found = 0
    for conjunctions, all_of, any_of, none_of in lookups:
        bits = -1
        text = ""
        rarest = None
        for tag_postings in all_of:
            posting = tag_postings.by_chunk.get(chunk)
            if posting is None:
                break
            if isinstance(posting, str):
                if not text or len(posting) < len(text):
                    text, rarest = posting, tag_postings
            else:
                bits = posting if bits < 0 else bits & posting
        else:
            if text:
                # Of a rare tag's objects, those with a second required or alternative tag.
                for tag_postings in _second_tags(rarest, all_of, any_of):
                    if tag_postings.tag_char in text:
                        found |= _matches_in_text(
                            text, tag_postings.tag_char, conjunctions, objects
                        )
                continue
            tag_char = all_of[0].tag_char
            if any_of:
                any_bits = 0
                for tag_postings in any_of:
                    posting = tag_postings.by_chunk.get(chunk, 0)
                    if isinstance(posting, int):
                        any_bits |= posting
                    elif tag_char in posting:
                        found |= _matches_in_text(posting, tag_char, conjunctions, objects)
                bits &= any_bits
            if bits:
                for tag_postings in none_of:
                    posting = tag_postings.by_chunk.get(chunk, 0)
                    if isinstance(posting, int):
                        bits ^= bits & posting
                    elif tag_char in posting:
                        bits &= ~_bits(_slots_with_char(posting, tag_char))
                found |= bits
    return found


def _second_tags(
    rarest: TagPostings | None, all_of: list[TagPostings], any_of: list[TagPostings]
) -> list[TagPostings]:
    if len(all_of) == 1:
        return any_of or all_of
    return [all_of[1] if all_of[0] is rarest else all_of[0]]


def _matches_in_text(
    text: str,
    tag_char: str,
    conjunctions: Sequence[Conjunction],
    objects: Sequence[Metadata | None],
) -> int:
    """Returns the slots in a text with a tag's character that satisfy a conjunction, as bits."""
    bits = 0
    for slot in _slots_with_char(text, tag_char):
        metadata = objects[slot]
        assert metadata is not None, "removed objects are in no posting list"
        if _satisfies(metadata.tags, conjunctions):
            bits |= 1 << slot
    return bits


def _slots_with_char(text: str, tag_char: str) -> list[int]:
    slots = []
    at = text.rfind(tag_char)
    while at >= 0:
        while text[at] >= _FIRST_TAG_CHAR:
            at -= 1
        slots.append(ord(text[at]))
        at = text.rfind(tag_char, 0, at)
    return slots


def _satisfies(tags: Sequence[Tag], conjunctions: Sequence[Conjunction]) -> bool:
    """Whether tags match any conjunction; inlined, as the inner loop of rare-tag queries."""
    for conjunction in conjunctions:
        for tag in conjunction.positive:
            if tag not in tags:
                break
        else:
            for tag in conjunction.negative:
                if tag in tags:
                    break
            else:
                return True
    return False


def _shared_tags(conjunctions: Sequence[Conjunction]) -> Sequence[Tag]:
    """Returns the positive tags shared by all, if each has one more and equal negative tags."""
    if len(conjunctions) < 2:
        return ()
    negative = conjunctions[0].negative
    second = conjunctions[1].positive
    shared: list[Tag] = []
    for tag in conjunctions[0].positive:
        if tag in second:
            shared.append(tag)
    for conjunction in conjunctions:
        positive = conjunction.positive
        if len(positive) != len(shared) + 1 or conjunction.negative != negative:
            return ()
        for tag in shared:
            if tag not in positive:
                return ()
    return shared


def _slots_in(text: str) -> list[int]:
    return [ord(char) for char in text if char < _FIRST_TAG_CHAR]


def _bits(slots: Sequence[int]) -> int:
    bits = 0
    for slot in slots:
        bits |= 1 << slot
    return bits


def _many_bits(slots: Sequence[int]) -> int:
    """`_bits` for hundreds of slots in ascending order."""
    bitmap = bytearray(slots[-1] // 8 + 1)
    for slot in slots:
        bitmap[slot >> 3] |= 1 << (slot & 7)
    return int.from_bytes(bitmap, "little")
