"""Object client: insert, delete and lookup in Thyme-DCS; `retrieve` retrieves objects.

The metadata of an object is sent to the cell of each of its tags; the object itself stays in the
owner's cell. Entry point: `DcsObjectClient`.
Clauses: D11, D12, D14, D15, D18, M14, M32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from thyme.model.errors import NotFoundError, OperationError, OperationTimeoutError
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.protocol.cell_messages import CellStatus, HoldObject, IndexObject
from thyme.protocol.cells import CellId, Indexed, Replica
from thyme.protocol.messages import DeleteObject, FetchStatus
from thyme.protocol.requests import KnownObject
from thyme.routing.cells import To
from thyme.substrates.brokers import OnEnd
from thyme.substrates.catalogue import DELETED, EVICTED, EXPIRED, THERE, UNKNOWN
from thyme.substrates.dcs.asks import Replies
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.keys import Keys
from thyme.substrates.dcs.replicas import HeldObject, Role
from thyme.substrates.dcs.retrieving import Retrieving
from thyme.substrates.dcs.sources import Whereabouts

_DELETING_MAX = 10_000
"""How many deletes that some cell did not answer are remembered for the next attempt."""
_BEST_KNOWN = (THERE, DELETED, EXPIRED, EVICTED, UNKNOWN)
"""Which state of a key is reported if cells answer differently: the first of these."""


class CellObjects:
    """The `ObjectClient` of a Thyme-DCS node."""

    def __init__(
        self,
        floor: Floor,
        keys: Keys,
        whereabouts: Whereabouts,
    ) -> None:
        self._node_id = floor.node_id
        self._routing = floor.routing
        self._asks = floor.asks
        self._keys = keys
        self._replicas = floor.replicas
        self._whereabouts = whereabouts
        self._rng = floor.rng
        self._config = floor.config
        self._retrieving = Retrieving(
            floor.node_id,
            floor.routing,
            floor.asks,
            floor.replicas,
            whereabouts,
            floor.config.retries,
            floor.config.replication,
        )
        self._deletions = floor.deletions
        self._deleting: dict[Key, HeldObject] = {}

    def insert(self, metadata: Metadata, data: bytes, now_us: int, on_end: OnEnd) -> None:
        """Stores the object on this node and in its cell, and has the cell of each tag index it
        (D11)."""
        active = self._active()
        try:
            self._replicas.hold(HeldObject(metadata, Role.OWN, active), data, now_us)
        except OperationError as error:
            on_end(error.code, str(error), now_us)
            return
        self._replicate(metadata, data, active, now_us)

        def make(request_id: int) -> Mapping[To, IndexObject]:
            request = IndexObject(request_id, Indexed(metadata, active))
            return dict.fromkeys(map(To, self.tag_cells(metadata)), request)

        def on_failure(code: str, detail: str, now_us: int) -> None:
            # After a timeout some cell may have the metadata and refer readers to this node.
            if code != OperationTimeoutError.code:
                self._replicas.forget(metadata.key)
            on_end(code, detail, now_us)

        self._asks.start(make, now_us, lambda _, now_us: on_end("", "", now_us), on_failure)

    def _active(self) -> tuple[Replica, ...]:
        """The active replicas of a new object: one entry for the whole cell, or one for each chosen
        node (D12, D14)."""
        cell, replication = self._routing.cell, self._config.replication
        others = self._routing.nodes_in(cell)
        is_crowded = 1 + len(others) >= replication.crowded_min
        replicas_max = replication.active_max if is_crowded else None
        if replicas_max is None and (others or self._routing.serving):
            return (Replica(cell),)
        count = len(others) if replicas_max is None else min(replicas_max - 1, len(others))
        chosen = self._rng.sample(others, count)
        return (Replica(cell, self._node_id), *(Replica(cell, node) for node in chosen))

    def _replicate(
        self, metadata: Metadata, data: bytes, active: tuple[Replica, ...], now_us: int
    ) -> None:
        """Broadcasts the object once in the cell, whether all nodes store it or only the chosen
        ones (B6)."""
        holders = tuple(replica.node for replica in active if replica.node is not None)
        alone = holders == (self._node_id,) or not self._routing.nodes_in(self._routing.cell)
        if not alone:
            self._routing.spread(HoldObject(metadata, data, holders), now_us)

    def delete(self, key: Key, now_us: int, on_end: OnEnd) -> None:
        """Has the metadata and the active replicas removed from their cells (D15)."""
        stored = self._deleting.get(key) or self._replicas.get(key)
        if stored is None or stored.role is not Role.OWN:
            if self._replicas.why_gone(key) == DELETED:
                on_end("", "", now_us)
            else:
                state = self._replicas.why_gone(key) or UNKNOWN
                detail = f"this node has no object {key} ({state})"
                on_end(NotFoundError.code, detail, now_us)
            return
        self._deleting[key] = stored
        if len(self._deleting) > _DELETING_MAX:
            del self._deleting[next(iter(self._deleting))]
        active_cells = [replica.cell for replica in stored.active]
        cells = dict.fromkeys([*self.tag_cells(stored.metadata), *active_cells])

        def make(request_id: int) -> Mapping[To, DeleteObject]:
            return dict.fromkeys(map(To, cells), DeleteObject(request_id, key))

        def on_deleted(_replies: Replies, now_us: int) -> None:
            self._deleting.pop(key, None)
            self._deletions.note(key, cells, now_us)
            self._replicas.bury(key, DELETED, now_us)
            on_end("", "", now_us)

        self._asks.start(make, now_us, on_deleted, on_end)

    def retrieve(
        self,
        metadata: Metadata,
        now_us: int,
        on_data: Callable[[bytes, int], None],
        on_failure: OnEnd,
    ) -> None:
        self._retrieving.start(metadata, now_us, on_data, on_failure)

    def look_up(
        self,
        key: Key,
        now_us: int,
        on_known: Callable[[KnownObject, int], None],
        on_failure: OnEnd,
    ) -> None:
        """Requests the state of a key from the cell of one of its tags, if this node knows the
        tags; else from the cells of its own subscriptions: an object that none of these knows
        matches none of the subscriptions."""
        cached, stored = self._whereabouts.get(key), self._replicas.get(key)
        if cached is not None:
            cells = self.tag_cells(cached.metadata)[:1]
        elif stored is not None:
            cells = self.tag_cells(stored.metadata)[:1]
        else:
            cells = self._keys.all_cells()[: self._config.look_up_cells_max]

        def make(request_id: int) -> Mapping[To, FetchStatus]:
            return dict.fromkeys(map(To, cells), FetchStatus(request_id, key))

        def on_replies(replies: Replies, now_us: int) -> None:
            states = [reply for reply in replies.values() if isinstance(reply, CellStatus)]
            states = [reply for reply in states if reply.state in _BEST_KNOWN]
            best = min(states, key=lambda reply: _BEST_KNOWN.index(reply.state), default=None)
            if best is None:
                on_known(KnownObject(UNKNOWN), now_us)
            else:
                metadata = None if best.indexed is None else best.indexed.metadata
                on_known(KnownObject(best.state, metadata), now_us)

        self._asks.start(make, now_us, on_replies, on_failure)

    def tag_cells(self, metadata: Metadata) -> list[CellId]:
        """The cells that index an object, without duplicates."""
        return list(dict.fromkeys(map(self._routing.cell_of_key, metadata.tags)))
