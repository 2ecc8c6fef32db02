"""Clock skew: how far the clocks of most nodes are ahead of this one.

Entry point: `agreed_ahead_us`.
Clauses: M12, M36.
"""

from __future__ import annotations

from collections.abc import Iterable


def agreed_ahead_us(clocks_ahead_us: Iterable[int | None]) -> int:
    """How far the clocks of most nodes, this one included, are ahead of this node's clock: the
    median; of two in the middle, the one closer to this clock. So one other node alone has no say,
    and one of several whose clock is wrong has none either."""
    ahead = sorted([0, *(ahead_us for ahead_us in clocks_ahead_us if ahead_us is not None)])
    middle = len(ahead) // 2
    return min(ahead[middle], ahead[(len(ahead) - 1) // 2], key=abs)
