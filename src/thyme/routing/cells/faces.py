"""Face routing: the right-hand rule on directions given as columns and rows.

Entry point: `next_edge`, used by `next_hop`. A message in perimeter mode leaves each cell by the
next edge counterclockwise from the edge it came by, and thus follows one face of the planar cell
graph. All arithmetic is in integers, so no angle is rounded.
Clauses: D5.
"""

from __future__ import annotations

from collections.abc import Sequence

from thyme.routing.cells.grid import Offset


def next_edge(edges: Sequence[Offset], start: Offset) -> Offset:
    """The first edge counterclockwise from a direction; an edge in that direction is last."""
    best = edges[0]
    for edge in edges[1:]:
        if _comes_before(start, edge, best):
            best = edge
    return best


def _comes_before(start: Offset, one: Offset, other: Offset) -> bool:
    half, other_half = _half(start, one), _half(start, other)
    if half != other_half:
        return half < other_half
    turn = _cross(one, other)
    # Two edges never have the same direction: the Gabriel graph keeps only the shorter one.
    return turn > 0


def _half(start: Offset, edge: Offset) -> int:
    """Half-plane counterclockwise from `start`: 0 before the opposite direction, 1 from there on, 2
    for `start` itself."""
    side = _cross(start, edge)
    if side > 0:
        return 0
    along = start[0] * edge[0] + start[1] * edge[1]
    if side == 0:
        return 2 if along > 0 else 1
    return 1


def _cross(one: Offset, other: Offset) -> int:
    return one[0] * other[1] - one[1] * other[0]
