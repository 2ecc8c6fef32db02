"""Record checks: nodes make sure, for ever, that cells know the records that the nodes hold.

Each node asks one cell at a time whether it knows the node's subscriptions and objects, own and
active replicas; a cell that lacks a record receives it again (`location_updates`). Recent deletes
are repeated likewise (`deletion_log`). So a record that was lost for whatever reason returns, also
if nobody noticed a topology change. The time between two checks doubles after a complete cycle or a
few checks, and starts anew after a re-announcement (`reannounce`). In a static network a node sends
at most one check per half of `interval_us_max`, however many records it holds. Entry point:
`RecordChecker`.
Clauses: D27.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from thyme.model.ids import Key, SubscriptionId
from thyme.model.rng import derive_rng
from thyme.protocol.messages.cell_records import CellId
from thyme.substrates.dcs.client.deletion_log import DeletionLog
from thyme.substrates.dcs.client.location_updates import LocationUpdater
from thyme.substrates.dcs.config import RecordCheckConfig
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.robust.notification_checks import MissedMatchChecker
from thyme.substrates.dcs.robust.reannounce import BATCH_OBJECTS_MAX
from thyme.substrates.dcs.state.replica_store import ReplicaRole

_CHECKS_PER_INTERVAL = 4
"""After how many checks the interval doubles, if the cycle is not complete before."""
_POSTPONED_MAX = 3
"""How many checks in a row are left out while the channel is busy (D28)."""

MakeMissedMatchChecker = Callable[[Callable[[int], None]], MissedMatchChecker]
Check = Callable[[int], bool]
"""Sends one check at an instant; returns False if there was nothing left to check."""


class RecordCheckTimer(msgspec.Struct, frozen=True):
    """The timer of the next check."""


class RecordChecker:
    """The checks of one node."""

    def __init__(
        self,
        context: NodeContext,
        location_updater: LocationUpdater,
        deletion_log: DeletionLog,
        config: RecordCheckConfig,
        make_missed_checker: MakeMissedMatchChecker | None = None,
    ) -> None:
        """`make_missed_checker` gets a function to call when something was missed."""
        self._context = context
        self._routing = context.routing
        self._outbox = context.outbox
        self._replicas = context.replicas
        # Waits differ from node to node, and do not change the other draws of a node.
        self._rng = derive_rng(0, "record checks", context.node_id)
        self._location_updater = location_updater
        self._deletion_log = deletion_log
        self._config = config
        self._interval_us = config.interval_us_min
        self._checks: Iterator[Check] = iter(())
        self._checks_at_interval = 0
        self._postponed = 0
        """How many checks in a row were left out because the channel is busy."""
        self.checks_sent = 0
        self.notifications: MissedMatchChecker | None = None
        if make_missed_checker is not None and config.notifications:
            self.notifications = make_missed_checker(self._hasten)

    def _hasten(self, now_us: int) -> None:
        """Checks at the shortest interval again: a node of some cell does not do its work."""
        if self._interval_us > self._config.interval_us_min:
            self._interval_us = self._config.interval_us_min
            self._checks_at_interval = 0
            self._schedule(now_us)

    def start(self, now_us: int) -> None:
        """Starts a cycle at the shortest interval: this node has joined or re-announced."""
        self._interval_us = self._config.interval_us_min
        self._checks_at_interval = 0
        self._checks = self._make_cycle()
        self._schedule(now_us)

    def stop(self) -> None:
        """Stops the checks of a node that no longer serves its cell."""
        self._outbox.cancel_timer(RecordCheckTimer())

    def _schedule(self, now_us: int) -> None:
        wait_us = self._rng.randint(self._interval_us // 2, self._interval_us)
        self._outbox.set_timer(RecordCheckTimer(), now_us + wait_us)

    def on_timer(self, now_us: int) -> None:
        """Sends the next check, or begins the next cycle; doubles the interval if it is time."""
        if not self._routing.serving:
            return
        if self._context.is_busy and self._postponed < _POSTPONED_MAX:
            self._postponed += 1
            self._schedule(now_us)
            return
        self._postponed = 0
        if any(check(now_us) for check in self._checks):  # stops after the first that was sent
            self.checks_sent += 1
            self._checks_at_interval += 1
        else:
            self._checks_at_interval = _CHECKS_PER_INTERVAL
            self._checks = self._make_cycle()
        if self._checks_at_interval == _CHECKS_PER_INTERVAL:
            self._checks_at_interval = 0
            self._interval_us = min(2 * self._interval_us, self._config.interval_us_max)
        self._schedule(now_us)

    def _make_cycle(self) -> Iterator[Check]:
        """All checks of the records that this node holds now."""
        sids_by_cell = self._location_updater.sids_by_cell()
        held = [
            stored.metadata
            for role in (ReplicaRole.OWN, ReplicaRole.ACTIVE)
            for stored in self._replicas.brief_with_role(role)
        ]
        keys_by_cell = self._location_updater.keys_by_cell(held)
        cells = list(dict.fromkeys((*sids_by_cell, *keys_by_cell)))
        self._rng.shuffle(cells)
        for cell in cells:
            sids, keys = tuple(sids_by_cell.get(cell, ())), tuple(keys_by_cell.get(cell, ()))
            for start in range(0, max(1, len(keys)), BATCH_OBJECTS_MAX):
                batch = keys[start : start + BATCH_OBJECTS_MAX]
                yield self._cell_check(cell, sids if start == 0 else (), batch)
        for key in self._deletion_log.recent_keys():
            yield self._delete_check(key)

    def _cell_check(
        self, cell: CellId, sids: tuple[SubscriptionId, ...], keys: Iterable[Key]
    ) -> Check:
        def check(now_us: int) -> bool:
            still_held = tuple(key for key in keys if self._replicas.get(key) is not None)
            active = self._location_updater.sids_by_cell().get(cell, {})
            still_active = tuple(sid for sid in sids if sid in active)
            if still_held or still_active:
                self._location_updater.send_update(cell, still_active, still_held, now_us)
            if self.notifications is not None:
                self.notifications.check(cell, still_active, now_us)
            return bool(still_held or still_active)

        return check

    def _delete_check(self, key: Key) -> Check:
        return lambda now_us: self._deletion_log.repeat_delete(key, now_us)
