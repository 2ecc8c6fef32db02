"""Small network: a few nodes by radio whose requests are made one at a time and timed.

Entry point: `SmallNetwork.ask`. For measurements of single operations, which a trace with many
users would blur.
Clauses: C33–C35, C37.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from thyme.model.ids import NodeId, as_object_id
from thyme.model.metadata import Metadata
from thyme.model.tags import as_tags
from thyme.model.time_frames import ALWAYS, SECOND_US
from thyme.protocol import app_interface as requests
from thyme.protocol.app_interface import (
    AppEvent,
    Failed,
    Finished,
    NotificationEvent,
    ReplyValue,
    RequestWithReply,
    SubscriptionStarted,
)
from thyme.protocol.node import Node
from thyme.sim.mobility.paths import Leg
from thyme.sim.networks.wired_links import WiredLinks
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.radio.modes import get_mode
from thyme.sim.radio.phy import Phy
from thyme.sim.radio.radio import RadioConfig
from thyme.storage.store import MemoryStore, Store
from thyme.traces.operations import conjunctions_of

STEP_US = 10_000
"""How often the network looks whether an answer has come; it does not change what is measured."""
WAIT_US_MAX = 300 * SECOND_US


class MeasurementError(Exception):
    """An operation that is to be timed failed: there is no time."""


class SmallNetwork:
    """Nodes at positions, their applications, and the answers they received."""

    def __init__(
        self,
        positions: Mapping[NodeId, tuple[float, float]],
        make_node: Callable[[NodeId, Store], Node],
        *,
        seed: int,
        rate_mbps: float = 6.0,
        wires: WiredLinks | None = None,
        paths: Mapping[NodeId, Iterable[Leg]] | None = None,
    ) -> None:
        config = RadioConfig(phy=Phy(mode=get_mode("802.11g", rate_mbps)))
        self.net = WirelessNetwork(positions, seed=seed, config=config, wires=wires, paths=paths)
        self._answers: dict[int, tuple[int, Finished | Failed]] = {}
        self._notified: dict[NodeId, dict[str, Metadata]] = {name: {} for name in positions}
        self._requests = 0
        self.nodes: dict[NodeId, Node] = {}
        for node_id in positions:
            store = MemoryStore()
            self.nodes[node_id] = node = make_node(node_id, store)

            def on_event(event: AppEvent, node_id: NodeId = node_id) -> None:
                self._on_event(node_id, event)

            self.net.add(node, store, on_event)

    def _on_event(self, node_id: NodeId, event: AppEvent) -> None:
        if isinstance(event, Finished | Failed):
            self._answers[event.request_id] = self.net.now_us, event
        elif isinstance(event, NotificationEvent):
            metadata = event.notification.metadata
            self._notified[node_id][metadata.key.oid] = metadata

    def run_s(self, seconds: float) -> None:
        """Lets time pass."""
        self.net.run(self.net.now_us + round(seconds * SECOND_US))

    def run_until(self, is_done: Callable[[], bool], what: str) -> None:
        """Lets time pass until something has happened."""
        end_us = self.net.now_us + WAIT_US_MAX
        while not is_done():
            if self.net.now_us >= end_us:
                raise MeasurementError(f"{what} did not happen within {WAIT_US_MAX / 1e6:g} s")
            self.net.run(self.net.now_us + STEP_US)

    def ask(
        self, node_id: NodeId, make: Callable[[int], RequestWithReply]
    ) -> tuple[ReplyValue, float]:
        """Makes a request; returns its result and how long it took, in milliseconds."""
        self._requests += 1
        number, begins_us = self._requests, self.net.now_us
        request = make(number)
        self.net.send_request(node_id, request)
        self.run_until(lambda: number in self._answers, request.label)
        ended_us, event = self._answers.pop(number)
        if isinstance(event, Failed):
            raise MeasurementError(f"{request.label} failed: {event.code}, {event.detail}")
        return event.value, (ended_us - begins_us) / 1e3

    # Operations

    def insert(self, node_id: NodeId, oid: str, tag: str, size: int) -> float:
        """Inserts an object and returns the milliseconds it took."""
        tags, name = as_tags([tag]), as_object_id(oid)
        return self.ask(
            node_id,
            lambda number: requests.Insert(
                request_id=number, data=bytes(size), tags=tags, oid=name
            ),
        )[1]

    def subscribe(self, node_id: NodeId, tag: str) -> tuple[SubscriptionStarted, float]:
        """Subscribes to a tag; returns the subscription and the milliseconds it took."""
        started, took_ms = self.ask(
            node_id,
            lambda number: requests.Subscribe(
                request_id=number, conjunctions=conjunctions_of(tag), frame=ALWAYS, batch=50
            ),
        )
        assert isinstance(started, SubscriptionStarted)
        return started, took_ms

    def retrieve(self, node_id: NodeId, metadata: Metadata) -> float:
        """Retrieves an object and returns the milliseconds it took."""
        return self.ask(
            node_id, lambda number: requests.Retrieve(request_id=number, metadata=metadata)
        )[1]

    def notification(self, node_id: NodeId, oid: str) -> Metadata:
        """Waits until a node is notified of an object."""
        notified = self._notified[node_id]
        self.run_until(lambda: oid in notified, f"the notification of {oid}")
        return notified[oid]
