"""Two networks for the same faults, and nodes that send numbers, so that losses show."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages.replies import Done
from thyme.protocol.node import (
    Action,
    Broadcast,
    Input,
    Leaving,
    Received,
    Send,
    SendFailed,
    SetTimer,
    Started,
    TimerFired,
)
from thyme.sim.faults.devices import Devices
from thyme.sim.faults.injector import FaultInjector, OnFault
from thyme.sim.faults.schedule import Fault, make_schedule
from thyme.sim.networks.ideal_network import IdealNetwork
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.sim.radio.radio import RadioConfig
from thyme.sim.radio.unit_disk import UnitDisk
from thyme.storage.store import RecordTable, Store

START_US = 1_700_000_000_000_000
MS = 1_000
NAMES = [NodeId(name) for name in (b"alice", b"bob", b"carol", b"dave")]
ALICE, BOB, CAROL, DAVE = range(4)
GOODBYE = 1_000_000
"""The number that a leaving node sends."""

LIVES = RecordTable("lives", int)


def network(seed: int = 1) -> IdealNetwork:
    return IdealNetwork(seed=seed, start_us=START_US)


def radio(seed: int = 1) -> WirelessNetwork:
    """All nodes in range of each other."""
    places = {name: (10.0 * number, 0.0) for number, name in enumerate(NAMES)}
    config = RadioConfig(unit_disk=UnitDisk())
    return WirelessNetwork(places, seed=seed, start_us=START_US, config=config)


WORLDS: dict[str, Callable[[int], IdealNetwork | WirelessNetwork]] = {
    "network": network,
    "radio": radio,
}


class Tick(msgspec.Struct, frozen=True):
    """The timer of a counting node."""


class CountingSender:
    """Sends 0, 1, 2, … to all nodes or to one, every ten milliseconds by its clock, and counts its
    incarnations in its store."""

    def __init__(self, node_id: NodeId, store: Store, life: int, to: NodeId | None = None) -> None:
        self.node_id = node_id
        self.life = life
        self.said = 0
        self.remembered = [key for key, _ in store.load(LIVES)]
        self.heard: list[tuple[int, NodeId, int]] = []
        self.failed: list[int] = []
        self.clock_us: list[int] = []
        self.left_us: int | None = None
        self._to = to
        store.put(LIVES, str(life), life)

    def handle(self, event: Input, now_us: int) -> list[Action]:
        self.clock_us.append(now_us)
        match event:
            case Received():
                assert isinstance(event.message, Done)
                self.heard.append((now_us - START_US, event.sender, event.message.request_id))
            case SendFailed():
                assert isinstance(event.message, Done)
                self.failed.append(event.message.request_id)
            case Started():
                turn = NAMES.index(self.node_id)  # on the radio, nodes that send at once collide
                return [SetTimer(Tick(), now_us + (10 + turn) * MS)]
            case TimerFired():
                self.said += 1
                return [self._say(self.said - 1), SetTimer(Tick(), now_us + 10 * MS)]
            case Leaving():
                self.left_us = now_us - START_US
                return [self._say(GOODBYE)]
        return []

    def _say(self, number: int) -> Action:
        return Broadcast(Done(number)) if self._to is None else Send(self._to, Done(number))

    def check(self) -> None:
        """Nothing to check."""

    def numbers(self, sender: int, from_us: int = 0, to_us: int = 10**12) -> list[int]:
        """The numbers received from a node in a span of time."""
        return [
            number
            for at_us, name, number in self.heard
            if name == NAMES[sender] and from_us <= at_us < to_us
        ]


class Village:
    """Four counting nodes in a network, and the faults injected into it."""

    def __init__(
        self,
        world: IdealNetwork | WirelessNetwork,
        faults: Iterable[Fault] = (),
        *,
        to: dict[int, int] | None = None,
        on_fault: OnFault | None = None,
    ) -> None:
        self.world = world
        self.lives: list[tuple[int, NodeId, int]] = []
        self.nodes: dict[int, list[CountingSender]] = {number: [] for number in range(len(NAMES))}
        targets = {number: NAMES[target] for number, target in (to or {}).items()}

        def make(node_id: NodeId, store: Store, life: int) -> CountingSender:
            number = NAMES.index(node_id)
            node = CountingSender(node_id, store, life, targets.get(number))
            self.nodes[number].append(node)
            return node

        def on_life(node_id: NodeId, life: int) -> None:
            self.lives.append((world.now_us - START_US, node_id, life))

        self.devices = Devices(world, NAMES, make, on_power=on_life)
        schedule = make_schedule(faults, nodes=len(NAMES))
        self.fault_injector = FaultInjector(world, self.devices, schedule, on_fault)
        for number in range(len(NAMES)):
            self.devices.start(number)

    def run(self, until_ms: int) -> Village:
        self.world.run(START_US + until_ms * MS)
        return self

    def node(self, number: int) -> CountingSender:
        """The latest node of a device."""
        return self.nodes[number][-1]
