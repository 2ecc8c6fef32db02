"""Location: what a node tells cells of where it is, and of what others can get from it.

At each border it tells the cells of its subscriptions where it is; once it stands, also those that
send others to it for objects. Whatever it has to say to a cell goes in one message. A cell that has
lost something, for whatever reason, is told of it again.
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
    """What a node tells cells of where it is (D21)."""

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
        """Tells the cells of the own subscriptions; once settled, those of the objects here. If so
        set, on its way also those of objects that nobody else has: those made alone, and all if
        this was the last of its cell."""
        self.say(self._given_away() if settled else self._only_here(last), now_us)

    def say(self, some: Iterable[Metadata], now_us: int, *, subscriptions: bool = True) -> None:
        """Tells the cells of some objects, and those of the own subscriptions."""
        sids: dict[CellId, dict[SubscriptionId, None]] = {}
        for held in self._subscriber.held() if subscriptions else ():
            for cell in self._keys.cells(held.sid):
                sids.setdefault(cell, {})[held.sid] = None
        objects: dict[CellId, dict[Key, None]] = {}
        for metadata in some:
            for cell in map(self._routing.cell_of_key, metadata.tags):
                objects.setdefault(cell, {})[metadata.key] = None
        for cell in dict.fromkeys((*sids, *objects)):
            self._say(cell, tuple(sids.get(cell, ())), tuple(objects.get(cell, ())), now_us)

    def _say(
        self, cell: CellId, sids: tuple[SubscriptionId, ...], keys: tuple[Key, ...], now_us: int
    ) -> None:
        self.told += 1

        def make(number: RequestNumber) -> dict[To, NodeMoved]:
            return {To(cell): NodeMoved(number, sids, keys)}

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

    # What cells answer

    def _on_replies(self, replies: Replies, now_us: int) -> None:
        for to, reply in replies.items():
            if isinstance(reply, MoveNoted):
                for sid in reply.missing:
                    self._subscribe_again(to.cell, sid, now_us)
                self._index_again(to.cell, reply.unknown, now_us)

    def _subscribe_again(self, cell: CellId, sid: SubscriptionId, now_us: int) -> None:
        """A cell took this node for failed, or has lost its memory (D22)."""
        own = self._subscriber.get(sid)
        if own is None:
            return
        mine = self._keys.of_subscription(own.subscription).get(cell)
        if mine is None:
            return
        subscription = own.subscription.with_conjunctions(mine)
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

    def _index_again(self, cell: CellId, keys: Iterable[Key], now_us: int) -> None:
        """A cell has lost its memory. Of what was retrieved, this node would not know whether it
        was deleted since: its owner, and those who hold it for the owner, do."""
        found = [held for key in keys if (held := self._replicas.get(key)) is not None]
        mine = [self._indexed(held) for held in found if held.role is not Role.PASSIVE]
        if mine:
            self._asks.start(
                lambda number: {To(cell): IndexAgain(number, tuple(mine))},
                now_us,
                _thanks,
                _given_up,
            )

    def _indexed(self, held: HeldObject) -> Indexed:
        cell = self._routing.cell
        shared = self._routing.serving and held.shared_in(cell)
        return Indexed(held.metadata, (Replica(cell, None if shared else self._node_id),))


def _thanks(replies: Replies, now_us: int) -> None:
    """That is all there was to say."""


def _given_up(code: str, detail: str, now_us: int) -> None:
    """The next time this node crosses a border, settles, or renews, it says so again."""
