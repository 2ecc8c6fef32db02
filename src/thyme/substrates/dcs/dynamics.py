"""Cell membership: how a node and its keys follow the devices that move, join, leave and crash.

Entry point: `CellMembership`, to which `DcsNode` passes its inputs. It composes movement and
location updates (`movement`, `location_updates`), the role of proxy for empty cells
(`proxied_cells`, `state_transfer`), and, in the profile `robust`, backups and re-announcements
(`cell_backup`, `reannounce`).
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
    """How one node takes part in cells whose nodes change."""

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
        """`on_settled` receives whether the node settled in another cell than the one it served."""
        self._reply = floor.reply
        self._routing = floor.routing
        self._index = floor.index
        self._replicas = floor.replicas
        self._joining = joining
        self._service = service
        self._on_settled = on_settled
        self._home: CellId | None = None
        """The cell to which the state on this node belongs."""
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

    # Serving, moving, leaving

    def start(self, home: CellId) -> None:
        """Sets the cell of the stored state when the node starts."""
        self._home = home

    def on_joined(self, now_us: int) -> None:
        """Starts the duties of a node that serves its cell."""
        self.wards.discard(self._routing.cell)
        self.wards.find()
        self.hand_overs.start(now_us)
        self.backups.start(now_us)
        self.renewal.note(now_us)
        if not self._renewed:
            self._renewed = True
            self.location.tell(now_us, settled=True)

    def on_moved(self, cell: CellId, now_us: int) -> None:
        """Handles the cell of a new position; a node that left its cell stops serving (D20)."""
        old_cell, was_serving = self._routing.cell, self._routing.serving
        was_last = was_serving and not self._routing.nodes_in(old_cell)
        if not self.moving.on_moved(cell, now_us):
            return
        self._joining.stop()
        if was_serving:
            self._stop(old_cell, now_us, last=was_last)
        self.location.tell(now_us, settled=False, last=self._was_last)

    def on_leaving(self, now_us: int) -> None:
        """Stops serving because the node shuts down; the last node of a cell transfers its state
        first (D24)."""
        cell, was_serving = self._routing.cell, self._routing.serving
        was_last = was_serving and not self._routing.nodes_in(cell)
        self._joining.stop()
        self._routing.set_cell(cell, now_us, serving=False)
        if not was_serving:
            return
        self._stop(cell, now_us, last=was_last, at_once=True)

    def _stop(self, cell: CellId, now_us: int, *, last: bool, at_once: bool = False) -> None:
        self._was_last = last
        self.renewal.note(now_us)
        self._service.returned.on_gathered(now_us)
        self.hand_overs.stop()
        self.backups.stop()
        if last:
            self.hand_overs.leave(cell, now_us, at_once=at_once)

    def _settle(self, now_us: int) -> None:
        """Handles a device that became stationary. In another cell the old cell's state is dropped
        (D20); objects that only this node has stay as passive replicas."""
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

    # Timers, beacons, messages

    def on_timer(self, timer: Timer, now_us: int) -> bool:
        """Handles a timer; returns whether it belonged to one of these components."""
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
        """Handles a neighbour's beacon."""
        self.renewal.on_word(sighting.payload[SUM_BYTES:], now_us)
        if sighting.serving:
            self.hand_overs.on_sighted(sighting.cell, now_us)

    def before(self, arrival: Arrival, now_us: int) -> None:
        """Prepares for a message to this cell or to a cell whose proxy it is: activates a backup,
        registers the proxied cell."""
        if arrival.cell != self._routing.cell:
            self.backups.use(arrival.cell, now_us, match=arrival.first)
        if isinstance(arrival.message, _CHANGING):
            self.wards.add(arrival.cell)
            self.backups.touched(now_us)

    def on_message(self, arrival: Arrival, now_us: int) -> bool:
        """Handles a message to the cell; returns whether it was for one of these components."""
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
        """Records the new location of a node, and sends the notifications that waited for it (D21,
        D22)."""
        node, cell = arrival.origin, arrival.origin_cell
        located: Said = now_us
        if isinstance(message, cell_wire.SignedMove) and message.place is not None:
            cell, located = message.place.cell, message.place.since
        missing = []
        for sid in message.sids:
            key = SubscriptionKey(sid, node)
            if not self._index.relocate(key, cell, located) and not self._index.broker.cancelled(
                key
            ):
                missing.append(sid)
        index = self._index
        for object_key in message.keys:
            index.announce(object_key, Replica(cell, node))
        unknown = tuple(key for key in message.keys if not index.knows(key))
        self._service.returned.on_heard(node, now_us)
        self.backups.touched(now_us)
        if arrival.first:
            reply = cell_wire.MoveNoted(message.request, tuple(missing), unknown)
            self._routing.send([To(cell, node)], wire.FromCell(arrival.cell, reply), now_us)

    def _on_index_again(self, arrival: Arrival, message: cell_wire.IndexAgain, now_us: int) -> None:
        """Indexes objects that this cell had lost, and notifies the matching subscriptions."""
        for indexed in message.objects:
            matched = self._index.relearn(indexed, now_us)
            if arrival.first:
                self._service.notify(indexed.metadata, matched, now_us)
        self._reply(arrival, wire.Done(message.request), now_us)

    # Failed subscribers

    def _on_failed(self, subscriber: NodeId, now_us: int) -> None:
        """Handles a subscriber that could not be notified for too long: every node of the cell
        probes it at the same time and drops its subscriptions if it does not answer (D22). No node
        relies on another's word (B5)."""
        if not self._routing.serving:
            return
        cell_subscriptions = self._index.interests()
        affected = [
            cell_subscription
            for cell_subscription in cell_subscriptions
            if cell_subscription.subscription.key.subscriber == subscriber
        ]
        for cell in dict.fromkeys(cell_subscription.cell for cell_subscription in affected):
            suspect = cell_wire.SubscriberGone(subscriber, cell)
            if self._routing.nodes_in(self._routing.cell):
                self._routing.spread(suspect, now_us)
            self._doubt(suspect, now_us)

    def _doubt(self, gone: cell_wire.SubscriberGone, now_us: int) -> None:
        if any(self._subscriptions(gone.subscriber, gone.cell)):
            self._service.returned.ask(gone.subscriber, gone.cell, now_us)

    def _forget(self, subscriber: NodeId, cell: CellId) -> None:
        """Drops a subscriber's subscriptions, unless it was seen in another cell since."""
        for key in list(self._subscriptions(subscriber, cell)):
            self._index.forget_interest(key)

    def _subscriptions(self, subscriber: NodeId, cell: CellId) -> Iterator[SubscriptionKey]:
        """The subscriptions of a subscriber that was last seen in the given cell."""
        for cell_subscription in self._index.interests():
            key = cell_subscription.subscription.key
            if key.subscriber == subscriber and cell_subscription.cell == cell:
                yield key

    # Callbacks between the components

    def _on_given(self, home: CellId, state: cell_wire.CellState, now_us: int) -> None:
        """Stores transferred state as a backup: the cell that has it now may have a single node."""
        proxy = self._routing.keeper(home)
        if proxy is not None and proxy != self._routing.cell:
            self.backups.keep(home, proxy, state, now_us)

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
        """Asserts the invariants that hold between any two inputs."""
        self.backups.check()
        assert self._routing.cell not in self.wards or not self._routing.serving
