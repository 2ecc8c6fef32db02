"""Node extension: how another package adds components to a Thyme-DCS node.

Entry point: `NodeExtension`, which `DcsNode` calls. Thyme-Infrastructure is one: its mobile nodes
use a base station if there is one (`thyme.substrates.infra.mobile`).
Clauses: I5, I6, I21–I23.
"""

from __future__ import annotations

from typing import Protocol

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message
from thyme.protocol.node import Timer
from thyme.routing.cells import BeaconReceived
from thyme.substrates.common.client_interfaces import BrokerClient, ObjectClient
from thyme.substrates.dcs.client.replica_locations import ReplicaLocations
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.dispatch import HandlerTable
from thyme.substrates.dcs.service.cell_service import CellService


class NodeExtension(Protocol):
    """Additional components of one node."""

    def extend_client(
        self,
        context: NodeContext,
        objects: ObjectClient,
        brokers: BrokerClient,
        replica_locations: ReplicaLocations,
    ) -> tuple[ObjectClient, BrokerClient]:
        """Returns the access to objects and brokers that the node's client uses."""
        ...

    def add_handlers(self, table: HandlerTable, service: CellService) -> None:
        """Adds handlers of delivered messages, or replaces those of the node."""
        ...

    def start(self, now_us: int) -> None:
        """The node has started."""
        ...

    def on_received(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Handles a message that is not of cell routing; returns False if it is unexpected."""
        ...

    def on_timer(self, timer: Timer, now_us: int) -> None:
        """Handles a timer that belongs to none of the node's own components."""
        ...

    def on_send_failed(self, to: NodeId, message: Message, now_us: int) -> None:
        """Handles a message outside cell routing that a neighbour did not acknowledge."""
        ...

    def on_beacon(self, beacon: BeaconReceived, part: bytes, now_us: int) -> None:
        """Handles the extension's part of a neighbour's beacon."""
        ...

    def beacon_part(self, now_us: int) -> bytes:
        """The extension's part of the next beacon, at most 80 bytes."""
        ...
