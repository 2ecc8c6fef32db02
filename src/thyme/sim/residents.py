"""Devices: starts, stops and restarts the nodes of a simulated network.

Entry point: `Devices`. Every start of a device makes a new node (an incarnation), with the store of
the previous incarnation if that was kept, otherwise with an empty one. The clock skew of a device
outlives its incarnations. Faults refer to devices by number; `thyme.sim.faults.injector` applies
them.
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
"""Time between the leave request to a node and the stop of its device."""

MakeNode = Callable[[NodeId, Store, int], Node]
"""Makes the node of a device from its node id, its store and its incarnation (1, 2, …)."""
OnTold = Callable[[NodeId, Told], None]
OnLife = Callable[[NodeId, int], None]
"""Called when a device starts, with its incarnation, and when it stops, with 0."""


class World(Protocol):
    """A simulated network in which faults can be injected."""

    @property
    def kernel(self) -> Kernel:
        """The clock and event queue of the network."""
        ...

    @property
    def start_us(self) -> int:
        """The instant at which the network started."""
        ...

    @property
    def trouble(self) -> Trouble:
        """The network faults that are active."""
        ...

    def add(
        self, node: Node, store: Store, on_told: Callable[[Told], None], *, skew_us: int = 0
    ) -> None:
        """Starts a node."""
        ...

    def remove(self, node_id: NodeId) -> None:
        """Stops a node without warning."""
        ...

    def leave(self, node_id: NodeId) -> None:
        """Requests a node to leave gracefully."""
        ...

    def set_skew(self, node_id: NodeId, skew_us: int) -> None:
        """Sets the clock skew of a node."""
        ...


class Device:
    """The state of a device that outlives its incarnations."""

    __slots__ = ("leaving", "lives", "node", "node_id", "skew_us", "store")

    def __init__(self, node_id: NodeId, skew_us: int) -> None:
        self.node_id = node_id
        self.skew_us = skew_us
        self.lives = 0
        self.store: Store | None = None
        """The store of the current or next incarnation; None if it is lost or not made yet."""
        self.node: Node | None = None
        """The node of the device while it is up."""
        self.leaving = False


def _nobody_listens(node_id: NodeId, what: object) -> None:
    """Ignores events of devices without an application."""


class Residents:
    """All devices of a simulated network, by number."""

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
        """Returns the node id of a device."""
        return self._devices[number].node_id

    def node(self, number: int) -> Node | None:
        """Returns the node of a device; None while the device is down."""
        return self._devices[number].node

    def start(self, number: int) -> None:
        """Starts a device, for the first time or again."""
        device = self._devices[number]
        if device.leaving:
            self._go(device, Memory.KEPT)  # the restart comes before the end of the grace period
        if device.node is not None:
            raise FaultError(f"node {number} is up and cannot be started")
        if device.store is None:
            device.store = self._make_store()
        device.lives += 1
        device.node = self._make(device.node_id, device.store, device.lives)
        on_told = partial(self._on_told, device.node_id)
        self._world.add(device.node, device.store, on_told, skew_us=device.skew_us)
        self._on_life(device.node_id, device.lives)

    def crash(self, number: int, memory: Memory) -> None:
        """Stops a device without warning."""
        self._go(self._up(number), memory)

    def leave(self, number: int) -> None:
        """Lets a device leave gracefully and stops it after a grace period; its store is kept."""
        device = self._up(number)
        device.leaving = True
        self._world.leave(device.node_id)
        gone_us = self._world.kernel.now_us + GOODBYE_US
        self._world.kernel.at(gone_us, self._gone, (device, device.lives))

    def set_skew(self, number: int, skew_us: int) -> None:
        """Sets the clock skew of a device, for this and all later incarnations."""
        device = self._devices[number]
        device.skew_us = skew_us
        if device.node is not None:
            self._world.set_skew(device.node_id, skew_us)

    def _up(self, number: int) -> Device:
        device = self._devices[number]
        if device.node is None or device.leaving:
            raise FaultError(f"node {number} is not up and cannot be stopped")
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
