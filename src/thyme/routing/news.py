"""News: what a distance-vector routing has learnt and not yet passed on.

Most news is told within a millisecond, at an instant drawn for each update that was heard. News of
a changed hop count waits until the count has settled, lest every step on the way there be told.
Clause: R1.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from random import Random

from thyme.model.ids import NodeId

_REMEMBERED = 16
"""Updates whose instants may still come; on a radio no more than six are heard in a millisecond."""


class News:
    """The newest about one destination."""

    __slots__ = ("heard_us", "hops", "sequence", "settles_us", "settling_us")

    def __init__(
        self, sequence: int, hops: int, heard_us: int, settling_us: int, settles_us: int = 0
    ) -> None:
        self.sequence = sequence
        self.hops = hops
        self.heard_us = heard_us
        self.settling_us = settling_us
        self.settles_us = settles_us
        """When its hop count counts as settled; 0 for news that need not wait."""


class NewsDesk:
    """The news of one node, and when to tell it."""

    def __init__(self, rng: Random, jitter_us: int) -> None:
        self._random = rng.random
        self._jitter_us = jitter_us
        self.fresh: dict[NodeId, News] = {}
        """To be told at the next occasion."""
        self.settling: dict[NodeId, News] = {}
        """To be told when settled."""
        self._settles: list[tuple[int, NodeId]] = []
        self.heard: deque[int] = deque(maxlen=_REMEMBERED)
        """When the last updates came whose instants are not drawn yet."""
        self._occasions: list[int] = []

    def find(self, destination: NodeId) -> News | None:
        """The news of a destination, if there is some."""
        return self.fresh.get(destination) or self.settling.get(destination)

    def put(self, destination: NodeId, news: News) -> None:
        """Takes in news, in place of what there was."""
        if news.settles_us:
            self.fresh.pop(destination, None)
            self.settling[destination] = news
            heappush(self._settles, (news.settles_us, destination))
        else:
            self.settling.pop(destination, None)
            self.fresh[destination] = news

    def settle(self, now_us: int) -> bool:
        """Makes fresh what has settled; returns whether there was any."""
        found = False
        while self._settles and self._settles[0][0] <= now_us:
            at_us, destination = heappop(self._settles)
            news = self.settling.get(destination)
            if news is not None and news.settles_us == at_us:
                self.fresh[destination] = self.settling.pop(destination)
                found = True
        return found

    def settles_us(self) -> int | None:
        """When the next news settles."""
        while self._settles:
            at_us, destination = self._settles[0]
            news = self.settling.get(destination)
            if news is not None and news.settles_us == at_us:
                return at_us
            heappop(self._settles)  # something newer took its place
        return None

    def occasion_us(self, now_us: int) -> int | None:
        """When to tell the fresh news: soon after an update was heard, be it the one that brought
        the news or one shortly before. Instants are drawn late since most would not be used."""
        occasions = self._occasions
        while occasions and occasions[0] < now_us:
            heappop(occasions)
        for heard_us in self.heard:
            at_us = heard_us + int(self._random() * (self._jitter_us + 1))
            if at_us >= now_us:
                heappush(occasions, at_us)
        self.heard.clear()
        return occasions[0] if occasions else None
