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
from typing import Final

from thyme.model.ids import NodeId

_JITTER_US: Final = 1_000
"""A triggered update is sent within this time after an update was received."""
_RECEIVE_TIMES_MAX = 16
"""Number of receive times kept; on a radio at most six updates arrive within a millisecond."""


class PendingUpdate:
    """The latest, not yet advertised change of the route to one destination."""

    __slots__ = ("hops", "received_us", "sequence", "settled_at_us", "settling_time_us")

    def __init__(
        self,
        sequence: int,
        hops: int,
        received_us: int,
        settling_time_us: int,
        settled_at_us: int = 0,
    ) -> None:
        self.sequence = sequence
        self.hops = hops
        self.received_us = received_us
        self.settling_time_us = settling_time_us
        self.settled_at_us = settled_at_us
        """When the hop count counts as settled; 0 if the change need not settle."""


class UpdateQueue:
    """Pending updates of one node, and the time at which to send them."""

    def __init__(self, rng: Random) -> None:
        self._random = rng.random
        self.ready: dict[NodeId, PendingUpdate] = {}
        """Updates for the next advertisement, by destination."""
        self.settling: dict[NodeId, PendingUpdate] = {}
        """Updates whose hop count has not settled yet, by destination."""
        self._settle_queue: list[tuple[int, NodeId]] = []
        self.receive_times_us: deque[int] = deque(maxlen=_RECEIVE_TIMES_MAX)
        """Receive times of updates for which no sending time was drawn yet."""
        self._advert_times_us: list[int] = []

    def get(self, destination: NodeId) -> PendingUpdate | None:
        """The pending update of a destination; None if there is none."""
        return self.ready.get(destination) or self.settling.get(destination)

    def add(self, destination: NodeId, update: PendingUpdate) -> None:
        """Queues an update; replaces an earlier one of the same destination."""
        if update.settled_at_us:
            self.ready.pop(destination, None)
            self.settling[destination] = update
            heappush(self._settle_queue, (update.settled_at_us, destination))
        else:
            self.settling.pop(destination, None)
            self.ready[destination] = update

    def remove(self, destination: NodeId) -> None:
        """Removes the pending update of a destination, if there is one."""
        self.ready.pop(destination, None)
        self.settling.pop(destination, None)

    def release_settled(self, now_us: int) -> bool:
        """Makes settled updates ready; returns whether there were any."""
        found = False
        while self._settle_queue and self._settle_queue[0][0] <= now_us:
            at_us, destination = heappop(self._settle_queue)
            update = self.settling.get(destination)
            if update is not None and update.settled_at_us == at_us:
                self.ready[destination] = self.settling.pop(destination)
                found = True
        return found

    def next_settled_at_us(self) -> int | None:
        """When the next hop count settles; None if no update is settling."""
        while self._settle_queue:
            at_us, destination = self._settle_queue[0]
            update = self.settling.get(destination)
            if update is not None and update.settled_at_us == at_us:
                return at_us
            heappop(self._settle_queue)  # replaced by a later update
        return None

    def next_advert_us(self, now_us: int) -> int | None:
        """When to send the ready updates: shortly after a received update, either the one that
        caused the change or one before it. Times are drawn late because most would not be used.
        """
        advert_times_us = self._advert_times_us
        while advert_times_us and advert_times_us[0] < now_us:
            heappop(advert_times_us)
        for received_us in self.receive_times_us:
            at_us = received_us + int(self._random() * (_JITTER_US + 1))
            if at_us >= now_us:
                heappush(advert_times_us, at_us)
        self.receive_times_us.clear()
        return advert_times_us[0] if advert_times_us else None
