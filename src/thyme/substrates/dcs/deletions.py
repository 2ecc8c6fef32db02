"""Deletion log: the recent deletes of this node, repeated for cells that may have missed them.

A cell does not know of a delete if it took over from an outdated backup, or if it was out of reach
when its proxy received the delete. After topology changes, `reannounce` repeats the deletes in this
log. Entry point: `DeletionLog`.
Clauses: D15, B1, B2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from thyme.model.ids import Key, RequestNumber
from thyme.protocol.cells import CellId
from thyme.protocol.messages import DeleteObject
from thyme.routing.cells import To
from thyme.storage.store import Shelf, Store
from thyme.substrates.dcs.asks import CellAsks, Replies
from thyme.substrates.dcs.config import RenewalConfig


class Deletion(msgspec.Struct, frozen=True, array_like=True):
    """The cells that must know of a delete, and its instant."""

    cells: tuple[CellId, ...]
    at_us: int


DELETIONS = Shelf("deletion", Deletion)


class Deletions:
    """The recent deletes of one node, oldest first."""

    def __init__(self, store: Store, asks: CellAsks, config: RenewalConfig) -> None:
        self._store = store
        self._asks = asks
        self._config = config
        self._lately = {Key.parse(key): deletion for key, deletion in store.load(DELETIONS)}

    def note(self, key: Key, cells: Iterable[CellId], now_us: int) -> None:
        """Records a delete."""
        if self._config.on:
            self._lately[key] = deletion = Deletion(tuple(cells), now_us)
            self._store.put(DELETIONS, str(key), deletion)
            self._forget(now_us)

    def tell(self, now_us: int, *, calm: bool) -> None:
        """Sends the most recent deletes again, and all of them if the network is quiet."""
        self._forget(now_us)
        since_us = now_us - self._config.deletions_new_us
        for key, deletion in self._lately.items():
            if calm or deletion.at_us >= since_us:
                self._tell(key, deletion.cells, now_us)

    def _tell(self, key: Key, cells: Iterable[CellId], now_us: int) -> None:
        def make(request_id: RequestNumber) -> Mapping[To, DeleteObject]:
            return dict.fromkeys(map(To, cells), DeleteObject(request_id, key))

        self._asks.start(make, now_us, _heard, _not_heard)

    def _forget(self, now_us: int) -> None:
        oldest_us = now_us - self._config.deletions_us
        for key, deletion in list(self._lately.items()):
            if len(self._lately) > self._config.deletions_max or deletion.at_us < oldest_us:
                del self._lately[key]
                self._store.remove(DELETIONS, str(key))


def _heard(replies: Replies, now_us: int) -> None:
    """Does nothing: a repeated delete needs no reply."""


def _not_heard(code: str, detail: str, now_us: int) -> None:
    """Does nothing: the delete is repeated after the next topology change."""
