"""Replica locations: the replication lists that a node received, kept for its retrieves.

Entry points: `ReplicaLocations`, which pages and notifications fill and retrieves read, and
`fetch_replication_list`. `replica_announcements` decides by it whether another replica is wanted.
Clauses: D11, D18, D28.
"""

from __future__ import annotations

from typing import NamedTuple

from thyme.model.bounded import BoundedDict
from thyme.model.errors import NotFoundError
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata
from thyme.protocol.messages.cells import CellStatus
from thyme.protocol.messages.requests import FetchStatus
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.routing.cells import CellRouting, Destination
from thyme.substrates.dcs.client.cell_requests import CellRequests, Replies

_LOCATIONS_MAX = 10_000
"""The maximum number of objects whose replication list a node caches."""


class ReceivedList(NamedTuple):
    """A replication list, the cell that sent it, and the other readers that received it."""

    indexed: IndexedMetadata
    cell: CellId | None = None
    readers: int = 0
    """Number of subscriptions that were notified with it; 0 if it was not a notification."""
    rank: int = 0
    """Position of this node's subscription among them."""


class ReplicaLocations:
    """A bounded cache of the replication lists that this node received."""

    def __init__(self, entries_max: int = _LOCATIONS_MAX) -> None:
        self._entries: BoundedDict[Key, ReceivedList] = BoundedDict(entries_max)

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self,
        indexed: IndexedMetadata,
        cell: CellId | None = None,
        readers: int = 0,
        rank: int = 0,
    ) -> None:
        """Caches an object's metadata and replication list, if it has one: an object that came
        with its metadata has none."""
        if not (indexed.active or indexed.passive):
            return
        received = ReceivedList(indexed, cell, readers, rank)
        self._entries.refresh(indexed.metadata.key, received)

    def forget(self, key: Key) -> None:
        """Drops the cached entry of an object: its replicas are elsewhere."""
        self._entries.pop(key, None)

    def get(self, key: Key) -> IndexedMetadata | None:
        """The latest cached entry of an object."""
        received = self._entries.get(key)
        return None if received is None else received.indexed

    def received(self, key: Key) -> ReceivedList | None:
        """The latest cached entry of an object, with its sender and other receivers."""
        return self._entries.get(key)


def fetch_replication_list(
    routing: CellRouting,
    requests: CellRequests,
    replica_locations: ReplicaLocations,
    metadata: Metadata,
    now_us: int,
    on_result: OnResult[IndexedMetadata],
) -> None:
    """Requests the replication list of an object from the cell of a tag, and caches it."""

    def on_replies(result: Result[Replies], now_us: int) -> None:
        if isinstance(result, Failure):
            on_result(result, now_us)
            return
        [reply] = result.value.values()
        if isinstance(reply, CellStatus) and reply.indexed is not None:
            replica_locations.add(reply.indexed, target.cell)
            on_result(Ok(reply.indexed), now_us)
        else:
            state = reply.state if isinstance(reply, CellStatus) else "unexpected reply"
            detail = f"{metadata.key} cannot be retrieved ({state})"
            on_result(Failure(NotFoundError.code, detail), now_us)

    target = Destination(routing.cell_of_key(metadata.tags[0]))
    request = FetchStatus(requests.next_id(), metadata.key)
    requests.send_requests({target: request}, now_us, on_replies)
