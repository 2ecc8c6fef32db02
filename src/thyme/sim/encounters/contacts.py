"""Contacts: when pairs of nodes come into range and leave it, exact for straight movements.

Entry points: `ContactChanges`, `ContactSource`, `MovementContacts`, `ListedContacts`. Movement is
read in blocks of time. A block is cut into short bins; in each bin the segments are sorted into a
grid, so that only pairs in neighbouring grid cells are compared. The instants at which a pair is at
range exactly are the roots of a quadratic equation. Cost is linear in segments and close pairs.
Clauses: S6, U9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from thyme.model.errors import InputError
from thyme.model.positions import Position
from thyme.model.time_frames import SECOND_US
from thyme.sim.encounters.segments import Floats, Ints, Segments, SegmentSource, join_segments

RANGE_M = 10.0
"""The radio range in the MobUser paper."""
SEGMENTS_PER_BLOCK = 20_000
BLOCK_US_MIN, BLOCK_US_MAX = 10 * SECOND_US, 3_600 * SECOND_US
TOUCH_US = 2.0
"""Two contacts of a pair that are at most this far apart are one: rounding separated them."""
BIN_US_MIN = SECOND_US // 10
NODE_STRIDE_US = 2**45
"""More than any instant of a run, so that node and instant make one number."""


class Contact(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The time during which two nodes are in range; `first` is the smaller number."""

    start_us: int
    end_us: int
    first: int
    second: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_us < self.end_us:
            raise InputError(f"a contact must start at 0 or later and end after, not {self}")
        if not 0 <= self.first < self.second:
            raise InputError(f"a contact is between two different nodes, not {self}")


@dataclass(frozen=True, slots=True)
class ContactChanges:
    """Changes in order of time: the pair, and whether it came into range or left it."""

    at_us: list[int]
    first: list[int]
    second: list[int]
    begins: list[bool]


class ContactSource(Protocol):
    """A source of contacts, in order of time."""

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        ...

    def next_changes(self) -> tuple[ContactChanges, int]:
        """The changes of the next block of time, and the end of the block."""
        ...

    def positions_at(self, at_us: int, nodes: Sequence[int] | None = None) -> list[Position | None]:
        """The positions of some nodes, or of all, at an instant of the last block; None where it is
        unknown."""
        ...


class ListedContacts:
    """Contacts that are known in advance, from a file; a `ContactSource`."""

    def __init__(self, contacts: Sequence[Contact], nodes: int) -> None:
        self._nodes = nodes
        changes = [(c.start_us, 1, c.first, c.second) for c in contacts]
        changes += [(c.end_us, 0, c.first, c.second) for c in contacts]
        changes.sort()  # at the same instant, contacts end before others begin
        self._changes = ContactChanges(
            [change[0] for change in changes],
            [change[2] for change in changes],
            [change[3] for change in changes],
            [change[1] == 1 for change in changes],
        )

    @property
    def nodes(self) -> int:
        return self._nodes

    def next_changes(self) -> tuple[ContactChanges, int]:
        changes, self._changes = self._changes, ContactChanges([], [], [], [])
        return changes, 2**62

    def positions_at(self, at_us: int, nodes: Sequence[int] | None = None) -> list[Position | None]:
        return [None] * (self._nodes if nodes is None else len(nodes))


