"""Cell backup: the proxy-to-be of a small cell stores a backup of its state.

While a cell has few nodes, one of them sends changes of its state to the closest other populated
cell, which would be its proxy if it were empty. If all its nodes crash at once, that cell activates
the backup and returns the state when the cell is populated again. Backups that are no longer
refreshed expire. Entry point: `CellBackups`.
Clause: B1.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.errors import NotFoundError
from thyme.model.ids import Key
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    IndexedMetadata,
    TombstoneRecord,
)
from thyme.protocol.messages.cells import BackupState, CellState
from thyme.protocol.messages.common import CellReply
from thyme.protocol.messages.replies import Done, Refused
from thyme.protocol.results import Failure, Result
from thyme.routing.cells import Delivery, Destination
from thyme.substrates.dcs.config import BackupConfig
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.state.cell_state import (
    StateRecords,
    parse_object_key,
    parse_subscription_key,
    split_state,
)
from thyme.substrates.dcs.state.proxied_cells import ProxiedCells

BACKUPS_MAX = 64
"""The maximum number of cells for which a node stores a backup."""
SENT_BYTES_MAX = 8 * 2**20
"""The maximum of bytes of records that are sent at once; the rest follows."""
RECORD_BYTES = 512
"""Bytes of a record in memory, without its summary, about."""

ActivateBackup = Callable[[CellId, CellId, CellState, int, bool], None]
"""Merges a stored backup. Arguments: the key cell, the cell that sent the backup, the state, the
instant, and whether to match the state."""


class BackupTimer(msgspec.Struct, frozen=True):
    """The timer at which changes are sent."""


@dataclass(slots=True)
class _SentBackup:
    """The backup of a cell that this node sends, and the cell that stores it."""

    proxy: CellId
    sent_us: int
    total: int = 0
    """The number of objects and subscriptions of the cell."""
    is_complete: bool = True
    """Whether the cell has no more records than were sent."""
    records: set[Hashable] = field(default_factory=set)


@dataclass(slots=True)
class _StoredBackup:
    """A stored backup of another cell, and its expiry."""

    expires_us: int
    source: CellId
    objects: dict[Key, IndexedMetadata] = field(default_factory=dict)
    subscriptions: dict[SubscriptionKey, CellSubscription] = field(default_factory=dict)
    object_tombstones: dict[str, TombstoneRecord] = field(default_factory=dict)
    subscription_tombstones: dict[str, TombstoneRecord] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.objects) + len(self.subscriptions)

    def add(self, state: CellState) -> None:
        """Adds records; tombstones remove the records they name (D15)."""
        for indexed in state.objects:
            self.objects[indexed.metadata.key] = indexed
        for cell_subscription in state.subscriptions:
            self.subscriptions[cell_subscription.subscription.key] = cell_subscription
        for tombstone in state.object_tombstones:
            self.object_tombstones[tombstone.key] = tombstone
            if (key := parse_object_key(tombstone)) is not None:
                self.objects.pop(key, None)
        for tombstone in state.subscription_tombstones:
            self.subscription_tombstones[tombstone.key] = tombstone
            if (sub_key := parse_subscription_key(tombstone)) is not None:
                self.subscriptions.pop(sub_key, None)

    def state(self) -> CellState:
        """The backup as one cell state."""
        return CellState(
            0,
            0,
            1,
            tuple(self.objects.values()),
            tuple(self.subscriptions.values()),
            tuple(self.object_tombstones.values()),
            tuple(self.subscription_tombstones.values()),
        )


class CellBackups:
    """The backups that a node sends for its cell, and those it stores for other cells."""

    def __init__(
        self,
        context: NodeContext,
        config: BackupConfig,
        proxied_cells: ProxiedCells,
        activate_backup: ActivateBackup,
    ) -> None:
        self._node_id = context.node_id
        self._send_reply = context.send_reply
        self._routing = context.routing
        self._outbox = context.outbox
        self._requests = context.requests
        self._proxied_cells = proxied_cells
        self._config = config
        self._part_bytes_max = context.config.joining.part_bytes_max
        self._activate_backup = activate_backup
        self._sent_backups: dict[CellId, _SentBackup] = {}
        self._sending: set[CellId] = set()
        self._stored_backups: BoundedDict[CellId, _StoredBackup] = BoundedDict(BACKUPS_MAX)
        self._due_us: int | None = None
        self._is_small_cell = False
        self.parts_sent = 0
        self.backups_activated = 0

    def __contains__(self, key_cell: CellId) -> bool:
        return key_cell in self._stored_backups

    def start(self, now_us: int) -> None:
        """Starts the backups of a node that now serves its cell."""
        self._schedule(now_us + self._config.aggregation_us)

    def stop(self) -> None:
        """Discards all backups of a node that no longer serves its cell."""
        self._sent_backups.clear()
        self._stored_backups.clear()
        self._due_us = None
        self._outbox.cancel_timer(BackupTimer())

    # Sending backups

    def mark_changed(self, now_us: int) -> None:
        """Schedules a backup after a change of the cell state."""
        if self._routing.serving:
            due_us = now_us + self._config.aggregation_us
            if self._due_us is None or self._due_us > due_us:
                self._schedule(due_us)

    def _schedule(self, at_us: int) -> None:
        self._due_us = at_us
        self._outbox.set_timer(BackupTimer(), at_us)

    def on_timer(self, now_us: int) -> None:
        """Sends records that the backups lack, if this node is the one of its cell to do so."""
        if not self._routing.serving:
            return
        self._schedule(now_us + self._config.refresh_us)
        self._drop_expired(now_us)
        cell_peers = self._routing.nodes_in(self._routing.cell)
        many = len(cell_peers) >= self._config.nodes_max
        if many or any(node < self._node_id for node in cell_peers):
            self._sent_backups.clear()
            return
        for key_cell in (self._routing.cell, *self._proxied_cells):
            if key_cell not in self._sending:
                self._back_up_cell(key_cell, now_us)

    def _back_up_cell(self, key_cell: CellId, now_us: int) -> None:
        proxy = self._routing.proxy_of(key_cell, exclude_own=True)
        if proxy is None:
            return
        backup = self._sent_backups.get(key_cell)
        if backup is None or backup.proxy != proxy:
            backup = self._sent_backups[key_cell] = _SentBackup(
                proxy, now_us - self._config.refresh_us
            )
        missing = self._missing_records(key_cell, backup, now_us)
        if missing or now_us - backup.sent_us >= self._config.refresh_us:
            self._send_records(key_cell, backup, missing, now_us)

    def _has_no_backup(self) -> bool:
        """Whether another cell could store the backup of this cell, and none was sent to it."""
        cell = self._routing.cell
        if cell in self._sent_backups or cell in self._sending:
            return False
        return self._routing.proxy_of(cell, exclude_own=True) is not None

    def _missing_records(
        self, key_cell: CellId, backup: _SentBackup, now_us: int
    ) -> list[tuple[str, object]]:
        """The records that a backup lacks, as many as are sent at once; counts all records."""
        missing: list[tuple[str, object]] = []
        backup.total, backup.is_complete = 0, True
        bytes_left = SENT_BYTES_MAX
        for field_name, record in self._proxied_cells.records_of(key_cell, now_us):
            if field_name == "replicated":
                continue
            backup.total += field_name in ("objects", "subscriptions")
            if _record_id(field_name, record) in backup.records:
                continue
            if bytes_left > 0:
                missing.append((field_name, record))
                bytes_left -= RECORD_BYTES + _summary_bytes(record)
            else:
                backup.is_complete = False
        return missing

    def _send_records(
        self, key_cell: CellId, backup: _SentBackup, missing: StateRecords, now_us: int
    ) -> None:
        backup.sent_us = now_us
        self._sending.add(key_cell)
        parts = list(split_state(missing, self._part_bytes_max))

        def send_next(now_us: int) -> None:
            part = parts.pop(0)
            self.parts_sent += 1
            total = 0 if parts or not backup.is_complete else backup.total
            request = BackupState(self._requests.next_id(), key_cell, total, part)
            self._requests.send_requests(
                {Destination(backup.proxy): request}, now_us, partial(on_part_sent, part)
            )

        def on_part_sent(part: CellState, result: Result[object], now_us: int) -> None:
            if isinstance(result, Failure):
                self._sending.discard(key_cell)
                self._sent_backups.pop(key_cell, None)
                if self._due_us is not None and self._routing.serving:
                    self._schedule(min(self._due_us, now_us + self._config.refresh_us // 4))
                return
            backup.records.update(_record_ids(part))
            if parts:
                send_next(now_us)
            else:
                self._sending.discard(key_cell)
                if not backup.is_complete:
                    self.mark_changed(now_us)

        send_next(now_us)

    def mark_known_by(self, key_cell: CellId, cell: CellId, state: CellState) -> None:
        """Records that another cell, which sent us this state, has it."""
        backup = self._sent_backups.get(key_cell)
        if backup is None:
            backup = self._sent_backups[key_cell] = _SentBackup(cell, 0)
        if backup.proxy == cell:
            backup.records.update(_record_ids(state))

    def on_node_joining(self, cell: CellId, now_us: int) -> None:
        """Handles a node that begins to serve a cell. If nobody else serves it, the backups that
        were sent to this cell are gone, as they are not stored on disk, and are sent again."""
        lost = [key_cell for key_cell, sent in self._sent_backups.items() if sent.proxy == cell]
        if lost and not self._routing.nodes_in(cell):
            for key_cell in lost:
                del self._sent_backups[key_cell]
            self.mark_changed(now_us)

    # Storing backups

    def on_backup_state(self, delivery: Delivery, message: BackupState, now_us: int) -> None:
        """Stores a backup for another cell; refuses it if records are missing, so that the sender
        sends all of them, or if it came back because the cell that should store it is empty."""
        detail = None
        if message.cell == self._routing.cell:
            detail = f"cell {message.cell} does not store its own backup"
        else:
            self.store_backup(message.cell, delivery.origin_cell, message.state, now_us)
            backup = self._stored_backups.get(message.cell)
            if backup is not None and len(backup) < message.expected_total:
                detail = f"backup of cell {message.cell} is not yet complete"
        reply: CellReply = Done(message.request_id)
        if detail is not None:
            reply = Refused(message.request_id, NotFoundError.code, detail)
        self._send_reply(delivery, reply, now_us)

    def store_backup(self, key_cell: CellId, source: CellId, state: CellState, now_us: int) -> None:
        """Stores the state of another cell as a backup."""
        if key_cell in self._proxied_cells:
            return
        expires_us = now_us + self._config.ttl_us
        backup = self._stored_backups.get(key_cell) or _StoredBackup(expires_us, source)
        backup.expires_us, backup.source = expires_us, source
        backup.add(state)
        self._stored_backups.refresh(key_cell, backup)

    def activate_backup(self, key_cell: CellId, now_us: int, *, match: bool) -> None:
        """Activates the backup of a cell, if there is one: this cell is its proxy from now on
        (D6)."""
        backup = self._stored_backups.pop(key_cell, None)
        if backup is not None and backup.expires_us > now_us:
            self.backups_activated += 1
            self._activate_backup(key_cell, backup.source, backup.state(), now_us, match)

    def check_cells(self, now_us: int) -> None:
        """Activates backups whose sender is no longer responsible: this cell is the proxy now, or
        the cell that sent the backup is empty."""
        routing = self._routing
        cell_peers = routing.nodes_in(routing.cell)
        was_small, self._is_small_cell = (
            self._is_small_cell,
            len(cell_peers) < self._config.nodes_max,
        )
        first = not any(node < self._node_id for node in cell_peers)
        if self._is_small_cell and (not was_small or (first and self._has_no_backup())):
            self.mark_changed(now_us)  # the cell has just become small, or has a proxy again
        populated_cells = None
        for key_cell, backup in list(self._stored_backups.items()):
            proxy = routing.proxy_of(key_cell)
            if proxy == backup.source:
                continue
            populated_cells = populated_cells or set(routing.populated_cells())
            if proxy == routing.cell or backup.source not in populated_cells:
                self.activate_backup(key_cell, now_us, match=first)

    def _drop_expired(self, now_us: int) -> None:
        """Removes expired backups."""
        for key_cell in [
            key_cell
            for key_cell, backup in self._stored_backups.items()
            if backup.expires_us <= now_us
        ]:
            del self._stored_backups[key_cell]

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._stored_backups) <= BACKUPS_MAX


def _record_id(field_name: str, record: object) -> Hashable:
    """The identity of a record; for a subscription it includes the subscriber's cell."""
    if isinstance(record, IndexedMetadata):
        return record.metadata.key
    if isinstance(record, TombstoneRecord):
        return field_name, record.key
    return record if isinstance(record, CellSubscription) else None


def _summary_bytes(record: object) -> int:
    return len(record.metadata.summary) if isinstance(record, IndexedMetadata) else 0


def _record_ids(state: CellState) -> set[Hashable]:
    field_names = ("objects", "subscriptions", "object_tombstones", "subscription_tombstones")
    return {
        _record_id(field_name, record)
        for field_name in field_names
        for record in getattr(state, field_name)
    }
