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
from thyme.protocol.app_interface import AppEvent
from thyme.protocol.node import Node
from thyme.sim.engine.kernel import Kernel
from thyme.sim.faults.network_faults import NetworkFaults
from thyme.sim.faults.schedule import CrashMemory, FaultError
from thyme.storage.store import MemoryStore, Store

LEAVE_GRACE_US = 200_000
"""Time between the leave request to a node and the stop of its device."""

MakeNode = Callable[[NodeId, Store, int], Node]
"""Makes the node of a device from its node id, its store and its incarnation (1, 2, …)."""
OnEvent = Callable[[NodeId, AppEvent], None]
OnPower = Callable[[NodeId, int], None]
"""Called when a device starts, with its incarnation, and when it stops, with 0."""


class FaultableNetwork(Protocol):
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
    def faults(self) -> NetworkFaults:
        """The network faults that are active."""
        ...

    def add(
        self, node: Node, store: Store, on_event: Callable[[AppEvent], None], *, skew_us: int = 0
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

    __slots__ = ("incarnations", "leaving", "node", "node_id", "skew_us", "store")

    def __init__(self, node_id: NodeId, skew_us: int) -> None:
        self.node_id = node_id
        self.skew_us = skew_us
        self.incarnations = 0
        self.store: Store | None = None
        """The store of the current or next incarnation; None if it is lost or not made yet."""
        self.node: Node | None = None
        """The node of the device while it is up."""
        self.leaving = False


def _ignore_event(node_id: NodeId, event: object) -> None:
    """Ignores events of devices without an application."""


class Devices:
    """All devices of a simulated network, by number."""

    def __init__(
        self,
        network: FaultableNetwork,
        node_ids: Sequence[NodeId],
        make_node: MakeNode,
        *,
        make_store: Callable[[], Store] = MemoryStore,
        on_event: OnEvent = _ignore_event,
        on_power: OnPower = _ignore_event,
        skews_us: Sequence[int] | None = None,
    ) -> None:
        self._network = network
        self._make_node = make_node
        self._make_store = make_store
        self._on_event = on_event
        self._on_power = on_power
        self._devices = [
            Device(name, skew_us)
            for name, skew_us in zip(node_ids, skews_us or [0] * len(node_ids), strict=True)
        ]

    def __len__(self) -> int:
        return len(self._devices)

    def node_id_of(self, number: int) -> NodeId:
        """Returns the node id of a device."""
        return self._devices[number].node_id

    def node_of(self, number: int) -> Node | None:
        """Returns the node of a device; None while the device is down."""
        return self._devices[number].node

    def start(self, number: int) -> None:
        """Starts a device, for the first time or again."""
        device = self._devices[number]
        if device.leaving:
            self._stop(
                device, CrashMemory.KEPT
            )  # the restart comes before the end of the grace period
        if device.node is not None:
            raise FaultError(f"node {number} is up and cannot be started")
        if device.store is None:
            device.store = self._make_store()
        device.incarnations += 1
        device.node = self._make_node(device.node_id, device.store, device.incarnations)
        on_event = partial(self._on_event, device.node_id)
        self._network.add(device.node, device.store, on_event, skew_us=device.skew_us)
        self._on_power(device.node_id, device.incarnations)

    def crash(self, number: int, memory: CrashMemory) -> None:
        """Stops a device without warning."""
        self._stop(self._require_up(number), memory)

    def leave(self, number: int) -> None:
        """Lets a device leave gracefully and stops it after a grace period; its store is kept."""
        device = self._require_up(number)
        device.leaving = True
        self._network.leave(device.node_id)
        end_us = self._network.kernel.now_us + LEAVE_GRACE_US
        self._network.kernel.schedule(end_us, self._finish_leave, (device, device.incarnations))

    def set_skew(self, number: int, skew_us: int) -> None:
        """Sets the clock skew of a device, for this and all later incarnations."""
        device = self._devices[number]
        device.skew_us = skew_us
        if device.node is not None:
            self._network.set_skew(device.node_id, skew_us)

    def _require_up(self, number: int) -> Device:
        device = self._devices[number]
        if device.node is None or device.leaving:
            raise FaultError(f"node {number} is not up and cannot be stopped")
        return device

    def _finish_leave(self, argument: tuple[Device, int]) -> None:
        device, incarnation = argument
        if device.leaving and device.incarnations == incarnation:
            self._stop(device, CrashMemory.KEPT)

    def _stop(self, device: Device, memory: CrashMemory) -> None:
        device.node = None
        device.leaving = False
        if memory is CrashMemory.LOST:
            device.store = None
        self._network.remove(device.node_id)
        self._on_power(device.node_id, 0)
