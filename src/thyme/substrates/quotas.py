"""Quotas: how much one peer may have others keep for it, so that there is room for everybody.

Clauses: B5, M29.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import QuotaError
from thyme.model.ids import NodeId
from thyme.storage.store import Shelf, Store


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """What one node keeps for one other at most; None sets no limit."""

    bytes: int | None = None
    """Of objects and summaries, by owner."""
    objects: int | None = None
    """Entries of metadata, by owner."""
    subscriptions: int | None = None
    """Those that stand, by subscriber."""


class Share(msgspec.Struct, frozen=True, array_like=True):
    """What is kept for one peer."""

    peer: NodeId
    count: int = 0
    bytes: int = 0


SHARES = Shelf("share", Share)


class Shares:
    """What a node keeps for each of the others, counted where there is a quota."""

    def __init__(
        self,
        what: str,
        count_max: int | None,
        bytes_max: int | None = None,
        *,
        exempt: NodeId | None = None,
        store: Store | None = None,
    ) -> None:
        """`exempt` is who may keep what it likes: the node itself. With a store, what was counted
        is known again at the next start; else whoever knows says it again."""
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
        """Raises a `QuotaError` if one more of this weight is too much."""
        if not self._on or peer == self._exempt:
            return
        share = self.of(peer)
        if self._count_max is not None and share.count >= self._count_max:
            raise QuotaError(f"{self._what} of one node: at most {self._count_max} here")
        if self._bytes_max is not None and share.bytes + weight > self._bytes_max:
            raise QuotaError(f"bytes of {self._what} of one node: at most {self._bytes_max} here")

    def add(self, peer: NodeId, weight: int = 0) -> None:
        """One more is kept."""
        if self._on:
            share = self.of(peer)
            self._set(Share(peer, share.count + 1, share.bytes + weight))

    def remove(self, peer: NodeId, weight: int = 0) -> None:
        """One that was kept is not any more."""
        if peer in self._shares:
            share = self._shares[peer]
            self._set(Share(peer, share.count - 1, max(0, share.bytes - weight)))

    def of(self, peer: NodeId) -> Share:
        """What is kept for one."""
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
