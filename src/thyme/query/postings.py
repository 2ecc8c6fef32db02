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
_FIRST_SIGN = chr(SLOTS_MAX)
_SIGNS = 0x110000 - SLOTS_MAX

Posting = int | str


class Column:
    """The posting lists of one tag, by chunk, and the tag's character in texts."""

    __slots__ = ("postings", "sign")

    def __init__(self, sign: str) -> None:
        self.sign = sign
        self.postings: dict[int, Posting] = {}


Term = tuple[Sequence[Conjunction], list[Column], list[Column], list[Column]]
"""Conjunctions to look up together, and their tags: all of the first list, any of the second unless
it is empty, none of the third. `a & b & !d | a & c & !d` is one lookup: `a & (b | c) & !d`."""


class Postings:
    """The posting lists of all tags."""

    def __init__(self) -> None:
        self._columns: dict[Tag, Column] = {}
        self._signs_given = 0

    def add(self, tags: Iterable[Tag], chunk: int, slot: int) -> None:
        """Adds an object to the posting lists of its tags."""
        columns = [self._columns.get(tag) or self._new_column(tag) for tag in tags]
        record = chr(slot) + "".join([column.sign for column in columns])
        for column in columns:
            postings = column.postings
            posting = postings.get(chunk, "")
            if isinstance(posting, int):
                postings[chunk] = posting | 1 << slot
            elif len(posting) < _TEXT_CHARS_MAX:
                postings[chunk] = posting + record
            else:
                postings[chunk] = _bits(_slots_in(posting)) | 1 << slot

    def fill(self, objects: Sequence[Metadata], chunk: int) -> None:
        """Adds all objects of a new chunk, in slots from 0."""
        slots_by_tag: dict[Tag, list[int]] = {}
        for slot, metadata in enumerate(objects):
            for tag in metadata.tags:
                if tag in slots_by_tag:
                    slots_by_tag[tag].append(slot)
                else:
                    slots_by_tag[tag] = [slot]
        columns = {tag: self._columns.get(tag) or self._new_column(tag) for tag in slots_by_tag}
        sign_of = {tag: column.sign for tag, column in columns.items()}.__getitem__
        records = [
            chr(slot) + "".join(map(sign_of, metadata.tags))
            for slot, metadata in enumerate(objects)
        ]
        for tag, slots in slots_by_tag.items():
            text = "".join([records[slot] for slot in slots[:_TEXT_CHARS_MAX]])
            dense = len(text) > _TEXT_CHARS_MAX
            columns[tag].postings[chunk] = _many_bits(slots) if dense else text

    def remove(self, tags: Sequence[Tag], chunk: int, slot: int) -> None:
        """Removes an object from the posting lists of its tags."""
        for tag in tags:
            postings = self._columns[tag].postings
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

    def forget(self, objects: Iterable[Metadata], chunk: int) -> None:
        """Removes all posting lists of a chunk with these objects."""
        for tag in dict.fromkeys(tag for metadata in objects for tag in metadata.tags):
            self._drop(tag, chunk)

    def meeting(self, tags: Iterable[Tag], chunk: int) -> int:
        """Returns the slots of a chunk that have all these tags, as bits; all must occur there."""
        postings = (self._columns[tag].postings[chunk] for tag in tags)
        return reduce(and_, (p if isinstance(p, int) else _bits(_slots_in(p)) for p in postings))

    def terms(self, conjunctions: Sequence[Conjunction]) -> list[Term]:
        """Plans the lookups that find the objects satisfying any of the conjunctions."""
        common = _common(conjunctions)
        if not common:
            each = [self._term((one,), one.positive, one.negative) for one in conjunctions]
            return [term for term in each if term]
        term = self._term(conjunctions, common, conjunctions[0].negative)
        if not term:
            return []
        for one in conjunctions:
            for tag in one.positive:
                if tag not in common and tag in self._columns:
                    term[2].append(self._columns[tag])
        return [term] if term[2] else []

    def _term(
        self, conjunctions: Sequence[Conjunction], positive: Sequence[Tag], negative: Sequence[Tag]
    ) -> Term | None:
        """Returns the lookup for required and excluded tags; None if a required tag is unknown."""
        columns = self._columns
        all_of: list[Column] = []
        for tag in positive:
            if tag not in columns:
                return None
            all_of.append(columns[tag])
        none_of: list[Column] = []
        for tag in negative:
            if tag in columns:
                none_of.append(columns[tag])
        return conjunctions, all_of, [], none_of

    def _new_column(self, tag: Tag) -> Column:
        column = self._columns[tag] = Column(chr(SLOTS_MAX + self._signs_given % _SIGNS))
        self._signs_given += 1
        return column

    def _drop(self, tag: Tag, chunk: int) -> None:
        postings = self._columns[tag].postings
        del postings[chunk]
        if not postings:
            del self._columns[tag]


