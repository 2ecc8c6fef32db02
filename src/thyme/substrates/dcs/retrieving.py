"""Retrieve: gets an object from the closest replica that has it.

Replicas are tried one after the other, by distance, until one returns the right bytes. The last
attempt goes to an active replica, if none was tried before. If there are fewer replicas than
attempts, the active ones are tried again. A node that retrieved an object keeps it as a passive
replica and announces that to the tag cells. Entry point: `Retriever.start`.
Clauses: D13, D18, D19, M19.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from thyme.model.errors import (
    CorruptError,
    NotFoundError,
    OperationError,
    OperationTimeoutError,
)
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.protocol.cell_messages import AnnounceReplica, CellStatus
from thyme.protocol.cells import CellId, Indexed, Replica
from thyme.protocol.messages import FetchObject, FetchStatus, ObjectData
from thyme.protocol.operations import RetryPolicy
from thyme.routing.cells import CellRouting, To
from thyme.substrates.brokers import OnEnd
from thyme.substrates.dcs.asks import CellAsks, Replies
from thyme.substrates.dcs.config import ReplicationConfig
from thyme.substrates.dcs.replicas import HeldObject, Replicas, Role
from thyme.substrates.dcs.sources import Whereabouts

_REFUSALS_MAX = 4
"""How often a cell may refuse: another of its nodes may have the object that the first one
missed."""


@dataclass(slots=True)
class _Retrieval:
    metadata: Metadata
    on_data: Callable[[bytes, int], None]
    on_failure: OnEnd
    plan: list[To] = field(default_factory=list)
    silences: int = 0
    """The number of attempts without a reply in time; each makes the next timeout longer (D19)."""
    refused: Counter[To] = field(default_factory=Counter)
    looked_again: bool = False
    """Whether the replication list was requested once more, since the object may have moved
    (D21)."""
    why: tuple[str, str] | None = None
    """The code and detail of the last refusal, which are reported rather than a timeout."""


class Retrieving:
    """The retrieves of one node."""

    def __init__(
        self,
        node_id: NodeId,
        routing: CellRouting,
        asks: CellAsks,
        replicas: Replicas,
        whereabouts: Whereabouts,
        policy: RetryPolicy,
        config: ReplicationConfig,
    ) -> None:
        self._node_id = node_id
        self._routing = routing
        self._asks = asks
        self._replicas = replicas
        self._whereabouts = whereabouts
        self._policy = policy
        self._config = config

    def start(
        self,
        metadata: Metadata,
        now_us: int,
        on_data: Callable[[bytes, int], None],
        on_failure: OnEnd,
    ) -> None:
        """Gets an object from this node if it is stored here, else from its known replicas."""
        self._replicas.expire(now_us)
        if self._replicas.get(metadata.key) is not None:
            on_data(self._replicas.data(metadata.key), now_us)
            return
        retrieval = _Retrieval(metadata, on_data, on_failure)
        indexed = self._whereabouts.get(metadata.key)
        if indexed is None:
            self._locate(retrieval, now_us)
        else:
            self._plan(retrieval, indexed, now_us)

    def _locate(self, retrieval: _Retrieval, now_us: int) -> None:
        """Requests the replication list from the cell of a tag, if it is not in the cache or no
        replica had the object."""
        metadata = retrieval.metadata
        target = To(self._routing.cell_of_key(metadata.tags[0]))

        def on_replies(replies: Replies, now_us: int) -> None:
            [reply] = replies.values()
            if isinstance(reply, CellStatus) and reply.indexed is not None:
                self._whereabouts.note(reply.indexed)
                self._plan(retrieval, reply.indexed, now_us)
            else:
                state = reply.state if isinstance(reply, CellStatus) else "unexpected reply"
                detail = f"{metadata.key} cannot be retrieved ({state})"
                retrieval.on_failure(NotFoundError.code, detail, now_us)

        self._asks.start(
            lambda request_id: {target: FetchStatus(request_id, metadata.key)},
            now_us,
            on_replies,
            retrieval.on_failure,
        )

    def _plan(self, retrieval: _Retrieval, indexed: Indexed, now_us: int) -> None:
        retrieval.plan = self.plan(indexed)
        if retrieval.plan:
            self._try_next(retrieval, now_us)
        else:
            detail = f"no replica of {indexed.metadata.key} is known"
            retrieval.on_failure(NotFoundError.code, detail, now_us)

    def plan(self, indexed: Indexed) -> list[To]:
        """The replicas to try, in order (D18)."""
        tries_max = self._config.retrieve_tries_max
        active, passive = self._targets(indexed.active), self._targets(indexed.passive)
        plan = self._by_distance(dict.fromkeys([*active, *passive]))
        active = self._by_distance(dict.fromkeys(active))
        if not active:
            return plan[:tries_max]
        if len(plan) >= tries_max:
            plan = plan[:tries_max]
            return plan if any(to in active for to in plan) else [*plan[:-1], active[0]]
        repeats = [active[turn % len(active)] for turn in range(tries_max - len(plan))]
        return [*plan, *repeats]

    def _targets(self, replicas: tuple[Replica, ...]) -> list[To]:
        return [
            To(replica.cell, replica.node) for replica in replicas if replica.node != self._node_id
        ]

    def _by_distance(self, targets: Mapping[To, None]) -> list[To]:
        here = self._routing.cell
        return sorted(targets, key=lambda to: self._routing.distance(here, to.cell))

    def _try_next(self, retrieval: _Retrieval, now_us: int) -> None:
        target = retrieval.plan.pop(0)
        key, size = retrieval.metadata.key, retrieval.metadata.size
        wait_factor = self._policy.backoff**retrieval.silences

        def on_replies(replies: Replies, now_us: int) -> None:
            [reply] = replies.values()
            if isinstance(reply, ObjectData) and retrieval.metadata.describes(reply.data):
                self._keep(retrieval.metadata, target, reply.data, now_us)
                retrieval.on_data(reply.data, now_us)
            else:
                detail = f"the bytes received are not {key}: their digest differs"
                on_failure(CorruptError.code, detail, now_us)

        def on_failure(code: str, detail: str, now_us: int) -> None:
            if code == OperationTimeoutError.code:
                retrieval.silences += 1
            else:
                retrieval.why = (code, detail)
                retrieval.refused[target] += 1
                if target.node is not None or retrieval.refused[target] >= _REFUSALS_MAX:
                    retrieval.plan = [to for to in retrieval.plan if to != target]
                if target.node is None and self._config.ask_owner:
                    self._then_owner(retrieval, target.cell)
            if retrieval.plan:
                self._try_next(retrieval, now_us)
            elif self._config.look_again and not retrieval.looked_again:
                retrieval.looked_again = True
                retrieval.silences = 0
                self._locate(retrieval, now_us)
            else:
                retrieval.on_failure(*(retrieval.why or (code, detail)), now_us)

        self._asks.start(
            lambda request_id: {target: FetchObject(request_id, key)},
            now_us,
            on_replies,
            on_failure,
            data_bytes=size,
            tries_max=1,
            patience=wait_factor,
        )

    def _then_owner(self, retrieval: _Retrieval, cell: CellId) -> None:
        """Tries the owner next: the node that answered for the cell may have missed the broadcast
        of the object, but the owner has it."""
        owner = To(cell, retrieval.metadata.owner)
        if not retrieval.refused[owner] and owner not in retrieval.plan:
            retrieval.plan.insert(0, owner)

    def _keep(self, metadata: Metadata, source: To, data: bytes, now_us: int) -> None:
        """Stores the retrieved object: as an announced passive replica (D13), or as an active
        replica that this node's cell should have had already."""
        is_active = source == To(self._routing.cell) and self._routing.serving
        if not (is_active or self._config.passive):
            return
        try:
            role = Role.ACTIVE if is_active else Role.PASSIVE
            self._replicas.hold(HeldObject(metadata, role), data, now_us)
        except OperationError:
            return
        if not is_active:
            cells = dict.fromkeys(map(self._routing.cell_of_key, metadata.tags))
            self._routing.send([To(cell) for cell in cells], AnnounceReplica(metadata.key), now_us)
