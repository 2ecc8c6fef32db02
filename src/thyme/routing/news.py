"""Pending updates: route changes that DSDV has not advertised yet.

Entry point: `UpdateQueue`, used by `thyme.routing.dsdv.protocol`. Most changes are advertised
within a millisecond, at a time drawn at random for each received update. A changed hop count is
held back until it has settled, so that intermediate values are not advertised.
Clauses: R1.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from random import Random

from thyme.model.ids import NodeId

_REMEMBERED = 16
"""Number of receive times kept; on a radio at most six updates arrive within a millisecond."""


class News:
    """The latest, not yet advertised change of the route to one destination."""

    __slots__ = ("heard_us", "hops", "sequence", "settles_us", "settling_us")

    def __init__(
        self, sequence: int, hops: int, heard_us: int, settling_us: int, settles_us: int = 0
    ) -> None:
        self.sequence = sequence
        self.hops = hops
        self.heard_us = heard_us
        self.settling_us = settling_us
        self.settles_us = settles_us
        """When the hop count counts as settled; 0 if the change need not settle."""


class NewsDesk:
    """Pending updates of one node, and the time at which to send them."""

    def __init__(self, rng: Random, jitter_us: int) -> None:
        self._random = rng.random
        self._jitter_us = jitter_us
        self.fresh: dict[NodeId, News] = {}
        """Updates for the next advertisement, by destination."""
        self.settling: dict[NodeId, News] = {}
        """Updates whose hop count has not settled yet, by destination."""
        self._settles: list[tuple[int, NodeId]] = []
        self.heard: deque[int] = deque(maxlen=_REMEMBERED)
        """Receive times of updates for which no sending time was drawn yet."""
        self._occasions: list[int] = []

    def find(self, destination: NodeId) -> News | None:
        """The pending update of a destination; None if there is none."""
        return self.fresh.get(destination) or self.settling.get(destination)

    def put(self, destination: NodeId, news: News) -> None:
        """Queues an update; replaces an earlier one of the same destination."""
        if news.settles_us:
            self.fresh.pop(destination, None)
            self.settling[destination] = news
            heappush(self._settles, (news.settles_us, destination))
        else:
            self.settling.pop(destination, None)
            self.fresh[destination] = news

    def settle(self, now_us: int) -> bool:
        """Makes settled updates ready; returns whether there were any."""
        found = False
        while self._settles and self._settles[0][0] <= now_us:
            at_us, destination = heappop(self._settles)
            news = self.settling.get(destination)
            if news is not None and news.settles_us == at_us:
                self.fresh[destination] = self.settling.pop(destination)
                found = True
        return found

    def settles_us(self) -> int | None:
        """When the next hop count settles; None if no update is settling."""
        while self._settles:
            at_us, destination = self._settles[0]
            news = self.settling.get(destination)
            if news is not None and news.settles_us == at_us:
                return at_us
            heappop(self._settles)  # replaced by a later update
        return None

    def occasion_us(self, now_us: int) -> int | None:
        """When to send the ready updates: shortly after a received update, either the one that
        caused the change or one before it. Times are drawn late because most would not be used.
        """
        occasions = self._occasions
        while occasions and occasions[0] < now_us:
            heappop(occasions)
        for heard_us in self.heard:
            at_us = heard_us + int(self._random() * (self._jitter_us + 1))
            if at_us >= now_us:
                heappush(occasions, at_us)
        self.heard.clear()
        return occasions[0] if occasions else None
