"""Simulated port: connects an application to a node in a simulated network.

Entry point: `SimulatedPort`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from thyme.model.errors import ClosedError
from thyme.model.ids import NodeId
from thyme.protocol.app_interface import AppEvent, AppRequest
from thyme.protocol.node import Node
from thyme.protocol.port import NodeListener
from thyme.storage.store import Store


class SimulatedNetwork(Protocol):
    """A simulated network: ideal, or with radios."""

    @property
    def now_us(self) -> int:
        """The simulated time in microseconds."""
        ...

    def add(
        self, node: Node, store: Store, on_event: Callable[[AppEvent], None], *, skew_us: int = 0
    ) -> None:
        """Adds a node and starts it."""
        ...

    def remove(self, node_id: NodeId) -> None:
        """Stops and removes a node."""
        ...

    def send_request(self, node_id: NodeId, request: AppRequest) -> None:
        """Passes a request to a node."""
        ...


class SimulatedPort:
    """Access to one node of a simulated network (a `NodePort`)."""

    def __init__(
        self,
        network: SimulatedNetwork,
        node: Node,
        store: Store,
        listener: NodeListener,
        *,
        skew_us: int = 0,
        on_request: Callable[[], None] = lambda: None,
    ) -> None:
        self._network = network
        self._on_request = on_request
        self._node = node
        self._skew_us = skew_us
        self._is_open = True
        network.add(node, store, listener.on_event, skew_us=skew_us)

    @property
    def node_id(self) -> NodeId:
        return self._node.node_id

    def now_us(self) -> int:
        return self._network.now_us + self._skew_us

    def send_request(self, request: AppRequest) -> None:
        if not self._is_open:
            raise ClosedError("this world has been left")
        self._on_request()
        self._network.send_request(self._node.node_id, request)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._network.remove(self._node.node_id)
