"""Moving: a node that leaves its cell, and says where it is until it has come to rest.

Only nodes that stand form the hash table. Whoever crosses the border of its cell stops working for
it at once, but hears beacons, asks and is told as before. At each border it tells the cells of its
subscriptions where it is; once it stands, also those that send others to it for objects. Whatever
it has to say to a cell goes in one message.
Clauses: D20, D21.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Subscription
from thyme.protocol.cells import CellId, Replica
from thyme.protocol.messages import (
    CellPage,
    MoveNoted,
    NodeMoved,
    OwnerPage,
    RequestNumber,
    StartSubscription,
)
from thyme.protocol.node import Outbox
from thyme.routing.cells import CellRouting, To
from thyme.substrates.dcs.asks import CellAsks, Replies
from thyme.substrates.dcs.config import MovingConfig
from thyme.substrates.dcs.keys import Keys
from thyme.substrates.dcs.replicas import Replicas, Role
from thyme.substrates.subscriber import Subscriber


class SettleTimer(msgspec.Struct, frozen=True):
    """The device has not moved for long enough."""


class Moving:
    """Where a node is, and who has to know."""

    def __init__(
        self,
        routing: CellRouting,
        outbox: Outbox,
        config: MovingConfig,
        on_settled: Callable[[int], None],
    ) -> None:
        self._routing = routing
        self._outbox = outbox
        self._config = config
        self._on_settled = on_settled
        self.moving = False
        self.crossings = 0

    def on_moved(self, cell: CellId, now_us: int) -> bool:
        """The device is in this cell; returns whether it crossed a border. Within the own cell a
        node may move as it likes."""
        crossed = cell != self._routing.cell
        if crossed:
            self.crossings += 1
            self.moving = True
            self._routing.set_cell(cell, now_us, serving=False)
        if self.moving:
            self._outbox.set_timer(SettleTimer(), now_us + self._config.settle_us)
        return crossed

    def on_timer(self, now_us: int) -> None:
        """The device stands."""
        if self.moving:
            self.moving = False
            self._on_settled(now_us)


class Location:
    """What a node tells cells of where it is (D21)."""

    def __init__(
        self,
        node_id: NodeId,
        routing: CellRouting,
        asks: CellAsks,
        keys: Keys,
        subscriber: Subscriber,
        replicas: Replicas,
        on_page: Callable[[CellId, OwnerPage, int], None],
        *,
        tell_objects: bool,
    ) -> None:
        self._node_id = node_id
        self._tell_objects = tell_objects
        self._routing = routing
        self._asks = asks
        self._keys = keys
        self._subscriber = subscriber
        self._replicas = replicas
        self._on_page = on_page
        self.told = 0

    def tell(self, now_us: int, *, settled: bool, last: bool = False) -> None:
        """Tells the cells of the own subscriptions; once settled, those of the objects here. If so
        set, on its way also those of objects that nobody else has: those made alone, and all if
        this was the last of its cell."""
        sids: dict[CellId, dict[SubscriptionId, None]] = {}
        for held in self._subscriber.held():
            for cell in self._keys.cells(held.sid):
                sids.setdefault(cell, {})[held.sid] = None
        objects: dict[CellId, dict[Key, None]] = {}
        for metadata in self._given_away() if settled else self._only_here(last):
            for cell in map(self._routing.cell_of_key, metadata.tags):
                objects.setdefault(cell, {})[metadata.key] = None
        cells = list(dict.fromkeys((*sids, *objects)))
        if not cells:
            return
        self.told += len(cells)

        def make(number: RequestNumber) -> dict[To, NodeMoved]:
            return {
                To(cell): NodeMoved(number, tuple(sids.get(cell, ())), tuple(objects.get(cell, ())))
                for cell in cells
            }

        self._asks.start(make, now_us, self._on_replies, _given_up)

    def _given_away(self) -> Iterable[Metadata]:
        """The objects that others may want from this node itself: what it retrieved, and its own
        where they are not of the cell it is in (D21)."""
        here = Replica(self._routing.cell)
        for held in self._replicas.of_role(Role.PASSIVE):
            yield held.metadata
        for held in self._replicas.of_role(Role.OWN):
            if here not in held.active:
                yield held.metadata

    def _only_here(self, last: bool) -> Iterable[Metadata]:
        if not self._tell_objects:
            return
        for held in self._replicas.of_role(Role.OWN):
            if last or all(replica.node == self._node_id for replica in held.active):
                yield held.metadata
        for held in self._replicas.of_role(Role.ACTIVE) if last else ():
            yield held.metadata

    def _on_replies(self, replies: Replies, now_us: int) -> None:
        for to, reply in replies.items():
            for sid in reply.missing if isinstance(reply, MoveNoted) else ():
                self._subscribe_again(to.cell, sid, now_us)

    def _subscribe_again(self, cell: CellId, sid: SubscriptionId, now_us: int) -> None:
        """A cell took this node for failed, or has lost its memory (D22)."""
        own = self._subscriber.get(sid)
        if own is None:
            return
        mine = self._keys.of_subscription(own.subscription).get(cell)
        if mine is None:
            return
        subscription = Subscription(own.subscription.key, mine, own.subscription.frame)
        batch = own.batch

        def on_replies(replies: Replies, now_us: int) -> None:
            for to, reply in replies.items():
                if isinstance(reply, CellPage):
                    items = tuple(indexed.metadata for indexed in reply.items)
                    page = OwnerPage(sid, reply.total, items, reply.more)
                    self._on_page(to.cell, page, now_us)

        self._asks.start(
            lambda number: {To(cell): StartSubscription(number, subscription, batch)},
            now_us,
            on_replies,
            _given_up,
        )


def _given_up(code: str, detail: str, now_us: int) -> None:
    """The next time this node crosses a border, or settles, it says so again."""
