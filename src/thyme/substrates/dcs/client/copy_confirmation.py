"""Copy confirmation: makes sure that enough nodes of the cell store a new object.

An insert with a guaranteed number of copies waits until that many nodes have confirmed that they
store the object, on disk if the insert is durable. A node that does not answer gets the object
again; one that refuses is replaced by another node of the cell. Entry points: `CopyConfirmer`, for
the owner, and `ReplicaConfirmer`, for the nodes that confirm.
Clauses: M30, D14.
"""

from __future__ import annotations

from dataclasses import dataclass

from thyme.model.bounded import BoundedDict
from thyme.model.errors import (
    NotOwnerError,
    OperationTimeoutError,
    RejectedError,
    UnsupportedError,
)
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Metadata
from thyme.protocol.app_interface import StorageOptions
from thyme.protocol.messages.cell_records import Replica
from thyme.protocol.messages.cells import ConfirmReplica, StoreReplica
from thyme.protocol.messages.replies import Done
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.routing.cells import Delivery, Destination
from thyme.substrates.dcs.client.cell_requests import Replies
from thyme.substrates.dcs.context import NodeContext

_ATTEMPTS_MAX = 3
"""How often a node gets the object before it is given up."""
_ASKS_PER_ATTEMPT = 2
_UNANSWERED_MAX = 1_000
"""The maximum number of objects that a node has been asked to confirm before it has them."""


@dataclass(slots=True)
class _Confirmation:
    """The copies of one new object."""

    metadata: Metadata
    data: bytes
    durable: bool
    cell_wide: bool
    holders: list[NodeId]
    """The nodes that store the object, or are asked to; the owner first."""
    spare: list[NodeId]
    """The other nodes of the cell."""
    missing: int
    waiting: int
    on_result: OnResult[object]


class CopyConfirmer:
    """The inserts of one node that wait for copies."""

    def __init__(self, context: NodeContext) -> None:
        self._node_id = context.node_id
        self._routing = context.routing
        self._requests = context.requests
        self._replicas = context.replicas

    def start(
        self,
        metadata: Metadata,
        data: bytes,
        active: tuple[Replica, ...],
        options: StorageOptions,
        now_us: int,
        on_result: OnResult[object],
    ) -> None:
        """Waits until enough nodes have confirmed an object that was broadcast in the cell."""
        peers = self._routing.nodes_in(self._routing.cell)
        listed = [replica.node for replica in active if replica.node is not None]
        chosen = [node for node in listed or peers if node != self._node_id]
        confirmation = _Confirmation(
            metadata,
            data,
            options.durable,
            cell_wide=not listed,
            holders=[self._node_id, *chosen],
            spare=[node for node in peers if node not in chosen],
            missing=options.copies - 1,
            waiting=len(chosen),
            on_result=on_result,
        )
        for node in chosen:
            self._ask(confirmation, node, 1, now_us)

    def _ask(self, copies: _Confirmation, node: NodeId, attempt: int, now_us: int) -> None:
        target = Destination(self._routing.cell, node)
        if attempt > 1:
            holders = () if copies.cell_wide else tuple(copies.holders)
            again = StoreReplica(copies.metadata, copies.data, holders)
            self._routing.send([target], again, now_us)

        def on_reply(result: Result[Replies], now_us: int) -> None:
            if isinstance(result, Ok):
                copies.waiting -= 1
                copies.missing -= 1
                if copies.missing == 0:
                    copies.on_result(Ok(None), now_us)
            elif copies.missing > 0:
                self._on_failure(copies, node, attempt, result, now_us)

        request = ConfirmReplica(self._requests.next_id(), copies.metadata, copies.durable)
        self._requests.send_requests(
            {target: request},
            now_us,
            on_reply,
            data_bytes=copies.metadata.size,
            tries_max=_ASKS_PER_ATTEMPT,
        )

    def _on_failure(
        self, copies: _Confirmation, node: NodeId, attempt: int, failure: Failure, now_us: int
    ) -> None:
        """Sends the object again to a node that did not answer; replaces one that refused."""
        if failure.code == OperationTimeoutError.code and attempt < _ATTEMPTS_MAX:
            self._ask(copies, node, attempt + 1, now_us)
        elif copies.spare:
            substitute = copies.spare.pop(0)
            copies.holders[copies.holders.index(node)] = substitute
            cell = self._routing.cell
            holders = tuple(Replica(cell, holder) for holder in copies.holders)
            self._replicas.set_holders(copies.metadata.key, holders)
            self._ask(copies, substitute, 2, now_us)
        else:
            copies.waiting -= 1
            if copies.waiting == copies.missing - 1:  # once, when too few are left
                detail = f"too few nodes of the cell could store {copies.metadata.key}"
                copies.on_result(Failure(failure.code, f"{detail}: {failure.detail}"), now_us)


class ReplicaConfirmer:
    """The objects that other nodes ask this node to confirm."""

    def __init__(self, context: NodeContext) -> None:
        self._replicas = context.replicas
        self._store = context.store
        self._routing = context.routing
        self._unanswered: BoundedDict[Key, tuple[Destination, ConfirmReplica]] = BoundedDict(
            _UNANSWERED_MAX
        )

    def confirm_replica(
        self, delivery: Delivery, request: ConfirmReplica, now_us: int
    ) -> Done | None:
        """Confirms an object that this node stores; one that is still on its way is confirmed when
        it arrives."""
        key = request.metadata.key
        if key.owner != delivery.origin:
            raise NotOwnerError(f"{key} belongs to another node")
        if request.durable and not self._store.durable:
            raise UnsupportedError("a node of the cell stores its data in memory")
        if (reason := self._replicas.removal_reason(key)) is not None:
            raise RejectedError(f"{key} was here and is {reason}")
        if self._replicas.get(key) is not None:
            return Done(request.request_id)
        origin = Destination(delivery.origin_cell, delivery.origin)
        self._unanswered.refresh(key, (origin, request))
        return None

    def on_stored(self, key: Key, now_us: int) -> None:
        """Confirms an object that has arrived, if its owner has asked."""
        if key in self._unanswered and self._replicas.get(key) is not None:
            origin, request = self._unanswered.pop(key)
            self._routing.send([origin], Done(request.request_id), now_us)
