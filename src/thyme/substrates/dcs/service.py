"""Service: what a node does on behalf of its cell, and for those who ask it alone.

A message for the cell comes to one of its nodes first: that one answers, matches and notifies; the
others hear of it and keep it (`Arrival.first`). Doing a thing twice is as good as once.
Clauses: D7, D9, D11–D18, M26.
"""

from __future__ import annotations

from collections import Counter
from typing import assert_never

import msgspec

from thyme.model.errors import OperationError
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Subscription
from thyme.protocol import cell_messages as cell_wire
from thyme.protocol import messages as wire
from thyme.protocol.cells import Interest, Replica
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import Arrival, CellRouting, To
from thyme.substrates.catalogue import DELETED
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.dcs.index import CellIndex
from thyme.substrates.dcs.learning import Learnt
from thyme.substrates.dcs.replicas import HeldObject, Replicas, Role
from thyme.substrates.dcs.returned import Returned
from thyme.substrates.dcs.seam import Seam
from thyme.substrates.desk import page_for


class CellDue(msgspec.Struct, frozen=True):
    """The timer at which something is past its time."""


class Service:
    """The answering side of a node."""

    def __init__(
        self,
        routing: CellRouting,
        outbox: Outbox,
        index: CellIndex,
        replicas: Replicas,
        config: DcsConfig,
    ) -> None:
        self._routing = routing
        self._outbox = outbox
        self.index = index
        self._replicas = replicas
        self._config = config
        self._due_us: int | None = None
        late_us = config.repair.late_us if config.repair.digests else 0
        self._seam = Seam(index, config.seam_us, late_us)
        self.returned = Returned(routing, outbox, index, config.returned)
        self.notified = 0
        self.dropped: Counter[str] = Counter()

    # Messages

    def on_ask(self, arrival: Arrival, ask: wire.CellAsk, now_us: int) -> None:
        """Does what is asked of the cell, or of this node; the first of the cell answers."""
        if not arrival.first:
            try:
                self._follow(arrival, ask, now_us)
            except OperationError as error:
                self.dropped[error.code] += 1
            return
        try:
            reply = self._answer(arrival, ask, now_us)
        except OperationError as error:
            reply = wire.Refused(ask.request, error.code, str(error))
        answer: wire.Message = reply
        if not arrival.personal:
            answer = wire.FromCell(arrival.cell, reply)
        target = To(arrival.origin_cell, arrival.origin)

        def tell(now_us: int) -> None:
            self._routing.send([target], answer, now_us)

        self._routing.when_heard(arrival, tell, now_us)

    def on_announce(self, arrival: Arrival, message: cell_wire.AnnounceReplica) -> None:
        """One more node has an object (D13)."""
        replica = Replica(arrival.origin_cell, arrival.origin)
        if not self.index.announce(message.key, replica):
            self.dropped["replica of nothing"] += 1

    def on_hold(self, arrival: Arrival, message: cell_wire.HoldObject, now_us: int) -> None:
        """Keeps an object for the cell (D11), or for an empty one that it stands in for (D24)."""
        stands_in = not arrival.personal and arrival.cell != self._routing.cell
        active = (Replica(arrival.cell),) if stands_in else ()
        try:
            held = HeldObject(message.metadata, Role.ACTIVE, active)
            self._replicas.hold(held, message.data, now_us)
        except OperationError as error:
            self.dropped[error.code] += 1

    def _answer(self, arrival: Arrival, ask: wire.CellAsk, now_us: int) -> wire.CellReply:
        index, number, origin = self.index, ask.request, arrival.origin
        match ask:
            case cell_wire.IndexObject():
                matched = index.add(ask.indexed, origin, now_us)
                self._seam.indexed(ask.indexed.metadata.key, now_us)
                self.notify(ask.indexed.metadata, matched, now_us)
                return wire.Done(number)
            case wire.DeleteObject():
                self._delete(ask, origin, now_us)
                return wire.Done(number)
            case wire.StartSubscription():
                index.take_up(_interest(arrival, ask, now_us), origin, now_us)
                self._seam.subscribed(ask.subscription.key, now_us)
                self.returned.on_heard(origin, now_us)
                return self._page(as_fetch(ask), now_us)
            case wire.StopSubscription():
                index.unsubscribe(ask.key, origin, now_us, wire.proof_in(ask))
                return wire.Done(number)
            case wire.FetchPage():
                return self._page(ask, now_us)
            case wire.FetchObject():
                self._replicas.expire(now_us)
                return wire.ObjectData(number, ask.key, self._replicas.data(ask.key))
            case wire.FetchStatus():
                known = index.broker.known(ask.key, now_us)
                metadata = known.metadata
                indexed = None if metadata is None else index.indexed(metadata)
                return cell_wire.CellStatus(number, known.state, indexed)
            case _:
                assert_never(ask)

    def _follow(self, arrival: Arrival, ask: wire.CellAsk, now_us: int) -> None:
        """Keeps what another node of the cell does for all of it (D7)."""
        index, origin = self.index, arrival.origin
        match ask:
            case cell_wire.IndexObject():
                matched = index.add(ask.indexed, origin, now_us)
                self.notify(ask.indexed.metadata, self._seam.fresh(matched, now_us), now_us)
            case wire.DeleteObject():
                self._delete(ask, origin, now_us)
            case wire.StartSubscription():
                index.take_up(_interest(arrival, ask, now_us), origin, now_us)
                self.returned.on_heard(origin, now_us)
            case wire.StopSubscription():
                index.unsubscribe(ask.key, origin, now_us, wire.proof_in(ask))
            case wire.FetchPage() | wire.FetchObject() | wire.FetchStatus():
                pass  # one answer is enough
            case _:
                assert_never(ask)

    def _delete(self, ask: wire.DeleteObject, origin: NodeId, now_us: int) -> None:
        self.index.delete(ask.key, origin, now_us, wire.proof_in(ask))
        self._replicas.bury(ask.key, DELETED, now_us)

    def _page(self, request: wire.FetchPage, now_us: int) -> cell_wire.CellPage:
        page = page_for(self.index.broker, request, now_us)
        items = tuple(map(self.index.indexed, page.items))
        return cell_wire.CellPage(request.request, page.total, items, page.more)

    # Notifications

    def notify(self, metadata: Metadata, matched: list[Subscription], now_us: int) -> None:
        """Tells all subscribers that an object concerns (D17)."""
        audience = self.index.audience(matched)
        self.returned.notify(metadata.key, audience, now_us)
        self.notified += sum(map(len, audience.values()))

    def on_learnt(self, learnt: Learnt, now_us: int) -> None:
        """What others of the cell knew and this node did not, when it answered for it (B2)."""
        history = self.index.broker.catalogue.history
        for key in learnt.objects:
            if (metadata := history.get(key)) is not None:
                self.notify(metadata, self._seam.missed_by(metadata, now_us), now_us)
        for sub_key in learnt.subscriptions:
            if (held := self.index.broker.standing(sub_key)) is not None:
                for metadata in self._seam.missed_of(held, now_us):
                    self.notify(metadata, [held], now_us)

    # Time

    def on_due(self, now_us: int) -> None:
        """Lets go of what is past its time."""
        self._due_us = None
        self.index.broker.expire(now_us)
        self._replicas.expire(now_us)

    def set_timer(self) -> None:
        """Asks to be woken when something is due; to be called after each input."""
        expiries = (self.index.broker.next_expiry_us(), self._replicas.next_expiry_us())
        due_us = min((at_us for at_us in expiries if at_us is not None), default=None)
        if due_us is not None and due_us != self._due_us:
            self._outbox.set_timer(CellDue(), due_us)
        self._due_us = due_us


def _interest(arrival: Arrival, ask: wire.StartSubscription, now_us: int) -> Interest:
    """A subscription, made where the subscriber proves to be; else where it was said (D16)."""
    if isinstance(ask, wire.PlacedSubscription):
        return Interest(ask.subscription, ask.place.cell, (arrival.cell,), ask.place.since)
    return Interest(ask.subscription, arrival.origin_cell, (arrival.cell,), now_us)


def as_fetch(ask: wire.StartSubscription) -> wire.FetchPage:
    """The page that a new subscription is answered with."""
    subscription = ask.subscription
    return wire.FetchPage(ask.request, subscription.conjunctions, subscription.frame, ask.batch)
