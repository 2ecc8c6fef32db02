"""Joining: a node that comes up learns what its cell knows before it works for it.

It listens for the beacon of a node that serves the own cell, and asks that one for all the cell
knows. The answer comes in parts of bounded size; the objects themselves are then fetched one by
one. An answer that does not come whole is asked for again, of whoever is heard next. Where nobody
is heard, or nobody answers, the node is alone in its cell and begins with what it has.
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
    """How far a node has come."""

    OUTSIDE = "outside"
    LISTENING = "listening"
    ASKING = "asking"
    JOINED = "joined"
    ALONE = "alone"


class JoinTimer(msgspec.Struct, frozen=True):
    """Nothing was heard, or no answer came, for too long."""


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

    # The one who comes

    def start(self, now_us: int, heard_us: int = 0) -> None:
        """Begins to listen; or has done so for some time, and then may know enough."""
        self._tries = 0
        self._listen(now_us, heard_us)

    def stop(self) -> None:
        """The node left the cell, or will: it works for none (D20)."""
        self.phase = Phase.OUTSIDE
        self._to_fetch.clear()
        self._outbox.cancel_timer(JoinTimer())

    def _listen(self, now_us: int, heard_us: int = 0) -> None:
        self.phase = Phase.LISTENING
        self._entry = None
        known = self._routing.nodes_in(self._routing.cell) if heard_us else []
        if known:
            self._ask(self._rng.choice(known), now_us)
        else:
            left_us = max(0, self._config.listen_us - heard_us)
            self._outbox.set_timer(JoinTimer(), now_us + left_us)

    def on_sighted(self, sighting: Sighting, now_us: int) -> None:
        """Asks the first that serves the own cell."""
        ours = sighting.serving and sighting.cell == self._routing.cell
        if ours and self.phase is Phase.LISTENING:
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
        """Listens again after a question without an answer; else takes itself to be alone."""
        if self.phase is Phase.ASKING and self._tries < self._config.tries_max:
            self._listen(now_us)
        elif self.phase in (Phase.LISTENING, Phase.ASKING):
            self.phase = Phase.ALONE
            self._on_joined(now_us)

    def on_state(self, sender: NodeId, state: CellState, now_us: int) -> None:
        """Learns a part of what the cell knows; with the last one it has joined."""
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
        """Fetches an object that this cell, or one it stands in for, should replicate."""
        cell = self._routing.cell if home is None else home
        self._to_fetch.append((source, metadata, cell))
        self._fetch_next(now_us)

    def _fetch_next(self, now_us: int) -> None:
        """Fetches the objects that the cell replicates, one by one."""
        if self._fetching or not self._to_fetch:
            return
        target, metadata, home = self._to_fetch.popleft()
        self._fetching = True
        active = () if home == self._routing.cell else (Replica(home),)

        def on_replies(replies: Replies, now_us: int) -> None:
            [reply] = replies.values()
            try:
                if isinstance(reply, ObjectData):
                    held = HeldObject(metadata, Role.ACTIVE, active)
                    self._replicas.hold(held, reply.data, now_us)
            except OperationError:
                self.unlearnt += 1
            go_on(now_us)

        def go_on(now_us: int) -> None:
            self._fetching = False
            self._fetch_next(now_us)

        self._asks.start(
            lambda number: {target: FetchObject(number, metadata.key)},
            now_us,
            on_replies,
            lambda _code, _detail, now_us: go_on(now_us),
            data_bytes=metadata.size,
        )

    # The one who is asked

    def on_request(self, arrival: Arrival, request: FetchCellState, now_us: int) -> None:
        """Tells all this node knows for the cell, if it works for the one of the newcomer."""
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
        sources: tuple[tuple[str, Iterable[object]], ...] = (
            ("buried_objects", index.buried_objects()),
            ("buried_subscriptions", index.buried_subscriptions()),
            ("objects", index.objects()),
            ("interests", index.interests()),
            ("held", self._replicas.shares()),
        )
        return ((kind, record) for kind, records in sources for record in records)
