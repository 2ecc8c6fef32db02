"""Faces: the right-hand rule, on directions made of whole columns and rows.

A message that goes around a void leaves each cell by the next edge counterclockwise from the one it
came by, so it walks around one face of the plane cell graph. All in integers: no angle is rounded.
Clause: D5.
"""

from __future__ import annotations

from collections.abc import Sequence

from thyme.routing.cells.grid import Offset


def next_edge(edges: Sequence[Offset], start: Offset) -> Offset:
    """The first edge counterclockwise from a direction; one in that direction itself comes last."""
    best = edges[0]
    for edge in edges[1:]:
        if _comes_before(start, edge, best):
            best = edge
    return best


def _comes_before(start: Offset, one: Offset, other: Offset) -> bool:
    quarter, other_quarter = _half(start, one), _half(start, other)
    if quarter != other_quarter:
        return quarter < other_quarter
    turn = _cross(one, other)
    # Edges of one direction are never both kept; the shorter one would be between.
    return turn > 0


def _half(start: Offset, edge: Offset) -> int:
    """Counterclockwise from `start`: 0 up to the opposite, 1 from there on, 2 for `start`."""
    side = _cross(start, edge)
    if side > 0:
        return 0
    along = start[0] * edge[0] + start[1] * edge[1]
    if side == 0:
        return 2 if along > 0 else 1
    return 1


def _cross(one: Offset, other: Offset) -> int:
    return one[0] * other[1] - one[1] * other[0]
