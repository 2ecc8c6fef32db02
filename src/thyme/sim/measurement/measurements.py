"""Measurements: traffic and energy of a run in the wireless network, by message type and by node.

Entry points: `TrafficRecorder`, which the network updates with every message, and
`build_measurements`, which combines it with the counters of the radio (`thyme.sim.radio.counters`).
Success, latency and recall are computed by `thyme.sim.results.summary`.
Clauses: S9, S14.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from thyme.protocol.app_interface import (
    AppRequest,
    Delete,
    Insert,
    Retrieve,
    Subscribe,
    Unsubscribe,
)
from thyme.protocol.messages.cells import CellNotify
from thyme.protocol.messages.common import MESSAGE_TYPES, Message
from thyme.protocol.messages.description import CONTROL
from thyme.protocol.messages.replies import Notify
from thyme.sim.measurement.energy import EnergyMeter, OperationName, Phone
from thyme.sim.radio.counters import BitSlicedCounter
from thyme.sim.radio.radio import Radio, RadioActivity

OPERATION_OF_REQUEST: dict[type[object], OperationName] = {
    Insert: "insert",
    Delete: "delete",
    Subscribe: "subscribe",
    Unsubscribe: "unsubscribe",
    Retrieve: "retrieve",
}
"""The requests whose energy cost the papers give."""


PARTS = {kind.label: kind.operation for kind in MESSAGE_TYPES}
"""What messages are about, by label. A `Done` answers an insert, a delete or an unsubscribe, which
the formulas count with these."""
NOTIFY = (Notify.label, CellNotify.label)
"""The messages by which brokers and cells notify subscribers."""


class TrafficCount(msgspec.Struct, frozen=True):
    """Numbers of messages and bytes sent, received and forwarded, each hop counted.

    A message is sent when it is handed to the radio, and heard when it reaches a node. A message
    that three nodes forward is sent four times and forwarded three times.
    """

    sent: int = 0
    sent_bytes: int = 0
    heard: int = 0
    heard_bytes: int = 0
    forwarded: int = 0
    """The sent messages that a node forwarded for another node."""
    forwarded_bytes: int = 0

    def __add__(self, other: TrafficCount) -> TrafficCount:
        return TrafficCount(
            self.sent + other.sent,
            self.sent_bytes + other.sent_bytes,
            self.heard + other.heard,
            self.heard_bytes + other.heard_bytes,
            self.forwarded + other.forwarded,
            self.forwarded_bytes + other.forwarded_bytes,
        )


class Distribution(msgspec.Struct, frozen=True):
    """The distribution of a quantity over the nodes; a Gini coefficient of 0 is perfectly even."""

    max: float
    mean: float
    gini: float


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """The energy that a node spent, and the times its radio was used."""

    on_us: int
    sending_us: int
    receiving_us: int
    radio_j: float
    operations_j: float
    joules: float
    """Total energy: radio, operations, and the rest of the device."""
    battery_share: float


class NodeMeasurements(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one node."""

    node: str
    """The node id in hexadecimal."""
    loads: dict[str, TrafficCount]
    """Traffic by message type."""
    frames: int
    frame_bytes: int
    retransmissions: int
    dropped: dict[str, int]
    """Messages that the node's radio dropped, by cause."""
    operations: dict[str, int]
    """Requests of the node's application, by operation."""
    energy: Energy


