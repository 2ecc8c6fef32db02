"""Intervals: the set of event numbers seen of each writer, as disjoint sorted intervals.

A writer numbers its events without gaps, so the numbers of any number of events are a few
intervals: repeated events are recognised for ever, however late they come, and missing ones are
counted. Pure. Clause: P9.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

Interval = tuple[int, int]
"""First and last number, both included."""
Seen = dict[str, list[Interval]]
"""Seen numbers by writer."""


class IntervalSet:
    """A set of numbers that grows."""

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        merged = merge_intervals(intervals)
        self._firsts = [first for first, _ in merged]
        self._lasts = [last for _, last in merged]

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._firsts, number)
        return place > 0 and number <= self._lasts[place - 1]

    def add(self, number: int) -> bool:
        """Adds a number; returns whether it is new."""
        firsts, lasts = self._firsts, self._lasts
        place = bisect_right(firsts, number)
        if place and number <= lasts[place - 1]:
            return False
        follows = place > 0 and lasts[place - 1] == number - 1
        precedes = place < len(firsts) and firsts[place] == number + 1
        if follows and precedes:
            lasts[place - 1] = lasts.pop(place)
            del firsts[place]
        elif follows:
            lasts[place - 1] = number
        elif precedes:
            firsts[place] = number
        else:
            firsts.insert(place, number)
            lasts.insert(place, number)
        return True

    def intervals(self) -> list[Interval]:
        """The numbers as disjoint intervals, sorted."""
        return list(zip(self._firsts, self._lasts, strict=True))


def merge_intervals(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of intervals, sorted; adjacent ones become one."""
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def merge_seen(parts: Iterable[Mapping[str, Iterable[Interval]]]) -> Seen:
    """The union of seen numbers, by writer."""
    found: dict[str, list[Interval]] = {}
    for part in parts:
        for writer, intervals in part.items():
            found.setdefault(writer, []).extend((first, last) for first, last in intervals)
    return {writer: merge_intervals(intervals) for writer, intervals in sorted(found.items())}


def add_seen(seen: Seen, more: Seen) -> Seen:
    """The union of seen numbers; only the writers in `more` cost anything."""
    return {**seen, **{writer: merge_seen([{writer: seen.get(writer, [])}, {writer: new}])[writer]
                       for writer, new in more.items()}}  # fmt: skip


def count_numbers(intervals: Iterable[Interval]) -> int:
    """How many numbers there are in disjoint intervals."""
    return sum(last - first + 1 for first, last in intervals)


def count_seen(seen: Seen) -> int:
    """How many events were seen, of all writers."""
    return sum(map(count_numbers, seen.values()))


def count_missing(intervals: list[Interval]) -> int:
    """How many numbers from 1 to the last one are missing."""
    return intervals[-1][1] - count_numbers(intervals) if intervals else 0
