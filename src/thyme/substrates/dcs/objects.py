"""Objects: inserting, deleting and looking up in Thyme-DCS; retrieving is done by `retrieving`.

The metadata of an object goes to the cell of each of its tags, the object itself no further than
the owner's cell.
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
"""How many deletes that some cell did not answer are remembered, for the next attempt."""
_BEST_KNOWN = (THERE, DELETED, EXPIRED, EVICTED, UNKNOWN)
"""Whom to believe when cells say different things of a key."""


class CellObjects:
    """Where objects and their metadata are; `Objects` of a node's client."""

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
        """Keeps the object here and in the cell, and has each tag's cell index it (D11)."""
        active = self._active()
        try:
            self._replicas.hold(HeldObject(metadata, Role.OWN, active), data, now_us)
        except OperationError as error:
            on_end(error.code, str(error), now_us)
            return
        self._replicate(metadata, data, active, now_us)

        def make(number: int) -> Mapping[To, IndexObject]:
            request = IndexObject(number, Indexed(metadata, active))
            return dict.fromkeys(map(To, self.tag_cells(metadata)), request)

        def on_failure(code: str, detail: str, now_us: int) -> None:
            # Where the answer is missing, some cell may have the metadata and send people here.
            if code != OperationTimeoutError.code:
                self._replicas.forget(metadata.key)
            on_end(code, detail, now_us)

        self._asks.start(make, now_us, lambda _, now_us: on_end("", "", now_us), on_failure)

    def _active(self) -> tuple[Replica, ...]:
        """The active replicas of an object inserted now: one entry for the whole cell, or one for
        each chosen node (D12, D14)."""
        cell, replication = self._routing.cell, self._config.replication
        others = self._routing.nodes_in(cell)
        crowded = 1 + len(others) >= replication.crowded_min
        most = replication.active_max if crowded else None
        if most is None and (others or self._routing.serving):
            return (Replica(cell),)
        wanted = len(others) if most is None else min(most - 1, len(others))
        chosen = self._rng.sample(others, wanted)
        return (Replica(cell, self._node_id), *(Replica(cell, node) for node in chosen))

    def _replicate(
        self, metadata: Metadata, data: bytes, active: tuple[Replica, ...], now_us: int
    ) -> None:
        """One broadcast, whether for all or for some (B6)."""
        holders = tuple(replica.node for replica in active if replica.node is not None)
        alone = holders == (self._node_id,) or not self._routing.nodes_in(self._routing.cell)
        if not alone:
            self._routing.spread(HoldObject(metadata, data, holders), now_us)

    def delete(self, key: Key, now_us: int, on_end: OnEnd) -> None:
        """Has the metadata removed from the tags' cells, and the active replicas (D15)."""
        held = self._deleting.get(key) or self._replicas.get(key)
        if held is None or held.role is not Role.OWN:
            if self._replicas.why_gone(key) == DELETED:
                on_end("", "", now_us)
            else:
                state = self._replicas.why_gone(key) or UNKNOWN
                detail = f"this node has no object {key} ({state})"
                on_end(NotFoundError.code, detail, now_us)
            return
        self._deleting[key] = held
        if len(self._deleting) > _DELETING_MAX:
            del self._deleting[next(iter(self._deleting))]
        active_cells = [replica.cell for replica in held.active]
        cells = dict.fromkeys([*self.tag_cells(held.metadata), *active_cells])

        def make(number: int) -> Mapping[To, DeleteObject]:
            return dict.fromkeys(map(To, cells), DeleteObject(number, key))

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
        """Asks the cell of a tag, if the object is known here; else the cells of the own
        subscriptions: an object that they do not know matches none of these."""
        told, held = self._whereabouts.get(key), self._replicas.get(key)
        if told is not None:
            cells = self.tag_cells(told.metadata)[:1]
        elif held is not None:
            cells = self.tag_cells(held.metadata)[:1]
        else:
            cells = self._keys.all_cells()[: self._config.look_up_cells_max]

        def make(number: int) -> Mapping[To, FetchStatus]:
            return dict.fromkeys(map(To, cells), FetchStatus(number, key))

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
        """The cells that index an object, each once."""
        return list(dict.fromkeys(map(self._routing.cell_of_key, metadata.tags)))
