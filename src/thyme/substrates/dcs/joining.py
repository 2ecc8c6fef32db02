"""Joining: a node that starts fetches the state of its cell before it serves the cell.

Entry point: `CellJoining.start`. The node waits for a beacon from a node that serves the own cell
and requests the cell state from it. The state arrives in parts of bounded size; objects are then
fetched one by one. If a part is missing, the state is requested again from the next node whose
beacon is received. Without a beacon or a reply, the node is alone in its cell and starts with its
stored state.
Clauses: D23.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum

import msgspec

from thyme.model.errors import OperationError
from thyme.model.ids import NodeId, RequestNumber
from thyme.model.metadata import Metadata
from thyme.protocol.cell_messages import CellState, FetchCellState
from thyme.protocol.cells import CellId, Replica
from thyme.protocol.messages import FetchObject, ObjectData
from thyme.routing.cells import Arrival, Sighting, To
from thyme.substrates.dcs.asks import Replies
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.learning import in_parts, learn
from thyme.substrates.dcs.replicas import HeldObject, Role


class Phase(Enum):
    """The progress of a join."""

    OUTSIDE = "outside"
    LISTENING = "listening"
    ASKING = "asking"
    JOINED = "joined"
    ALONE = "alone"


class JoinTimer(msgspec.Struct, frozen=True):
    """The timeout for a beacon, or for the next part of the state."""


class Joining:
    """Both sides of joining a cell."""

    def __init__(self, floor: Floor, on_joined: Callable[[int], None]) -> None:
        self._routing = floor.routing
        self._outbox = floor.outbox
        self._asks = floor.asks
        self._index = floor.index
        self._replicas = floor.replicas
        self._config = floor.config.joining
        self._on_joined = on_joined
        self._rng = floor.rng
        self.phase = Phase.OUTSIDE
        self._request: RequestNumber = floor.rng.getrandbits(32)
        self._tries = 0
        self._entry: NodeId | None = None
        self._parts: set[int] = set()
        self._to_fetch: deque[tuple[To, Metadata, CellId]] = deque()
        self._fetching = False
        self.unlearnt = 0

    # The joining node

    def start(self, now_us: int, heard_us: int = 0) -> None:
        """Starts to listen; `listened_us` is the time for which beacons have been received
        already."""
        self._tries = 0
        self._listen(now_us, heard_us)

    def stop(self) -> None:
        """Aborts the join: the node left the cell or shuts down (D20)."""
        self.phase = Phase.OUTSIDE
        self._to_fetch.clear()
        self._outbox.cancel_timer(JoinTimer())

    def _listen(self, now_us: int, heard_us: int = 0) -> None:
        self.phase = Phase.LISTENING
        self._entry = None
        cell_peers = self._routing.nodes_in(self._routing.cell) if heard_us else []
        if cell_peers:
            self._ask(self._rng.choice(cell_peers), now_us)
        else:
            remaining_us = max(0, self._config.listen_us - heard_us)
            self._outbox.set_timer(JoinTimer(), now_us + remaining_us)

    def on_sighted(self, sighting: Sighting, now_us: int) -> None:
        """Requests the state from the first node that serves the own cell."""
        is_cell_peer = sighting.serving and sighting.cell == self._routing.cell
        if is_cell_peer and self.phase is Phase.LISTENING:
            self._ask(sighting.node, now_us)

    def _ask(self, entry: NodeId, now_us: int) -> None:
        self.phase = Phase.ASKING
        self._tries += 1
        self._request += 1
        self._parts.clear()
        self._entry = entry
        self._outbox.set_timer(JoinTimer(), now_us + self._config.wait_us)
        target = To(self._routing.cell, entry)
        self._routing.send([target], FetchCellState(self._request), now_us)

    def on_timer(self, now_us: int) -> None:
        """Listens again after a request without a reply; otherwise the node counts as alone in its
        cell."""
        if self.phase is Phase.ASKING and self._tries < self._config.tries_max:
            self._listen(now_us)
        elif self.phase in (Phase.LISTENING, Phase.ASKING):
            self.phase = Phase.ALONE
            self._on_joined(now_us)

    def on_state(self, sender: NodeId, state: CellState, now_us: int) -> None:
        """Merges one part of the cell state; the join is complete with the last part."""
        if self.phase is not Phase.ASKING or sender != self._entry:
            return
        if state.request != self._request or not 0 <= state.part < state.parts:
            return
        if state.part in self._parts:
            return
        self._parts.add(state.part)
        self.unlearnt += learn(state, self._index, self._replicas, now_us).refused
        for metadata in state.held:
            if self._replicas.get(metadata.key) is None:
                cell = self._routing.cell
                self._to_fetch.append((To(cell, sender), metadata, cell))
        if len(self._parts) == state.parts:
            self.phase = Phase.JOINED
            self._outbox.cancel_timer(JoinTimer())
            self._on_joined(now_us)
            self._fetch_next(now_us)
        else:
            self._outbox.set_timer(JoinTimer(), now_us + self._config.wait_us)

    def fetch(
        self, source: To, metadata: Metadata, now_us: int, home: CellId | None = None
    ) -> None:
        """Fetches an object that this cell, or a cell whose proxy it is, should replicate."""
        cell = self._routing.cell if home is None else home
        self._to_fetch.append((source, metadata, cell))
        self._fetch_next(now_us)

    def _fetch_next(self, now_us: int) -> None:
        """Fetches the next queued object, one at a time."""
        if self._fetching or not self._to_fetch:
            return
        target, metadata, key_cell = self._to_fetch.popleft()
        self._fetching = True
        active = () if key_cell == self._routing.cell else (Replica(key_cell),)

        def on_replies(replies: Replies, now_us: int) -> None:
            [reply] = replies.values()
            try:
                if isinstance(reply, ObjectData):
                    stored = HeldObject(metadata, Role.ACTIVE, active)
                    self._replicas.hold(stored, reply.data, now_us)
            except OperationError:
                self.unlearnt += 1
            finish_fetch(now_us)

        def finish_fetch(now_us: int) -> None:
            self._fetching = False
            self._fetch_next(now_us)

        self._asks.start(
            lambda request_id: {target: FetchObject(request_id, metadata.key)},
            now_us,
            on_replies,
            lambda _code, _detail, now_us: finish_fetch(now_us),
            data_bytes=metadata.size,
        )

    # The node that sends its state

    def on_request(self, arrival: Arrival, request: FetchCellState, now_us: int) -> None:
        """Sends the cell state to a joining node, if this node serves the same cell."""
        if not self._routing.serving or arrival.origin_cell != self._routing.cell:
            return
        target = To(arrival.origin_cell, arrival.origin)
        parts = list(in_parts(self._records(), self._config.part_bytes_max))
        for part, state in enumerate(parts):
            numbered = msgspec.structs.replace(
                state, request=request.request, part=part, parts=len(parts)
            )
            self._routing.send([target], numbered, now_us)

    def _records(self) -> Iterator[tuple[str, object]]:
        index = self._index
        record_sets: tuple[tuple[str, Iterable[object]], ...] = (
            ("buried_objects", index.buried_objects()),
            ("buried_subscriptions", index.buried_subscriptions()),
            ("objects", index.objects()),
            ("interests", index.interests()),
            ("held", self._replicas.shares()),
        )
        return ((field_name, record) for field_name, records in record_sets for record in records)
