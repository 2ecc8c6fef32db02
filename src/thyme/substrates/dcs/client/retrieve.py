"""Retrieve: gets an object from the closest replica that has it.

Replicas are tried one after the other, by distance, until one returns the right bytes. The last
attempt goes to an active replica, if none was tried before. If there are fewer replicas than
attempts, the active ones are tried again. If none had the object, its list is requested once more,
and all of its replicas that were not tried are. A node that retrieved an object keeps it as a
passive replica and announces it (`replica_announcements`). Entry point: `Retriever.start`.
Clauses: D13, D18, D19, M19.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from thyme.model.errors import (
    CorruptError,
    NotFoundError,
    OperationError,
    OperationTimeoutError,
)
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Metadata
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata, Replica
from thyme.protocol.messages.replies import ObjectData
from thyme.protocol.messages.requests import FetchObject
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.protocol.retry import RetryPolicy
from thyme.routing.cells import CellRouting, Destination
from thyme.substrates.dcs.client.cell_requests import CellRequests, Replies
from thyme.substrates.dcs.client.neighbour_replicas import NeighbourReplicas
from thyme.substrates.dcs.client.replica_announcements import Announcer
from thyme.substrates.dcs.client.replica_locations import (
    ReplicaLocations,
    fetch_replication_list,
)
from thyme.substrates.dcs.config import ReplicationConfig
from thyme.substrates.dcs.state.replica_store import ReplicaRole, ReplicaStore, StoredReplica
from thyme.substrates.dcs.state.small_objects import SmallObjects

_REFUSALS_MAX = 4
"""How often a cell may refuse: another of its nodes may have the object that the first one
missed."""

_NAMED_MAX = 2
"""How many neighbours that named an object in their beacons are tried."""


@dataclass(slots=True)
class _Retrieval:
    metadata: Metadata
    on_result: OnResult[bytes]
    plan: list[Destination] = field(default_factory=list)
    timeouts: int = 0
    """The number of attempts without a reply in time; each makes the next timeout longer (D19)."""
    refusals: Counter[Destination] = field(default_factory=Counter)
    located_again: bool = False
    """Whether the replication list was requested once more, since the object may have moved
    (D21)."""
    tried: set[Destination] = field(default_factory=set)
    last_refusal: Failure | None = None
    """The last refusal, which is reported rather than a timeout."""


class Retriever:
    """The retrieves of one node."""

    def __init__(
        self,
        node_id: NodeId,
        routing: CellRouting,
        requests: CellRequests,
        replicas: ReplicaStore,
        received_objects: SmallObjects,
        replica_locations: ReplicaLocations,
        policy: RetryPolicy,
        config: ReplicationConfig,
        announcer: Announcer,
        neighbour_replicas: NeighbourReplicas | None = None,
    ) -> None:
        self._node_id = node_id
        self._routing = routing
        self._requests = requests
        self._replicas = replicas
        self._received_objects = received_objects
        self._replica_locations = replica_locations
        self._policy = policy
        self._config = config
        self._announcer = announcer
        self._neighbour_replicas = neighbour_replicas

    def start(self, metadata: Metadata, now_us: int, on_result: OnResult[bytes]) -> None:
        """Gets an object from this node if it is stored here or came with its metadata, else from
        its known replicas."""
        self._replicas.expire(now_us)
        if self._replicas.get(metadata.key) is not None:
            on_result(Ok(self._replicas.read_data(metadata.key)), now_us)
            return
        received = self._received_objects.get(metadata)
        if received is not None and not metadata.has_expired(now_us):
            self._keep_received(metadata, received, now_us)
            on_result(Ok(received), now_us)
            return
        retrieval = _Retrieval(metadata, on_result)
        indexed = self._replica_locations.get(metadata.key)
        if indexed is None:
            self._locate(retrieval, now_us)
        else:
            self._start_plan(retrieval, indexed, now_us)

    def _locate(self, retrieval: _Retrieval, now_us: int) -> None:
        """Requests the replication list from the cell of a tag, if it is not in the cache or no
        replica had the object."""

        def on_list(result: Result[IndexedMetadata], now_us: int) -> None:
            if isinstance(result, Failure):
                retrieval.on_result(result, now_us)
            else:
                self._start_plan(retrieval, result.value, now_us)

        fetch_replication_list(
            self._routing,
            self._requests,
            self._replica_locations,
            retrieval.metadata,
            now_us,
            on_list,
        )

    def _start_plan(self, retrieval: _Retrieval, indexed: IndexedMetadata, now_us: int) -> None:
        retrieval.plan = self.order_replicas(indexed)
        if retrieval.located_again:
            untried = [to for to in self._all_targets(indexed) if to not in retrieval.tried]
            retrieval.plan = [*untried, *(to for to in retrieval.plan if to not in untried)]
        if retrieval.plan:
            self._try_next(retrieval, now_us)
        else:
            detail = f"no replica of {indexed.metadata.key} is known"
            retrieval.on_result(Failure(NotFoundError.code, detail), now_us)

    def order_replicas(self, indexed: IndexedMetadata) -> list[Destination]:
        """The replicas to try, in order (D18)."""
        tries_max = self._config.retrieve_tries_max
        active, passive = self._as_targets(indexed.active), self._as_targets(indexed.passive)
        passive += self._named_by_neighbours(indexed.metadata.key)
        plan = self._sort_by_distance(dict.fromkeys([*active, *passive]))
        active = self._sort_by_distance(dict.fromkeys(active))
        if not active:
            return plan[:tries_max]
        if len(plan) >= tries_max:
            plan = plan[:tries_max]
            return plan if any(to in active for to in plan) else [*plan[:-1], active[0]]
        repeats = [active[turn % len(active)] for turn in range(tries_max - len(plan))]
        return [*plan, *repeats]

    def _all_targets(self, indexed: IndexedMetadata) -> list[Destination]:
        """All replicas of a list, by distance. The closest ones may all have left or have lost the
        object, while a distant one has it (D27)."""
        targets = self._as_targets((*indexed.active, *indexed.passive))
        return self._sort_by_distance(dict.fromkeys(targets))

    def _named_by_neighbours(self, key: Key) -> list[Destination]:
        """The closest of the neighbours whose beacons named an object (D28)."""
        if self._neighbour_replicas is None:
            return []
        named = self._as_targets(tuple(self._neighbour_replicas.holders_of(key)))
        return self._sort_by_distance(dict.fromkeys(named))[:_NAMED_MAX]

    def _as_targets(self, replicas: tuple[Replica, ...]) -> list[Destination]:
        return [
            Destination(replica.cell, replica.node)
            for replica in replicas
            if replica.node != self._node_id
        ]

    def _sort_by_distance(self, targets: Mapping[Destination, None]) -> list[Destination]:
        here = self._routing.cell
        return sorted(targets, key=lambda to: self._routing.distance(here, to.cell))

    def _try_next(self, retrieval: _Retrieval, now_us: int) -> None:
        target = retrieval.plan.pop(0)
        retrieval.tried.add(target)
        key, size = retrieval.metadata.key, retrieval.metadata.size
        wait_factor = self._policy.backoff**retrieval.timeouts

        def on_replies(result: Result[Replies], now_us: int) -> None:
            if isinstance(result, Failure):
                self._on_try_failed(retrieval, target, result, now_us)
                return
            [reply] = result.value.values()
            if isinstance(reply, ObjectData) and retrieval.metadata.matches_content(reply.data):
                self._store_replica(retrieval, target, reply.data, now_us)
                retrieval.on_result(Ok(reply.data), now_us)
            else:
                detail = f"the bytes received are not {key}: their digest differs"
                corrupt = Failure(CorruptError.code, detail)
                self._on_try_failed(retrieval, target, corrupt, now_us)

        self._requests.send_requests(
            {target: FetchObject(self._requests.next_id(), key)},
            now_us,
            on_replies,
            data_bytes=size,
            tries_max=1,
            wait_factor=wait_factor,
        )

    def _on_try_failed(
        self, retrieval: _Retrieval, target: Destination, failure: Failure, now_us: int
    ) -> None:
        """Tries the next replica; after the last one, the replication list is requested once
        more."""
        if failure.code == OperationTimeoutError.code:
            retrieval.timeouts += 1
        else:
            retrieval.last_refusal = failure
            retrieval.refusals[target] += 1
            # Another node of a cell may have the right bytes, if one had wrong ones.
            is_corrupt = failure.code == CorruptError.code
            refusals_max = self._config.retrieve_tries_max if is_corrupt else _REFUSALS_MAX
            if target.node is not None or retrieval.refusals[target] >= refusals_max:
                retrieval.plan = [to for to in retrieval.plan if to != target]
            if target.node is None and self._config.try_owner:
                self._try_owner_next(retrieval, target.cell)
        if retrieval.plan:
            self._try_next(retrieval, now_us)
        elif self._config.locate_again and not retrieval.located_again:
            retrieval.located_again = True
            retrieval.timeouts = 0
            self._locate(retrieval, now_us)
        else:
            retrieval.on_result(retrieval.last_refusal or failure, now_us)

    def _try_owner_next(self, retrieval: _Retrieval, cell: CellId) -> None:
        """Tries the owner next: the node that answered for the cell may have missed the broadcast
        of the object, but the owner has it."""
        owner = Destination(cell, retrieval.metadata.owner)
        if not retrieval.refusals[owner] and owner not in retrieval.plan:
            retrieval.plan.insert(0, owner)

    def _keep_received(self, metadata: Metadata, data: bytes, now_us: int) -> None:
        """Stores a retrieved object that came with its metadata, as a passive replica (D13). It is
        not announced: other readers receive the object likewise (D28)."""
        if not self._config.passive:
            return
        with suppress(OperationError):
            stored = StoredReplica(metadata, ReplicaRole.PASSIVE)
            self._replicas.add_replica(stored, data, now_us)

    def _store_replica(
        self, retrieval: _Retrieval, source: Destination, data: bytes, now_us: int
    ) -> None:
        """Stores the retrieved object: as an announced passive replica (D13), or as an active
        replica that this node's cell should have had already."""
        is_active = source == Destination(self._routing.cell) and self._routing.serving
        if not (is_active or self._config.passive):
            return
        try:
            role = ReplicaRole.ACTIVE if is_active else ReplicaRole.PASSIVE
            self._replicas.add_replica(StoredReplica(retrieval.metadata, role), data, now_us)
        except OperationError:
            return
        if self._neighbour_replicas is not None:
            self._neighbour_replicas.add(retrieval.metadata.key)
        if not is_active:
            outdated = retrieval.last_refusal is not None
            self._announcer.announce(retrieval.metadata, now_us, outdated=outdated)
