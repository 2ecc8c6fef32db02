"""Real-time port: runs the single node of a local world on the running asyncio loop.

The node runs in an ideal network without other nodes (`thyme.sim`), in step with the system clock.
The wall clock is read once, at start; after that the monotonic clock advances the time, so that a
corrected wall clock never moves the node's time backwards.
Entry point: `RealTimePort`.
"""

from __future__ import annotations

import asyncio
import time

from thyme.api.port import NodeListener, SimulatedPort
from thyme.model.errors import ClosedError, StoreError
from thyme.model.ids import NodeId
from thyme.protocol.app_interface import AppRequest
from thyme.protocol.node import Node
from thyme.sim.networks.ideal_network import IdealNetwork
from thyme.storage.store import Store

# Longer waits are split into steps of this length: event loops refuse delays of years.
_SLEEP_S_MAX = 3600.0


class RealTimePort:
    """Runs one node in real time, without a network (a `NodePort`)."""

    def __init__(self, node: Node, store: Store, listener: NodeListener) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._listener = listener
        self._origin_us = time.time_ns() // 1_000 - time.monotonic_ns() // 1_000
        self._alarm: asyncio.TimerHandle | None = None
        self._failure: StoreError | None = None
        self._network = IdealNetwork(start_us=self.now_us())
        self._port = SimulatedPort(self._network, node, store, listener)
        self._set_alarm()

    @property
    def node_id(self) -> NodeId:
        return self._port.node_id

    def now_us(self) -> int:
        return self._origin_us + time.monotonic_ns() // 1_000

    def send_request(self, request: AppRequest) -> None:
        if self._failure is not None:
            raise ClosedError(f"this world stopped: {self._failure}") from self._failure
        try:
            self._network.run(self.now_us())
            self._port.send_request(request)
        except StoreError as error:
            self._fail(error)
        self._set_alarm()

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._port.close()
        self._store.close()

    def _on_alarm(self) -> None:
        try:
            self._network.run(self.now_us())
        except StoreError as error:
            self._fail(error)
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Sets the alarm for the next event of the network."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        next_us = self._network.next_event_us()
        if next_us is None or self._failure is not None:
            return
        delay_s = max(0.0, (next_us - self.now_us()) / 1_000_000)
        self._alarm = self._loop.call_later(min(delay_s, _SLEEP_S_MAX), self._on_alarm)

    def _fail(self, error: StoreError) -> None:
        """Stops the node after a store error: it must not acknowledge data that was not stored."""
        self._failure = error
        self._port.close()
        self._listener.on_node_failed(error)
