"""Cell service: the requests that a node serves for its cell, or for itself.

Entry point: `CellService.on_request`. The first node of a cell to receive a message replies,
matches and notifies; the other nodes apply the same change to their copies (`Delivery.is_first`).
All operations are idempotent. Notifications are sent by `notification_delivery`.
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
    """The timer at which the next record expires."""


class Service:
    """The serving side of a node."""

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
        """Executes a request to the cell or to this node; the first node of the cell replies."""
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
        message: wire.Message = reply
        if not arrival.personal:
            message = wire.FromCell(arrival.cell, reply)
        target = To(arrival.origin_cell, arrival.origin)

        def send_reply(now_us: int) -> None:
            self._routing.send([target], message, now_us)

        self._routing.when_heard(arrival, send_reply, now_us)

    def on_announce(self, arrival: Arrival, message: cell_wire.AnnounceReplica) -> None:
        """Adds the sender to an object's replication list (D13)."""
        replica = Replica(arrival.origin_cell, arrival.origin)
        if not self.index.announce(message.key, replica):
            self.dropped["replica of nothing"] += 1

    def on_hold(self, arrival: Arrival, message: cell_wire.HoldObject, now_us: int) -> None:
        """Stores an active replica for this cell (D11), or for an empty cell whose proxy it is
        (D24)."""
        is_proxy = not arrival.personal and arrival.cell != self._routing.cell
        active = (Replica(arrival.cell),) if is_proxy else ()
        try:
            stored = HeldObject(message.metadata, Role.ACTIVE, active)
            self._replicas.hold(stored, message.data, now_us)
        except OperationError as error:
            self.dropped[error.code] += 1

    def _answer(self, arrival: Arrival, ask: wire.CellAsk, now_us: int) -> wire.CellReply:
        index, request_id, origin = self.index, ask.request, arrival.origin
        match ask:
            case cell_wire.IndexObject():
                matched = index.add(ask.indexed, origin, now_us)
                self._seam.indexed(ask.indexed.metadata.key, now_us)
                self.notify(ask.indexed.metadata, matched, now_us)
                return wire.Done(request_id)
            case wire.DeleteObject():
                self._delete(ask, origin, now_us)
                return wire.Done(request_id)
            case wire.StartSubscription():
                index.take_up(_interest(arrival, ask, now_us), origin, now_us)
                self._seam.subscribed(ask.subscription.key, now_us)
                self.returned.on_heard(origin, now_us)
                return self._page(as_fetch(ask), now_us)
            case wire.StopSubscription():
                index.unsubscribe(ask.key, origin, now_us, wire.proof_in(ask))
                return wire.Done(request_id)
            case wire.FetchPage():
                return self._page(ask, now_us)
            case wire.FetchObject():
                self._replicas.expire(now_us)
                return wire.ObjectData(request_id, ask.key, self._replicas.data(ask.key))
            case wire.FetchStatus():
                status = index.broker.known(ask.key, now_us)
                metadata = status.metadata
                indexed = None if metadata is None else index.indexed(metadata)
                return cell_wire.CellStatus(request_id, status.state, indexed)
            case _:
                assert_never(ask)

    def _follow(self, arrival: Arrival, ask: wire.CellAsk, now_us: int) -> None:
        """Applies a request that another node of the cell replies to (D7)."""
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
                pass  # the first node of the cell replies
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
        """Notifies the subscribers of the matching subscriptions (D17)."""
        recipients = self.index.audience(matched)
        self.returned.notify(metadata.key, recipients, now_us)
        self.notified += sum(map(len, recipients.values()))

    def on_learnt(self, learnt: Learnt, now_us: int) -> None:
        """Notifies subscribers of matches that this node missed because it lacked the merged
        records when it answered (B2)."""
        history = self.index.broker.catalogue.history
        for key in learnt.objects:
            if (metadata := history.get(key)) is not None:
                self.notify(metadata, self._seam.missed_by(metadata, now_us), now_us)
        for sub_key in learnt.subscriptions:
            if (subscription := self.index.broker.standing(sub_key)) is not None:
                for metadata in self._seam.missed_of(subscription, now_us):
                    self.notify(metadata, [subscription], now_us)

    # Expiry

    def on_due(self, now_us: int) -> None:
        """Removes expired records."""
        self._due_us = None
        self.index.broker.expire(now_us)
        self._replicas.expire(now_us)

    def set_timer(self) -> None:
        """Sets the timer for the next expiry; to be called after each input."""
        expiries = (self.index.broker.next_expiry_us(), self._replicas.next_expiry_us())
        due_us = min((at_us for at_us in expiries if at_us is not None), default=None)
        if due_us is not None and due_us != self._due_us:
            self._outbox.set_timer(CellDue(), due_us)
        self._due_us = due_us


def _interest(arrival: Arrival, ask: wire.StartSubscription, now_us: int) -> Interest:
    """The subscription as the cell stores it: with the subscriber's signed location, else with the
    cell from which the request came (D16)."""
    if isinstance(ask, wire.PlacedSubscription):
        return Interest(ask.subscription, ask.place.cell, (arrival.cell,), ask.place.since)
    return Interest(ask.subscription, arrival.origin_cell, (arrival.cell,), now_us)


def as_fetch(ask: wire.StartSubscription) -> wire.FetchPage:
    """The request for the first page of past matches, with which a new subscription is answered."""
    subscription = ask.subscription
    return wire.FetchPage(ask.request, subscription.conjunctions, subscription.frame, ask.batch)
