"""Location updates: announces a node's location and its objects to the responsible cells.

At each boundary a node updates its location at the key cells of its subscriptions; once settled,
also at the tag cells of the objects that can be retrieved from it. All updates for one cell are
sent in one message. A cell that replies that it lacks a record receives it again. Entry point:
`LocationUpdater.announce_location`.
Clauses: D21, D22, B2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from thyme.model.ids import Key, RequestNumber, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.protocol.cell_messages import CellPage, IndexAgain, MoveNoted, NodeMoved
from thyme.protocol.cells import CellId, Indexed, Replica
from thyme.protocol.messages import OwnerPage, StartSubscription
from thyme.routing.cells import To
from thyme.substrates.dcs.asks import Replies
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.keys import Keys
from thyme.substrates.dcs.replicas import HeldObject, Role
from thyme.substrates.subscriber import Subscriber


class Location:
    """The location updates of one node (D21)."""

    def __init__(
        self,
        floor: Floor,
        keys: Keys,
        subscriber: Subscriber,
        on_page: Callable[[CellId, OwnerPage, int], None],
    ) -> None:
        self._node_id = floor.node_id
        self._tell_objects = floor.config.moving.tell_objects
        self._routing = floor.routing
        self._asks = floor.asks
        self._keys = keys
        self._subscriber = subscriber
        self._replicas = floor.replicas
        self._on_page = on_page
        self.told = 0

    def tell(self, now_us: int, *, settled: bool, last: bool = False) -> None:
        """Announces the location to the key cells of the own subscriptions; once settled, also the
        objects of this node. If so configured, a moving node announces objects that no other node
        has: those without another replica, and all of them if it was the last node of its cell."""
        self.say(self._given_away() if settled else self._only_here(last), now_us)

    def say(self, some: Iterable[Metadata], now_us: int, *, subscriptions: bool = True) -> None:
        """Announces objects to their tag cells, and the location to the key cells of the own
        subscriptions."""
        sids_by_cell: dict[CellId, dict[SubscriptionId, None]] = {}
        for own in self._subscriber.held() if subscriptions else ():
            for cell in self._keys.cells(own.sid):
                sids_by_cell.setdefault(cell, {})[own.sid] = None
        keys_by_cell: dict[CellId, dict[Key, None]] = {}
        for metadata in some:
            for cell in map(self._routing.cell_of_key, metadata.tags):
                keys_by_cell.setdefault(cell, {})[metadata.key] = None
        for cell in dict.fromkeys((*sids_by_cell, *keys_by_cell)):
            self._say(
                cell, tuple(sids_by_cell.get(cell, ())), tuple(keys_by_cell.get(cell, ())), now_us
            )

    def _say(
        self, cell: CellId, sids: tuple[SubscriptionId, ...], keys: tuple[Key, ...], now_us: int
    ) -> None:
        self.told += 1

        def make(request_id: RequestNumber) -> dict[To, NodeMoved]:
            return {To(cell): NodeMoved(request_id, sids, keys)}

        self._asks.start(make, now_us, self._on_replies, _given_up)

    def _given_away(self) -> Iterable[Metadata]:
        """The objects to be retrieved from this node itself: passive replicas, and own objects
        whose active replica is not its current cell (D21)."""
        here = Replica(self._routing.cell)
        for stored in self._replicas.of_role(Role.PASSIVE):
            yield stored.metadata
        for stored in self._replicas.of_role(Role.OWN):
            if here not in stored.active:
                yield stored.metadata

    def _only_here(self, last: bool) -> Iterable[Metadata]:
        if not self._tell_objects:
            return
        for stored in self._replicas.of_role(Role.OWN):
            if last or all(replica.node == self._node_id for replica in stored.active):
                yield stored.metadata
        for stored in self._replicas.of_role(Role.ACTIVE) if last else ():
            yield stored.metadata

    # Replies of the cells

    def _on_replies(self, replies: Replies, now_us: int) -> None:
        for to, reply in replies.items():
            if isinstance(reply, MoveNoted):
                for sid in reply.missing:
                    self._subscribe_again(to.cell, sid, now_us)
                self._index_again(to.cell, reply.unknown, now_us)

    def _subscribe_again(self, cell: CellId, sid: SubscriptionId, now_us: int) -> None:
        """Subscribes again at a cell that dropped the subscription or lost its state (D22)."""
        own = self._subscriber.get(sid)
        if own is None:
            return
        conjunctions = self._keys.of_subscription(own.subscription).get(cell)
        if conjunctions is None:
            return
        subscription = own.subscription.with_conjunctions(conjunctions)
        batch = own.batch

        def on_replies(replies: Replies, now_us: int) -> None:
            for to, reply in replies.items():
                if isinstance(reply, CellPage):
                    items = tuple(indexed.metadata for indexed in reply.items)
                    page = OwnerPage(sid, reply.total, items, reply.more)
                    self._on_page(to.cell, page, now_us)

        self._asks.start(
            lambda request_id: {To(cell): StartSubscription(request_id, subscription, batch)},
            now_us,
            on_replies,
            _given_up,
        )

    def _index_again(self, cell: CellId, keys: Iterable[Key], now_us: int) -> None:
        """Sends objects to a cell that lost their metadata. Passive replicas are left out: this
        node would not know of a later delete, which the owner and the active replicas do."""
        found = [stored for key in keys if (stored := self._replicas.get(key)) is not None]
        indexed = [self._indexed(stored) for stored in found if stored.role is not Role.PASSIVE]
        if indexed:
            self._asks.start(
                lambda request_id: {To(cell): IndexAgain(request_id, tuple(indexed))},
                now_us,
                _thanks,
                _given_up,
            )

    def _indexed(self, held: HeldObject) -> Indexed:
        cell = self._routing.cell
        shared = self._routing.serving and held.shared_in(cell)
        return Indexed(held.metadata, (Replica(cell, None if shared else self._node_id),))


def _thanks(replies: Replies, now_us: int) -> None:
    """Does nothing: the reply needs no action."""


def _given_up(code: str, detail: str, now_us: int) -> None:
    """Does nothing: the next boundary crossing, settling or re-announcement repeats the update."""
