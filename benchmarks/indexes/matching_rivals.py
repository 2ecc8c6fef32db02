"""The other ways to match, each made as well as we know how, for the matching benchmark.

`Inverted` keys every conjunction by its rarest positive tag and checks the candidates. `Subset`
looks up all subsets of the object's tags as whole positive sets. `NumpyCsr` keeps the candidates of
each tag as slices of arrays and checks them at once. `Roaring` keeps a bitmap of conjunctions for
each literal. The latter two are built once from arrays and cannot change afterwards, which is to
their advantage; all four ignore frames. Each returns its natural container of subscription numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from indexes.matching_workload import NONE, POSITIVE_MAX, Conjunctions, Numbers
from pyroaring import BitMap

from thyme.model.tags import Tag


class Rival(Protocol):
    """A way to match: made from conjunctions, then asked with the tags of objects."""

    returns: str

    def __init__(self, rows: Conjunctions) -> None: ...

    def match(self, tags: Sequence[Tag]) -> Collection[int]: ...


class Inverted:
    """The plain inverted index."""

    returns = "set of int"

    def __init__(self, rows: Conjunctions) -> None:
        words = rows.words
        uses = Counter(rows.positive[rows.positive != NONE].tolist())
        self._candidates: dict[Tag, list[tuple[int, tuple[Tag, ...], Tag | None]]] = {}
        for owner, positive, negative in rows.each():
            rarest, *rest = sorted(positive, key=uses.__getitem__)
            unwanted = None if negative == NONE else words[negative]
            candidate = (owner, tuple(words[tag] for tag in rest), unwanted)
            self._candidates.setdefault(words[rarest], []).append(candidate)

    def match(self, tags: Sequence[Tag]) -> set[int]:
        present = frozenset(tags)
        found: set[int] = set()
        for tag in tags:
            for owner, rest, unwanted in self._candidates.get(tag, ()):
                if unwanted not in present and (not rest or present.issuperset(rest)):
                    found.add(owner)
        return found


class Subset:
    """Enumeration of the subsets of an object's tags."""

    returns = "set of int"

    def __init__(self, rows: Conjunctions) -> None:
        words = rows.words
        self._groups: dict[tuple[Tag, ...], tuple[list[int], list[tuple[int, Tag]]]] = {}
        for owner, positive, negative in rows.each():
            whole = tuple(sorted(words[tag] for tag in positive))
            plain, guarded = self._groups.setdefault(whole, ([], []))
            if negative == NONE:
                plain.append(owner)
            else:
                guarded.append((owner, words[negative]))

    def match(self, tags: Sequence[Tag]) -> set[int]:
        found: set[int] = set()
        for size in range(1, POSITIVE_MAX + 1):
            for subset in combinations(tags, size):
                group = self._groups.get(subset)
                if group is not None:
                    plain, guarded = group
                    found.update(plain)
                    found.update([owner for owner, unwanted in guarded if unwanted not in tags])
        return found


class NumpyCsr:
    """Arrays per rarest tag, checked at once; doubles leave by a flag for each subscription."""

    returns = "array of int"

    def __init__(self, rows: Conjunctions) -> None:
        count = len(rows.words)
        uses = np.bincount(rows.positive[rows.positive != NONE], minlength=count)
        rarity = np.where(rows.positive == NONE, np.iinfo(np.int64).max, uses[rows.positive])
        order = np.argsort(rarity, axis=1, kind="stable")
        positive = np.take_along_axis(rows.positive, order, axis=1)
        by_key = np.argsort(positive[:, 0], kind="stable")
        self._rest = [positive[by_key, column].copy() for column in range(1, POSITIVE_MAX)]
        self._negative = rows.negative[by_key]
        self._owner = rows.owner[by_key]
        self._starts = np.searchsorted(positive[by_key, 0], np.arange(count + 1)).tolist()
        self._number = {tag: number for number, tag in enumerate(rows.words)}
        # One more, at index -1, answers for "no tag".
        self._present = np.zeros(count + 1, dtype=bool)
        self._matched = np.zeros(rows.subscription_count, dtype=bool)

    def match(self, tags: Sequence[Tag]) -> npt.NDArray[Any]:
        numbers = [self._number[tag] for tag in tags]
        present = self._present
        present[numbers] = True
        parts = [part for number in numbers if (part := self._owners(number)) is not None]
        present[numbers] = False
        # Sorting pays for few subscriptions, flags for many: measured.
        if len(self._matched) < 4_000:
            return np.unique(np.concatenate(parts)) if parts else np.empty(0, dtype=np.int32)
        for part in parts:
            self._matched[part] = True
        found = np.flatnonzero(self._matched)
        self._matched[found] = False
        return found

    def _owners(self, number: int) -> Numbers | None:
        low, high = self._starts[number], self._starts[number + 1]
        if low == high:
            return None
        present = self._present
        holds = ~present[self._negative[low:high]]
        present[-1] = True
        for rest in self._rest:
            holds &= present[rest[low:high]]
        present[-1] = False
        return self._owner[low:high][holds]


class Roaring:
    """Bitmaps of conjunctions per literal; the positive ones apart by how many there are."""

    returns = "array of int"

    def __init__(self, rows: Conjunctions) -> None:
        self._owner = rows.owner
        sizes = (rows.positive != NONE).sum(axis=1)
        self._wanted: list[dict[Tag, BitMap]] = []
        for size in range(1, POSITIVE_MAX + 1):
            members = np.flatnonzero(sizes == size)
            columns = rows.positive[members]
            tags = columns[columns != NONE]
            self._wanted.append(_bitmaps(tags, np.repeat(members, size), rows.words))
        guarded = np.flatnonzero(rows.negative != NONE)
        self._unwanted = _bitmaps(rows.negative[guarded], guarded, rows.words)

    def match(self, tags: Sequence[Tag]) -> npt.NDArray[Any]:
        found = BitMap()
        for size, wanted in enumerate(self._wanted, start=1):
            maps = [wanted[tag] for tag in tags if tag in wanted]
            for chosen in combinations(maps, size):
                found |= BitMap.intersection(*chosen) if size > 1 else chosen[0]
        for tag in tags:
            if tag in self._unwanted:
                found -= self._unwanted[tag]
        # Conjunctions are numbered in the order of their owners, so doubles lie side by side.
        owners = self._owner[np.frombuffer(found.to_array(), dtype=np.uint32)]
        if len(owners) < 2:
            return owners
        return owners[np.concatenate(([True], owners[1:] != owners[:-1]))]


RIVALS: dict[str, type[Rival]] = {
    "inverted": Inverted,
    "subset": Subset,
    "numpy_csr": NumpyCsr,
    "roaring": Roaring,
}


def _bitmaps(tags: Numbers, members: npt.NDArray[Any], words: Sequence[Tag]) -> dict[Tag, BitMap]:
    order = np.argsort(tags, kind="stable")
    tags, members = tags[order], members[order].astype(np.uint32)
    starts = np.searchsorted(tags, np.arange(len(words) + 1))
    spans: Iterable[tuple[int, int]] = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    return {
        word: BitMap(members[low:high])
        for word, (low, high) in zip(words, spans, strict=True)
        if low < high
    }
