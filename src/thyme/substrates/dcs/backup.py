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

import msgspec

from thyme.model.errors import NotFoundError
from thyme.model.ids import Key
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol.cell_messages import BackUp, CellState
from thyme.protocol.cells import CellId, Grave, Indexed, Interest
from thyme.protocol.messages import CellReply, Done, Refused
from thyme.routing.cells import Arrival, To
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.learning import Records, in_parts, object_key, subscription_key
from thyme.substrates.dcs.wards import Wards

TakeIn = Callable[[CellId, CellId, CellState, int, bool], None]
"""Merges a stored backup. Arguments: the key cell, the cell that sent the backup, the state, the
instant, and whether to match the state."""


class BackupTimer(msgspec.Struct, frozen=True):
    """The timer at which changes are sent."""


@dataclass(slots=True)
class _Given:
    """The backup of a cell that this node sends, and the cell that stores it."""

    to: CellId
    at_us: int
    total: int = 0
    """The number of objects and subscriptions of the cell."""
    records: set[Hashable] = field(default_factory=set)


@dataclass(slots=True)
class _Kept:
    """A stored backup of another cell, and its expiry."""

    until_us: int
    source: CellId
    objects: dict[Key, Indexed] = field(default_factory=dict)
    interests: dict[SubscriptionKey, Interest] = field(default_factory=dict)
    buried_objects: dict[str, Grave] = field(default_factory=dict)
    buried_subscriptions: dict[str, Grave] = field(default_factory=dict)

    def add(self, state: CellState) -> None:
        """Adds records; tombstones remove the records they name (D15)."""
        for indexed in state.objects:
            self.objects[indexed.metadata.key] = indexed
        for cell_subscription in state.interests:
            self.interests[cell_subscription.subscription.key] = cell_subscription
        for tombstone in state.buried_objects:
            self.buried_objects[tombstone.key] = tombstone
            if (key := object_key(tombstone)) is not None:
                self.objects.pop(key, None)
        for tombstone in state.buried_subscriptions:
            self.buried_subscriptions[tombstone.key] = tombstone
            if (sub_key := subscription_key(tombstone)) is not None:
                self.interests.pop(sub_key, None)

    def state(self) -> CellState:
        """The backup as one cell state."""
        return CellState(
            0,
            0,
            1,
            tuple(self.objects.values()),
            tuple(self.interests.values()),
            tuple(self.buried_objects.values()),
            tuple(self.buried_subscriptions.values()),
        )


