"""Encounter network: moves messages between nodes in contact, without a MAC.

Entry point: `EncounterNetwork`. A message takes a fixed time for the connection plus its bytes at a
bit rate; the messages of a device are sent one after the other. A message arrives if the contact
lasts until then, else its sender gets `SendFailed`. The fixed time is chosen so that an exchange
takes as long as between the phones of the MobUser paper, 0.5 to 2 s (C44). Contacts are read block
by block and applied when a message needs them. This module is compiled.
Clauses: U1, U9, C44.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thyme.model.ids import NodeId
from thyme.protocol.app_interface import AppEvent, AppRequest
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.encounters import (
    EncounterEvents,
    EncounterProfile,
    Heartbeat,
    NeighbourProbe,
    ReconcileProfile,
)
from thyme.protocol.node import Node, PositionChanged, Received, SendFailed
from thyme.sim.encounters.contacts import ContactSource
from thyme.sim.encounters.exchange_times import ExchangeTimes
from thyme.sim.engine.driver import Driver
from thyme.sim.engine.kernel import make_kernel
from thyme.storage.store import Store
from thyme.wire.codec import size_of

DISCOVERIES = (EncounterProfile, ReconcileProfile, Heartbeat, NeighbourProbe)
"""The broadcasts by which devices look for neighbours."""


class EncounterTraffic:
    """Counts of an encounter network."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.received_bytes = 0
        self.discoveries = 0
        self.broken = 0
        """Messages whose contact ended before they arrived."""
        self.bytes_by_type: dict[str, int] = {}
        self.exchanges_us: list[int] = []
        """Durations of exchanges: from the discovery to the arrival of the last events."""

    def record(self, message: Message, size_bytes: int) -> None:
        """Counts a sent message."""
        self.messages += 1
        self.bytes += size_bytes
        label = message.label
        self.bytes_by_type[label] = self.bytes_by_type.get(label, 0) + size_bytes


class EncounterNetwork:
    """Nodes, their clock, their contacts, and the messages between them."""

    def __init__(self, contacts: ContactSource, times: ExchangeTimes | None = None) -> None:
        self.kernel = make_kernel()
        self.traffic = EncounterTraffic()
        self.contacts_begun = 0
        self._times = times or ExchangeTimes()
        self._contacts = contacts
        self._driver = Driver(self.kernel, self)
        self._ids: list[NodeId] = []
        self._numbers: dict[NodeId, int] = {}
        self._since_us: list[dict[int, int]] = [{} for _ in range(contacts.nodes)]
        """For each node, its neighbours and the start of the contact."""
        self._free_us = [0] * contacts.nodes
        """When each node has sent its messages so far."""
        self._changes, self._block_end_us = contacts.next_changes()
        self._next_change = 0
        self._discovered_us: dict[int, int] = {}
        """When each node last sent a broadcast."""

    def add(self, node: Node, store: Store, on_event: Callable[[AppEvent], None]) -> None:
        """Starts a node; nodes are numbered in the order in which they are added."""
        self._numbers[node.node_id] = len(self._ids)
        self._ids.append(node.node_id)
        self._driver.add(node, store, on_event)

    def send_request(self, number: int, request: AppRequest) -> None:
        """Submits a request of the application of a node, now."""
        self._driver.send_request(self._ids[number], request)

    def update_positions(self, numbers: Sequence[int] | None = None) -> None:
        """Tells some nodes, or all, their positions, as far as they are known."""
        now_us = self.kernel.now_us
        self._advance(now_us)
        ids = self._ids if numbers is None else [self._ids[number] for number in numbers]
        positions = self._contacts.positions_at(now_us, numbers)
        for node_id, position in zip(ids, positions, strict=True):
            if position is not None:
                self._driver.deliver(node_id, PositionChanged(position))

    def run(self, until_us: int) -> None:
        """Runs all events up to an instant."""
        self.kernel.run(until_us)
        self._advance(until_us)

    def neighbours_of(self, number: int) -> list[int]:
        """The nodes in contact with a node now, in the order in which the contacts began."""
        self._advance(self.kernel.now_us)
        return list(self._since_us[number])

    # The interface of the driver

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        size = size_of(message)
        self.traffic.record(message, size)
        number = self._numbers[sender]
        flight = (number, [self._numbers[to]], self.kernel.now_us, message, size, True)
        self.kernel.schedule(self._arrival_us(number, size), self._arrive, flight)

    def broadcast(self, sender: NodeId, message: Message) -> None:
        size = size_of(message)
        self.traffic.record(message, size)
        number = self._numbers[sender]
        if type(message) in DISCOVERIES:
            self.traffic.discoveries += 1
            self._discovered_us[number] = self.kernel.now_us
        receivers = self.neighbours_of(number)
        arrives_us = self._arrival_us(number, size)
        if receivers:
            flight = (number, receivers, self.kernel.now_us, message, size, False)
            self.kernel.schedule(arrives_us, self._arrive, flight)

    def _arrival_us(self, sender: int, size: int) -> int:
        """The instant at which a message sent now arrives, after the sender's earlier ones."""
        start_us = max(self.kernel.now_us, self._free_us[sender])
        self._free_us[sender] = end_us = start_us + self._times.airtime_us(size)
        return end_us + self._times.message_us

    def _arrive(self, flight: tuple[int, list[int], int, Message, int, bool]) -> None:
        sender, receivers, sent_us, message, size, unicast = flight
        self._advance(self.kernel.now_us)
        contacts = self._since_us[sender]
        event = Received(self._ids[sender], message)
        for receiver in receivers:
            since_us = contacts.get(receiver)
            if since_us is not None and since_us <= sent_us:
                self.traffic.received_bytes += size
                if unicast and type(message) is EncounterEvents:
                    self._record_exchange(sender)
                self._driver.deliver(self._ids[receiver], event)
                continue
            self.traffic.broken += 1
            if unicast:
                failed = SendFailed(self._ids[receiver], message)
                self._driver.deliver(self._ids[sender], failed)

    def _record_exchange(self, sender: int) -> None:
        """Records the duration of an exchange that the sender began by a discovery."""
        started_us = self._discovered_us.get(sender)
        if started_us is not None:
            self.traffic.exchanges_us.append(self.kernel.now_us - started_us)

    # Contacts

    def _advance(self, now_us: int) -> None:
        """Applies the changes of contacts up to an instant."""
        while True:
            self._apply_changes(now_us)
            if self._next_change < len(self._changes.at_us) or self._block_end_us > now_us:
                return
            self._changes, self._block_end_us = self._contacts.next_changes()
            self._next_change = 0

    def _apply_changes(self, now_us: int) -> None:
        changes, index, since = self._changes, self._next_change, self._since_us
        times, count = changes.at_us, len(changes.at_us)
        while index < count and times[index] <= now_us:
            first, second = changes.first[index], changes.second[index]
            if changes.begins[index]:
                self.contacts_begun += 1
                since[first][second] = since[second][first] = times[index]
            else:
                since[first].pop(second, None)
                since[second].pop(first, None)
            index += 1
        self._next_change = index
