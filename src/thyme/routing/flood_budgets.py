"""Flood budgets: how many floods a node takes of each neighbour and of each origin, and how fast it
passes them on.

Entry points: `FloodBudgets.admit` and `FloodBudgets.own_wait_us`. A flood costs all nodes of the
network several broadcasts. So a node passes the first few of a sender on at once, those beyond at
a steady rate, once each, and refuses those beyond a limit.
Clauses: L2, B5. Decision: docs/decisions/0065-bounded-work.md.
"""

from __future__ import annotations

from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US

_NODES_MAX = 1_000
_BURST_S = 5.0
"""A node takes the floods of so many seconds at once."""
_PROMPT_S = 2 / 3
"""The floods of so much time are passed on at once, with all repeats."""
_OWN_SHARE = 0.8
"""A node starts so much of what others take, since delays of the network bring floods together."""
_OWN_WAIT_S_MAX = 30.0
"""A flood of the node itself that would have to wait for longer is dropped."""
_PASSED_ON_COST = 0.5
"""What a flood costs the neighbour that passes it on for another node."""
_UNKNOWN = NodeId(b"")
"""All nodes together of which no flood was received before."""


class FloodBudgets:
    """The floods that each node may still send or start, at one receiver."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._burst = per_s * _BURST_S
        self._left: BoundedDict[NodeId, tuple[float, int]] = BoundedDict(_NODES_MAX)
        """What is left to each node, and when it was counted."""
        self._own_left = self._burst, 0

    def admit(self, sender: NodeId, origin: NodeId, now_us: int) -> int | None:
        """Charges a flood to the neighbour that sent it and to the node where it began, or to all
        unknown ones together. Returns how long to wait before it is passed on; None if one of them
        has too many. Otherwise the neighbours of a node that floods would pass on many more than
        it may send to each of them. What others pass on in the name of a node uses up half of its
        budget at most, so that nobody can keep its neighbours from hearing it."""
        if sender == origin:
            charges = [(sender, 1.0, 0.0)]
        else:
            charges = [(sender, _PASSED_ON_COST, 0.0), (origin, 1.0, self._burst / 2)]
            if origin not in self._left:
                charges = [charges[0], (origin, 1.0, 0.0), (_UNKNOWN, 1.0, 0.0)]
        left = [self._count(name, now_us) - cost for name, cost, _ in charges]
        if any(each < kept for each, (_, _, kept) in zip(left, charges, strict=True)):
            return None
        for each, (name, _, _) in zip(left, charges, strict=True):
            self._left.refresh(name, (each, now_us))
        beyond = self._burst - _PROMPT_S * self._per_s - min(left)
        return max(0, round(beyond / self._per_s * SECOND_US))

    def own_wait_us(self, now_us: int) -> int | None:
        """Charges a flood to this node itself. Returns how long to wait before it is started, so
        that others take it; None if that is too long."""
        per_s, burst = self._per_s * _OWN_SHARE, self._burst * _OWN_SHARE
        left, at_us = self._own_left
        left = min(burst, left + per_s * max(0, now_us - at_us) / SECOND_US) - 1.0
        if -left > per_s * _OWN_WAIT_S_MAX:
            return None
        self._own_left = left, now_us
        return max(0, round(-left / per_s * SECOND_US))

    def _count(self, name: NodeId, now_us: int) -> float:
        left, at_us = self._left.get(name, (self._burst, now_us))
        return min(self._burst, left + max(0, now_us - at_us) / SECOND_US * self._per_s)
