"""Postings: for every tag, the slots of the objects that carry it, chunk by chunk.

Where a tag is common its posting is a list of integers, one for each block of slots, with a bit for
each slot: a query takes a few `&` and `|`, and counting is `bit_count`. Where it is rare its posting
is a text: per object one character for the slot and then one for each of the object's tags, so that
`rfind` finds those that carry a second tag, too, without a look at the objects. Both are small, and
the postings of one tag lie together, because what a query costs in a large history is the memory
it touches.
Clauses: M7, M17.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag

BLOCK_SLOTS = 4096
BLOCKS = 5
SLOTS_MAX = BLOCKS * BLOCK_SLOTS
# From about thirty objects of three or four tags on, bits take less memory and less time.
_TEXT_CHARS_MAX = 128
# The characters below stand for slots, those from here on for tags. When they run out they are
# handed out again: a tag's sign in a text is a hint, the object's own tags decide.
_FIRST_SIGN = chr(SLOTS_MAX)
_SIGNS = 0x110000 - SLOTS_MAX

Blocks = list[int]
Posting = Blocks | str


class Column:
    """The postings of one tag, by chunk, and the character that stands for the tag in texts."""

    __slots__ = ("postings", "sign")

    def __init__(self, sign: str) -> None:
        self.sign = sign
        self.postings: dict[int, Posting] = {}


Term = tuple[Sequence[Conjunction], list[Column], list[Column], list[Column]]
"""Conjunctions to look up together, and where: in all columns of the first list, in one of the
second unless it is empty, in none of the third. `a & b & !d | a & c & !d` is one term, for it says
`a & (b | c) & !d`."""

_Common = tuple[list[Blocks], list[Blocks], list[Blocks]]
"""The postings that must all meet, one of which must, and none of which may."""


class Postings:
    """Where each tag occurs."""

    def __init__(self) -> None:
        self._columns: dict[Tag, Column] = {}
        self._signs_given = 0

    def add(self, tags: Iterable[Tag], chunk: int, slot: int) -> None:
        """Enters an object under its tags."""
        columns = [self._columns.get(tag) or self._new_column(tag) for tag in tags]
        record = chr(slot) + "".join([column.sign for column in columns])
        for column in columns:
            postings = column.postings
            posting = postings.get(chunk, "")
            if isinstance(posting, list):
                posting[slot // BLOCK_SLOTS] |= 1 << slot % BLOCK_SLOTS
            elif len(posting) < _TEXT_CHARS_MAX:
                postings[chunk] = posting + record
            else:
                postings[chunk] = _blocks([*_slots_in(posting), slot])

    def fill(self, objects: Sequence[Metadata], chunk: int) -> None:
        """Enters all objects of a chunk at once, in the slots from 0 on."""
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
            common = len(text) > _TEXT_CHARS_MAX
            columns[tag].postings[chunk] = _blocks(slots) if common else text

    def remove(self, tags: Sequence[Tag], chunk: int, slot: int) -> None:
        """Takes an object out again."""
        for tag in tags:
            postings = self._columns[tag].postings
            posting = postings[chunk]
            if isinstance(posting, list):
                posting[slot // BLOCK_SLOTS] ^= 1 << slot % BLOCK_SLOTS
                empty = not any(posting)
            else:
                start = posting.index(chr(slot))
                postings[chunk] = rest = posting[:start] + posting[start + 1 + len(tags) :]
                empty = not rest
            if empty:
                self._drop(tag, chunk)

    def forget(self, objects: Iterable[Metadata], chunk: int) -> None:
        """Drops all postings of a chunk that holds these objects."""
        for tag in dict.fromkeys(tag for metadata in objects for tag in metadata.tags):
            self._drop(tag, chunk)

    def slots_of_rarest(self, tags: Iterable[Tag], chunk: int) -> list[int]:
        """The slots that one of these tags has in a chunk, in which all of them occur."""
        postings = [self._columns[tag].postings[chunk] for tag in tags]
        texts = [posting for posting in postings if isinstance(posting, str)]
        if texts:
            return _slots_in(min(texts, key=len))
        return [
            block * BLOCK_SLOTS + bit
            for block, bits in enumerate(postings[0])
            for bit in range(BLOCK_SLOTS)
            if bits >> bit & 1
        ]

    def terms(self, conjunctions: Sequence[Conjunction]) -> list[Term]:
        """What to look up to find the objects that satisfy one of the conjunctions."""
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
        self,
        conjunctions: Sequence[Conjunction],
        positive: Sequence[Tag],
        negative: Sequence[Tag],
    ) -> Term | None:
        columns = self._columns
        all_of = [columns[tag] for tag in positive if tag in columns]
        if len(all_of) < len(positive):
            return None
        return conjunctions, all_of, [], [columns[tag] for tag in negative if tag in columns]

    def _new_column(self, tag: Tag) -> Column:
        column = self._columns[tag] = Column(chr(SLOTS_MAX + self._signs_given % _SIGNS))
        self._signs_given += 1
        return column

    def _drop(self, tag: Tag, chunk: int) -> None:
        postings = self._columns[tag].postings
        del postings[chunk]
        if not postings:
            del self._columns[tag]


def found(
    terms: Sequence[Term], chunk: int, objects: Sequence[Metadata | None]
) -> Iterator[tuple[int, int]]:
    """The objects of a chunk that satisfy at least one term: for each block that has some its first
    slot and their bits, highest block first."""
    few: list[int] = []
    common: list[_Common] = []
    for term in terms:
        all_of: list[Blocks] = []
        text: str | None = None
        driver = None
        for column in term[1]:
            posting = column.postings.get(chunk)
            if posting is None:
                break
            if isinstance(posting, list):
                all_of.append(posting)
            elif text is None or len(posting) < len(text):
                text, driver = posting, column
        else:
            if text is not None:
                few += _in_text(text, driver, term, objects)
            elif part := _in_blocks(all_of, term, chunk, objects, few):
                common.append(part)
    if common:
        yield from _meetings(common, _blocks(few), len(objects))
    elif few:
        blocks = _blocks(few)
        for block in range(BLOCKS - 1, -1, -1):
            if blocks[block]:
                yield block * BLOCK_SLOTS, blocks[block]


def _in_text(
    text: str, driver: Column | None, term: Term, objects: Sequence[Metadata | None]
) -> list[int]:
    """The slots of a term's matches among the objects of one rare tag, the driver."""
    conjunctions, all_of, any_of, _ = term
    if len(all_of) > 1:
        beside = [all_of[1] if all_of[0] is driver else all_of[0]]
    else:
        beside = any_of or all_of
    slots: list[int] = []
    for column in beside:
        if column.sign in text:
            slots += _hits(text, column.sign, conjunctions, objects)
    return slots


