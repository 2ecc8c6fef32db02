"""Port: how the interface reaches a node, and hears from it.

A port answers two questions (who, what time) and carries requests. Whoever drives the node, an
ether in virtual time, an ether in step with the clock, or a live host, offers one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from thyme.model.errors import EndedError, ThymeError
from thyme.model.ids import NodeId
from thyme.protocol.node import Node
from thyme.protocol.requests import Request, Told
from thyme.storage.store import Store


class Listener(Protocol):
    """Who hears what a node tells."""

    def on_told(self, told: Told) -> None:
        """One thing the node tells."""
        ...

    def on_broken(self, error: ThymeError) -> None:
        """The node is gone for good; nothing more will be told."""
        ...


class Port(Protocol):
    """A node, as its application reaches it."""

    @property
    def node_id(self) -> NodeId:
        """Who the node is."""
        ...

    def now_us(self) -> int:
        """What time it is for the node."""
        ...

    def ask(self, request: Request) -> None:
        """Hands a request to the node."""
        ...

    def close(self) -> None:
        """Leaves: the node stops."""
        ...


class VirtualWorld(Protocol):
    """A world in virtual time: an ether, or one with radios."""

    @property
    def now_us(self) -> int:
        """What time it is."""
        ...

    def add(
        self, node: Node, store: Store, on_told: Callable[[Told], None], *, skew_us: int = 0
    ) -> None:
        """Brings a node up."""
        ...

    def remove(self, node_id: NodeId) -> None:
        """Takes a node away."""
        ...

    def ask(self, node_id: NodeId, request: Request) -> None:
        """Hands a request to a node."""
        ...


class VirtualPort:
    """A node in a world whose time others move."""

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


PortMaker = Callable[[Listener], Port]
"""Brings a node up for a listener."""