class Measurements(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one run (S14). `msgspec.json` writes and reads this record."""

    span_us: int
    phone: str
    frames: int
    """Transmitted frames of every kind, retransmissions included."""
    frames_by_kind: dict[str, int]
    frame_bytes: int
    retransmissions: int
    """Frames that the MAC retransmitted because no acknowledgement arrived."""
    repeated: int
    """Frames that were retransmitted because an injected fault lost them."""
    dropped: dict[str, int]
    """Dropped messages by cause: exceeded (the retry limit), full, stale, off, unknown."""
    loads: dict[str, TrafficCount]
    """Traffic by message type; a message inside another has both names: `Packet/Notify`."""
    total: TrafficCount
    control: TrafficCount
    """Routing control traffic."""
    joules: float
    hot_spot: Distribution
    """Distribution of messages sent and received per node."""
    hot_spot_bytes: Distribution
    nodes: tuple[NodeMeasurements, ...]


class TypeCounts:
    """The counters of one message type, by node number."""

    __slots__ = ("_received", "_size", "forwarded", "forwarded_bytes", "sent", "sent_bytes")

    def __init__(self, size: int) -> None:
        self._size = size
        self.forwarded = [0] * size
        self.forwarded_bytes = [0] * size
        self.sent = [0] * size
        self.sent_bytes = [0] * size
        self._received: dict[int, BitSlicedCounter] = {}

    def count_received(self, nodes: int, size: int) -> None:
        """Counts a message of a size that reached a set of nodes (bit set)."""
        counter = self._received.get(size)
        if counter is None:
            counter = self._received[size] = BitSlicedCounter()
        counter.add(nodes)

    def per_node(self) -> list[TrafficCount]:
        """Returns the counts by node number."""
        received, received_bytes = [0] * self._size, [0] * self._size
        for size, counter in self._received.items():
            for number, count in enumerate(counter.counts(self._size)):
                received[number] += count
                received_bytes[number] += size * count
        columns = (
            self.sent,
            self.sent_bytes,
            received,
            received_bytes,
            self.forwarded,
            self.forwarded_bytes,
        )
        return [TrafficCount(*row) for row in zip(*columns, strict=True)]


class TrafficRecorder:
    """Counts messages, drops, requests and up times while a run proceeds."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.counts: dict[str, TypeCounts] = {}
        """Counters by message type, in the order in which the types were first sent."""
        self.dropped: dict[str, list[int]] = {}
        self.operations: dict[OperationName, list[int]] = {}
        self.repeated = 0
        self._on_us = [0] * size
        self.on_since_us: list[int | None] = [None] * size
        """By node number: since when the device has been on; None if it is off."""

    def count_sent(self, number: int, message: Message, kind: str, size: int) -> TypeCounts:
        """Counts a sent message; returns the counters in which its receipt is to be counted."""
        counts = self.counts.get(kind)
        if counts is None:
            counts = self.counts[kind] = TypeCounts(self._size)
        counts.sent[number] += 1
        counts.sent_bytes[number] += size
        if getattr(message, "hops", 0):  # the message was received over a link before
            counts.forwarded[number] += 1
            counts.forwarded_bytes[number] += size
        return counts

    def count_dropped(self, number: int, cause: str) -> None:
        """Counts a message that the radio of a node dropped."""
        self.dropped.setdefault(cause, [0] * self._size)[number] += 1

    def count_request(self, number: int, request: AppRequest) -> None:
        """Counts a request of a node's application, if it is an operation."""
        operation = OPERATION_OF_REQUEST.get(type(request))
        if operation is not None:
            self.operations.setdefault(operation, [0] * self._size)[number] += 1

    def record_power(self, number: int, now_us: int, *, on: bool) -> None:
        """Records that the device of a node was switched on or off."""
        since_us = self.on_since_us[number]
        if since_us is not None:
            self._on_us[number] += now_us - since_us
        self.on_since_us[number] = now_us if on else None

    def time_on_us(self, number: int, now_us: int) -> int:
        """Returns how long a node has been on so far."""
        since_us = self.on_since_us[number]
        return self._on_us[number] + (0 if since_us is None else now_us - since_us)


def distribution_of(values: Sequence[float]) -> Distribution:
    """Returns maximum, mean and Gini coefficient of values; all 0 if the sum is 0."""
    total = sum(values)
    if not total:
        return Distribution(0.0, 0.0, 0.0)
    size = len(values)
    ranked = sum(rank * value for rank, value in enumerate(sorted(values), start=1))
    gini = 2 * ranked / (size * total) - (size + 1) / size
    return Distribution(max(values), total / size, gini)


def build_measurements(
    traffic: TrafficRecorder,
    radio: Radio,
    node_ids: Sequence[bytes],
    phone: Phone,
    span_us: int,
    now_us: int,
) -> Measurements:
    """Builds the measurements of a run from the counters of network and radio."""
    by_kind = {kind: counts.per_node() for kind, counts in sorted(traffic.counts.items())}
    nodes = tuple(
        _node_measurements(
            traffic,
            activity,
            number,
            node_id,
            {kind: loads[number] for kind, loads in by_kind.items()},
            phone,
            now_us,
        )
        for number, (node_id, activity) in enumerate(
            zip(node_ids, radio.activity_by_node(), strict=True)
        )
    )
    per_node = [_sum_counts(node.loads.values()) for node in nodes]
    loads = {kind: _sum_counts(by_node) for kind, by_node in by_kind.items()}
    return Measurements(
        span_us=span_us,
        phone=phone.name,
        frames=radio.frames,
        frames_by_kind=dict(sorted(radio.frames_by_kind.items())),
        frame_bytes=radio.bytes_sent,
        retransmissions=radio.retransmissions,
        repeated=traffic.repeated,
        dropped={cause: sum(by_node) for cause, by_node in sorted(traffic.dropped.items())},
        loads=loads,
        total=_sum_counts(loads.values()),
        control=_sum_counts(load for kind, load in loads.items() if kind in CONTROL),
        joules=sum(node.energy.joules for node in nodes),
        hot_spot=distribution_of([load.sent + load.heard for load in per_node]),
        hot_spot_bytes=distribution_of([load.sent_bytes + load.heard_bytes for load in per_node]),
        nodes=nodes,
    )


def _sum_counts(loads: Iterable[TrafficCount]) -> TrafficCount:
    return sum(loads, TrafficCount())


def _node_measurements(
    traffic: TrafficRecorder,
    activity: RadioActivity,
    number: int,
    node_id: bytes,
    loads: dict[str, TrafficCount],
    phone: Phone,
    now_us: int,
) -> NodeMeasurements:
    return NodeMeasurements(
        node=node_id.hex(),
        loads={kind: load for kind, load in loads.items() if load != TrafficCount()},
        frames=activity.frames,
        frame_bytes=activity.bytes,
        retransmissions=activity.retransmissions,
        dropped=_counts_of_node(traffic.dropped, number),
        operations=_counts_of_node(traffic.operations, number),
        energy=_energy(traffic, activity, number, phone, now_us),
    )


def _counts_of_node(
    counters: dict[str, list[int]] | dict[OperationName, list[int]], number: int
) -> dict[str, int]:
    return {kind: values[number] for kind, values in sorted(counters.items()) if values[number]}


def _energy(
    traffic: TrafficRecorder, activity: RadioActivity, number: int, phone: Phone, now_us: int
) -> Energy:
    """Computes the energy that a node spent while it was on; off, it spends none.

    A frame in transmission when its sender or receiver was switched off counts in full, even if it
    is longer than the time the device was on.
    """
    sending_us, receiving_us = activity.sending_us, activity.receiving_us
    on_us = traffic.time_on_us(number, now_us)
    meter = EnergyMeter(phone)
    meter.add_time(
        tx_us=sending_us, rx_us=receiving_us, total_us=max(on_us, sending_us + receiving_us)
    )
    for operation, by_node in traffic.operations.items():
        meter.add_operations(operation, "issue", by_node[number])
    return Energy(
        on_us=on_us,
        sending_us=sending_us,
        receiving_us=receiving_us,
        radio_j=meter.radio_j,
        operations_j=meter.operations_j,
        joules=meter.joules,
        battery_share=meter.battery_share,
    )
