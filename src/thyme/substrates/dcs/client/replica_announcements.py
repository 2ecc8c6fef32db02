"""Replica announcements: tell tag cells that this node stores a passive replica of an object.

Entry points: `announce_at_once`, which tells every tag cell of every replica, and
`SparingAnnouncer`, which announces a replica only where it changes what a reader would do. Of the
readers that a cell notified of an object, a few announce their replicas, and only to this cell and
to the one that other nodes ask for the replication list. A reader of a page announces its replica
if the page lists too few. If a listed replica did not have the object, the list is out of date, and
the new one is announced to all tag cells. Announcements wait, so that those of several objects
travel as one message.
Clauses: D12, D13, D28.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from zlib import crc32

import msgspec

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import AnnounceReplica, AnnounceReplicas
from thyme.routing.cells import CellRouting, Destination
from thyme.substrates.dcs.client.replica_locations import ReceivedList, ReplicaLocations
from thyme.substrates.dcs.config import AnnouncementConfig
from thyme.substrates.dcs.context import NodeContext

_KEYS_MAX = 32
"""The maximum number of objects in one message."""


class AnnouncementTimer(msgspec.Struct, frozen=True):
    """The timer at which waiting announcements are sent."""


class Announcer(Protocol):
    """Announces the passive replicas of one node."""

    def announce(self, metadata: Metadata, now_us: int, *, outdated: bool) -> None:
        """Announces a new replica, if that is of use; `outdated` says that a replica of the list
        that this node received did not have the object."""
        ...


def tag_cells(routing: CellRouting, metadata: Metadata) -> list[CellId]:
    """The cells that index an object, without duplicates."""
    return list(dict.fromkeys(map(routing.cell_of_key, metadata.tags)))


def announce_at_once(routing: CellRouting, metadata: Metadata, now_us: int) -> None:
    """Announces a replica to all tag cells (D13)."""
    cells = tag_cells(routing, metadata)
    routing.send([Destination(cell) for cell in cells], AnnounceReplica(metadata.key), now_us)


class PromptAnnouncer:
    """Announces every replica to all tag cells, at once."""

    def __init__(self, routing: CellRouting) -> None:
        self._routing = routing

    def announce(self, metadata: Metadata, now_us: int, *, outdated: bool) -> None:
        announce_at_once(self._routing, metadata, now_us)


class SparingAnnouncer:
    """Announces the wanted replicas only, several in one message (D28)."""

    def __init__(
        self, context: NodeContext, locations: ReplicaLocations, config: AnnouncementConfig
    ) -> None:
        self._context = context
        self._routing = context.routing
        self._outbox = context.outbox
        self._replicas = context.replicas
        self._locations = locations
        self._config = config
        self._waiting: dict[Key, None] = {}
        self._cells: dict[CellId, None] = {}
        self.omitted = 0

    def announce(self, metadata: Metadata, now_us: int, *, outdated: bool) -> None:
        received = self._locations.received(metadata.key)
        cells = tag_cells(self._routing, metadata)
        if received is not None and not outdated:
            if not self.is_wanted(received):
                self.omitted += 1
                return
            if received.cell in cells:  # else a proxy of the cell sent the list
                cells = list(dict.fromkeys((received.cell, cells[0])))
        self._add(metadata.key, cells, now_us)

    def is_wanted(self, received: ReceivedList) -> bool:
        """Whether a reader of this list announces its replica. The chosen readers are others for
        each object, so that all nodes announce about the same number of replicas."""
        wanted = self._config.wanted
        if len(received.indexed.passive) >= wanted:
            return False
        if not received.readers:
            return True
        shift = crc32(str(received.indexed.metadata.key).encode())
        return (received.rank + shift) % received.readers < wanted

    def _add(self, key: Key, cells: Iterable[CellId | None], now_us: int) -> None:
        if not self._waiting:
            self._outbox.set_timer(AnnouncementTimer(), now_us + self._config.delay_us)
        self._waiting[key] = None
        self._cells.update((cell, None) for cell in cells if cell is not None)
        if len(self._waiting) >= _KEYS_MAX:
            self._send_all(now_us)

    def send_waiting(self, now_us: int) -> None:
        """Sends the announcements that have waited, or lets them wait on while the channel is
        busy."""
        if self._context.is_busy:
            self._outbox.set_timer(AnnouncementTimer(), now_us + self._config.delay_us)
        else:
            self._send_all(now_us)

    def _send_all(self, now_us: int) -> None:
        """Sends the waiting announcements in one message to all of their cells; a cell ignores
        objects that it does not index."""
        waiting, self._waiting = self._waiting, {}
        cells, self._cells = self._cells, {}
        self._outbox.cancel_timer(AnnouncementTimer())
        keys = tuple(key for key in waiting if self._replicas.get(key) is not None)
        if keys:
            targets = [Destination(cell) for cell in cells]
            self._routing.send(targets, AnnounceReplicas(keys), now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._waiting) < _KEYS_MAX
        assert bool(self._waiting) == bool(self._cells)
