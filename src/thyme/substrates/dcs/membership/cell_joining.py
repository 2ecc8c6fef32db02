"""Joining: a node that starts fetches the state of its cell before it serves the cell.

Entry point: `CellJoining.start`. The node waits for a beacon from a node that serves the own cell
and requests the cell state from it. The state arrives in parts of bounded size; objects are then
fetched one by one, large ones in chunks. If a part is missing, the state is requested again from
the next node whose beacon is received. Without a beacon or a reply, the node is alone in its cell
and starts with its stored state.
Clauses: D23, M37.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum

import msgspec

from thyme.model.errors import OperationError
from thyme.model.ids import NodeId, RequestId
from thyme.model.metadata import Metadata
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.protocol.messages.cells import CellState, FetchCellState
from thyme.protocol.messages.chunks import ChunkHolder
from thyme.protocol.messages.replies import ObjectData
from thyme.protocol.messages.requests import FetchObject
from thyme.protocol.results import Ok, Result
from thyme.routing.cells import BeaconReceived, Delivery, Destination
from thyme.substrates.dcs.client.cell_requests import Replies
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.state.cell_state import merge_state, split_state
from thyme.substrates.dcs.state.replica_store import ReplicaRole, StoredReplica

_STATE_WAIT_US = SECOND_US
"""How long to wait for the next part of the cell state after the request or the previous part."""


class CellJoinPhase(Enum):
    """The progress of a join."""

    OUTSIDE = "outside"
    LISTENING = "listening"
    REQUESTING = "asking"
    JOINED = "joined"
    ALONE = "alone"


class CellJoinTimer(msgspec.Struct, frozen=True):
    """The timeout for a beacon, or for the next part of the state."""


class CellJoining:
    """Both sides of joining a cell."""

    def __init__(self, context: NodeContext, on_joined: Callable[[int], None]) -> None:
        self._routing = context.routing
        self._outbox = context.outbox
        self._requests = context.requests
        self._index = context.index
        self._replicas = context.replicas
        self._large_replicas = context.large_replicas
        self._in_chunks = context.config.in_chunks
        self._config = context.config.joining
        self._on_joined = on_joined
        self._rng = context.rng
        self.phase = CellJoinPhase.OUTSIDE
        self._request_id: RequestId = context.rng.getrandbits(32)
        self._tries = 0
        self._entry_node: NodeId | None = None
        self._parts_received: set[int] = set()
        self._fetch_queue: deque[tuple[Destination, Metadata, CellId]] = deque()
        self._fetching = False
        self.rejected = 0

    # The joining node

    def start(self, now_us: int, listened_us: int = 0) -> None:
        """Starts to listen; `listened_us` is the time for which beacons have been received
        already."""
        self._tries = 0
        self._listen(now_us, listened_us)

    def stop(self) -> None:
        """Aborts the join: the node left the cell or shuts down (D20)."""
        self.phase = CellJoinPhase.OUTSIDE
        self._fetch_queue.clear()
        self._outbox.cancel_timer(CellJoinTimer())

    def _listen(self, now_us: int, listened_us: int = 0) -> None:
        self.phase = CellJoinPhase.LISTENING
        self._entry_node = None
        cell_peers = self._routing.nodes_in(self._routing.cell) if listened_us else []
        if cell_peers:
            self._request_state(self._rng.choice(cell_peers), now_us)
        else:
            remaining_us = max(0, self._config.listen_us - listened_us)
            self._outbox.set_timer(CellJoinTimer(), now_us + remaining_us)

    def on_beacon(self, beacon: BeaconReceived, now_us: int) -> None:
        """Requests the state from the first node that serves the own cell."""
        is_cell_peer = beacon.serving and beacon.cell == self._routing.cell
        if is_cell_peer and self.phase is CellJoinPhase.LISTENING:
            self._request_state(beacon.node, now_us)

    def _request_state(self, entry_node: NodeId, now_us: int) -> None:
        self.phase = CellJoinPhase.REQUESTING
        self._tries += 1
        self._request_id += 1
        self._parts_received.clear()
        self._entry_node = entry_node
        self._outbox.set_timer(CellJoinTimer(), now_us + _STATE_WAIT_US)
        target = Destination(self._routing.cell, entry_node)
        self._routing.send([target], FetchCellState(self._request_id), now_us)

    def on_timer(self, now_us: int) -> None:
        """Listens again after a request without a reply; otherwise the node counts as alone in its
        cell."""
        if self.phase is CellJoinPhase.REQUESTING and self._tries < self._config.tries_max:
            self._listen(now_us)
        elif self.phase in (CellJoinPhase.LISTENING, CellJoinPhase.REQUESTING):
            self.phase = CellJoinPhase.ALONE
            self._on_joined(now_us)

    def on_state(self, sender: NodeId, state: CellState, now_us: int) -> None:
        """Merges one part of the cell state; the join is complete with the last part."""
        if self.phase is not CellJoinPhase.REQUESTING or sender != self._entry_node:
            return
        if state.request_id != self._request_id or not 0 <= state.part < state.parts:
            return
        if state.part in self._parts_received:
            return
        self._parts_received.add(state.part)
        self.rejected += merge_state(state, self._index, self._replicas, now_us).rejected
        for metadata in state.replicated:
            if self._replicas.get(metadata.key) is None:
                cell = self._routing.cell
                self._fetch_queue.append((Destination(cell, sender), metadata, cell))
        if len(self._parts_received) == state.parts:
            self.phase = CellJoinPhase.JOINED
            self._outbox.cancel_timer(CellJoinTimer())
            self._on_joined(now_us)
            self._fetch_next(now_us)
        else:
            self._outbox.set_timer(CellJoinTimer(), now_us + _STATE_WAIT_US)

    def fetch_object(
        self, source: Destination, metadata: Metadata, now_us: int, key_cell: CellId | None = None
    ) -> None:
        """Fetches an object that this cell, or a cell whose proxy it is, should replicate."""
        cell = self._routing.cell if key_cell is None else key_cell
        self._fetch_queue.append((source, metadata, cell))
        self._fetch_next(now_us)

    def _fetch_next(self, now_us: int) -> None:
        """Fetches the next queued object, one at a time."""
        if self._fetching or not self._fetch_queue:
            return
        target, metadata, key_cell = self._fetch_queue.popleft()
        active = () if key_cell == self._routing.cell else (Replica(key_cell),)
        if metadata.is_large and self._in_chunks:
            self._fetch_in_chunks(
                target, StoredReplica(metadata, ReplicaRole.ACTIVE, active), now_us
            )
            self._fetch_next(now_us)
            return
        self._fetching = True

        def on_result(result: Result[Replies], now_us: int) -> None:
            for reply in result.value.values() if isinstance(result, Ok) else ():
                try:
                    if isinstance(reply, ObjectData):
                        stored = StoredReplica(metadata, ReplicaRole.ACTIVE, active)
                        self._replicas.add_replica(stored, reply.data, now_us)
                except OperationError:
                    self.rejected += 1
            self._fetching = False
            self._fetch_next(now_us)

        request = FetchObject(self._requests.next_id(), metadata.key)
        self._requests.send_requests({target: request}, now_us, on_result, data_bytes=metadata.size)

    def _fetch_in_chunks(self, source: Destination, stored: StoredReplica, now_us: int) -> None:
        assert source.node is not None
        try:
            holder = ChunkHolder(source.node, source.cell)
            self._large_replicas.store(stored, b"", [holder], now_us)
        except OperationError:
            self.rejected += 1

    # The node that sends its state

    def on_state_request(self, delivery: Delivery, request: FetchCellState, now_us: int) -> None:
        """Sends the cell state to a joining node, if this node serves the same cell."""
        if not self._routing.serving or delivery.origin_cell != self._routing.cell:
            return
        target = Destination(delivery.origin_cell, delivery.origin)
        parts = list(split_state(self._state_records(), self._config.part_bytes_max))
        for part, state in enumerate(parts):
            numbered = msgspec.structs.replace(
                state, request_id=request.request_id, part=part, parts=len(parts)
            )
            self._routing.send([target], numbered, now_us)

    def _state_records(self) -> Iterator[tuple[str, object]]:
        index = self._index
        record_sets: tuple[tuple[str, Iterable[object]], ...] = (
            ("object_tombstones", index.object_tombstones()),
            ("subscription_tombstones", index.subscription_tombstones()),
            ("objects", index.objects()),
            ("subscriptions", index.cell_subscriptions()),
            ("replicated", self._replicas.cell_wide_objects()),
        )
        return ((field_name, record) for field_name, records in record_sets for record in records)
