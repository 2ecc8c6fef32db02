"""Port: the interface between an application and the driver of its node.

A `NodePort` passes requests to the node; a `NodeListener` receives the node's events. Every driver
offers a port: the host in real time, the simulated networks in virtual time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from thyme.model.errors import ThymeError
from thyme.model.ids import NodeId
from thyme.protocol.app_interface import AppEvent, AppRequest


class NodeListener(Protocol):
    """Receives the events of a node."""

    def on_event(self, event: AppEvent) -> None:
        """Receives one event."""
        ...

    def on_node_failed(self, error: ThymeError) -> None:
        """The node has failed or stopped; no more events follow."""
        ...


class NodePort(Protocol):
    """A node, as its application uses it."""

    @property
    def node_id(self) -> NodeId:
        """The identifier of the node."""
        ...

    def now_us(self) -> int:
        """The current time of the node."""
        ...

    def send_request(self, request: AppRequest) -> None:
        """Passes a request to the node."""
        ...

    def close(self) -> None:
        """Stops the node at once."""
        ...


@runtime_checkable
class GracefulPort(Protocol):
    """A port of a node that can leave gracefully."""

    async def leave(self) -> None:
        """Lets the node send its last messages and receive the replies, then stops it."""
        ...


PortFactory = Callable[[NodeListener], NodePort]
"""Starts a node for a listener."""
