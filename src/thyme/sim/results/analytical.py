"""Analytical model: estimates the messages that a workload costs in ES, LS and DCS.

Entry point: `estimate_messages`. A message from one node to another takes about √n transmissions
and a message to all nodes takes n, where n is the number of nodes, or in DCS of populated cells.
The estimates leave out retransmissions, link-layer acknowledgements, beacons and routing updates;
they show how message counts grow and how the approaches compare.
Clauses: S18, C16, C17. Source: Thyme (journal article), section 8, Tables 5 and 6, Fig. 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import sqrt
from typing import assert_never

import msgspec

from thyme.model.errors import InputError
from thyme.traces.operations import InsertOperation, SubscribeOperation
from thyme.traces.oracle import Expected
from thyme.traces.trace import Trace


class Approach(Enum):
    """The three approaches that Thyme (journal article) compares."""

    ES = "es"
    LS = "ls"
    DCS = "dcs"


class Growth(Enum):
    """How the duration of an operation grows with the size of the network."""

    CONSTANT = "O(1)"
    ROOT = "O(√n)"
    LINEAR = "O(n)"

    def evaluate(self, n: float) -> float:
        """Returns the value of the growth function for a network size."""
        match self:
            case Growth.CONSTANT:
                return 1.0
            case Growth.ROOT:
                return sqrt(n)
            case Growth.LINEAR:
                return n
            case _:
                assert_never(self)


TIME_GROWTH: dict[str, dict[Approach, Growth]] = {
    "insert": {Approach.ES: Growth.ROOT, Approach.LS: Growth.CONSTANT, Approach.DCS: Growth.ROOT},
    "delete": {Approach.ES: Growth.ROOT, Approach.LS: Growth.CONSTANT, Approach.DCS: Growth.ROOT},
    "retrieve": dict.fromkeys(Approach, Growth.ROOT),
    "subscribe": {Approach.ES: Growth.ROOT, Approach.LS: Growth.LINEAR, Approach.DCS: Growth.ROOT},
    "unsubscribe": {
        Approach.ES: Growth.ROOT,
        Approach.LS: Growth.LINEAR,
        Approach.DCS: Growth.ROOT,
    },
}
"""Thyme (journal article), Table 5. In DCS, n is the number of cells."""


class NetworkSize(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a network: its nodes, and the populated cells of DCS."""

    nodes: int
    cells: float = 1.0

    def __post_init__(self) -> None:
        if self.nodes < 1 or not 0 < self.cells <= self.nodes:
            raise InputError(
                "a network has at least one node and at most one populated cell per node, not "
                f"{self.nodes} nodes in {self.cells} cells"
            )

    @property
    def nodes_per_cell(self) -> float:
        """Mean number of nodes per populated cell; c in Thyme (journal article)."""
        return self.nodes / self.cells


def expected_network_size(nodes: int, cells: int) -> NetworkSize:
    """Returns the expected network size for nodes that are placed uniformly over cells.

    A cell stays empty with probability (1 − 1/cells) to the power of the number of nodes.
    """
    if cells < 1:
        raise InputError(f"a network has at least one cell, not {cells}")
    return NetworkSize(nodes=nodes, cells=cells * (1.0 - (1.0 - 1.0 / cells) ** nodes))


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of operations and notifications: Dᵢ, Dᵣ, S and Dₛ in Thyme (journal article).

    The article assumes one tag per object and one conjunction key per subscription. With more, a
    message to the cell of a tag or key in DCS goes to that many cells.
    """

    inserts: float
    retrieves: float
    subscribes: float
    notifications: float
    deletes: float = 0.0
    unsubscribes: float = 0.0
    tags_per_object: float = 1.0
    keys_per_subscription: float = 1.0

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if not getattr(self, field) >= 0:
                raise InputError(f"{field} must not be negative: {getattr(self, field)}")

    @property
    def total(self) -> float:
        """Number of all operations and notifications."""
        stored = self.inserts + self.deletes + self.retrieves
        return stored + self.subscribes + self.unsubscribes + self.notifications


def workload_of(
    trace: Trace, notifications: Sequence[Expected], retrieve_probability: float = 0.0
) -> Workload:
    """Counts the workload of a trace and the notifications of its perfect execution.

    A user retrieves each object that it is notified of with a probability, at most once.
    """
    counts = trace.counts()
    tags = [len(each.tags) for each in trace.operations if isinstance(each, InsertOperation)]
    keys = [
        len({conjunction.positive[0] for conjunction in each.conjunctions})
        for each in trace.operations
        if isinstance(each, SubscribeOperation)
    ]
    notified = len({(note.user, note.oid) for note in notifications})
    return Workload(
        inserts=counts["insert"],
        retrieves=notified * retrieve_probability,
        subscribes=counts["subscribe"],
        notifications=len(notifications),
        deletes=counts["delete"],
        unsubscribes=counts["unsubscribe"],
        tags_per_object=sum(tags) / len(tags) if tags else 1.0,
        keys_per_subscription=sum(keys) / len(keys) if keys else 1.0,
    )


class MessageEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Estimated messages in the whole network by operation, each hop counted; and at the hot spot.

    The hot spot is the busiest node, or in DCS the busiest cell, if it is responsible for all tags.
    """

    insert: float
    retrieve: float
    subscribe: float
    notification: float
    hot_spot: float
    delete: float = 0.0
    unsubscribe: float = 0.0

    @property
    def total(self) -> float:
        """Estimated number of all messages in the network."""
        return (
            self.insert
            + self.retrieve
            + self.subscribe
            + self.notification
            + self.delete
            + self.unsubscribe
        )


