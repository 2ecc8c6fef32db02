"""Deletion log: the recent deletes of this node, repeated for cells that may have missed them.

A cell does not know of a delete if it took over from an outdated backup, or if it was out of reach
when its proxy received the delete. After topology changes, `reannounce` repeats the deletes in this
log. A delete that not all of its cells have answered is remembered until they have, also across
restarts: `PendingDeletes`. Entry points: `DeletionLog`, `PendingDeletes`.
Clauses: D15, B1, B2.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from thyme.model.ids import Key
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.requests import DeleteObject
from thyme.protocol.results import ignore_result
from thyme.routing.cells import Destination
from thyme.storage.store import RecordTable, Store
from thyme.substrates.dcs.client.cell_requests import CellRequests

_DELETIONS_MAX = 64
DELETION_AGE_US_MAX = 900 * SECOND_US
"""The maximum age of the deletes that a node repeats."""
RECENT_US = 60 * SECOND_US
"""The maximum age of deletes that are repeated while the topology still changes."""


class Deletion(msgspec.Struct, frozen=True, array_like=True):
    """The cells that must know of a delete, and its instant."""

    cells: tuple[CellId, ...]
    at_us: int


DELETIONS = RecordTable("deletion", Deletion)
PENDING_DELETES = RecordTable("pending delete", Deletion)
_PENDING_DELETES_MAX = 10_000


class PendingDeletes:
    """The deletes of one node that some cell did not answer yet, oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending = {Key.parse(key): pending for key, pending in store.load(PENDING_DELETES)}

    def get(self, key: Key) -> Deletion | None:
        """Returns a pending delete."""
        return self._pending.get(key)

    def add(self, key: Key, deletion: Deletion) -> None:
        """Remembers a delete until `remove`; the oldest is dropped if there are too many."""
        self._pending[key] = deletion
        self._store.put(PENDING_DELETES, str(key), deletion)
        if len(self._pending) > _PENDING_DELETES_MAX:
            self.remove(next(iter(self._pending)))

    def remove(self, key: Key) -> None:
        """Forgets a delete that all cells have answered."""
        if self._pending.pop(key, None) is not None:
            self._store.remove(PENDING_DELETES, str(key))


class DeletionLog:
    """The recent deletes of one node, oldest first."""

    def __init__(self, store: Store, requests: CellRequests) -> None:
        self._store = store
        self._requests = requests
        self._deletions = {Key.parse(key): deletion for key, deletion in store.load(DELETIONS)}

    def add(self, key: Key, cells: Iterable[CellId], now_us: int) -> None:
        """Records a delete."""
        self._deletions[key] = deletion = Deletion(tuple(cells), now_us)
        self._store.put(DELETIONS, str(key), deletion)
        self._prune(now_us)

    def repeat_deletes(self, now_us: int, *, quiet: bool) -> None:
        """Sends the most recent deletes again, and all of them if the network is quiet."""
        self._prune(now_us)
        since_us = now_us - RECENT_US
        for key, deletion in self._deletions.items():
            if quiet or deletion.at_us >= since_us:
                self._repeat_delete(key, deletion.cells, now_us)

    def recent_keys(self) -> list[Key]:
        """The deletes in this log."""
        return list(self._deletions)

    def repeat_delete(self, key: Key, now_us: int) -> bool:
        """Sends one delete again; False if it is no longer in this log."""
        self._prune(now_us)
        deletion = self._deletions.get(key)
        if deletion is not None:
            self._repeat_delete(key, deletion.cells, now_us)
        return deletion is not None

    def _repeat_delete(self, key: Key, cells: Iterable[CellId], now_us: int) -> None:
        request = DeleteObject(self._requests.next_id(), key)
        # A repeat that fails is repeated after the next topology change, or by `record_checks`.
        self._requests.send_requests(
            dict.fromkeys(map(Destination, cells), request), now_us, ignore_result
        )

    def _prune(self, now_us: int) -> None:
        oldest_us = now_us - DELETION_AGE_US_MAX
        for key, deletion in list(self._deletions.items()):
            if len(self._deletions) > _DELETIONS_MAX or deletion.at_us < oldest_us:
                del self._deletions[key]
                self._store.remove(DELETIONS, str(key))