def _in_blocks(
    all_of: list[Blocks],
    term: Term,
    chunk: int,
    objects: Sequence[Metadata | None],
    few: list[int],
) -> _Common | None:
    """What has to meet where all tags that a term must have are common. Matches by a rare one of
    those that it may have are added to `few`."""
    conjunctions, columns, may, must_not = term
    sign = columns[0].sign
    any_of: list[Blocks] = []
    for column in may:
        posting = column.postings.get(chunk)
        if isinstance(posting, list):
            any_of.append(posting)
        elif posting is not None and sign in posting:
            few += _hits(posting, sign, conjunctions, objects)
    if may and not any_of:
        return None
    none_of: list[Blocks] = []
    for column in must_not:
        posting = column.postings.get(chunk)
        if isinstance(posting, list):
            none_of.append(posting)
        elif posting is not None and sign in posting:
            none_of.append(_blocks(_slots_beside(posting, sign)))
    return all_of, any_of, none_of


def _meetings(common: Sequence[_Common], few: Blocks, slots: int) -> Iterator[tuple[int, int]]:
    for block in range((slots - 1) // BLOCK_SLOTS, -1, -1):
        found = few[block]
        for all_of, any_of, none_of in common:
            bits = all_of[0][block]
            for blocks in all_of[1:]:
                bits &= blocks[block]
            if any_of:
                either = 0
                for blocks in any_of:
                    either |= blocks[block]
                bits &= either
            if bits:
                for blocks in none_of:
                    bits ^= bits & blocks[block]
                found |= bits
        if found:
            yield block * BLOCK_SLOTS, found


def _hits(
    text: str, sign: str, conjunctions: Sequence[Conjunction], objects: Sequence[Metadata | None]
) -> list[int]:
    """The slots in a text that have the sign beside them and satisfy a conjunction."""
    slots = []
    for slot in _slots_beside(text, sign):
        metadata = objects[slot]
        assert metadata is not None, "what was removed is in no posting"
        if _satisfies(metadata.tags, conjunctions):
            slots.append(slot)
    return slots


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
    """`Conjunction.matches` of any, written out: the inner loop of queries for rare tags."""
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
    """The positive tags that all share, if each has just one more and the same negative ones."""
    if len(conjunctions) < 2:
        return ()
    first, second = conjunctions[0], conjunctions[1]
    common = [tag for tag in first.positive if tag in second.positive]
    for one in conjunctions:
        if len(one.positive) != len(common) + 1 or one.negative != first.negative:
            return ()
        for tag in common:
            if tag not in one.positive:
                return ()
    return common


def _slots_in(text: str) -> list[int]:
    return [ord(char) for char in text if char < _FIRST_SIGN]


def _blocks(slots: Iterable[int]) -> Blocks:
    blocks = [0] * BLOCKS
    for slot in slots:
        blocks[slot // BLOCK_SLOTS] |= 1 << slot % BLOCK_SLOTS
    return blocks