def matches(terms: Sequence[Term], chunk: int, objects: Sequence[Metadata | None]) -> int:
    """Returns the slots of a chunk's objects that satisfy any lookup, as bits."""
    found = 0
    for conjunctions, all_of, any_of, none_of in terms:
        bits = -1
        text = ""
        driver = None
        for column in all_of:
            posting = column.postings.get(chunk)
            if posting is None:
                break
            if isinstance(posting, str):
                if not text or len(posting) < len(text):
                    text, driver = posting, column
            else:
                bits = posting if bits < 0 else bits & posting
        else:
            if text:
                # Of a rare tag's objects, those with a second required or alternative tag.
                for column in _beside(driver, all_of, any_of):
                    if column.sign in text:
                        found |= _hits(text, column.sign, conjunctions, objects)
                continue
            sign = all_of[0].sign
            if any_of:
                either = 0
                for column in any_of:
                    posting = column.postings.get(chunk, 0)
                    if isinstance(posting, int):
                        either |= posting
                    elif sign in posting:
                        found |= _hits(posting, sign, conjunctions, objects)
                bits &= either
            if bits:
                for column in none_of:
                    posting = column.postings.get(chunk, 0)
                    if isinstance(posting, int):
                        bits ^= bits & posting
                    elif sign in posting:
                        bits &= ~_bits(_slots_beside(posting, sign))
                found |= bits
    return found


def _beside(driver: Column | None, all_of: list[Column], any_of: list[Column]) -> list[Column]:
    if len(all_of) == 1:
        return any_of or all_of
    return [all_of[1] if all_of[0] is driver else all_of[0]]


def _hits(
    text: str, sign: str, conjunctions: Sequence[Conjunction], objects: Sequence[Metadata | None]
) -> int:
    """Returns the slots in a text with a tag's character that satisfy a conjunction, as bits."""
    bits = 0
    for slot in _slots_beside(text, sign):
        metadata = objects[slot]
        assert metadata is not None, "removed objects are in no posting list"
        if _satisfies(metadata.tags, conjunctions):
            bits |= 1 << slot
    return bits


def _slots_beside(text: str, sign: str) -> list[int]:
    slots = []
    at = text.rfind(sign)
    while at >= 0:
        while text[at] >= _FIRST_SIGN:
            at -= 1
        slots.append(ord(text[at]))
        at = text.rfind(sign, 0, at)
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


def _common(conjunctions: Sequence[Conjunction]) -> Sequence[Tag]:
    """Returns the positive tags shared by all, if each has one more and equal negative tags."""
    if len(conjunctions) < 2:
        return ()
    negative = conjunctions[0].negative
    second = conjunctions[1].positive
    common: list[Tag] = []
    for tag in conjunctions[0].positive:
        if tag in second:
            common.append(tag)
    for one in conjunctions:
        positive = one.positive
        if len(positive) != len(common) + 1 or one.negative != negative:
            return ()
        for tag in common:
            if tag not in positive:
                return ()
    return common


def _slots_in(text: str) -> list[int]:
    return [ord(char) for char in text if char < _FIRST_SIGN]


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
