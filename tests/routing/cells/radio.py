"""Nodes that only route by cells, on the simulated radio."""

from __future__ import annotations

from collections.abc import Mapping

from tests.routing.cells.field import Ear
from thyme.model.ids import NodeId
from thyme.model.rng import derive_rng
from thyme.protocol.messages.common import Message
from thyme.protocol.node import (
    Action,
    Broadcast,
    Input,
    Received,
    Send,
    SendFailed,
    Started,
    TimerFired,
)
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import CellRoutingConfig, Destination, GeographicRouting, Grid
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.radio.radio import RadioConfig
from thyme.storage.store import MemoryStore

SECOND_US = 1_000_000
Place = tuple[float, float]


class Router:
    """A node with cell routing and a recording upper layer."""

    def __init__(
        self, node_id: NodeId, grid: Grid, place: Place, seed: int, config: CellRoutingConfig | None
    ) -> None:
        self.node_id = node_id
        self.ear = Ear()
        self._outbox = Outbox()
        self._place = place
        rng = derive_rng(seed, "cells", node_id)
        self.routing = GeographicRouting(node_id, grid, self._outbox, rng, self.ear, config)

    def handle(self, event: Input, now_us: int) -> list[Action]:
        match event:
            case Started():
                cell = self.routing.grid.cell_at(self._place)
                self.routing.start(cell, now_us, serving=True)
            case Received():
                assert self.routing.on_received(event.sender, event.message, now_us)
            case SendFailed():
                assert self.routing.on_send_failed(event.to, event.message, now_us)
            case TimerFired():
                assert self.routing.on_timer(event.timer, now_us)
        self.routing.check()
        return self._outbox.drain_actions()

    def take(self) -> list[Action]:
        return self._outbox.drain_actions()

    def check(self) -> None:
        self.routing.check()


class RadioField:
    """Routing nodes at positions, with a radio."""

    def __init__(
        self,
        grid: Grid,
        places: Mapping[NodeId, Place],
        *,
        seed: int = 1,
        config: CellRoutingConfig | None = None,
        radio: RadioConfig | None = None,
    ) -> None:
        self.lines: list[str] = []
        self.world = WirelessNetwork(places, seed=seed, config=radio, journal=self._journal)
        self.routers: dict[NodeId, Router] = {}
        for node_id, place in places.items():
            router = Router(node_id, grid, place, seed, config)
            self.routers[node_id] = router
            self.world.add(router, MemoryStore(), lambda told: None)

    def _journal(self, at_us: int, node_id: NodeId, entry: Input | Action) -> None:
        if isinstance(entry, Send | Broadcast):
            self.lines.append(f"{at_us} {node_id.hex()} {entry}")

    def run(self, seconds: float) -> None:
        self.world.run(self.world.now_us + round(seconds * SECOND_US))

    def send(self, node_id: NodeId, *targets: Destination, message: Message) -> int:
        """Makes a node send a message now; returns its number."""
        router = self.routers[node_id]
        number = router.routing.send(targets, message, self.world.now_us)
        self.flush(node_id)
        return number

    def flush(self, node_id: NodeId) -> None:
        """Carries out the actions that a node requested outside of an input."""
        for action in self.routers[node_id].take():
            self._journal(self.world.now_us, node_id, action)
            match action:
                case Send():
                    self.world.send(node_id, action.to, action.message)
                case Broadcast():
                    self.world.broadcast(node_id, action.message)
                case _:
                    raise AssertionError(action)
