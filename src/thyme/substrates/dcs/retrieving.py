"""Retrieving: getting an object from the closest replica that still has it.

Replicas are asked one after the other, by distance, until one gives the right bytes; the last try
is for the cell that replicates it actively, if that was not asked yet. Where there are fewer
replicas than tries, the active ones are asked again. Whoever got an object keeps it, and says so
where it is indexed.
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
"""How often a cell may say no: the next of its nodes may have what the first did not hear."""


@dataclass(slots=True)
class _Retrieval:
    metadata: Metadata
    on_data: Callable[[bytes, int], None]
    on_failure: OnEnd
    plan: list[To] = field(default_factory=list)
    silences: int = 0
    """How many did not answer in time: the longer, the more patience (D19)."""
    refused: Counter[To] = field(default_factory=Counter)
    looked_again: bool = False
    """Whether it was asked once more where the object is, since it may have moved (D21)."""
    why: tuple[str, str] | None = None
    """What the last who refused said; silence says less."""


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
        """Gets an object: from here if it is here, else from where it is known to be."""
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
        """Asks the cell of a tag where the object is: this node was told in an earlier life."""
        metadata = retrieval.metadata
        target = To(self._routing.cell_of_key(metadata.tags[0]))

        def on_replies(replies: Replies, now_us: int) -> None:
            [reply] = replies.values()
            if isinstance(reply, CellStatus) and reply.indexed is not None:
                self._whereabouts.note(reply.indexed)
                self._plan(retrieval, reply.indexed, now_us)
            else:
                state = reply.state if isinstance(reply, CellStatus) else "no answer to that"
                detail = f"{metadata.key} is not to be had ({state})"
                retrieval.on_failure(NotFoundError.code, detail, now_us)

        self._asks.start(
            lambda number: {target: FetchStatus(number, metadata.key)},
            now_us,
            on_replies,
            retrieval.on_failure,
        )

    def _plan(self, retrieval: _Retrieval, indexed: Indexed, now_us: int) -> None:
        retrieval.plan = self.plan(indexed)
        if retrieval.plan:
            self._try_next(retrieval, now_us)
        else:
            detail = f"nobody is known to have {indexed.metadata.key}"
            retrieval.on_failure(NotFoundError.code, detail, now_us)

    def plan(self, indexed: Indexed) -> list[To]:
        """Whom to ask, in order (D18)."""
        most = self._config.retrieve_tries_max
        active, passive = self._targets(indexed.active), self._targets(indexed.passive)
        plan = self._by_distance(dict.fromkeys([*active, *passive]))
        active = self._by_distance(dict.fromkeys(active))
        if not active:
            return plan[:most]
        if len(plan) >= most:
            plan = plan[:most]
            return plan if any(to in active for to in plan) else [*plan[:-1], active[0]]
        again = [active[turn % len(active)] for turn in range(most - len(plan))]
        return [*plan, *again]

    def _targets(self, replicas: tuple[Replica, ...]) -> list[To]:
        return [To(at.cell, at.node) for at in replicas if at.node != self._node_id]

    def _by_distance(self, targets: Mapping[To, None]) -> list[To]:
        here = self._routing.cell
        return sorted(targets, key=lambda to: self._routing.distance(here, to.cell))

    def _try_next(self, retrieval: _Retrieval, now_us: int) -> None:
        target = retrieval.plan.pop(0)
        key, size = retrieval.metadata.key, retrieval.metadata.size
        patience = self._policy.backoff**retrieval.silences

        def on_replies(replies: Replies, now_us: int) -> None:
            [reply] = replies.values()
            if isinstance(reply, ObjectData) and retrieval.metadata.describes(reply.data):
                self._keep(retrieval.metadata, target, reply.data, now_us)
                retrieval.on_data(reply.data, now_us)
            else:
                detail = f"what arrived is not {key}: its digest differs"
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
            lambda number: {target: FetchObject(number, key)},
            now_us,
            on_replies,
            on_failure,
            data_bytes=size,
            tries_max=1,
            patience=patience,
        )

    def _then_owner(self, retrieval: _Retrieval, cell: CellId) -> None:
        """Who answered for the cell may have missed the broadcast by which it got the object: the
        owner has it."""
        owner = To(cell, retrieval.metadata.owner)
        if not retrieval.refused[owner] and owner not in retrieval.plan:
            retrieval.plan.insert(0, owner)

    def _keep(self, metadata: Metadata, source: To, data: bytes, now_us: int) -> None:
        """Becomes a replica: a passive one that says so (D13), or one that its cell should have
        had already."""
        active = source == To(self._routing.cell) and self._routing.serving
        if not (active or self._config.passive):
            return
        try:
            role = Role.ACTIVE if active else Role.PASSIVE
            self._replicas.hold(HeldObject(metadata, role), data, now_us)
        except OperationError:
            return
        if not active:
            cells = dict.fromkeys(map(self._routing.cell_of_key, metadata.tags))
            self._routing.send([To(cell) for cell in cells], AnnounceReplica(metadata.key), now_us)
