"""Cell membership: how a node and its keys follow the devices that move, join, leave and crash.

Entry point: `CellMembership`, to which `DcsNode` passes its inputs. It composes movement and
location updates (`movement`, `location_updates`), the role of proxy for empty cells
(`proxied_cells`, `state_transfer`), and, in the profile `robust`, backups, re-announcements and
checks of records (`cell_backup`, `reannounce`, `record_checks`).
Clauses: D20–D22, D24, D25, D27, B1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from thyme.model.ids import NodeId
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId, ClaimedInstant, Replica
from thyme.protocol.node import Timer
from thyme.routing.cells import BeaconReceived, Delivery, Destination
from thyme.substrates.common.subscriber import Subscriber
from thyme.substrates.dcs.client.key_choice import KeyChooser
from thyme.substrates.dcs.client.location_updates import LocationUpdater
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.membership.cell_joining import CellJoining
from thyme.substrates.dcs.membership.movement import MovementTracker, SettleTimer
from thyme.substrates.dcs.membership.state_merge import MergeMatchTimer, StateMerge
from thyme.substrates.dcs.membership.state_transfer import (
    LeaveTimer,
    ProxyCheckTimer,
    StateTransfer,
)
from thyme.substrates.dcs.robust.cell_backup import BackupTimer, CellBackups
from thyme.substrates.dcs.robust.notification_checks import MissedMatchChecker
from thyme.substrates.dcs.robust.reannounce import STAMP_BYTES, Reannouncer, ReannounceTimer
from thyme.substrates.dcs.robust.record_checks import RecordChecker, RecordCheckTimer
from thyme.substrates.dcs.service.cell_service import CellService
from thyme.substrates.dcs.state.cell_digest import DIGEST_BYTES
from thyme.substrates.dcs.state.proxied_cells import ProxiedCells
from thyme.substrates.dcs.state.replica_store import ReplicaRole


class CellMembership:
    """How one node takes part in cells whose nodes change."""

    def __init__(
        self,
        context: NodeContext,
        joining: CellJoining,
        service: CellService,
        key_chooser: KeyChooser,
        subscriber: Subscriber,
        on_page: Callable[[CellId, wire.PastMatches, int], None],
        on_settled: Callable[[bool, int], None],
    ) -> None:
        """`on_settled` receives whether the node settled in another cell than the one it served."""
        self._send_reply = context.send_reply
        self._routing = context.routing
        self._index = context.index
        self._replicas = context.replicas
        self._joining = joining
        self._service = service
        self._on_settled = on_settled
        self._state_cell: CellId | None = None
        """The cell to which the state on this node belongs."""
        self._was_last_in_cell = False
        self._announced = not context.config.movement.announce_on_start
        self.proxied_cells = ProxiedCells(context)
        self.state_merge = StateMerge(context, service.notify_subscribers)
        self.state_transfer = StateTransfer(
            context,
            self.proxied_cells,
            self.state_merge,
            joining.fetch_object,
            self._on_transferred,
            self._on_state_received,
        )
        backup = context.config.backup
        self.backups = (
            None
            if backup is None
            else CellBackups(context, backup, self.proxied_cells, self._activate_backup)
        )
        self.movement = MovementTracker(context, self._settle)
        self.location_updater = LocationUpdater(context, key_chooser, subscriber, on_page)
        self.reannouncer: Reannouncer | None = None
        self.record_checker: RecordChecker | None = None
        updater, deletion_log = self.location_updater, context.deletion_log
        if deletion_log is not None:
            self.reannouncer = Reannouncer(context, updater, deletion_log, self._on_reannounced)
            checks = context.config.record_checks
            if checks is not None:
                self.record_checker = RecordChecker(
                    context,
                    updater,
                    deletion_log,
                    checks,
                    lambda on_missed: MissedMatchChecker(
                        context.requests, key_chooser, subscriber, on_missed
                    ),
                )

    # Serving, moving, leaving

    def start(self, key_cell: CellId) -> None:
        """Sets the cell of the stored state when the node starts."""
        self._state_cell = key_cell

    def on_joined(self, now_us: int) -> None:
        """Starts the duties of a node that serves its cell."""
        self.proxied_cells.discard(self._routing.cell)
        self.proxied_cells.rebuild()
        self.state_transfer.start(now_us)
        if self.backups is not None:
            self.backups.start(now_us)
        self._record_change(now_us)
        self._on_reannounced(now_us)
        if not self._announced:
            self._announced = True
            self.location_updater.announce_location(now_us, settled=True)

    def on_moved(self, cell: CellId, now_us: int, *, displaced: bool = True) -> None:
        """Handles the cell of a new position; a node that left its cell stops serving (D20)."""
        old_cell, was_serving = self._routing.cell, self._routing.serving
        was_last = was_serving and not self._routing.nodes_in(old_cell)
        if not self.movement.on_moved(cell, now_us, displaced=displaced):
            return
        self._joining.stop()
        if was_serving:
            self._stop_serving(old_cell, now_us, was_last=was_last)
        self.location_updater.announce_location(
            now_us, settled=False, was_last=self._was_last_in_cell
        )

    def rejoin(self, now_us: int) -> None:
        """Handles a device that is among other nodes now, whose cell has the same number: the state
        of its old cell is dropped, and it joins the new one as after a move (I1, B8)."""
        cell, was_serving = self._routing.cell, self._routing.serving
        self._joining.stop()
        self._routing.set_cell(cell, now_us, serving=False)
        if was_serving:
            self._stop_serving(cell, now_us, was_last=False)
        self._state_cell = None
        self.movement.settle_again(now_us)

    def on_leaving(self, now_us: int) -> None:
        """Stops serving because the node shuts down; the last node of a cell transfers its state
        first (D24)."""
        cell, was_serving = self._routing.cell, self._routing.serving
        was_last = was_serving and not self._routing.nodes_in(cell)
        self._joining.stop()
        self._routing.set_cell(cell, now_us, serving=False)
        if not was_serving:
            return
        self._stop_serving(cell, now_us, was_last=was_last, at_once=True)

    def _stop_serving(
        self, cell: CellId, now_us: int, *, was_last: bool, at_once: bool = False
    ) -> None:
        self._was_last_in_cell = was_last
        self._record_change(now_us)
        self._service.notification_delivery.aggregator.flush(now_us)
        self.state_transfer.stop()
        if self.backups is not None:
            self.backups.stop()
        if self.record_checker is not None:
            self.record_checker.stop()
        if was_last:
            self.state_transfer.schedule_leave(cell, now_us, at_once=at_once)

    def _settle(self, now_us: int) -> None:
        """Handles a device that became stationary. In another cell the old cell's state is dropped
        (D20); objects that only this node has stay as passive replicas."""
        moved = self._routing.cell != self._state_cell
        if moved:
            self._index.clear()
            self.proxied_cells.clear()
            if self._was_last_in_cell:
                self._replicas.change_role(ReplicaRole.ACTIVE, ReplicaRole.PASSIVE)
            else:
                self._replicas.remove_role(ReplicaRole.ACTIVE)
            self._state_cell = self._routing.cell
            self.state_transfer.merge_undelivered(now_us)
        self.state_transfer.undelivered.clear()
        self._was_last_in_cell = False
        self.location_updater.announce_location(now_us, settled=True)
        self._on_settled(moved, now_us)

    # Timers, beacons, messages

    def on_timer(self, timer: Timer, now_us: int) -> bool:
        """Handles a timer; returns whether it belonged to one of these components."""
        match timer:
            case SettleTimer():
                self.movement.on_timer(now_us)
            case ProxyCheckTimer():
                if self.backups is not None:
                    self.backups.check_cells(now_us)
                self.state_transfer.on_timer(now_us)
            case LeaveTimer():
                self.state_transfer.on_leave_timer(timer, now_us)
            case MergeMatchTimer():
                self.state_merge.on_timer(timer, now_us, notify=self._routing.serving)
            case BackupTimer() if self.backups is not None:
                self.backups.on_timer(now_us)
            case ReannounceTimer() if self.reannouncer is not None:
                self.reannouncer.on_timer(now_us)
            case RecordCheckTimer() if self.record_checker is not None:
                self.record_checker.on_timer(now_us)
            case _:
                return False
        return True

    def on_beacon(self, beacon: BeaconReceived, now_us: int) -> None:
        """Handles a neighbour's beacon."""
        if self.reannouncer is not None:
            stamp = beacon.payload[DIGEST_BYTES : DIGEST_BYTES + STAMP_BYTES]
            self.reannouncer.on_change_stamp(stamp, now_us)
        if beacon.serving:
            self.state_transfer.on_cell_seen(beacon.cell, now_us)
        elif self.backups is not None:
            self.backups.on_node_joining(beacon.cell, now_us)

    def before_cell_message(self, delivery: Delivery, now_us: int) -> None:
        """Prepares for a message to this cell or to a cell whose proxy it is: activates a backup,
        registers the proxied cell."""
        if delivery.cell != self._routing.cell and self.backups is not None:
            self.backups.activate_backup(delivery.cell, now_us, match=delivery.is_first)
        if delivery.message.changes_index:
            self.proxied_cells.add(delivery.cell)
            self._mark_changed(now_us)

    def on_location_update(
        self, delivery: Delivery, message: cell_wire.LocationUpdate, now_us: int
    ) -> None:
        """Records the new location of a node, and sends the notifications that waited for it (D21,
        D22)."""
        node, cell = delivery.origin, delivery.origin_cell
        located: ClaimedInstant = now_us
        if message.location is not None:
            cell, located = message.location.cell, message.location.since
        missing = []
        for sid in message.sids:
            key = SubscriptionKey(sid, node)
            if not self._index.update_location(
                key, cell, located
            ) and not self._index.broker.is_cancelled(key):
                missing.append(sid)
        index = self._index
        for object_key in message.keys:
            index.add_replica(object_key, Replica(cell, node))
        unknown = tuple(key for key in message.keys if not index.has_seen_object(key))
        self._service.notification_delivery.on_subscriber_seen(node, now_us)
        self._mark_changed(now_us)
        if delivery.is_first:
            reply = cell_wire.LocationUpdateReply(message.request_id, tuple(missing), unknown)
            self._routing.send(
                [Destination(cell, node)], wire.ReplyFromCell(delivery.cell, reply), now_us
            )

    def on_reindex_objects(
        self, delivery: Delivery, message: cell_wire.ReindexObjects, now_us: int
    ) -> None:
        """Indexes objects that this cell had lost, and notifies the matching subscriptions."""
        for indexed in message.objects:
            matched = self._index.reindex_object(indexed, now_us)
            if delivery.is_first:
                self._service.notify_subscribers(indexed.metadata, matched, now_us)
        self._send_reply(delivery, wire.Done(message.request_id), now_us)

    def on_transfer_state(
        self, delivery: Delivery, message: cell_wire.TransferState, now_us: int
    ) -> None:
        """Takes over the state of a cell, together with the backup of it (D24)."""
        if self.backups is not None:
            self.backups.activate_backup(message.cell, now_us, match=delivery.is_first)
        self.state_transfer.on_transfer_state(delivery, message, now_us)
        self._mark_changed(now_us)

    def on_state_transferred(
        self, delivery: Delivery, message: cell_wire.StateTransferred, now_us: int
    ) -> None:
        """Releases records that a cell peer transferred (D24)."""
        self.state_transfer.on_state_transferred(message, now_us)

    def on_suspect_subscriber(
        self, delivery: Delivery, message: cell_wire.SuspectSubscriber, now_us: int
    ) -> None:
        """Probes a subscriber that a cell peer could not notify (D22)."""
        self._probe_suspect(message, now_us)

    # Failed subscribers

    def on_subscriber_failed(self, subscriber: NodeId, now_us: int) -> None:
        """Handles a subscriber that could not be notified for too long: every node of the cell
        probes it at the same time and drops its subscriptions if it does not answer (D22). No node
        relies on another's word (B5)."""
        if not self._routing.serving:
            return
        cell_subscriptions = self._index.cell_subscriptions()
        affected = [
            cell_subscription
            for cell_subscription in cell_subscriptions
            if cell_subscription.subscription.key.subscriber == subscriber
        ]
        for cell in dict.fromkeys(cell_subscription.cell for cell_subscription in affected):
            suspect = cell_wire.SuspectSubscriber(subscriber, cell)
            if self._routing.nodes_in(self._routing.cell):
                self._routing.broadcast_in_cell(suspect, now_us)
            self._probe_suspect(suspect, now_us)

    def _probe_suspect(self, suspect: cell_wire.SuspectSubscriber, now_us: int) -> None:
        if any(self._subscription_keys(suspect.subscriber, suspect.cell)):
            self._service.notification_delivery.probe_subscriber(
                suspect.subscriber, suspect.cell, now_us
            )

    def forget_subscriber(self, subscriber: NodeId, cell: CellId) -> None:
        """Drops a subscriber's subscriptions, unless it was seen in another cell since."""
        for key in list(self._subscription_keys(subscriber, cell)):
            self._index.forget_subscription(key)

    def _subscription_keys(self, subscriber: NodeId, cell: CellId) -> Iterator[SubscriptionKey]:
        """The subscriptions of a subscriber that was last seen in the given cell."""
        for cell_subscription in self._index.cell_subscriptions():
            key = cell_subscription.subscription.key
            if key.subscriber == subscriber and cell_subscription.cell == cell:
                yield key

    # Callbacks between the components

    def _on_transferred(self, key_cell: CellId, state: cell_wire.CellState, now_us: int) -> None:
        """Stores transferred state as a backup: the cell that has it now may have a single node."""
        if self.backups is None:
            return
        proxy = self._routing.proxy_of(key_cell)
        if proxy is not None and proxy != self._routing.cell:
            self.backups.store_backup(key_cell, proxy, state, now_us)

    def _on_state_received(
        self, key_cell: CellId, source: CellId, state: cell_wire.CellState, now_us: int
    ) -> None:
        if self.backups is not None:
            self.backups.mark_known_by(key_cell, source, state)
        self._record_change(now_us)

    def _activate_backup(
        self, key_cell: CellId, source: CellId, state: cell_wire.CellState, now_us: int, match: bool
    ) -> None:
        self.state_transfer.accept_state(key_cell, source, state, now_us, match=match)
        self._mark_changed(now_us)
        self._record_change(now_us)

    # The components of the profile `robust`, if the node has them

    @property
    def change_stamp(self) -> bytes:
        """The stamp of the latest topology change, for beacons."""
        return b"" if self.reannouncer is None else self.reannouncer.change_stamp

    def _record_change(self, now_us: int) -> None:
        """Records a topology change, after which nodes re-announce their records."""
        if self.reannouncer is not None:
            self.reannouncer.record_change(now_us)

    def _on_reannounced(self, now_us: int) -> None:
        """Checks the records of this node soon, to find those that a re-announcement missed."""
        if self.record_checker is not None:
            self.record_checker.start(now_us)

    def _mark_changed(self, now_us: int) -> None:
        """Marks the cell state as changed, so that its backup is brought up to date."""
        if self.backups is not None:
            self.backups.mark_changed(now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        if self.backups is not None:
            self.backups.check()
        assert self._routing.cell not in self.proxied_cells or not self._routing.serving
