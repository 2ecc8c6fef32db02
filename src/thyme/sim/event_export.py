"""Event export: writes the events of a simulation in the format of live nodes.

Entry point: `SimulationEvents`. Instants are virtual, and the writer is named after the scenario:
the same scenario and seed give the same bytes. All devices share one writer, stations included.
Clauses: P9, S14, I29.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from thyme.events.recorder import EventRecorder
from thyme.events.segments import SegmentConfig, SegmentWriter
from thyme.model.ids import Key, NodeId
from thyme.protocol.app_interface import AppEvent, AppRequest
from thyme.protocol.node import Node
from thyme.routing.routed_node import RoutedNode
from thyme.sim.faults.devices import Devices
from thyme.sim.measurement.measurements import TrafficRecorder
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.es import EsNode
from thyme.substrates.ls.node import LsNode
from thyme.traces.trace import Trace

_NEVER_S = float("inf")
LINES_PER_WRITE = 1_000
CONFIG = SegmentConfig(segment_age_s_max=_NEVER_S, total_bytes_max=2**62)
"""Segments end by size only, and none is removed."""


class SimulationEvents:
    """The events of all devices of one run."""

    def __init__(self, folder: Path, scenario: msgspec.Struct, trace: Trace | None = None) -> None:
        inputs = msgspec.json.encode((scenario, trace), order="deterministic")
        digest = blake2b(inputs, digest_size=8)
        world = f"sim-{digest.hexdigest()}"
        self._segments = SegmentWriter(folder, world, CONFIG)
        self._lines: list[bytes] = []
        self._recorder = EventRecorder(world, world, self._add_line, self._stores_object)
        self._counted: dict[int, tuple[int, int]] = {}
        self._devices: Devices | None = None
        self._numbers: dict[NodeId, int] = {}
        self._traffic: TrafficRecorder | None = None

    def attach(
        self, devices: Devices, node_ids: Sequence[NodeId], traffic: TrafficRecorder
    ) -> None:
        """Connects the events with the devices of the run, before they start."""
        self._devices = devices
        self._numbers = {node_id: number for number, node_id in enumerate(node_ids)}
        self._traffic = traffic

    def on_request(self, node: NodeId, request: AppRequest, now_us: int) -> None:
        """Records a request of a user."""
        self._recorder.on_request(node, request, now_us)

    def on_event(self, node: NodeId, event: AppEvent, now_us: int) -> None:
        """Records an event that a user received."""
        self._recorder.on_event(node, event, now_us)

    def on_download(self, station: NodeId, key: Key, cache: str | None, now_us: int) -> None:
        """Records the looks of a station into its caches."""
        self._recorder.on_download(station, None, key, cache, now_us)

    def on_power(self, node: NodeId, now_us: int, *, on: bool) -> None:
        """Records the start or stop of a device."""
        (self._recorder.on_started if on else self._recorder.on_stopped)(node, now_us)

    def sample_load(self, now_us: int) -> None:
        """Records the messages that each running node sent since the previous sample."""
        assert self._traffic is not None
        kinds = self._traffic.counts.values()
        for node_id, number in self._numbers.items():
            node = self._find_node(node_id)
            if node is None:
                continue
            sent = sum(counts.sent[number] for counts in kinds)
            sent_bytes = sum(counts.sent_bytes[number] for counts in kinds)
            before = self._counted.get(number, (0, 0))
            self._counted[number] = sent, sent_bytes
            cell = node.routing.cell if isinstance(node, DcsNode) else None
            self._recorder.on_load(
                node_id,
                now_us,
                cell=cell,
                sent=sent - before[0],
                sent_bytes=sent_bytes - before[1],
            )

    def close(self) -> int:
        """Closes the last segment; returns the number of events that could not be written."""
        self._write_lines()
        self._segments.close()
        return self._segments.stats.dropped

    def _add_line(self, line: bytes) -> None:
        self._lines.append(line)
        if len(self._lines) >= LINES_PER_WRITE:
            self._write_lines()

    def _write_lines(self) -> None:
        lines, self._lines = self._lines, []
        self._segments.write(lines, 0.0)

    def _stores_object(self, node_id: NodeId, key: Key) -> bool:
        match node := self._find_node(node_id):
            case DcsNode():
                return node.replicas.get(key) is not None
            case EsNode() | LsNode():
                return node.broker is not None and node.broker.catalogue.state(key) == "there"
        return False

    def _find_node(self, node_id: NodeId) -> Node | None:
        """The running node of a device, without the routing wrapper."""
        assert self._devices is not None
        node = self._devices.node_of(self._numbers[node_id])
        return node.inner if isinstance(node, RoutedNode) else node
