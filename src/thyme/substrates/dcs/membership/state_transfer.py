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
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellState, StateTransferred, TransferState
from thyme.protocol.messages.replies import Done, Refused
from thyme.protocol.results import Failure, Ok, OnResult, Result, ignore_result
from thyme.routing.cells import Delivery, Destination
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.membership.state_merge import StateMerge
from thyme.substrates.dcs.state.cell_state import split_state
from thyme.substrates.dcs.state.proxied_cells import ProxiedCells

_CHECK_INTERVAL_US = SECOND_US
"""The interval at which a node checks whether its cell is still the proxy of its proxied cells."""
_RANK_DELAY_US = SECOND_US
"""How long a node waits for each cell peer before it in rank to transfer the state first."""
_RETRY_US = 20 * SECOND_US
"""How long to wait before a state transfer is repeated, if no cell accepted it."""
_PROBE_DELAY_US = 5 * SECOND_US
"""How long after a new populated cell was seen a probe is sent to find a proxy that is out of
sight: other cells must learn of the new cell first."""
_BEACON_DELAY_US = 20_000
"""How long it takes until neighbours have received a beacon."""


class ProxyCheckTimer(msgspec.Struct, frozen=True):
    """The timer of the next check whether this cell is still the proxy of its proxied cells."""


class LeaveTimer(msgspec.Struct, frozen=True):
    """The timer at which the neighbours know that this node no longer serves its cell."""

    cell: CellId
    at_once: bool


