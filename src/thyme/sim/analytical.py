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
from thyme.traces.operations import Insert, Subscribe
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

    def steps(self, n: float) -> float:
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


class Scene(msgspec.Struct, frozen=True, kw_only=True):
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


def scene_of(nodes: int, cells: int) -> Scene:
    """Returns the expected network size for nodes that are placed uniformly over cells.

    A cell stays empty with probability (1 − 1/cells) to the power of the number of nodes.
    """
    if cells < 1:
        raise InputError(f"a network has at least one cell, not {cells}")
    return Scene(nodes=nodes, cells=cells * (1.0 - (1.0 - 1.0 / cells) ** nodes))


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
    def everything(self) -> float:
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
    tags = [len(each.tags) for each in trace.operations if isinstance(each, Insert)]
    keys = [
        len({conjunction.positive[0] for conjunction in each.conjunctions})
        for each in trace.operations
        if isinstance(each, Subscribe)
    ]
    heard = len({(note.user, note.oid) for note in notifications})
    return Workload(
        inserts=counts["insert"],
        retrieves=heard * retrieve_probability,
        subscribes=counts["subscribe"],
        notifications=len(notifications),
        deletes=counts["delete"],
        unsubscribes=counts["unsubscribe"],
        tags_per_object=sum(tags) / len(tags) if tags else 1.0,
        keys_per_subscription=sum(keys) / len(keys) if keys else 1.0,
    )


class Messages(msgspec.Struct, frozen=True, kw_only=True):
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


def messages(approach: Approach, work: Workload, scene: Scene) -> Messages:
    """Estimates the messages of one approach (Thyme (journal article), Table 6)."""
    match approach:
        case Approach.ES:
            return _es(work, sqrt(scene.nodes))
        case Approach.LS:
            return _ls(work, scene.nodes)
        case Approach.DCS:
            return _dcs(work, sqrt(scene.cells), scene.nodes_per_cell)
        case _:
            assert_never(approach)


def table(work: Workload, scene: Scene) -> dict[Approach, Messages]:
    """Estimates the messages of all approaches (Thyme (journal article), Table 6)."""
    return {approach: messages(approach, work, scene) for approach in Approach}


def _es(work: Workload, route: float) -> Messages:
    """Estimates ES: the server answers every request; a notification needs no answer."""
    return Messages(
        insert=2 * work.inserts * route,
        delete=2 * work.deletes * route,
        retrieve=2 * work.retrieves * route,
        subscribe=2 * work.subscribes * route,
        unsubscribe=2 * work.unsubscribes * route,
        notification=work.notifications * route,
        hot_spot=work.everything,
    )


def _ls(work: Workload, nodes: int) -> Messages:
    """Estimates LS: objects stay at their owners; subscriptions are flooded."""
    route = sqrt(nodes)
    return Messages(
        insert=0.0,
        delete=0.0,
        retrieve=2 * work.retrieves * route,
        subscribe=work.subscribes * nodes,
        unsubscribe=work.unsubscribes * nodes,
        notification=work.notifications * route,
        hot_spot=work.retrieves + work.subscribes + work.unsubscribes + work.notifications,
    )


def _dcs(work: Workload, route: float, cell: float) -> Messages:
    """Estimates DCS: requests to the tags' cells, replies, and broadcasts in the replicating cells.

    Metadata is broadcast in the cell of each tag, the object in the cell of its owner. A retrieve
    also announces the new passive replica to the tags' cells.
    """
    tags, keys = work.tags_per_object, work.keys_per_subscription
    storing = 2 * tags * route + (tags + 1) * cell
    asking = keys * (2 * route + cell)
    return Messages(
        insert=work.inserts * storing,
        delete=work.deletes * storing,
        retrieve=work.retrieves * ((2 + tags) * route + tags * cell),
        subscribe=work.subscribes * asking,
        unsubscribe=work.unsubscribes * asking,
        notification=work.notifications * route,
        hot_spot=work.everything,
    )


def notification_work_per_node(notifications: float, nodes_per_cell: float) -> float:
    """Estimates the messages that each node of a cell sends for the cell's notifications.

    One node of the cell, any of them, handles each match, so the work is shared (C16; Thyme
    (journal article), Fig. 8).
    """
    if not nodes_per_cell >= 1:
        raise InputError(f"a populated cell has at least one node, not {nodes_per_cell}")
    return notifications / nodes_per_cell
