"""Quotas: limits what a node stores for each peer, so that no peer uses all of the space.

Entry point: `UsageTable`.
Clauses: B5, M29.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import QuotaError
from thyme.model.ids import NodeId
from thyme.storage.store import RecordTable, Store


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum that a node stores for one peer; None means no limit."""

    bytes: int | None = None
    """Bytes of objects and summaries, by owner."""
    objects: int | None = None
    """Number of metadata records, by owner."""
    subscriptions: int | None = None
    """Number of active subscriptions, by subscriber."""


class PeerUsage(msgspec.Struct, frozen=True, array_like=True):
    """Number and bytes of the records stored for one peer."""

    peer: NodeId
    count: int = 0
    bytes: int = 0


PEER_USAGE = RecordTable("share", PeerUsage)


class UsageTable:
    """Usage per peer on one node; counted only if there is a quota."""

    def __init__(
        self,
        subject: str,
        count_max: int | None,
        bytes_max: int | None = None,
        *,
        exempt: NodeId | None = None,
        store: Store | None = None,
    ) -> None:
        """`exempt` is the node itself, which has no limit. With a store, the counts survive a
        restart; without one, the caller adds its records again."""
        self._subject = subject
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._exempt = exempt
        self._store = store
        self._enabled = count_max is not None or bytes_max is not None
        self._usage: dict[NodeId, PeerUsage] = {}
        if self._enabled and store is not None:
            self._usage = {usage.peer: usage for _, usage in store.load(PEER_USAGE)}

    def check_quota(self, peer: NodeId, size: int = 0) -> None:
        """Raises `QuotaError` if one more record of this size would exceed the quota."""
        if not self._enabled or peer == self._exempt:
            return
        usage = self.usage_of(peer)
        if self._count_max is not None and usage.count >= self._count_max:
            raise QuotaError(f"{self._subject} of one node: at most {self._count_max} here")
        if self._bytes_max is not None and usage.bytes + size > self._bytes_max:
            raise QuotaError(
                f"bytes of {self._subject} of one node: at most {self._bytes_max} here"
            )

    def add(self, peer: NodeId, size: int = 0) -> None:
        """Counts a record that was added."""
        if self._enabled:
            usage = self.usage_of(peer)
            self._save(PeerUsage(peer, usage.count + 1, usage.bytes + size))

    def remove(self, peer: NodeId, size: int = 0) -> None:
        """Counts a record that was removed."""
        if peer in self._usage:
            usage = self._usage[peer]
            self._save(PeerUsage(peer, usage.count - 1, max(0, usage.bytes - size)))

    def usage_of(self, peer: NodeId) -> PeerUsage:
        """The usage of one peer."""
        return self._usage.get(peer) or PeerUsage(peer)

    def usages(self) -> list[PeerUsage]:
        """The usage of all peers."""
        return list(self._usage.values())

    def _save(self, usage: PeerUsage) -> None:
        name = usage.peer.hex()
        if usage.count > 0:
            self._usage[usage.peer] = usage
            if self._store is not None:
                self._store.put_at_commit(PEER_USAGE, name, usage)
        else:
            del self._usage[usage.peer]
            if self._store is not None:
                self._store.remove(PEER_USAGE, name)