class Backups:
    """The backups that a node sends for its cell, and those it stores for other cells."""

    def __init__(self, floor: Floor, wards: Wards, take_in: TakeIn) -> None:
        self._node_id = floor.node_id
        self._reply = floor.reply
        self._routing = floor.routing
        self._outbox = floor.outbox
        self._asks = floor.asks
        self._wards = wards
        self._config = floor.config.backup
        self._part_bytes_max = floor.config.joining.part_bytes_max
        self._take_in = take_in
        self._given: dict[CellId, _Given] = {}
        self._sending: set[CellId] = set()
        self._kept: dict[CellId, _Kept] = {}
        self._due_us: int | None = None
        self._few = False
        self.sent = 0
        self.used = 0

    def __contains__(self, home: CellId) -> bool:
        return home in self._kept

    @property
    def on(self) -> bool:
        """Whether backups are enabled."""
        return self._config.nodes_max > 0

    def start(self, now_us: int) -> None:
        """Starts the backups of a node that now serves its cell."""
        if self.on:
            self._wake(now_us + self._config.gather_us)

    def stop(self) -> None:
        """Discards all backups of a node that no longer serves its cell."""
        self._given.clear()
        self._kept.clear()
        self._due_us = None
        self._outbox.cancel_timer(BackupTimer())

    # Sending backups

    def touched(self, now_us: int) -> None:
        """Schedules a backup after a change of the cell state."""
        if self.on and self._routing.serving:
            due_us = now_us + self._config.gather_us
            if self._due_us is None or self._due_us > due_us:
                self._wake(due_us)

    def _wake(self, at_us: int) -> None:
        self._due_us = at_us
        self._outbox.set_timer(BackupTimer(), at_us)

    def on_timer(self, now_us: int) -> None:
        """Sends records that the backups lack, if this node is the one of its cell to do so."""
        if not self._routing.serving:
            return
        self._wake(now_us + self._config.refresh_us)
        self._throw_away(now_us)
        cell_peers = self._routing.nodes_in(self._routing.cell)
        many = len(cell_peers) >= self._config.nodes_max
        if many or any(node < self._node_id for node in cell_peers):
            self._given.clear()
            return
        for key_cell in (self._routing.cell, *self._wards):
            if key_cell not in self._sending:
                self._give(key_cell, now_us)

    def _give(self, home: CellId, now_us: int) -> None:
        proxy = self._routing.keeper(home, without_own=True)
        if proxy is None:
            return
        backup = self._given.get(home)
        if backup is None or backup.to != proxy:
            backup = self._given[home] = _Given(proxy, now_us - self._config.refresh_us)
        records = [entry for entry in self._wards.state(home, now_us) if entry[0] != "held"]
        backup.total = sum(field_name in ("objects", "interests") for field_name, _ in records)
        missing = [entry for entry in records if _name(*entry) not in backup.records]
        if missing or now_us - backup.at_us >= self._config.refresh_us:
            self._send(home, backup, missing, now_us)

    def _send(self, home: CellId, given: _Given, lacking: Records, now_us: int) -> None:
        given.at_us = now_us
        self._sending.add(home)
        parts = list(in_parts(lacking, self._part_bytes_max))

        def send_next(now_us: int) -> None:
            part = parts.pop(0)
            self.sent += 1
            total = 0 if parts else given.total
            self._asks.start(
                lambda request_id: {To(given.to): BackUp(request_id, home, total, part)},
                now_us,
                lambda _replies, now_us: on_part_sent(part, now_us),
                on_failure,
            )

        def on_part_sent(part: CellState, now_us: int) -> None:
            given.records.update(_names(part))
            if parts:
                send_next(now_us)
            else:
                self._sending.discard(home)

        def on_failure(_code: str, _detail: str, now_us: int) -> None:
            self._sending.discard(home)
            self._given.pop(home, None)
            if self._due_us is not None and self._routing.serving:
                self._wake(min(self._due_us, now_us + self._config.refresh_us // 4))

        send_next(now_us)

    def has(self, home: CellId, cell: CellId, state: CellState) -> None:
        """Records that another cell, which sent us this state, has it."""
        backup = self._given.get(home)
        if self.on and backup is None:
            backup = self._given[home] = _Given(cell, 0)
        if backup is not None and backup.to == cell:
            backup.records.update(_names(state))

    # Storing backups

    def on_back_up(self, arrival: Arrival, message: BackUp, now_us: int) -> None:
        """Stores a backup for another cell; refuses it if records are missing, so that the sender
        sends all of them."""
        if message.cell != self._routing.cell:
            self.keep(message.cell, arrival.origin_cell, message.state, now_us)
        backup = self._kept.get(message.cell)
        reply: CellReply = Done(message.request)
        if backup is not None and len(backup.objects) + len(backup.interests) < message.total:
            detail = f"backup of cell {message.cell} is not yet complete"
            reply = Refused(message.request, NotFoundError.code, detail)
        self._reply(arrival, reply, now_us)

    def keep(self, home: CellId, source: CellId, state: CellState, now_us: int) -> None:
        """Stores the state of another cell as a backup."""
        if not self.on or home in self._wards:
            return
        expires_us = now_us + self._config.life_us
        backup = self._kept.pop(home, None) or _Kept(expires_us, source)
        backup.until_us, backup.source = expires_us, source
        backup.add(state)
        self._kept[home] = backup
        if len(self._kept) > self._config.cells_max:
            del self._kept[next(iter(self._kept))]

    def use(self, home: CellId, now_us: int, *, match: bool) -> None:
        """Activates the backup of a cell, if there is one: this cell is its proxy from now on
        (D6)."""
        backup = self._kept.pop(home, None)
        if backup is not None and backup.until_us > now_us:
            self.used += 1
            self._take_in(home, backup.source, backup.state(), now_us, match)

    def look(self, now_us: int) -> None:
        """Activates backups whose sender is no longer responsible: this cell is the proxy now, or
        the cell that sent the backup is empty."""
        routing = self._routing
        cell_peers = routing.nodes_in(routing.cell)
        was_small, self._few = self._few, len(cell_peers) < self._config.nodes_max
        if self._few and not was_small:
            self.touched(now_us)  # the cell has just become small enough to need a backup
        first = not any(node < self._node_id for node in cell_peers)
        populated_cells = None
        for key_cell, backup in list(self._kept.items()):
            proxy = routing.keeper(key_cell)
            if proxy == backup.source:
                continue
            populated_cells = populated_cells or set(routing.populated())
            if proxy == routing.cell or backup.source not in populated_cells:
                self.use(key_cell, now_us, match=first)

    def _throw_away(self, now_us: int) -> None:
        """Removes expired backups."""
        for key_cell in [
            key_cell for key_cell, backup in self._kept.items() if backup.until_us <= now_us
        ]:
            del self._kept[key_cell]

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._kept) <= self._config.cells_max
        assert self.on or not (self._kept or self._given)


def _name(kind: str, record: object) -> Hashable:
    """The identity of a record; for a subscription it includes the subscriber's cell."""
    if isinstance(record, Indexed):
        return record.metadata.key
    if isinstance(record, Grave):
        return kind, record.key
    return record if isinstance(record, Interest) else None


def _names(state: CellState) -> set[Hashable]:
    field_names = ("objects", "interests", "buried_objects", "buried_subscriptions")
    return {
        _name(field_name, record)
        for field_name in field_names
        for record in getattr(state, field_name)
    }
