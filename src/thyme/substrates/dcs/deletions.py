"""Deletions: what this node deleted lately, to be said again where it may not have been heard.

A cell that took over from another by an old copy of what that one knew, or that was out of reach
when its stand-in was told, does not know what was deleted meanwhile. After unrest, whoever deleted
something says so again (`renewal`).
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
    """Which cells should know that an object was deleted, and when it was."""

    cells: tuple[CellId, ...]
    at_us: int


DELETIONS = Shelf("deletion", Deletion)


class Deletions:
    """The latest of one node, oldest first."""

    def __init__(self, store: Store, asks: CellAsks, config: RenewalConfig) -> None:
        self._store = store
        self._asks = asks
        self._config = config
        self._lately = {Key.parse(key): deletion for key, deletion in store.load(DELETIONS)}

    def note(self, key: Key, cells: Iterable[CellId], now_us: int) -> None:
        """An object was deleted."""
        if self._config.on:
            self._lately[key] = deletion = Deletion(tuple(cells), now_us)
            self._store.put(DELETIONS, str(key), deletion)
            self._forget(now_us)

    def tell(self, now_us: int, *, calm: bool) -> None:
        """Says again what was deleted just before, and once it is calm, all of it."""
        self._forget(now_us)
        since_us = now_us - self._config.deletions_new_us
        for key, deletion in self._lately.items():
            if calm or deletion.at_us >= since_us:
                self._tell(key, deletion.cells, now_us)

    def _tell(self, key: Key, cells: Iterable[CellId], now_us: int) -> None:
        def make(number: RequestNumber) -> Mapping[To, DeleteObject]:
            return dict.fromkeys(map(To, cells), DeleteObject(number, key))

        self._asks.start(make, now_us, _heard, _not_heard)

    def _forget(self, now_us: int) -> None:
        until_us = now_us - self._config.deletions_us
        for key, deletion in list(self._lately.items()):
            if len(self._lately) > self._config.deletions_max or deletion.at_us < until_us:
                del self._lately[key]
                self._store.remove(DELETIONS, str(key))


def _heard(replies: Replies, now_us: int) -> None:
    """That is all there was to say."""


def _not_heard(code: str, detail: str, now_us: int) -> None:
    """It is said again after the next unrest."""
