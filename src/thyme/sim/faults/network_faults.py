"""Network faults: decides which messages are lost, duplicated or delayed by the active faults.

Entry point: `NetworkFaults`. Handles partitions, loss bursts, duplication and reordering;
`thyme.sim.faults.injector` begins and ends them. A network calls `delivers` and `delays_us` once
per message and receiver; while `inactive` is true it may skip the calls. Each kind of fault has its
own random stream, which is used only while a fault of that kind is active.
Clause: S8.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar, assert_never

from thyme.model.ids import NodeId
from thyme.model.rng import derive_rng
from thyme.sim.faults.schedule import Duplication, LossBurst, Reordering, TimedFault

DUPLICATE_DELAY_US_MAX = 10_000
"""Longest delay between a message and its duplicate."""
NO_DELAY = (0,)

W = TypeVar("W")


class _ActiveFaults(Generic[W]):
    """The active faults of one kind: one for all nodes, or one per node."""

    __slots__ = ("_by_node", "_for_all")

    def __init__(self) -> None:
        self._for_all: W | None = None
        self._by_node: dict[NodeId, W] = {}

    def __bool__(self) -> bool:
        return self._for_all is not None or bool(self._by_node)

    def add(self, fault: W, nodes: Iterable[NodeId] | None) -> None:
        if nodes is None:
            self._for_all = fault
        else:
            self._by_node.update(dict.fromkeys(nodes, fault))

    def remove(self, fault: W, nodes: Iterable[NodeId] | None) -> None:
        """Removes a fault, unless another one has replaced it at the same instant."""
        if nodes is None:
            if self._for_all is fault:
                self._for_all = None
            return
        for node in nodes:
            if self._by_node.get(node) is fault:
                del self._by_node[node]

    def for_node(self, node: NodeId) -> W | None:
        return self._by_node.get(node, self._for_all)


class NetworkFaults:
    """The active network faults, and their effect on messages."""

    def __init__(self, seed: int) -> None:
        self.inactive = True
        """Whether no network fault is active."""
        self._groups: dict[NodeId, int] = {}
        self._losses: _ActiveFaults[LossBurst] = _ActiveFaults()
        self._duplications: _ActiveFaults[Duplication] = _ActiveFaults()
        self._delays: _ActiveFaults[Reordering] = _ActiveFaults()
        self._loss_rng = derive_rng(seed, "trouble", "loss")
        self._duplication_rng = derive_rng(seed, "trouble", "duplication")
        self._delay_rng = derive_rng(seed, "trouble", "reordering")

    def partition(self, *groups: Iterable[NodeId]) -> None:
        """Lets only nodes of the same group reach each other; other nodes form one more group."""
        self._groups = {node: number for number, group in enumerate(groups) for node in group}
        self._update_inactive()

    def heal(self) -> None:
        """Ends the partition."""
        self._groups = {}
        self._update_inactive()

    def begin_fault(self, fault: TimedFault, nodes: Iterable[NodeId] | None) -> None:
        """Begins a timed fault for some nodes, or for all (None)."""
        match fault:
            case LossBurst():
                self._losses.add(fault, nodes)
            case Duplication():
                self._duplications.add(fault, nodes)
            case Reordering():
                self._delays.add(fault, nodes)
            case _:
                assert_never(fault)
        self._update_inactive()

    def end_fault(self, fault: TimedFault, nodes: Iterable[NodeId] | None) -> None:
        """Ends a timed fault."""
        match fault:
            case LossBurst():
                self._losses.remove(fault, nodes)
            case Duplication():
                self._duplications.remove(fault, nodes)
            case Reordering():
                self._delays.remove(fault, nodes)
            case _:
                assert_never(fault)
        self._update_inactive()

    def _update_inactive(self) -> None:
        self.inactive = not (self._groups or self._losses or self._duplications or self._delays)

    def delivers(self, sender: NodeId, receiver: NodeId) -> bool:
        """Draws whether a message that the network would deliver arrives despite the faults."""
        if self._groups.get(sender) != self._groups.get(receiver):
            return False
        burst = self._losses.for_node(receiver)
        return burst is None or self._loss_rng.random() >= burst.loss

    def delays_us(self, receiver: NodeId) -> tuple[int, ...]:
        """Draws the extra delay of a message, and of its duplicate if there is one."""
        reordering, duplication = (
            self._delays.for_node(receiver),
            self._duplications.for_node(receiver),
        )
        delay_us = 0
        if reordering is not None and self._delay_rng.random() < reordering.probability:
            delay_us = self._delay_rng.randint(1, reordering.delay_us_max)
        if duplication is not None and self._duplication_rng.random() < duplication.probability:
            return delay_us, delay_us + self._duplication_rng.randint(1, DUPLICATE_DELAY_US_MAX)
        return (delay_us,) if delay_us else NO_DELAY
