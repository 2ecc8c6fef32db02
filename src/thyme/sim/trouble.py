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
from thyme.model.streams import stream
from thyme.sim.faults import Duplication, LossBurst, Reordering, Window

ECHO_US_MAX = 10_000
"""Longest delay between a message and its duplicate."""
AT_ONCE = (0,)

W = TypeVar("W")


class _Open(Generic[W]):
    """The active faults of one kind: one for all nodes, or one per node."""

    __slots__ = ("_by_node", "_everywhere")

    def __init__(self) -> None:
        self._everywhere: W | None = None
        self._by_node: dict[NodeId, W] = {}

    def __bool__(self) -> bool:
        return self._everywhere is not None or bool(self._by_node)

    def open(self, window: W, nodes: Iterable[NodeId] | None) -> None:
        if nodes is None:
            self._everywhere = window
        else:
            self._by_node.update(dict.fromkeys(nodes, window))

    def close(self, window: W, nodes: Iterable[NodeId] | None) -> None:
        """Removes a fault, unless another one has replaced it at the same instant."""
        if nodes is None:
            if self._everywhere is window:
                self._everywhere = None
            return
        for node in nodes:
            if self._by_node.get(node) is window:
                del self._by_node[node]

    def at(self, node: NodeId) -> W | None:
        return self._by_node.get(node, self._everywhere)


class Trouble:
    """The active network faults, and their effect on messages."""

    def __init__(self, seed: int) -> None:
        self.calm = True
        """Whether no network fault is active."""
        self._groups: dict[NodeId, int] = {}
        self._losses: _Open[LossBurst] = _Open()
        self._duplications: _Open[Duplication] = _Open()
        self._delays: _Open[Reordering] = _Open()
        self._loss_rng = stream(seed, "trouble", "loss")
        self._duplication_rng = stream(seed, "trouble", "duplication")
        self._delay_rng = stream(seed, "trouble", "reordering")

    def partition(self, *groups: Iterable[NodeId]) -> None:
        """Lets only nodes of the same group reach each other; other nodes form one more group."""
        self._groups = {node: number for number, group in enumerate(groups) for node in group}
        self._look()

    def heal(self) -> None:
        """Ends the partition."""
        self._groups = {}
        self._look()

    def begin(self, window: Window, nodes: Iterable[NodeId] | None) -> None:
        """Begins a timed fault for some nodes, or for all (None)."""
        match window:
            case LossBurst():
                self._losses.open(window, nodes)
            case Duplication():
                self._duplications.open(window, nodes)
            case Reordering():
                self._delays.open(window, nodes)
            case _:
                assert_never(window)
        self._look()

    def end(self, window: Window, nodes: Iterable[NodeId] | None) -> None:
        """Ends a timed fault."""
        match window:
            case LossBurst():
                self._losses.close(window, nodes)
            case Duplication():
                self._duplications.close(window, nodes)
            case Reordering():
                self._delays.close(window, nodes)
            case _:
                assert_never(window)
        self._look()

    def _look(self) -> None:
        self.calm = not (self._groups or self._losses or self._duplications or self._delays)

    def reaches(self, sender: NodeId, receiver: NodeId) -> bool:
        """Draws whether a message that the network would deliver arrives despite the faults."""
        if self._groups.get(sender) != self._groups.get(receiver):
            return False
        burst = self._losses.at(receiver)
        return burst is None or self._loss_rng.random() >= burst.loss

    def delays_us(self, receiver: NodeId) -> tuple[int, ...]:
        """Draws the extra delay of a message, and of its duplicate if there is one."""
        held, doubled = self._delays.at(receiver), self._duplications.at(receiver)
        delay_us = 0
        if held is not None and self._delay_rng.random() < held.probability:
            delay_us = self._delay_rng.randint(1, held.delay_us_max)
        if doubled is not None and self._duplication_rng.random() < doubled.probability:
            return delay_us, delay_us + self._duplication_rng.randint(1, ECHO_US_MAX)
        return (delay_us,) if delay_us else AT_ONCE
