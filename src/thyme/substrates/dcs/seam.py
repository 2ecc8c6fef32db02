"""Seam: what this node answered for lately, while others of its cell may have known more, or less.

Whoever takes up a subscription answers with the past it knows, and whoever indexes an object
notifies the subscriptions it knows. What others took up at the same moment, or what was lost in the
cell and is repaired later, would slip through between the two; here it is found.
Clauses: M26, B2.
"""

from __future__ import annotations

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Subscription, SubscriptionKey
from thyme.substrates.dcs.index import CellIndex


class Seam:
    """The subscriptions and objects that one node took up on behalf of its cell lately."""

    def __init__(self, index: CellIndex, seam_us: int, late_us: int) -> None:
        self._index = index
        self._seam_us = seam_us
        self._memory_us = max(seam_us, late_us)
        self._subscribed_us: dict[SubscriptionKey, int] = {}
        self._indexed_us: dict[Key, int] = {}

    def subscribed(self, key: SubscriptionKey, now_us: int) -> None:
        """This node took a subscription up."""
        self._settle(now_us)
        self._subscribed_us.pop(key, None)
        self._subscribed_us[key] = now_us

    def indexed(self, key: Key, now_us: int) -> None:
        """This node indexed an object."""
        self._settle(now_us)
        self._indexed_us.pop(key, None)
        self._indexed_us[key] = now_us

    def fresh(self, matched: list[Subscription], now_us: int) -> list[Subscription]:
        """Of the subscriptions that an object matches, those taken up here just now: whoever got
        the object first may not have heard of them (M26)."""
        self._settle(now_us)
        since_us = now_us - self._seam_us
        return [held for held in matched if self._subscribed_us.get(held.key, -1) >= since_us]

    def missed_by(self, metadata: Metadata, now_us: int) -> list[Subscription]:
        """The subscriptions that this node took up without knowing of an object."""
        self._settle(now_us)
        standing = map(self._index.broker.standing, self._subscribed_us)
        return [held for held in standing if held is not None and held.wants(metadata)]

    def missed_of(self, subscription: Subscription, now_us: int) -> list[Metadata]:
        """The objects that this node indexed without knowing of a subscription."""
        self._settle(now_us)
        known = map(self._index.broker.catalogue.history.get, self._indexed_us)
        return [metadata for metadata in known if metadata and subscription.wants(metadata)]

    def _settle(self, now_us: int) -> None:
        since_us = now_us - self._memory_us
        _forget_before(self._subscribed_us, since_us)
        _forget_before(self._indexed_us, since_us)


def _forget_before(times_us: dict[SubscriptionKey, int] | dict[Key, int], since_us: int) -> None:
    while times_us:
        oldest = next(iter(times_us))
        if times_us[oldest] >= since_us:  # type: ignore[index]
            break
        del times_us[oldest]  # type: ignore[arg-type]
