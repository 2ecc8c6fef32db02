"""Residents: the devices of a world through their lives.

A device starts, crashes or leaves, and may start again: each time a new node is made for it, with
the store of the life before if it kept its memory, or a fresh one. Its clock stays as wrong as it
was set. Devices have the numbers by which faults name them.
Clauses: S7, S8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from thyme.model.ids import NodeId
from thyme.protocol.node import Node
from thyme.protocol.requests import Told
from thyme.sim.faults import FaultError, Memory
from thyme.sim.kernel import Kernel
from thyme.sim.trouble import Trouble
from thyme.storage.store import MemoryStore, Store

GOODBYE_US = 200_000
"""How long a device that leaves stays up for its last words and their answers."""

MakeNode = Callable[[NodeId, Store, int], Node]
"""Makes the node of a device for its first life, its second, …"""
OnTold = Callable[[NodeId, Told], None]
OnLife = Callable[[NodeId, int], None]
"""Told that a device came up, with the number of its life, or went, with 0."""


class World(Protocol):
    """A world in which faults can happen: an ether or a wireless one."""

    @property
    def kernel(self) -> Kernel:
        """Its clock and events."""
        ...

    @property
    def start_us(self) -> int:
        """When it began."""
        ...

    @property
    def trouble(self) -> Trouble:
        """What happens to messages in it."""
        ...

    def add(
        self, node: Node, store: Store, on_told: Callable[[Told], None], *, skew_us: int = 0
    ) -> None:
        """Brings a node up."""
        ...

    def remove(self, node_id: NodeId) -> None:
        """Takes a node away."""
        ...

    def leave(self, node_id: NodeId) -> None:
        """Tells a node that it is about to go."""
        ...

    def set_skew(self, node_id: NodeId, skew_us: int) -> None:
        """Sets a node's clock."""
        ...


class Device:
    """What stays of a device from life to life."""

    __slots__ = ("leaving", "lives", "node", "node_id", "skew_us", "store")

    def __init__(self, node_id: NodeId, skew_us: int) -> None:
        self.node_id = node_id
        self.skew_us = skew_us
        self.lives = 0
        self.store: Store | None = None
        """What its next life will find; None if nothing."""
        self.node: Node | None = None
        """Its node while it is up."""
        self.leaving = False


def _nobody_listens(node_id: NodeId, what: object) -> None:
    """For devices without an application."""


class Residents:
    """The devices of one world."""

    def __init__(
        self,
        world: World,
        names: Sequence[NodeId],
        make: MakeNode,
        *,
        make_store: Callable[[], Store] = MemoryStore,
        on_told: OnTold = _nobody_listens,
        on_life: OnLife = _nobody_listens,
        skews_us: Sequence[int] | None = None,
    ) -> None:
        self._world = world
        self._make = make
        self._make_store = make_store
        self._on_told = on_told
        self._on_life = on_life
        self._devices = [
            Device(name, skew_us)
            for name, skew_us in zip(names, skews_us or [0] * len(names), strict=True)
        ]

    def __len__(self) -> int:
        return len(self._devices)

    def name(self, number: int) -> NodeId:
        """Who a device is."""
        return self._devices[number].node_id

    def node(self, number: int) -> Node | None:
        """A device's node; None while it is down."""
        return self._devices[number].node

    def start(self, number: int) -> None:
        """A device comes up, for the first time or again."""
        device = self._devices[number]
        if device.leaving:
            self._go(device, Memory.KEPT)  # back before it was gone
        if device.node is not None:
            raise FaultError(f"node {number} is up and cannot start")
        if device.store is None:
            device.store = self._make_store()
        device.lives += 1
        device.node = self._make(device.node_id, device.store, device.lives)
        on_told = partial(self._on_told, device.node_id)
        self._world.add(device.node, device.store, on_told, skew_us=device.skew_us)
        self._on_life(device.node_id, device.lives)

    def crash(self, number: int, memory: Memory) -> None:
        """A device falls silent without a word."""
        self._go(self._up(number), memory)

    def leave(self, number: int) -> None:
        """A device says goodbye, and is gone a moment later, its memory kept."""
        device = self._up(number)
        device.leaving = True
        self._world.leave(device.node_id)
        gone_us = self._world.kernel.now_us + GOODBYE_US
        self._world.kernel.at(gone_us, self._gone, (device, device.lives))

    def set_skew(self, number: int, skew_us: int) -> None:
        """From now on a device's clock is ahead by so much, in this life and the next."""
        device = self._devices[number]
        device.skew_us = skew_us
        if device.node is not None:
            self._world.set_skew(device.node_id, skew_us)

    def _up(self, number: int) -> Device:
        device = self._devices[number]
        if device.node is None or device.leaving:
            raise FaultError(f"node {number} is not up and cannot go")
        return device

    def _gone(self, argument: tuple[Device, int]) -> None:
        device, life = argument
        if device.leaving and device.lives == life:
            self._go(device, Memory.KEPT)

    def _go(self, device: Device, memory: Memory) -> None:
        device.node = None
        device.leaving = False
        if memory is Memory.LOST:
            device.store = None
        self._world.remove(device.node_id)
        self._on_life(device.node_id, 0)
