"""Port: how an application reaches a node, and hears from it.

A port answers two questions (who, what time) and carries requests. Whoever drives the node, an
ether in virtual time, an ether in step with the clock, or a live host, offers one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from thyme.model.errors import ThymeError
from thyme.model.ids import NodeId
from thyme.protocol.requests import Request, Told


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
        """Leaves at once: the node stops."""
        ...


@runtime_checkable
class Parting(Protocol):
    """A port of a node that has something to say when it leaves."""

    async def leave(self) -> None:
        """Says goodbye, waits until it is heard, and leaves."""
        ...


PortMaker = Callable[[Listener], Port]
"""Brings a node up for a listener."""
