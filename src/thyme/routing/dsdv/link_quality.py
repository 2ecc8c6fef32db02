"""Link quality: which neighbours receive too few of the packets that are sent to them.

Entry point: `LinkQuality`. At the edge of the radio's range a neighbour hears broadcasts now and
then, but loses most packets once others send at the same time; and hop counts prefer just such
long links. A link over which packets were lost therefore counts as several hops for a while.
Clauses: R1, L4. Decision: docs/decisions/0074-weak-links.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US

_LINKS_MAX = 1_000
_HALF_LIFE_US = 30 * SECOND_US
_LOST_MIN = 1.5
_LOST_SHARE = 0.2
"""A link is weak if at least so many of its recent packets were lost, in number and share."""
_WEAK_US = 60 * SECOND_US
_WEAK_TIMES_MAX = 4
"""A link is avoided for so long, twice as long each time, and as often as this."""


@dataclass(slots=True)
class _Link:
    sent: float = 0.0
    lost: float = 0.0
    counted_us: int = 0
    weak_until_us: int = -1
    weak_times: int = 0


class LinkQuality:
    """The links from one node to its neighbours."""

    def __init__(self, extra_hops: int) -> None:
        """`extra_hops` is what a weak link counts in addition."""
        self._extra_hops = extra_hops
        self._links: BoundedDict[NodeId, _Link] = BoundedDict(_LINKS_MAX)

    def count_sent(self, to: NodeId, now_us: int) -> None:
        """Counts a packet that was sent to a neighbour."""
        self._decayed(to, now_us).sent += 1.0

    def count_lost(self, to: NodeId, now_us: int) -> None:
        """Counts a packet that a neighbour did not acknowledge."""
        link = self._decayed(to, now_us)
        link.lost += 1.0
        loses_many = link.lost >= max(_LOST_MIN, _LOST_SHARE * link.sent)
        if loses_many and now_us >= link.weak_until_us:
            link.weak_until_us = now_us + (_WEAK_US << link.weak_times)
            link.weak_times = min(link.weak_times + 1, _WEAK_TIMES_MAX)

    def extra_hops(self, neighbour: NodeId, now_us: int) -> int:
        """How many hops the link from a neighbour counts in addition."""
        link = self._links.get(neighbour)
        return self._extra_hops if link is not None and now_us < link.weak_until_us else 0

    def _decayed(self, neighbour: NodeId, now_us: int) -> _Link:
        link = self._links.get(neighbour)
        if link is None:
            link = self._links[neighbour] = _Link(counted_us=now_us)
        elapsed_us = max(0, now_us - link.counted_us)
        if elapsed_us > _HALF_LIFE_US // 30:
            share = 0.5 ** (elapsed_us / _HALF_LIFE_US)
            link.sent *= share
            link.lost *= share
            link.counted_us = now_us
        return link
