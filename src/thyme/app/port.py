"""Simulated port: connects an application to a node in a simulated network.

Entry point: `SimulatedPort`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from thyme.model.errors import EndedError
from thyme.model.ids import NodeId
from thyme.protocol.node import Node
from thyme.protocol.port import Listener, Parting, Port, PortMaker
from thyme.protocol.requests import Request, Told
from thyme.storage.store import Store

__all__ = ["Listener", "Parting", "Port", "PortMaker", "VirtualPort", "VirtualWorld"]


class VirtualWorld(Protocol):
    """A simulated network: ideal, or with radios."""

    @property
    def now_us(self) -> int:
        """The simulated time in microseconds."""
        ...

    def add(
        self, node: Node, store: Store, on_told: Callable[[Told], None], *, skew_us: int = 0
    ) -> None:
        """Adds a node and starts it."""
        ...

    def remove(self, node_id: NodeId) -> None:
        """Stops and removes a node."""
        ...

    def ask(self, node_id: NodeId, request: Request) -> None:
        """Passes a request to a node."""
        ...


class VirtualPort:
    """Access to one node of a simulated network (a `NodePort`)."""

    def __init__(
        self, world: VirtualWorld, node: Node, store: Store, listener: Listener, *, skew_us: int = 0
    ) -> None:
        self._world = world
        self._node = node
        self._skew_us = skew_us
        self._open = True
        world.add(node, store, listener.on_told, skew_us=skew_us)

    @property
    def node_id(self) -> NodeId:
        return self._node.node_id

    def now_us(self) -> int:
        return self._world.now_us + self._skew_us

    def ask(self, request: Request) -> None:
        if not self._open:
            raise EndedError("this world has been left")
        self._world.ask(self._node.node_id, request)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._world.remove(self._node.node_id)
