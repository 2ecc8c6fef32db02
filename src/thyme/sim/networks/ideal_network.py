"""Ideal network: a simulated network without a radio, deterministic from a seed.

Entry point: `IdealNetwork`. Every node reaches every other node, or, with `in_range`, its
neighbours only. `LinkConditions` add loss, duplicates and delay; `NetworkFaults` add the faults of
a schedule. Messages are encoded and decoded, as on a real network. Tests with several nodes use it.
Clauses: M12, S8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from thyme.model.ids import NodeId
from thyme.model.rng import derive_rng
from thyme.protocol.app_interface import AppEvent, AppRequest
from thyme.protocol.messages.common import Message
from thyme.protocol.node import Node, PositionChanged, Received, SendFailed
from thyme.sim.engine.driver import Driver, Journal
from thyme.sim.engine.kernel import make_kernel
from thyme.sim.faults.network_faults import NO_DELAY, NetworkFaults
from thyme.storage.store import Store
from thyme.wire.codec import decode, encode


class LinkConditions(msgspec.Struct, frozen=True, kw_only=True):
    """Loss, duplication and delay of messages; the default is a perfect network."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_us_min: int = 1_000
    delay_us_max: int = 1_000
    """Delays are drawn uniformly from this range, so messages may overtake each other."""


PERFECT = LinkConditions()


@dataclass(slots=True)
class NetworkTraffic:
    """Counts of the messages sent over an ideal network."""

    messages: int = 0
    bytes: int = 0
    lost: int = 0
    by_type: Counter[str] = field(default_factory=Counter)


class IdealNetwork:
    """Nodes, their clock, and the messages between them, without a radio."""

    def __init__(
        self,
        *,
        seed: int = 0,
        conditions: LinkConditions = PERFECT,
        start_us: int = 0,
        journal: Journal | None = None,
        in_range: Callable[[NodeId, NodeId], bool] | None = None,
    ) -> None:
        """`in_range(sender, receiver)` limits which nodes receive a sender. If it is given, a
        sender also gets `SendFailed` for each lost unicast, as from a MAC."""
        self.conditions = conditions
        self._in_range = in_range
        self.traffic = NetworkTraffic()
        self.kernel = make_kernel(start_us)
        self.start_us = start_us
        self.faults = NetworkFaults(seed)
        self._rng = derive_rng(seed, "ether")
        self._driver = Driver(self.kernel, self, journal)

    @property
    def now_us(self) -> int:
        """The current instant."""
        return self.kernel.now_us

    def add(
        self, node: Node, store: Store, on_event: Callable[[AppEvent], None], *, skew_us: int = 0
    ) -> None:
        """Starts a node now; its clock is `skew_us` ahead of the network's."""
        self._driver.add(node, store, on_event, skew_us)

    def remove(self, node_id: NodeId) -> None:
        """Stops a node, as a crash would."""
        self._driver.remove(node_id)

    def send_request(self, node_id: NodeId, request: AppRequest) -> None:
        """Submits a request of the node's application, now."""
        self._driver.send_request(node_id, request)

    def leave(self, node_id: NodeId) -> None:
        """Gives a node the input `Leaving` (S7)."""
        self._driver.leave(node_id)

    def set_skew(self, node_id: NodeId, skew_us: int) -> None:
        """Sets a node's clock (S8)."""
        self._driver.set_skew(node_id, skew_us)

    def move(self, node_id: NodeId, position: tuple[float, float]) -> None:
        """Gives a node its new position (D20); this does not change the nodes in range."""
        self._driver.deliver(node_id, PositionChanged(position))

    def partition(self, *groups: Iterable[NodeId]) -> None:
        """Starts a partition: messages pass only within a group; nodes not named form one more."""
        self.faults.partition(*groups)

    def heal(self) -> None:
        """Ends the partition and resets the conditions; faults of a schedule go on."""
        self.faults.heal()
        self.conditions = PERFECT

    def next_event_us(self) -> int | None:
        """The instant of the next event; None if none is scheduled."""
        return self.kernel.next_event_us()

    def run(self, until_us: int) -> None:
        """Runs all events up to and including an instant."""
        self.kernel.run(until_us)

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """Sends a message to one node, subject to conditions and faults."""
        check = self._in_range
        reachable = check is None or check(sender, to)
        arrives = reachable and self._transmit(sender, to, message, encode(message))
        if not arrives and check is not None:
            # As an event of its own: the node may still be handling the input that made it send.
            self.kernel.schedule(
                self.now_us, self._report_send_failure, (sender, SendFailed(to, message))
            )

    def _transmit(self, sender: NodeId, to: NodeId, message: Message, packet: bytes) -> bool:
        """Sends a message to one receiver; returns whether at least one copy will arrive."""
        self.traffic.messages += 1
        self.traffic.bytes += len(packet)
        self.traffic.by_type[message.label] += 1
        faults = self.faults
        if to not in self._driver or not (faults.inactive or faults.delivers(sender, to)):
            self.traffic.lost += 1
            return False
        conditions = self.conditions
        arrives = False
        copies = 2 if self._rng.random() < conditions.duplication else 1
        for _ in range(copies):
            if self._rng.random() < conditions.loss:
                self.traffic.lost += 1
                continue
            delay_us = self._rng.randint(conditions.delay_us_min, conditions.delay_us_max)
            for extra_us in NO_DELAY if faults.inactive else faults.delays_us(to):
                event = (to, Received(sender, decode(packet)))
                self.kernel.schedule(self.now_us + delay_us + extra_us, self._deliver, event)
                arrives = True
        return arrives

    def broadcast(self, sender: NodeId, message: Message) -> None:
        """Sends a message to every other node in range."""
        packet = encode(message)
        for other in list(self._driver):
            if other != sender and (self._in_range is None or self._in_range(sender, other)):
                self._transmit(sender, other, message, packet)

    def _deliver(self, event: tuple[NodeId, Received]) -> None:
        self._driver.deliver(*event)

    def _report_send_failure(self, event: tuple[NodeId, SendFailed]) -> None:
        self._driver.deliver(*event)
