"""Positions: points of the plane in which nodes stand and move.

Clause: S6.
"""

from __future__ import annotations

Position = tuple[float, float]
"""Metres east and north of the origin."""