class MovementContacts:
    """Contacts computed from movement; a `ContactSource`."""

    def __init__(self, source: SegmentSource, range_m: float = RANGE_M) -> None:
        if not (math.isfinite(range_m) and range_m > 0):
            raise InputError(f"the radio range must be above 0 m, not {range_m}")
        self._source = source
        self._range_m = range_m
        self._block_us = BLOCK_US_MIN
        self._now_us = 0
        self._current = source.read_until(0)
        """The segments of the block, with those that last beyond it."""
        self._order: Ints | None = None
        """The segments of the block by node and start; made when somebody asks for a position."""
        self._order_keys: Ints = np.zeros(0, dtype=np.int64)
        self._open: Ints = np.zeros(0, dtype=np.int64)
        """The pairs that are in range at the end of the block."""

    @property
    def nodes(self) -> int:
        return self._source.nodes

    def next_changes(self) -> tuple[ContactChanges, int]:
        start_us, end_us = self._now_us, self._now_us + self._block_us
        lasting = self._current.select(self._current.end_us > start_us)
        self._current = join_segments([lasting, self._source.read_until(end_us)])
        self._order = None
        self._now_us = end_us
        self._adapt_block(len(self._current))
        pair, t_in, t_out = find_intervals(
            self._current, start_us, end_us, self._range_m, self._source.nodes
        )
        return self._as_changes(pair, t_in, t_out, start_us, end_us), end_us

    def _adapt_block(self, segments: int) -> None:
        """Chooses the length of the next block, so that it has a fixed number of segments."""
        scaled = self._block_us * SEGMENTS_PER_BLOCK // max(1, segments)
        self._block_us = min(max(scaled, BLOCK_US_MIN), BLOCK_US_MAX, self._block_us * 8)

    def _as_changes(
        self, pair: Ints, t_in: Floats, t_out: Floats, start_us: int, end_us: int
    ) -> ContactChanges:
        """Joins the intervals of a block with the contacts that were open at its start."""
        length_us = float(end_us - start_us)
        continues = (t_in <= TOUCH_US) & np.isin(pair, self._open)
        lasts = t_out >= length_us - TOUCH_US
        lost = self._open[~np.isin(self._open, pair[t_in <= TOUCH_US])]
        self._open = np.sort(pair[lasts])
        began, ended = ~continues, ~lasts
        at = np.concatenate([t_in[began], t_out[ended], np.zeros(len(lost))])
        pairs = np.concatenate([pair[began], pair[ended], lost])
        begins = np.concatenate(
            [np.ones(began.sum(), dtype=bool), np.zeros(ended.sum() + len(lost), dtype=bool)]
        )
        at_us = start_us + np.rint(at).astype(np.int64)
        # Of one pair, a contact ends before the next begins; a very short one begins first.
        order = np.lexsort((pairs, at_us))
        nodes = self._source.nodes
        return ContactChanges(
            at_us[order].tolist(),
            (pairs[order] // nodes).tolist(),
            (pairs[order] % nodes).tolist(),
            begins[order].tolist(),
        )

    def positions_at(self, at_us: int, nodes: Sequence[int] | None = None) -> list[Position | None]:
        wanted = np.arange(self._source.nodes) if nodes is None else np.array(nodes)
        current = self._current
        if self._order is None:
            order = self._order = np.lexsort((current.start_us, current.node))
            self._order_keys = current.node[order] * NODE_STRIDE_US + current.start_us[order]
        keys, order = self._order_keys, self._order
        # The last segment of each node that starts by then, or the node's first segment.
        place = np.searchsorted(keys, wanted * NODE_STRIDE_US + at_us, "right") - 1
        place = np.maximum(place, np.searchsorted(keys, wanted * NODE_STRIDE_US, "left"))
        found = order[np.minimum(place, len(order) - 1)] if len(order) else place
        known = (current.node[found] == wanted) if len(order) else np.zeros(len(wanted), bool)
        start_us, end_us = current.start_us[found], current.end_us[found]
        done = np.clip((at_us - start_us) / (end_us - start_us), 0.0, 1.0)
        x = current.x0[found] + (current.x1[found] - current.x0[found]) * done
        y = current.y0[found] + (current.y1[found] - current.y0[found]) * done
        positions = zip(x.tolist(), y.tolist(), known.tolist(), strict=True)
        return [(each_x, each_y) if is_known else None for each_x, each_y, is_known in positions]


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Segments cut to time bins: start and end in µs since the block, position and velocity."""

    node: Ints
    bin: Ints
    t0: Floats
    t1: Floats
    x: Floats
    y: Floats
    vx: Floats
    vy: Floats


def find_intervals(
    segments: Segments, start_us: int, end_us: int, range_m: float, nodes: int
) -> tuple[Ints, Floats, Floats]:
    """The intervals in which pairs are in range within a block: the pair as first × nodes + second,
    start and end in µs since the block's start; sorted by pair and time."""
    pieces = _cut(segments, start_us, end_us, range_m)
    i, j = _close_pairs(pieces, range_m)
    t0 = np.maximum(pieces.t0[i], pieces.t0[j])
    t1 = np.minimum(pieces.t1[i], pieces.t1[j])
    chosen = (t0 < t1) & (pieces.node[i] != pieces.node[j])
    i, j, t0, t1 = i[chosen], j[chosen], t0[chosen], t1[chosen]
    begin, end, meets = _solve(pieces, i, j, t0, t1, range_m)
    i, j, begin, end = i[meets], j[meets], begin[meets], end[meets]
    first = np.minimum(pieces.node[i], pieces.node[j])
    pair = first * nodes + np.maximum(pieces.node[i], pieces.node[j])
    return _merge(pair, begin, end)


def _cut(segments: Segments, start_us: int, end_us: int, range_m: float) -> _Pieces:
    """Cuts segments at the bounds of bins in which a node moves about one range at most."""
    t0 = np.maximum(segments.start_us, start_us) - start_us
    t1 = np.minimum(segments.end_us, end_us) - start_us
    duration = (segments.end_us - segments.start_us).astype(np.float64)
    vx = (segments.x1 - segments.x0) / duration
    vy = (segments.y1 - segments.y0) / duration
    speed = float(np.sqrt(vx * vx + vy * vy).max(initial=0.0))
    bin_us = end_us - start_us
    if speed > 0:
        bin_us = int(min(bin_us, max(range_m / speed, BIN_US_MIN)))
    inside = t1 > t0
    first_bin = t0 // bin_us
    bins = np.where(inside, (t1 - 1) // bin_us - first_bin + 1, 0)
    index = np.repeat(np.arange(len(t0)), bins)
    offset = np.arange(len(index)) - np.repeat(np.cumsum(bins) - bins, bins)
    piece_bin = first_bin[index] + offset
    p0 = np.maximum(t0[index], piece_bin * bin_us).astype(np.float64)
    p1 = np.minimum(t1[index], (piece_bin + 1) * bin_us).astype(np.float64)
    since = p0 + start_us - segments.start_us[index]
    return _Pieces(
        segments.node[index],
        piece_bin,
        p0,
        p1,
        segments.x0[index] + vx[index] * since,
        segments.y0[index] + vy[index] * since,
        vx[index],
        vy[index],
    )


def _close_pairs(pieces: _Pieces, range_m: float) -> tuple[Ints, Ints]:
    """Pairs of pieces of the same bin that may come into range; each pair once."""
    if len(pieces.node) == 0:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty
    span = pieces.t1 - pieces.t0
    half_x, half_y = pieces.vx * span / 2, pieces.vy * span / 2
    cell_m = range_m + 2 * max(float(np.abs(half_x).max()), float(np.abs(half_y).max()))
    mid_x, mid_y = pieces.x + half_x, pieces.y + half_y
    column = np.floor((mid_x - mid_x.min()) / cell_m).astype(np.int64) + 1
    row = np.floor((mid_y - mid_y.min()) / cell_m).astype(np.int64) + 1
    columns, rows = int(column.max()) + 2, int(row.max()) + 2
    key = (pieces.bin * columns + column) * rows + row
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    place = np.arange(len(order))
    # The rest of the own cell with the one above, then three cells of the next column.
    own_end = np.searchsorted(ordered, ordered + 1, "right")
    next_start = np.searchsorted(ordered, ordered + rows - 1, "left")
    next_end = np.searchsorted(ordered, ordered + rows + 1, "right")
    i1, j1 = _expand(place, place + 1, own_end)
    i2, j2 = _expand(place, next_start, next_end)
    i, j = np.concatenate([i1, i2]), np.concatenate([j1, j2])
    # Of the pairs in touching cells, most are too far apart along one axis.
    for mid, half in ((mid_x[order], half_x[order]), (mid_y[order], half_y[order])):
        reach = np.abs(half) + range_m / 2
        near = np.abs(mid[i] - mid[j]) <= reach[i] + reach[j] + 1e-6
        i, j = i[near], j[near]
    return order[i], order[j]


def _expand(place: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """All pairs of a place with each number in its range from start to end."""
    counts = np.maximum(end - start, 0)
    i = np.repeat(place, counts)
    j = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(start, counts)
    return i, j


def _solve(
    pieces: _Pieces, i: Ints, j: Ints, t0: Floats, t1: Floats, range_m: float
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """When two pieces are within range during their common time: start, end, and whether at all."""
    since_i, since_j = t0 - pieces.t0[i], t0 - pieces.t0[j]
    wx, wy = pieces.vx[j] - pieces.vx[i], pieces.vy[j] - pieces.vy[i]
    dx = pieces.x[j] + pieces.vx[j] * since_j - pieces.x[i] - pieces.vx[i] * since_i
    dy = pieces.y[j] + pieces.vy[j] * since_j - pieces.y[i] - pieces.vy[i] * since_i
    a = wx * wx + wy * wy
    b = dx * wx + dy * wy
    c = dx * dx + dy * dy - range_m * range_m
    discriminant = b * b - a * c
    moving = a > 1e-24
    root = np.sqrt(np.maximum(discriminant, 0.0))
    divisor = np.where(moving, a, 1.0)
    length = t1 - t0
    begin = np.where(moving, (-b - root) / divisor, np.where(c <= 0, 0.0, np.inf))
    end = np.where(moving, (-b + root) / divisor, np.where(c <= 0, length, -np.inf))
    begin, end = np.maximum(begin, 0.0), np.minimum(end, length)
    meets = (end > begin) & (~moving | (discriminant > 0))
    return t0 + begin, t0 + end, meets


def _merge(pair: Ints, begin: Floats, end: Floats) -> tuple[Ints, Floats, Floats]:
    """Joins the intervals of a pair that touch."""
    order = np.lexsort((begin, pair))
    pair, begin, end = pair[order], begin[order], end[order]
    if len(pair) == 0:
        return pair, begin, end
    fresh = np.ones(len(pair), dtype=bool)
    fresh[1:] = (pair[1:] != pair[:-1]) | (begin[1:] > end[:-1] + TOUCH_US)
    firsts = np.flatnonzero(fresh)
    lasts = np.append(firsts[1:], len(pair)) - 1
    return pair[firsts], begin[firsts], end[lasts]