class StateTransfer:
    """Both sides of a state transfer."""

    def __init__(
        self,
        context: NodeContext,
        proxied_cells: ProxiedCells,
        state_merge: StateMerge,
        fetch_object: Callable[[Destination, Metadata, int, CellId], None],
        on_transferred: Callable[[CellId, CellState, int], None],
        on_received: Callable[[CellId, CellId, CellState, int], None],
    ) -> None:
        """`on_transferred` receives state that another cell stores from now on, `on_received` state
        that another cell sent to this one."""
        self._node_id = context.node_id
        self._send_reply = context.send_reply
        self._routing = context.routing
        self._outbox = context.outbox
        self._requests = context.requests
        self._replicas = context.replicas
        self.proxied_cells = proxied_cells
        self.state_merge = state_merge
        self._part_bytes_max = context.config.joining.part_bytes_max
        self._fetch_object = fetch_object
        self._on_transferred = on_transferred
        self._on_received = on_received
        self._populated_cells: frozenset[CellId] = frozenset()
        self._transfer_at_us: dict[CellId, int] = {}
        """When this node transfers a cell's state, unless a cell peer did so before."""
        self._probe_at_us: dict[CellId, int] = {}
        """When this node probes for the proxy of a cell."""
        self._in_progress: set[CellId] = set()
        self.undelivered: dict[CellId, list[CellState]] = {}
        """State that this node should have transferred when it left its cell, and that no cell has
        accepted yet."""
        self.parts_sent = 0
        self.parts_received = 0

    # Checking proxied cells

    def start(self, now_us: int) -> None:
        """Starts the checks of a node that now serves its cell."""
        self._populated_cells = frozenset(self._routing.populated_cells())
        self._outbox.set_timer(ProxyCheckTimer(), now_us + _CHECK_INTERVAL_US)

    def stop(self) -> None:
        """Stops the checks of a node that no longer serves its cell."""
        self._outbox.cancel_timer(ProxyCheckTimer())
        self._transfer_at_us.clear()
        self._probe_at_us.clear()

    def on_cell_seen(self, cell: CellId, now_us: int) -> None:
        """Checks soon whether state must be transferred, if the cell was not known to be
        populated."""
        if (
            cell not in self._populated_cells
            and cell != self._routing.cell
            and self._routing.serving
        ):
            self._outbox.set_timer(ProxyCheckTimer(), now_us + _BEACON_DELAY_US)

    def on_timer(self, now_us: int) -> None:
        """Checks for each proxied cell whether it became populated or another cell is closer
        now."""
        if not self._routing.serving:
            return
        self._outbox.set_timer(ProxyCheckTimer(), now_us + _CHECK_INTERVAL_US)
        populated_cells = frozenset(self._routing.populated_cells())
        cells_gained = bool(populated_cells - self._populated_cells)
        self._populated_cells = populated_cells
        for key_cell in self.proxied_cells:
            self._check_cell(key_cell, cells_gained, now_us)

    def _check_cell(self, key_cell: CellId, cells_gained: bool, now_us: int) -> None:
        routing = self._routing
        if key_cell in self._in_progress:
            return
        if routing.proxy_of(key_cell) != routing.cell:
            delay_us = self._rank_in_cell() * _RANK_DELAY_US
            if self._transfer_at_us.setdefault(key_cell, now_us + delay_us) <= now_us:
                self._transfer_cell(key_cell, now_us)
            return
        self._transfer_at_us.pop(key_cell, None)
        if cells_gained and not routing.is_certain_proxy_of(key_cell):
            # The new cell may know a closer cell that is out of this node's sight (D25).
            self._probe_at_us.setdefault(key_cell, now_us + _PROBE_DELAY_US)
        if self._probe_at_us.get(key_cell, now_us + 1) <= now_us:
            self._probe_proxy(key_cell, now_us)

    def _rank_in_cell(self) -> int:
        """The number of cell peers with a lower node id."""
        return sum(node < self._node_id for node in self._routing.nodes_in(self._routing.cell))

    def _probe_proxy(self, key_cell: CellId, now_us: int) -> None:
        """Sends an empty state transfer to find out which cell is the proxy now."""
        del self._probe_at_us[key_cell]
        if self._rank_in_cell():
            return
        empty = CellState(0, 0, 1)
        self._in_progress.add(key_cell)

        def on_result(result: Result[object], now_us: int) -> None:
            self._in_progress.discard(key_cell)
            if isinstance(result, Ok):
                self._transfer_cell(key_cell, now_us)

        self._send_parts(key_cell, Destination(key_cell), [empty], now_us, on_result)

    def _transfer_cell(self, key_cell: CellId, now_us: int) -> None:
        """Transfers the state of a proxied cell; the records stay here until the receiver has
        confirmed them."""
        self._in_progress.add(key_cell)
        self._transfer_at_us[key_cell] = now_us + _RETRY_US
        keys = tuple(indexed.metadata.key for indexed in self.proxied_cells.objects_of(key_cell))
        cell_subscriptions = self.proxied_cells.subscriptions_of(key_cell)
        subscriptions = tuple(
            cell_subscription.subscription.key for cell_subscription in cell_subscriptions
        )
        parts = self._state_parts(key_cell, now_us)

        def on_result(result: Result[object], now_us: int) -> None:
            self._in_progress.discard(key_cell)
            serves_cell = self._routing.serving and key_cell in self.proxied_cells
            if isinstance(result, Failure) or not serves_cell:
                return
            self._transfer_at_us.pop(key_cell, None)
            message = StateTransferred(key_cell, keys, subscriptions)
            if self._routing.nodes_in(self._routing.cell):
                self._routing.broadcast_in_cell(message, now_us)
            self.on_state_transferred(message, now_us)

        self._send_parts(key_cell, Destination(key_cell), parts, now_us, on_result)

    def on_state_transferred(self, message: StateTransferred, now_us: int) -> None:
        """Releases records that a cell peer transferred; records that it did not name stay and are
        transferred by this node. A node that takes its own cell for the proxy keeps all records."""
        home = message.cell
        if home in self.proxied_cells and self._routing.proxy_of(home) != self._routing.cell:
            self._transfer_at_us.pop(home, None)
            parts = self._state_parts(home, now_us)
            self.proxied_cells.release_records(home, message.keys, message.subscriptions, now_us)
            for part in () if home in self.proxied_cells else parts:
                self._on_transferred(home, part, now_us)

    def _state_parts(
        self, key_cell: CellId, now_us: int, *, with_replicas: bool = False
    ) -> list[CellState]:
        records = self.proxied_cells.records_of(key_cell, now_us, with_replicas=with_replicas)
        return list(split_state(records, self._part_bytes_max))

    def _send_parts(
        self,
        key_cell: CellId,
        destination: Destination,
        parts: list[CellState],
        now_us: int,
        on_result: OnResult[object],
    ) -> None:
        """Sends the parts one after the other, then calls `on_result`."""
        part, remaining = parts[0], parts[1:]
        self.parts_sent += 1

        def on_part_sent(result: Result[object], now_us: int) -> None:
            if isinstance(result, Ok) and remaining:
                self._send_parts(key_cell, destination, remaining, now_us, on_result)
            else:
                on_result(result, now_us)

        request = TransferState(self._requests.next_id(), key_cell, part)
        self._requests.send_requests({destination: request}, now_us, on_part_sent)

    # Leaving a cell

    def schedule_leave(self, cell: CellId, now_us: int, *, at_once: bool) -> None:
        """Schedules the transfer of all state by the last node of a cell to the proxies (D24): part
        after part, or all parts at once if the node shuts down."""
        self._outbox.set_timer(LeaveTimer(cell, at_once), now_us + _BEACON_DELAY_US)

    def on_leave_timer(self, timer: LeaveTimer, now_us: int) -> None:
        """Transfers all state, unless this node serves a cell again."""
        if self._routing.serving:
            return
        for key_cell in (timer.cell, *self.proxied_cells):
            # Objects can still be retrieved from a node that moves, not from one that shuts down.
            shuts_down = timer.at_once and key_cell == timer.cell
            parts = self._state_parts(key_cell, now_us, with_replicas=shuts_down)
            if parts == [CellState(0, 0, 1)]:
                continue
            # Other cells may not know yet that this one is empty: address its proxy directly.
            proxy = self._routing.proxy_of(key_cell, exclude_own=True)
            destination = Destination(key_cell if proxy is None else proxy)
            if timer.at_once:
                for part in parts:  # a node that shuts down sends its state only once
                    self._send_parts(key_cell, destination, [part], now_us, ignore_result)
            else:
                self.undelivered[key_cell] = parts
                self._send_parts(
                    key_cell, destination, parts, now_us, self._retry_once(key_cell, parts)
                )

    def _retry_once(self, key_cell: CellId, parts: list[CellState]) -> OnResult[object]:
        """Returns a callback that repeats a failed transfer once, addressed to the key cell, and
        else keeps the state until this node settles."""

        def on_result(result: Result[object], _now_us: int) -> None:
            if isinstance(result, Ok) and self.undelivered.get(key_cell) is parts:
                del self.undelivered[key_cell]

        def on_first_result(result: Result[object], now_us: int) -> None:
            if isinstance(result, Failure) and not self._routing.serving:
                self._send_parts(key_cell, Destination(key_cell), parts, now_us, on_result)
            else:
                on_result(result, now_us)

        return on_first_result

    def merge_undelivered(self, now_us: int) -> None:
        """Merges state that no cell accepted into the new cell, from which it is transferred
        again."""
        undelivered, self.undelivered = self.undelivered, {}
        for key_cell, parts in undelivered.items():
            for part in parts:
                self.accept_state(key_cell, key_cell, part, now_us, match=False)

    # Receiving state

    def on_transfer_state(self, delivery: Delivery, message: TransferState, now_us: int) -> None:
        """Accepts state of this cell, or of a cell whose proxy it is."""
        routing = self._routing
        cell_peers = routing.nodes_in(routing.cell)
        if delivery.origin == self._node_id or delivery.origin in cell_peers:
            detail = f"this cell is proxy of cell {message.cell}"
            self._send_reply(
                delivery, Refused(message.request_id, RejectedError.code, detail), now_us
            )
            return
        source_cell = delivery.origin_cell
        self.accept_state(message.cell, source_cell, message.state, now_us, match=delivery.is_first)
        self._on_received(message.cell, source_cell, message.state, now_us)
        source = Destination(source_cell, delivery.origin)
        for metadata in message.state.replicated:
            if self._replicas.get(metadata.key) is None:
                self._fetch_object(source, metadata, now_us, message.cell)
        self._send_reply(delivery, Done(message.request_id), now_us)

    def accept_state(
        self,
        key_cell: CellId,
        source: CellId,
        state: CellState,
        now_us: int,
        *,
        match: bool,
    ) -> None:
        """Registers the key cell as a proxied cell, unless it is the own cell, and merges the
        state."""
        self.parts_received += 1
        self.proxied_cells.add(key_cell)
        self.state_merge.add_state(key_cell, source, state, now_us, match=match)
