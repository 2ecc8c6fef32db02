"""The analytical model: what each approach ought to cost, by formula, to set beside what it did.

Reaching one node from another takes about √n transmissions and reaching all takes n, where n is the
number of nodes, or in DCS that of the cells that somebody is in. The figures are approximations and
leave out retransmissions, acknowledgements below the protocol, beacons and routing tables; what
they tell is how counts grow and which approach has more.
Clauses: S18, C16, C17 (F, section 8: Tables 5 and 6, Fig. 8).
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
    """The three that F compares."""

    ES = "es"
    LS = "ls"
    DCS = "dcs"


class Growth(Enum):
    """How the time of an operation grows with the size of the network."""

    CONSTANT = "O(1)"
    ROOT = "O(√n)"
    LINEAR = "O(n)"

    def steps(self, n: float) -> float:
        """The figure for one size."""
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
"""F, Table 5. In DCS, n counts cells."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The size of the network: its nodes, and the cells of DCS that somebody is in."""

    nodes: int
    cells: float = 1.0

    def __post_init__(self) -> None:
        if self.nodes < 1 or not 0 < self.cells <= self.nodes:
            raise InputError(
                f"there are nodes, and no more populated cells than nodes: not {self.nodes} "
                f"nodes in {self.cells} cells"
            )

    @property
    def nodes_per_cell(self) -> float:
        """F's c: how many nodes a populated cell has on average."""
        return self.nodes / self.cells


def scene_of(nodes: int, cells: int) -> Scene:
    """The scene to be expected when nodes are placed at random on so many cells.

    A cell stays empty with probability (1 − 1/cells) to the power of the nodes.
    """
    if cells < 1:
        raise InputError(f"there is at least one cell, not {cells}")
    return Scene(nodes=nodes, cells=cells * (1.0 - (1.0 - 1.0 / cells) ** nodes))


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What is done in a run, in numbers: F's Dᵢ, Dᵣ, S and Dₛ, and what F calls analogous.

    F has one tag per object and one conjunction key per subscription. With more of them, what goes
    to the cells of tags and keys in DCS goes to that many cells.
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
                raise InputError(f"{field} is not negative, but {getattr(self, field)}")

    @property
    def everything(self) -> float:
        """All operations and notifications."""
        stored = self.inserts + self.deletes + self.retrieves
        return stored + self.subscribes + self.unsubscribes + self.notifications


def workload_of(
    trace: Trace, notifications: Sequence[Expected], retrieve_probability: float = 0.0
) -> Workload:
    """The workload of a trace and its perfect notifications.

    Each user retrieves what it hears of with a probability, and hears of an object once.
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
    """Messages sent in the whole network, each hop counted, by operation; and by the hot spot.

    The hot spot is the one node, or in DCS the one cell, that has the most to do if all tags were
    its own.
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
        """All messages of the network."""
        return (
            self.insert
            + self.retrieve
            + self.subscribe
            + self.notification
            + self.delete
            + self.unsubscribe
        )


def messages(approach: Approach, work: Workload, scene: Scene) -> Messages:
    """F, Table 6, for one approach."""
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
    """F, Table 6."""
    return {approach: messages(approach, work, scene) for approach in Approach}


def _es(work: Workload, route: float) -> Messages:
    """Everything goes to the server and is answered; a notification goes one way."""
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
    """Objects stay where they are; subscriptions go to everybody."""
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
    """To the cells of the tags and back, and round in the cells that keep replicas.

    Metadata goes round in each tag's cell and the object in its owner's; a retrieve also tells the
    tags' cells of the new passive replica.
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
    """Messages that each node of a cell sends for the cell's notifications (F, Fig. 8; C16).

    One node of the cell does each match, any of them, so the work is shared.
    """
    if not nodes_per_cell >= 1:
        raise InputError(f"a populated cell has at least one node, not {nodes_per_cell}")
    return notifications / nodes_per_cell
