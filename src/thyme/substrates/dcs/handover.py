"""Hand-over: keys go to the cell where they belong, as cells fill and empty.

A cell that stands in for an empty one gives its keys back when that fills, and passes them on when
another cell comes closer to it. A cell that loses its last node gives all it has to its proxy. Both
are the same message to the cell that the keys belong to: routing brings it to whoever looks after
that. What is handed over is kept until the other side has it, which matches it with what it has
(`meetings`).
Clauses: D24, D25.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thyme.model.errors import RejectedError
from thyme.model.metadata import Metadata
from thyme.protocol.cell_messages import CellState, HandedOver, HandOver
from thyme.protocol.cells import CellId
from thyme.protocol.messages import Done, Refused
from thyme.routing.cells import Arrival, To
from thyme.substrates.brokers import OnEnd
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.learning import in_parts
from thyme.substrates.dcs.meetings import Meetings
from thyme.substrates.dcs.wards import Wards

_WORD_US = 20_000
"""How long it takes until neighbours have heard a beacon."""


class KeysTimer(msgspec.Struct, frozen=True):
    """Time to look whether keys belong elsewhere."""


class LeaveTimer(msgspec.Struct, frozen=True):
    """By now the neighbours know that this node works for this cell no longer."""

    cell: CellId
    at_once: bool


class HandOvers:
    """Both sides of handing keys over."""

    def __init__(
        self,
        floor: Floor,
        wards: Wards,
        meetings: Meetings,
        fetch: Callable[[To, Metadata, int, CellId], None],
        on_given: Callable[[CellId, CellState, int], None],
        on_taken: Callable[[CellId, CellId, CellState, int], None],
    ) -> None:
        """`on_given` is told what another cell looks after from now on, `on_taken` what another
        gave to this one."""
        self._node_id = floor.node_id
        self._reply = floor.reply
        self._routing = floor.routing
        self._outbox = floor.outbox
        self._asks = floor.asks
        self._replicas = floor.replicas
        self.wards = wards
        self.meetings = meetings
        self._config = floor.config.hand_over
        self._part_bytes_max = floor.config.joining.part_bytes_max
        self._fetch = fetch
        self._on_given = on_given
        self._on_taken = on_taken
        self._populated: frozenset[CellId] = frozenset()
        self._due_us: dict[CellId, int] = {}
        """When this node hands over what it has for a cell, if nobody else did."""
        self._unsure_us: dict[CellId, int] = {}
        """When it asks around who should have it."""
        self._under_way: set[CellId] = set()
        self.unplaced: dict[CellId, list[CellState]] = {}
        """What this node should have handed over when it left its cell, and nobody took yet."""
        self.given = 0
        self.taken = 0

    # Looking after what is not one's own

    def start(self, now_us: int) -> None:
        """This node works for its cell from now on."""
        self._populated = frozenset(self._routing.populated())
        self._outbox.set_timer(KeysTimer(), now_us + self._config.check_us)

    def stop(self) -> None:
        """It does not any more."""
        self._outbox.cancel_timer(KeysTimer())
        self._due_us.clear()
        self._unsure_us.clear()

    def on_sighted(self, cell: CellId, now_us: int) -> None:
        """Somebody serves a cell: if that is news, there may be something to hand over."""
        if cell not in self._populated and cell != self._routing.cell and self._routing.serving:
            self._outbox.set_timer(KeysTimer(), now_us + _WORD_US)

    def on_timer(self, now_us: int) -> None:
        """Looks at each ward: has it filled, or has another cell come closer?"""
        if not self._routing.serving:
            return
        self._outbox.set_timer(KeysTimer(), now_us + self._config.check_us)
        populated = frozenset(self._routing.populated())
        gained = bool(populated - self._populated)
        self._populated = populated
        for home in self.wards:
            self._look(home, gained, now_us)

    def _look(self, home: CellId, gained: bool, now_us: int) -> None:
        routing, config = self._routing, self._config
        if home in self._under_way:
            return
        if routing.keeper(home) != routing.cell:
            turn_us = self._turn() * config.turn_us
            if self._due_us.setdefault(home, now_us + turn_us) <= now_us:
                self._give(home, now_us)
            return
        self._due_us.pop(home, None)
        if gained and not routing.surely_keeps(home):
            # Who came may know a closer cell that this node does not see (D25).
            self._unsure_us.setdefault(home, now_us + config.ask_us)
        if self._unsure_us.get(home, now_us + 1) <= now_us:
            self._ask_around(home, now_us)

    def _turn(self) -> int:
        """How many of the cell come before this node."""
        return sum(node < self._node_id for node in self._routing.nodes_in(self._routing.cell))

    def _ask_around(self, home: CellId, now_us: int) -> None:
        """Hands nothing over, to see who takes it."""
        del self._unsure_us[home]
        if self._turn():
            return
        nothing = CellState(0, 0, 1)
        self._under_way.add(home)

        def on_end(code: str, _detail: str, now_us: int) -> None:
            self._under_way.discard(home)
            if not code:
                self._give(home, now_us)

        self._send(home, To(home), [nothing], now_us, on_end)

    def _give(self, home: CellId, now_us: int) -> None:
        """Hands a ward over; its keys stay here until the other side has them."""
        self._under_way.add(home)
        self._due_us[home] = now_us + self._config.again_us
        keys = tuple(indexed.metadata.key for indexed in self.wards.objects(home))
        interests = self.wards.interests(home)
        subscriptions = tuple(interest.subscription.key for interest in interests)
        parts = self._parts(home, now_us)

        def on_end(code: str, _detail: str, now_us: int) -> None:
            self._under_way.discard(home)
            if code or not self._routing.serving or home not in self.wards:
                return
            self._due_us.pop(home, None)
            message = HandedOver(home, keys, subscriptions)
            if self._routing.nodes_in(self._routing.cell):
                self._routing.spread(message, now_us)
            self.on_handed_over(message, now_us)

        self._send(home, To(home), parts, now_us, on_end)

    def on_handed_over(self, message: HandedOver, now_us: int) -> None:
        """A colleague gave away what was kept for a cell; what it did not name is this node's to
        give. Who believes that the cell is its own to look after keeps all."""
        home = message.cell
        if home in self.wards and self._routing.keeper(home) != self._routing.cell:
            self._due_us.pop(home, None)
            parts = self._parts(home, now_us)
            self.wards.let_go(home, message.keys, message.subscriptions, now_us)
            for part in () if home in self.wards else parts:
                self._on_given(home, part, now_us)

    def _parts(self, home: CellId, now_us: int, *, with_objects: bool = False) -> list[CellState]:
        records = self.wards.state(home, now_us, with_objects=with_objects)
        return list(in_parts(records, self._part_bytes_max))

    def _send(
        self, home: CellId, to: To, parts: list[CellState], now_us: int, on_end: OnEnd
    ) -> None:
        """One part after the other; tells how it ended."""
        first, others = parts[0], parts[1:]
        self.given += 1

        def go_on(now_us: int) -> None:
            if others:
                self._send(home, to, others, now_us, on_end)
            else:
                on_end("", "", now_us)

        self._asks.start(
            lambda number: {to: HandOver(number, home, first)},
            now_us,
            lambda _replies, now_us: go_on(now_us),
            on_end,
        )

    # Leaving

    def leave(self, cell: CellId, now_us: int, *, at_once: bool) -> None:
        """The last of a cell goes, and gives all to the proxies of what it looked after (D24): one
        part after the other, or all at once, if there is little time."""
        self._outbox.set_timer(LeaveTimer(cell, at_once), now_us + _WORD_US)

    def on_leave_timer(self, timer: LeaveTimer, now_us: int) -> None:
        """Hands all over, unless this node is back already."""
        if self._routing.serving:
            return
        for home in (timer.cell, *self.wards):
            # Who moves keeps the objects themselves and can be asked for them; who goes cannot.
            gone = timer.at_once and home == timer.cell
            parts = self._parts(home, now_us, with_objects=gone)
            if parts == [CellState(0, 0, 1)]:
                continue
            # Others may not know yet that the cell is empty: it goes to who will stand in for it.
            keeper = self._routing.keeper(home, without_own=True)
            to = To(home if keeper is None else keeper)
            if timer.at_once:
                for part in parts:
                    self._send(home, to, [part], now_us, _nobody_left)
            else:
                self.unplaced[home] = parts
                self._send(home, to, parts, now_us, self._placed(home, parts))

    def _placed(self, home: CellId, parts: list[CellState]) -> OnEnd:
        """Tries once more by the ordinary way, then keeps it until this node settles."""

        def on_end(code: str, _detail: str, _now_us: int) -> None:
            if not code and self.unplaced.get(home) is parts:
                del self.unplaced[home]

        def on_first_end(code: str, detail: str, now_us: int) -> None:
            if code and not self._routing.serving:
                self._send(home, To(home), parts, now_us, on_end)
            else:
                on_end(code, detail, now_us)

        return on_first_end

    def bring_along(self, now_us: int) -> None:
        """What nobody took comes along to another cell, to be handed over from there."""
        unplaced, self.unplaced = self.unplaced, {}
        for home, parts in unplaced.items():
            for part in parts:
                self.take_in(home, home, part, now_us, match=False)

    # Taking

    def on_hand_over(self, arrival: Arrival, message: HandOver, now_us: int) -> None:
        """Keys that belong to this cell, or to one for which it stands in."""
        routing = self._routing
        colleagues = routing.nodes_in(routing.cell)
        if arrival.origin == self._node_id or arrival.origin in colleagues:
            detail = f"cell {message.cell} is ours to look after"
            self._reply(arrival, Refused(message.request, RejectedError.code, detail), now_us)
            return
        source_cell = arrival.origin_cell
        self.take_in(message.cell, source_cell, message.state, now_us, match=arrival.first)
        self._on_taken(message.cell, source_cell, message.state, now_us)
        source = To(source_cell, arrival.origin)
        for metadata in message.state.held:
            if self._replicas.get(metadata.key) is None:
                self._fetch(source, metadata, now_us, message.cell)
        self._reply(arrival, Done(message.request), now_us)

    def take_in(
        self,
        home: CellId,
        source: CellId,
        state: CellState,
        now_us: int,
        *,
        match: bool,
    ) -> None:
        """From now on this cell looks after another's keys, or has its own back."""
        self.taken += 1
        self.wards.add(home)
        self.meetings.take_in(home, source, state, now_us, match=match)


def _nobody_left(code: str, detail: str, now_us: int) -> None:
    """Who went cannot do more than try."""
