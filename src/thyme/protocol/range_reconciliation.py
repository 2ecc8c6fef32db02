"""Range reconciliation: two devices find out which events the other lacks, in few bytes.

Entry points: `open_ranges`, `open_recent_ranges` and `compare_ranges`. Thyme-LS compares its
subscriptions by the same method. Both devices sort their events by time and
identifier. A range of this order is described by a fingerprint of the events in it or, if it has
few, by their identifiers. Where fingerprints are equal, nothing more is sent; where they differ,
the range is split. Equal sets cost one fingerprint, and sets that differ in d of n events cost in
the order of d log n. The method is that of A. Meyer, "Range-based set reconciliation", 2023, and of
the protocol negentropy.
Clauses: U3, L5.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b

from thyme.model.ids import Key
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol.messages.event_ranges import FINGERPRINT_BYTES, ID_BYTES, EventRange

LEAF_EVENTS = 24
"""A range with at most this many events is described by their identifiers."""
BRANCHES = 8
"""Into how many ranges a range is split whose fingerprints differ."""

Item = tuple[int, bytes]
"""An event: its publication time, and its short identifier."""


class RangeComparison:
    """What a device learns from the ranges of another."""

    def __init__(self) -> None:
        self.answer: list[EventRange] = []
        """The ranges that are still to be compared."""
        self.only_here: list[Item] = []
        self.only_there: list[bytes] = []
        """Short identifiers of events that only the other device has."""
        self.common: list[Item] = []


def short_id(key: Key | SubscriptionKey) -> bytes:
    """The identifier of an event or a subscription in ranges: a digest of its key."""
    return blake2b(str(key).encode(), digest_size=ID_BYTES).digest()


def open_ranges(items: Sequence[Item]) -> tuple[EventRange, ...]:
    """Describes a sorted set of events to another device, which calls `compare_ranges`."""
    return tuple(_describe(items, None))


def open_recent_ranges(items: Sequence[Item]) -> tuple[EventRange, ...]:
    """Describes a sorted set of which mostly the newest items are missing elsewhere: the newest by
    their identifiers, the others by fingerprints."""
    older = items[:-LEAF_EVENTS]
    if not older:
        return open_ranges(items)
    newest = items[-LEAF_EVENTS:]
    ids = tuple(name for _, name in newest)
    return (*_describe(older, newest[0]), EventRange(None, None, ids))


def compare_ranges(items: Sequence[Item], ranges: Sequence[EventRange]) -> RangeComparison:
    """Compares a sorted set of events with the ranges that another device sent.

    Ranges follow each other: each begins where the one before ended. The last one has no end. Those
    of an answer may leave out parts of the order: a range without events and fingerprint skips.
    """
    found = RangeComparison()
    start = 0
    for each in ranges:
        end = len(items) if each.until is None else bisect_left(items, each.until, start)
        here = items[start:end]
        start = end
        if each.ids is not None:
            _compare_ids(found, here, each.ids)
            _skip(found.answer, each.until)
        elif each.fingerprint is None:
            _skip(found.answer, each.until)
        elif each.fingerprint == fingerprint(here):
            found.common += here
            _skip(found.answer, each.until)
        else:
            found.answer += _describe(here, each.until)
    while found.answer and _is_skip(found.answer[-1]):
        found.answer.pop()
    return found


def fingerprint(items: Sequence[Item]) -> bytes:
    """A digest of a set of events, independent of their order."""
    return fingerprint_of(len(items), sum(int.from_bytes(name, "big") for _, name in items))


def fingerprint_of(count: int, total: int) -> bytes:
    """The digest of a set of events, from their number and the sum of their identifiers."""
    return blake2b(f"{count}:{total:x}".encode(), digest_size=FINGERPRINT_BYTES).digest()


def _describe(items: Sequence[Item], until: Item | None) -> list[EventRange]:
    """Describes events by their identifiers, or by fingerprints of parts of about equal size."""
    if len(items) <= LEAF_EVENTS:
        return [EventRange(until, None, tuple(name for _, name in items))]
    bounds = [len(items) * part // BRANCHES for part in range(BRANCHES + 1)]
    return [
        EventRange(
            until if part == BRANCHES - 1 else items[bounds[part + 1]],
            fingerprint(items[bounds[part] : bounds[part + 1]]),
            None,
        )
        for part in range(BRANCHES)
    ]


def _compare_ids(found: RangeComparison, here: Sequence[Item], there: Sequence[bytes]) -> None:
    theirs = set(there)
    for item in here:
        (found.common if item[1] in theirs else found.only_here).append(item)
    mine = {name for _, name in here}
    found.only_there += [name for name in there if name not in mine]


def _skip(answer: list[EventRange], until: Item | None) -> None:
    """Adds a range that is settled, or extends the one before."""
    if answer and _is_skip(answer[-1]):
        answer.pop()
    answer.append(EventRange(until, None, None))


def _is_skip(each: EventRange) -> bool:
    return each.fingerprint is None and each.ids is None
