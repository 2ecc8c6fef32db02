"""Dynamic cells: what becomes of a node and of keys when devices move, come and go.

Puts the parts together: moving and saying where one is (`moving`), standing in for empty cells and
giving their keys back (`wards`, `handover`), and keeping a small cell's state elsewhere, too
(`backup`). A node tells of its inputs; whatever is to be said goes out by its routing.
Clauses: D20–D22, D24, D25, B1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from thyme.model.ids import NodeId
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol import cell_messages as cell_wire
from thyme.protocol import messages as wire
from thyme.protocol.cells import CellId, Replica, Said
from thyme.protocol.node import Timer
from thyme.routing.cells import Arrival, Sighting, To
from thyme.substrates.dcs.backup import Backups, BackupTimer
from thyme.substrates.dcs.digest import SUM_BYTES
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.handover import HandOvers, KeysTimer, LeaveTimer
from thyme.substrates.dcs.joining import Joining
from thyme.substrates.dcs.keys import Keys
from thyme.substrates.dcs.location import Location
from thyme.substrates.dcs.meetings import MatchTimer, Meetings
from thyme.substrates.dcs.moving import Moving, SettleTimer
from thyme.substrates.dcs.renewal import Renewal, RenewTimer
from thyme.substrates.dcs.replicas import Role
from thyme.substrates.dcs.service import Service
from thyme.substrates.dcs.wards import Wards
from thyme.substrates.subscriber import Subscriber

_CHANGING = (
    cell_wire.IndexObject,
    wire.DeleteObject,
    wire.StartSubscription,
    wire.StopSubscription,
    cell_wire.IndexAgain,
)


class Dynamics:
    """How one node takes part in cells that change."""

    def __init__(
        self,
        floor: Floor,
        joining: Joining,
        service: Service,
        keys: Keys,
        subscriber: Subscriber,
        on_page: Callable[[CellId, wire.OwnerPage, int], None],
        on_settled: Callable[[bool, int], None],
    ) -> None:
        """`on_settled` is told whether the node is in another cell than it worked for."""
        self._reply = floor.reply
        self._routing = floor.routing
        self._index = floor.index
        self._replicas = floor.replicas
        self._joining = joining
        self._service = service
        self._on_settled = on_settled
        self._home: CellId | None = None
        """The cell whose state is here."""
        self._was_last = False
        self._renewed = not floor.config.moving.renew
        self.wards = Wards(floor)
        self.meetings = Meetings(floor, service.notify)
        self.hand_overs = HandOvers(
            floor, self.wards, self.meetings, joining.fetch, self._on_given, self._on_taken
        )
        self.backups = Backups(floor, self.wards, self._use_backup)
        self.moving = Moving(floor, self._settle)
        self.location = Location(floor, keys, subscriber, on_page)
        self.renewal = Renewal(floor, self.location)
        service.returned.on_failed = self._on_failed
        service.returned.on_absent = self._forget

    # Where the node is

    def start(self, home: CellId) -> None:
        """The node came up in its cell, with what it had."""
        self._home = home

    def on_joined(self, now_us: int) -> None:
        """The node works for its cell."""
        self.wards.discard(self._routing.cell)
        self.wards.find()
        self.hand_overs.start(now_us)
        self.backups.start(now_us)
        self.renewal.note(now_us)
        if not self._renewed:
            self._renewed = True
            self.location.tell(now_us, settled=True)

    def on_moved(self, cell: CellId, now_us: int) -> None:
        """The device is in a cell; when it has left its own, it works for none (D20)."""
        before, served = self._routing.cell, self._routing.serving
        last = served and not self._routing.nodes_in(before)
        if not self.moving.on_moved(cell, now_us):
            return
        self._joining.stop()
        if served:
            self._stop(before, now_us, last=last)
        self.location.tell(now_us, settled=False, last=self._was_last)

    def on_leaving(self, now_us: int) -> None:
        """The node says goodbye: what only it has goes to others (D24)."""
        cell, served = self._routing.cell, self._routing.serving
        last = served and not self._routing.nodes_in(cell)
        self._joining.stop()
        self._routing.set_cell(cell, now_us, serving=False)
        if not served:
            return
        self._stop(cell, now_us, last=last, at_once=True)

    def _stop(self, cell: CellId, now_us: int, *, last: bool, at_once: bool = False) -> None:
        self._was_last = last
        self.renewal.note(now_us)
        self._service.returned.on_gathered(now_us)
        self.hand_overs.stop()
        self.backups.stop()
        if last:
            self.hand_overs.leave(cell, now_us, at_once=at_once)

    def _settle(self, now_us: int) -> None:
        """The device stands; in another cell, the old one's state is of no use (D20). What only
        this node has of it, others can still get from it."""
        moved = self._routing.cell != self._home
        if moved:
            self._index.clear()
            self.wards.clear()
            if self._was_last:
                self._replicas.change_role(Role.ACTIVE, Role.PASSIVE)
            else:
                self._replicas.drop(Role.ACTIVE)
            self._home = self._routing.cell
            self.hand_overs.bring_along(now_us)
        self.hand_overs.unplaced.clear()
        self._was_last = False
        self.location.tell(now_us, settled=True)
        self._on_settled(moved, now_us)

    # What happens

    def on_timer(self, timer: Timer, now_us: int) -> bool:
        """A timer fired; returns whether it was one of these parts."""
        match timer:
            case SettleTimer():
                self.moving.on_timer(now_us)
            case KeysTimer():
                self.backups.look(now_us)
                self.hand_overs.on_timer(now_us)
            case LeaveTimer():
                self.hand_overs.on_leave_timer(timer, now_us)
            case MatchTimer():
                self.meetings.on_timer(timer, now_us, tell=self._routing.serving)
            case BackupTimer():
                self.backups.on_timer(now_us)
            case RenewTimer():
                self.renewal.on_timer(now_us)
            case _:
                return False
        return True

    def on_sighted(self, sighting: Sighting, now_us: int) -> None:
        """A neighbour said where it is."""
        self.renewal.on_word(sighting.payload[SUM_BYTES:], now_us)
        if sighting.serving:
            self.hand_overs.on_sighted(sighting.cell, now_us)

    def before(self, arrival: Arrival, now_us: int) -> None:
        """A message came for the cell, or for one that it stands in for."""
        if arrival.cell != self._routing.cell:
            self.backups.use(arrival.cell, now_us, match=arrival.first)
        if isinstance(arrival.message, _CHANGING):
            self.wards.add(arrival.cell)
            self.backups.touched(now_us)

    def on_message(self, arrival: Arrival, now_us: int) -> bool:
        """A message came for the cell; returns whether it was one for these parts."""
        message = arrival.message
        match message:
            case cell_wire.NodeMoved():
                self._on_node_moved(arrival, message, now_us)
            case cell_wire.IndexAgain():
                self._on_index_again(arrival, message, now_us)
            case cell_wire.HandOver():
                self.backups.use(message.cell, now_us, match=arrival.first)
                self.hand_overs.on_hand_over(arrival, message, now_us)
                self.backups.touched(now_us)
            case cell_wire.HandedOver() if arrival.origin_cell == self._routing.cell:
                self.hand_overs.on_handed_over(message, now_us)
            case cell_wire.BackUp():
                self.backups.on_back_up(arrival, message, now_us)
            case cell_wire.SubscriberGone() if arrival.origin_cell == self._routing.cell:
                self._doubt(message, now_us)
            case _:
                return False
        return True

    def _on_node_moved(self, arrival: Arrival, message: cell_wire.NodeMoved, now_us: int) -> None:
        """A node says where it is now; what waited for it is sent there (D21, D22)."""
        node, cell = arrival.origin, arrival.origin_cell
        heard: Said = now_us
        if isinstance(message, cell_wire.SignedMove) and message.place is not None:
            cell, heard = message.place.cell, message.place.since
        missing = []
        for sid in message.sids:
            key = SubscriptionKey(sid, node)
            if not self._index.relocate(key, cell, heard) and not self._index.broker.cancelled(key):
                missing.append(sid)
        known = self._index
        for object_key in message.keys:
            known.announce(object_key, Replica(cell, node))
        unknown = tuple(key for key in message.keys if not known.knows(key))
        self._service.returned.on_heard(node, now_us)
        self.backups.touched(now_us)
        if arrival.first:
            noted = cell_wire.MoveNoted(message.request, tuple(missing), unknown)
            self._routing.send([To(cell, node)], wire.FromCell(arrival.cell, noted), now_us)

    def _on_index_again(self, arrival: Arrival, message: cell_wire.IndexAgain, now_us: int) -> None:
        """What this cell has forgotten; whoever was not told of it is told now."""
        for indexed in message.objects:
            matched = self._index.relearn(indexed, now_us)
            if arrival.first:
                self._service.notify(indexed.metadata, matched, now_us)
        self._reply(arrival, wire.Done(message.request), now_us)

    # Subscribers that are gone

    def _on_failed(self, subscriber: NodeId, now_us: int) -> None:
        """Nothing was heard of a subscriber for too long: it is taken for failed by all who do
        not find it either, at the same time (D22). Nobody has to be believed (B5)."""
        if not self._routing.serving:
            return
        interests = self._index.interests()
        theirs = [some for some in interests if some.subscription.key.subscriber == subscriber]
        for cell in dict.fromkeys(interest.cell for interest in theirs):
            gone = cell_wire.SubscriberGone(subscriber, cell)
            if self._routing.nodes_in(self._routing.cell):
                self._routing.spread(gone, now_us)
            self._doubt(gone, now_us)

    def _doubt(self, gone: cell_wire.SubscriberGone, now_us: int) -> None:
        if any(self._subscriptions(gone.subscriber, gone.cell)):
            self._service.returned.ask(gone.subscriber, gone.cell, now_us)

    def _forget(self, subscriber: NodeId, cell: CellId) -> None:
        """Drops its subscriptions, unless it was heard elsewhere since."""
        for key in list(self._subscriptions(subscriber, cell)):
            self._index.forget_interest(key)

    def _subscriptions(self, subscriber: NodeId, cell: CellId) -> Iterator[SubscriptionKey]:
        """Those of a subscriber that was last heard in a cell."""
        for interest in self._index.interests():
            key = interest.subscription.key
            if key.subscriber == subscriber and interest.cell == cell:
                yield key

    # Between the parts

    def _on_given(self, home: CellId, state: cell_wire.CellState, now_us: int) -> None:
        """What was handed over is kept aside: who has it now may be alone."""
        keeper = self._routing.keeper(home)
        if keeper is not None and keeper != self._routing.cell:
            self.backups.keep(home, keeper, state, now_us)

    def _on_taken(
        self, home: CellId, source: CellId, state: cell_wire.CellState, now_us: int
    ) -> None:
        self.backups.has(home, source, state)
        self.renewal.note(now_us)

    def _use_backup(
        self, home: CellId, source: CellId, state: cell_wire.CellState, now_us: int, match: bool
    ) -> None:
        self.hand_overs.take_in(home, source, state, now_us, match=match)
        self.backups.touched(now_us)
        self.renewal.note(now_us)

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        self.backups.check()
        assert self._routing.cell not in self.wards or not self._routing.serving
