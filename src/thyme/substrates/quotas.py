"""Quotas: limits what a node stores for each peer, so that no peer uses all of the space.

Entry point: `UsageTable`.
Clauses: B5, M29.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import QuotaError
from thyme.model.ids import NodeId
from thyme.storage.store import Shelf, Store


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum that a node stores for one peer; None means no limit."""

    bytes: int | None = None
    """Bytes of objects and summaries, by owner."""
    objects: int | None = None
    """Number of metadata records, by owner."""
    subscriptions: int | None = None
    """Number of active subscriptions, by subscriber."""


class Share(msgspec.Struct, frozen=True, array_like=True):
    """Number and bytes of the records stored for one peer."""

    peer: NodeId
    count: int = 0
    bytes: int = 0


SHARES = Shelf("share", Share)


class Shares:
    """Usage per peer on one node; counted only if there is a quota."""

    def __init__(
        self,
        what: str,
        count_max: int | None,
        bytes_max: int | None = None,
        *,
        exempt: NodeId | None = None,
        store: Store | None = None,
    ) -> None:
        """`exempt` is the node itself, which has no limit. With a store, the counts survive a
        restart; without one, the caller adds its records again."""
        self._what = what
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._exempt = exempt
        self._store = store
        self._on = count_max is not None or bytes_max is not None
        self._shares: dict[NodeId, Share] = {}
        if self._on and store is not None:
            self._shares = {share.peer: share for _, share in store.load(SHARES)}

    def refuse(self, peer: NodeId, weight: int = 0) -> None:
        """Raises `QuotaError` if one more record of this size would exceed the quota."""
        if not self._on or peer == self._exempt:
            return
        share = self.of(peer)
        if self._count_max is not None and share.count >= self._count_max:
            raise QuotaError(f"{self._what} of one node: at most {self._count_max} here")
        if self._bytes_max is not None and share.bytes + weight > self._bytes_max:
            raise QuotaError(f"bytes of {self._what} of one node: at most {self._bytes_max} here")

    def add(self, peer: NodeId, weight: int = 0) -> None:
        """Counts a record that was added."""
        if self._on:
            share = self.of(peer)
            self._set(Share(peer, share.count + 1, share.bytes + weight))

    def remove(self, peer: NodeId, weight: int = 0) -> None:
        """Counts a record that was removed."""
        if peer in self._shares:
            share = self._shares[peer]
            self._set(Share(peer, share.count - 1, max(0, share.bytes - weight)))

    def of(self, peer: NodeId) -> Share:
        """The usage of one peer."""
        return self._shares.get(peer) or Share(peer)

    def _set(self, share: Share) -> None:
        name = share.peer.hex()
        if share.count > 0:
            self._shares[share.peer] = share
            if self._store is not None:
                self._store.put(SHARES, name, share)
        else:
            del self._shares[share.peer]
            if self._store is not None:
                self._store.remove(SHARES, name)
