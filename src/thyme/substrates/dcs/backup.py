"""Backup: what a small cell knows is also kept by the cell that would stand in for it.

While a cell has few nodes, one of them sends what changes to the populated cell closest to it:
there messages for it would go, if it were empty. Should its nodes die all at once, that cell finds
everything it needs to go on, and gives it back when the cell fills again. What is no longer kept up
to date is thrown away after a while.
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
"""Takes up what was kept for a cell: which, by whom, what, when, and whether to match it."""


class BackupTimer(msgspec.Struct, frozen=True):
    """Time to send what has changed."""


@dataclass(slots=True)
class _Given:
    """What another cell has of ours, or is being sent."""

    to: CellId
    at_us: int
    total: int = 0
    """How many objects and subscriptions there are."""
    records: set[Hashable] = field(default_factory=set)


@dataclass(slots=True)
class _Kept:
    """What another cell gave us to keep, and until when."""

    until_us: int
    source: CellId
    objects: dict[Key, Indexed] = field(default_factory=dict)
    interests: dict[SubscriptionKey, Interest] = field(default_factory=dict)
    buried_objects: dict[str, Grave] = field(default_factory=dict)
    buried_subscriptions: dict[str, Grave] = field(default_factory=dict)

    def add(self, state: CellState) -> None:
        """Some more; what is gone is gone (D15)."""
        for indexed in state.objects:
            self.objects[indexed.metadata.key] = indexed
        for interest in state.interests:
            self.interests[interest.subscription.key] = interest
        for grave in state.buried_objects:
            self.buried_objects[grave.key] = grave
            if (key := object_key(grave)) is not None:
                self.objects.pop(key, None)
        for grave in state.buried_subscriptions:
            self.buried_subscriptions[grave.key] = grave
            if (sub_key := subscription_key(grave)) is not None:
                self.interests.pop(sub_key, None)

    def state(self) -> CellState:
        """All of it."""
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
    """What a node has others keep for its cell, and what its cell keeps for others."""

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
        """Whether there are backups at all."""
        return self._config.nodes_max > 0

    def start(self, now_us: int) -> None:
        """This node works for its cell from now on."""
        if self.on:
            self._wake(now_us + self._config.gather_us)

    def stop(self) -> None:
        """It does not any more."""
        self._given.clear()
        self._kept.clear()
        self._due_us = None
        self._outbox.cancel_timer(BackupTimer())

    # The one who gives

    def touched(self, now_us: int) -> None:
        """What this node knows has changed."""
        if self.on and self._routing.serving:
            due_us = now_us + self._config.gather_us
            if self._due_us is None or self._due_us > due_us:
                self._wake(due_us)

    def _wake(self, at_us: int) -> None:
        self._due_us = at_us
        self._outbox.set_timer(BackupTimer(), at_us)

    def on_timer(self, now_us: int) -> None:
        """Sends what the other cells lack, if this is the one of its cell who does so."""
        if not self._routing.serving:
            return
        self._wake(now_us + self._config.refresh_us)
        self._throw_away(now_us)
        colleagues = self._routing.nodes_in(self._routing.cell)
        many = len(colleagues) >= self._config.nodes_max
        if many or any(node < self._node_id for node in colleagues):
            self._given.clear()
            return
        for home in (self._routing.cell, *self._wards):
            if home not in self._sending:
                self._give(home, now_us)

    def _give(self, home: CellId, now_us: int) -> None:
        to = self._routing.keeper(home, without_own=True)
        if to is None:
            return
        given = self._given.get(home)
        if given is None or given.to != to:
            given = self._given[home] = _Given(to, now_us - self._config.refresh_us)
        known = [entry for entry in self._wards.state(home, now_us) if entry[0] != "held"]
        given.total = sum(kind in ("objects", "interests") for kind, _ in known)
        lacking = [entry for entry in known if _name(*entry) not in given.records]
        if lacking or now_us - given.at_us >= self._config.refresh_us:
            self._send(home, given, lacking, now_us)

    def _send(self, home: CellId, given: _Given, lacking: Records, now_us: int) -> None:
        given.at_us = now_us
        self._sending.add(home)
        parts = list(in_parts(lacking, self._part_bytes_max))

        def send(now_us: int) -> None:
            part = parts.pop(0)
            self.sent += 1
            total = 0 if parts else given.total
            self._asks.start(
                lambda number: {To(given.to): BackUp(number, home, total, part)},
                now_us,
                lambda _replies, now_us: go_on(part, now_us),
                on_failure,
            )

        def go_on(part: CellState, now_us: int) -> None:
            given.records.update(_names(part))
            if parts:
                send(now_us)
            else:
                self._sending.discard(home)

        def on_failure(_code: str, _detail: str, now_us: int) -> None:
            self._sending.discard(home)
            self._given.pop(home, None)
            if self._due_us is not None and self._routing.serving:
                self._wake(min(self._due_us, now_us + self._config.refresh_us // 4))

        send(now_us)

    def has(self, home: CellId, cell: CellId, state: CellState) -> None:
        """Another cell gave us this, and so has it, too."""
        given = self._given.get(home)
        if self.on and given is None:
            given = self._given[home] = _Given(cell, 0)
        if given is not None and given.to == cell:
            given.records.update(_names(state))

    # The one who keeps

    def on_back_up(self, arrival: Arrival, message: BackUp, now_us: int) -> None:
        """Another cell wants something kept, in case that it is gone."""
        if message.cell != self._routing.cell:
            self.keep(message.cell, arrival.origin_cell, message.state, now_us)
        kept = self._kept.get(message.cell)
        reply: CellReply = Done(message.request)
        if kept is not None and len(kept.objects) + len(kept.interests) < message.total:
            detail = f"of cell {message.cell} there is more than we know"
            reply = Refused(message.request, NotFoundError.code, detail)
        self._reply(arrival, reply, now_us)

    def keep(self, home: CellId, source: CellId, state: CellState, now_us: int) -> None:
        """Keeps aside what another cell looks after."""
        if not self.on or home in self._wards:
            return
        until_us = now_us + self._config.life_us
        kept = self._kept.pop(home, None) or _Kept(until_us, source)
        kept.until_us, kept.source = until_us, source
        kept.add(state)
        self._kept[home] = kept
        if len(self._kept) > self._config.cells_max:
            del self._kept[next(iter(self._kept))]

    def use(self, home: CellId, now_us: int, *, match: bool) -> None:
        """Messages for a cell come here: from now on this cell stands in for it (D6)."""
        kept = self._kept.pop(home, None)
        if kept is not None and kept.until_us > now_us:
            self.used += 1
            self._take_in(home, kept.source, kept.state(), now_us, match)

    def look(self, now_us: int) -> None:
        """Uses what was kept for cells that are gone; who should have it may be somebody else."""
        routing = self._routing
        colleagues = routing.nodes_in(routing.cell)
        few, self._few = self._few, len(colleagues) < self._config.nodes_max
        if self._few and not few:
            self.touched(now_us)  # the cell has just become so small that it needs a backup
        first = not any(node < self._node_id for node in colleagues)
        populated = None
        for home, kept in list(self._kept.items()):
            keeper = routing.keeper(home)
            if keeper == kept.source:
                continue
            populated = populated or set(routing.populated())
            if keeper == routing.cell or kept.source not in populated:
                self.use(home, now_us, match=first)

    def _throw_away(self, now_us: int) -> None:
        """Of what was not kept up to date."""
        for home in [home for home, kept in self._kept.items() if kept.until_us <= now_us]:
            del self._kept[home]

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        assert len(self._kept) <= self._config.cells_max
        assert self.on or not (self._kept or self._given)


def _name(kind: str, record: object) -> Hashable:
    """What tells records apart; of a subscription, also where its subscriber is."""
    if isinstance(record, Indexed):
        return record.metadata.key
    if isinstance(record, Grave):
        return kind, record.key
    return record if isinstance(record, Interest) else None


def _names(state: CellState) -> set[Hashable]:
    kinds = ("objects", "interests", "buried_objects", "buried_subscriptions")
    return {_name(kind, record) for kind in kinds for record in getattr(state, kind)}
