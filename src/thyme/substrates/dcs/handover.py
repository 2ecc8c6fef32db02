"""State transfer: moves records to their key cell or its proxy, as cells fill and empty.

The proxy of an empty cell returns its keys when it becomes populated, and passes them on when
another cell becomes the closest. A cell that loses its last node sends its state to its proxy. Both
use `TransferState`, addressed to the key cell: routing delivers it to the proxy of an empty cell.
The sender keeps the records until the receiver has confirmed them; the receiver matches them with
its own (`state_merge`). Entry points: `StateTransfer.on_timer`, `schedule_leave` and
`on_transfer_state`.
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
"""How long it takes until neighbours have received a beacon."""


class KeysTimer(msgspec.Struct, frozen=True):
    """The timer of the next check whether this cell is still the proxy of its proxied cells."""


class LeaveTimer(msgspec.Struct, frozen=True):
    """The timer at which the neighbours know that this node no longer serves its cell."""

    cell: CellId
    at_once: bool


class HandOvers:
    """Both sides of a state transfer."""

    def __init__(
        self,
        floor: Floor,
        wards: Wards,
        meetings: Meetings,
        fetch: Callable[[To, Metadata, int, CellId], None],
        on_given: Callable[[CellId, CellState, int], None],
        on_taken: Callable[[CellId, CellId, CellState, int], None],
    ) -> None:
        """`on_transferred` receives state that another cell stores from now on, `on_received` state
        that another cell sent to this one."""
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
        """When this node transfers a cell's state, unless a cell peer did so before."""
        self._unsure_us: dict[CellId, int] = {}
        """When this node probes for the proxy of a cell."""
        self._under_way: set[CellId] = set()
        self.unplaced: dict[CellId, list[CellState]] = {}
        """State that this node should have transferred when it left its cell, and that no cell has
        accepted yet."""
        self.given = 0
        self.taken = 0

    # Checking proxied cells

    def start(self, now_us: int) -> None:
        """Starts the checks of a node that now serves its cell."""
        self._populated = frozenset(self._routing.populated())
        self._outbox.set_timer(KeysTimer(), now_us + self._config.check_us)

    def stop(self) -> None:
        """Stops the checks of a node that no longer serves its cell."""
        self._outbox.cancel_timer(KeysTimer())
        self._due_us.clear()
        self._unsure_us.clear()

    def on_sighted(self, cell: CellId, now_us: int) -> None:
        """Checks soon whether state must be transferred, if the cell was not known to be
        populated."""
        if cell not in self._populated and cell != self._routing.cell and self._routing.serving:
            self._outbox.set_timer(KeysTimer(), now_us + _WORD_US)

    def on_timer(self, now_us: int) -> None:
        """Checks for each proxied cell whether it became populated or another cell is closer
        now."""
        if not self._routing.serving:
            return
        self._outbox.set_timer(KeysTimer(), now_us + self._config.check_us)
        populated_cells = frozenset(self._routing.populated())
        cells_gained = bool(populated_cells - self._populated)
        self._populated = populated_cells
        for key_cell in self.wards:
            self._look(key_cell, cells_gained, now_us)

    def _look(self, home: CellId, gained: bool, now_us: int) -> None:
        routing, config = self._routing, self._config
        if home in self._under_way:
            return
        if routing.keeper(home) != routing.cell:
            delay_us = self._turn() * config.turn_us
            if self._due_us.setdefault(home, now_us + delay_us) <= now_us:
                self._give(home, now_us)
            return
        self._due_us.pop(home, None)
        if gained and not routing.surely_keeps(home):
            # The new cell may know a closer cell that is out of this node's sight (D25).
            self._unsure_us.setdefault(home, now_us + config.ask_us)
        if self._unsure_us.get(home, now_us + 1) <= now_us:
            self._ask_around(home, now_us)

    def _turn(self) -> int:
        """The number of cell peers with a lower node id."""
        return sum(node < self._node_id for node in self._routing.nodes_in(self._routing.cell))

    def _ask_around(self, home: CellId, now_us: int) -> None:
        """Sends an empty state transfer to find out which cell is the proxy now."""
        del self._unsure_us[home]
        if self._turn():
            return
        empty = CellState(0, 0, 1)
        self._under_way.add(home)

        def on_end(code: str, _detail: str, now_us: int) -> None:
            self._under_way.discard(home)
            if not code:
                self._give(home, now_us)

        self._send(home, To(home), [empty], now_us, on_end)

    def _give(self, home: CellId, now_us: int) -> None:
        """Transfers the state of a proxied cell; the records stay here until the receiver has
        confirmed them."""
        self._under_way.add(home)
        self._due_us[home] = now_us + self._config.again_us
        keys = tuple(indexed.metadata.key for indexed in self.wards.objects(home))
        cell_subscriptions = self.wards.interests(home)
        subscriptions = tuple(
            cell_subscription.subscription.key for cell_subscription in cell_subscriptions
        )
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
        """Releases records that a cell peer transferred; records that it did not name stay and are
        transferred by this node. A node that takes its own cell for the proxy keeps all records."""
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
        """Sends the parts one after the other, then calls `on_end` with the result."""
        part, remaining = parts[0], parts[1:]
        self.given += 1

        def on_part_sent(now_us: int) -> None:
            if remaining:
                self._send(home, to, remaining, now_us, on_end)
            else:
                on_end("", "", now_us)

        self._asks.start(
            lambda request_id: {to: HandOver(request_id, home, part)},
            now_us,
            lambda _replies, now_us: on_part_sent(now_us),
            on_end,
        )

    # Leaving a cell

    def leave(self, cell: CellId, now_us: int, *, at_once: bool) -> None:
        """Schedules the transfer of all state by the last node of a cell to the proxies (D24): part
        after part, or all parts at once if the node shuts down."""
        self._outbox.set_timer(LeaveTimer(cell, at_once), now_us + _WORD_US)

    def on_leave_timer(self, timer: LeaveTimer, now_us: int) -> None:
        """Transfers all state, unless this node serves a cell again."""
        if self._routing.serving:
            return
        for key_cell in (timer.cell, *self.wards):
            # Objects can still be retrieved from a node that moves, not from one that shuts down.
            shuts_down = timer.at_once and key_cell == timer.cell
            parts = self._parts(key_cell, now_us, with_objects=shuts_down)
            if parts == [CellState(0, 0, 1)]:
                continue
            # Other cells may not know yet that this one is empty: address its proxy directly.
            proxy = self._routing.keeper(key_cell, without_own=True)
            destination = To(key_cell if proxy is None else proxy)
            if timer.at_once:
                for part in parts:
                    self._send(key_cell, destination, [part], now_us, _nobody_left)
            else:
                self.unplaced[key_cell] = parts
                self._send(key_cell, destination, parts, now_us, self._placed(key_cell, parts))

    def _placed(self, home: CellId, parts: list[CellState]) -> OnEnd:
        """Returns a callback that repeats a failed transfer once, addressed to the key cell, and
        else keeps the state until this node settles."""

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
        """Merges state that no cell accepted into the new cell, from which it is transferred
        again."""
        undelivered, self.unplaced = self.unplaced, {}
        for key_cell, parts in undelivered.items():
            for part in parts:
                self.take_in(key_cell, key_cell, part, now_us, match=False)

    # Receiving state

    def on_hand_over(self, arrival: Arrival, message: HandOver, now_us: int) -> None:
        """Accepts state of this cell, or of a cell whose proxy it is."""
        routing = self._routing
        cell_peers = routing.nodes_in(routing.cell)
        if arrival.origin == self._node_id or arrival.origin in cell_peers:
            detail = f"this cell is proxy of cell {message.cell}"
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
        """Registers the key cell as a proxied cell, unless it is the own cell, and merges the
        state."""
        self.taken += 1
        self.wards.add(home)
        self.meetings.take_in(home, source, state, now_us, match=match)


def _nobody_left(code: str, detail: str, now_us: int) -> None:
    """Does nothing: a node that shuts down sends its state only once."""
