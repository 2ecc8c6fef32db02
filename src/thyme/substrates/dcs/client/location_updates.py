"""Location updates: announces a node's location and its objects to the responsible cells.

At each boundary a node updates its location at the key cells of its subscriptions; once settled,
also at the tag cells of the objects that can be retrieved from it. All updates for one cell are
sent in one message. A cell that replies that it lacks a record receives it again. Entry point:
`LocationUpdater.announce_location`.
Clauses: D21, D22, B2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from thyme.model.ids import Key, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata, Replica
from thyme.protocol.messages.cells import (
    CellPage,
    LocationUpdate,
    LocationUpdateReply,
    ReindexObjects,
)
from thyme.protocol.messages.list_limits import RECORDS_MAX
from thyme.protocol.messages.replies import PastMatches
from thyme.protocol.messages.requests import StartSubscription
from thyme.protocol.results import Ok, Result, ignore_result
from thyme.routing.cells import Destination
from thyme.substrates.common.subscriber import Subscriber
from thyme.substrates.dcs.client.cell_requests import Replies
from thyme.substrates.dcs.client.key_choice import KeyChooser
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.state.replica_store import ReplicaRole, StoredReplica


class LocationUpdater:
    """The location updates of one node (D21)."""

    def __init__(
        self,
        context: NodeContext,
        key_chooser: KeyChooser,
        subscriber: Subscriber,
        on_page: Callable[[CellId, PastMatches, int], None],
    ) -> None:
        self._node_id = context.node_id
        self._announce_while_moving = context.config.movement.announce_while_moving
        self._routing = context.routing
        self._requests = context.requests
        self._key_chooser = key_chooser
        self._subscriber = subscriber
        self._replicas = context.replicas
        self._on_page = on_page
        self.updates_sent = 0

    def announce_location(self, now_us: int, *, settled: bool, was_last: bool = False) -> None:
        """Announces the location to the key cells of the own subscriptions; once settled, also the
        objects of this node. If so configured, a moving node announces objects that no other node
        has: those without another replica, and all of them if it was the last node of its cell."""
        self.announce_objects(
            self._objects_to_announce() if settled else self._objects_only_here(was_last), now_us
        )

    def announce_objects(
        self, objects: Iterable[Metadata], now_us: int, *, with_subscriptions: bool = True
    ) -> None:
        """Announces objects to their tag cells, and the location to the key cells of the own
        subscriptions."""
        sids_by_cell = self.sids_by_cell() if with_subscriptions else {}
        keys_by_cell = self.keys_by_cell(objects)
        for cell in dict.fromkeys((*sids_by_cell, *keys_by_cell)):
            self.send_update(
                cell, tuple(sids_by_cell.get(cell, ())), tuple(keys_by_cell.get(cell, ())), now_us
            )

    def sids_by_cell(self) -> dict[CellId, dict[SubscriptionId, None]]:
        """The own active subscriptions of each key cell."""
        sids_by_cell: dict[CellId, dict[SubscriptionId, None]] = {}
        for own in self._subscriber.active_subscriptions():
            for cell in self._key_chooser.cells_of(own.sid):
                sids_by_cell.setdefault(cell, {})[own.sid] = None
        return sids_by_cell

    def keys_by_cell(self, objects: Iterable[Metadata]) -> dict[CellId, dict[Key, None]]:
        """The objects of each tag cell."""
        keys_by_cell: dict[CellId, dict[Key, None]] = {}
        for metadata in objects:
            for cell in map(self._routing.cell_of_key, metadata.tags):
                keys_by_cell.setdefault(cell, {})[metadata.key] = None
        return keys_by_cell

    def send_update(
        self, cell: CellId, sids: tuple[SubscriptionId, ...], keys: tuple[Key, ...], now_us: int
    ) -> None:
        """Tells a cell where these subscriptions and objects are; sends the records that the cell
        does not know."""
        self.updates_sent += 1
        update = LocationUpdate(self._requests.next_id(), sids, keys)
        self._requests.send_requests({Destination(cell): update}, now_us, self._on_result)

    def _objects_to_announce(self) -> Iterable[Metadata]:
        """The objects to be retrieved from this node itself: passive replicas, and own objects
        whose active replica is not its current cell (D21)."""
        here = Replica(self._routing.cell)
        for stored in self._replicas.brief_with_role(ReplicaRole.PASSIVE):
            yield stored.metadata
        for stored in self._replicas.brief_with_role(ReplicaRole.OWN):
            if here not in stored.active:
                yield stored.metadata

    def _objects_only_here(self, was_last: bool) -> Iterable[Metadata]:
        if not self._announce_while_moving:
            return
        for stored in self._replicas.brief_with_role(ReplicaRole.OWN):
            if was_last or all(replica.node == self._node_id for replica in stored.active):
                yield stored.metadata
        for stored in self._replicas.brief_with_role(ReplicaRole.ACTIVE) if was_last else ():
            yield stored.metadata

    # Replies of the cells

    def _on_result(self, result: Result[Replies], now_us: int) -> None:
        """Sends the records that a cell lacks. A failed update is not sent again: the next boundary
        crossing, settling or re-announcement repeats it."""
        for to, reply in result.value.items() if isinstance(result, Ok) else ():
            if isinstance(reply, LocationUpdateReply):
                for sid in reply.unknown_sids:
                    self._resubscribe(to.cell, sid, now_us)
                self._reindex_objects(to.cell, reply.unknown_keys, now_us)

    def _resubscribe(self, cell: CellId, sid: SubscriptionId, now_us: int) -> None:
        """Subscribes again at a cell that dropped the subscription or lost its state (D22)."""
        own = self._subscriber.get(sid)
        if own is None:
            return
        conjunctions = self._key_chooser.assign_cells(own.subscription).get(cell)
        if conjunctions is None:
            return
        subscription = own.subscription.with_conjunctions(conjunctions)

        def on_result(result: Result[Replies], now_us: int) -> None:
            for to, reply in result.value.items() if isinstance(result, Ok) else ():
                if isinstance(reply, CellPage):
                    items = tuple(indexed.metadata for indexed in reply.items)
                    page = PastMatches(sid, reply.total, items, reply.has_more)
                    self._on_page(to.cell, page, now_us)

        request = StartSubscription(self._requests.next_id(), subscription, own.batch)
        self._requests.send_requests({Destination(cell): request}, now_us, on_result)

    def _reindex_objects(self, cell: CellId, keys: Iterable[Key], now_us: int) -> None:
        """Sends objects to a cell that lost their metadata. Passive replicas are left out: this
        node would not know of a later delete, which the owner and the active replicas do."""
        found = [stored for key in keys if (stored := self._replicas.get(key)) is not None]
        indexed = [
            self._indexed_metadata(stored)
            for stored in found
            if stored.role is not ReplicaRole.PASSIVE
        ]
        for start in range(0, len(indexed), RECORDS_MAX):
            part = tuple(indexed[start : start + RECORDS_MAX])
            request = ReindexObjects(self._requests.next_id(), part)
            self._requests.send_requests({Destination(cell): request}, now_us, ignore_result)

    def _indexed_metadata(self, stored: StoredReplica) -> IndexedMetadata:
        cell = self._routing.cell
        shared = self._routing.serving and stored.is_cell_wide_in(cell)
        return IndexedMetadata(stored.metadata, (Replica(cell, None if shared else self._node_id),))
