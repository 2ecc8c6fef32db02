"""Intervals: the set of event numbers seen of each writer, as disjoint sorted intervals.

A writer numbers its events without gaps, so the numbers of any number of events are a few
intervals: repeated events are recognised for ever, however late they come, and missing ones are
counted. Pure. Clause: P9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Interval = tuple[int, int]
"""First and last number, both included."""
Seen = dict[str, list[Interval]]
"""Seen numbers by writer."""


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


def count_numbers(intervals: Iterable[Interval]) -> int:
    """How many numbers there are in disjoint intervals."""
    return sum(last - first + 1 for first, last in intervals)


def count_missing(intervals: list[Interval]) -> int:
    """How many numbers from 1 to the last one are missing."""
    return intervals[-1][1] - count_numbers(intervals) if intervals else 0