def estimate_messages(approach: Approach, workload: Workload, size: NetworkSize) -> MessageEstimate:
    """Estimates the messages of one approach (Thyme (journal article), Table 6)."""
    match approach:
        case Approach.ES:
            return _estimate_es(workload, sqrt(size.nodes))
        case Approach.LS:
            return _estimate_ls(workload, size.nodes)
        case Approach.DCS:
            return _estimate_dcs(workload, sqrt(size.cells), size.nodes_per_cell)
        case _:
            assert_never(approach)


def estimate_all(workload: Workload, size: NetworkSize) -> dict[Approach, MessageEstimate]:
    """Estimates the messages of all approaches (Thyme (journal article), Table 6)."""
    return {approach: estimate_messages(approach, workload, size) for approach in Approach}


def _estimate_es(workload: Workload, path: float) -> MessageEstimate:
    """Estimates ES: the server answers every request; a notification needs no answer."""
    return MessageEstimate(
        insert=2 * workload.inserts * path,
        delete=2 * workload.deletes * path,
        retrieve=2 * workload.retrieves * path,
        subscribe=2 * workload.subscribes * path,
        unsubscribe=2 * workload.unsubscribes * path,
        notification=workload.notifications * path,
        hot_spot=workload.total,
    )


def _estimate_ls(workload: Workload, nodes: int) -> MessageEstimate:
    """Estimates LS: objects stay at their owners; subscriptions are flooded."""
    path = sqrt(nodes)
    return MessageEstimate(
        insert=0.0,
        delete=0.0,
        retrieve=2 * workload.retrieves * path,
        subscribe=workload.subscribes * nodes,
        unsubscribe=workload.unsubscribes * nodes,
        notification=workload.notifications * path,
        hot_spot=workload.retrieves
        + workload.subscribes
        + workload.unsubscribes
        + workload.notifications,
    )


def _estimate_dcs(workload: Workload, path: float, nodes_per_cell: float) -> MessageEstimate:
    """Estimates DCS: requests to the tags' cells, replies, and broadcasts in the replicating cells.

    Metadata is broadcast in the cell of each tag, the object in the cell of its owner. A retrieve
    also announces the new passive replica to the tags' cells.
    """
    tags, keys = workload.tags_per_object, workload.keys_per_subscription
    per_object = 2 * tags * path + (tags + 1) * nodes_per_cell
    per_subscription = keys * (2 * path + nodes_per_cell)
    return MessageEstimate(
        insert=workload.inserts * per_object,
        delete=workload.deletes * per_object,
        retrieve=workload.retrieves * ((2 + tags) * path + tags * nodes_per_cell),
        subscribe=workload.subscribes * per_subscription,
        unsubscribe=workload.unsubscribes * per_subscription,
        notification=workload.notifications * path,
        hot_spot=workload.total,
    )


def notification_work_per_node(notifications: float, nodes_per_cell: float) -> float:
    """Estimates the messages that each node of a cell sends for the cell's notifications.

    One node of the cell, any of them, handles each match, so the work is shared (C16; Thyme
    (journal article), Fig. 8).
    """
    if not nodes_per_cell >= 1:
        raise InputError(f"a populated cell has at least one node, not {nodes_per_cell}")
    return notifications / nodes_per_cell
