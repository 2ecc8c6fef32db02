"""Event export: writes the events of a live node as segments for the analytics.

Entry point: `EventExport.start`. Operations and notifications come from the shared node; neighbours
and load are sampled by the daemon. Files are written in a thread (`thyme.events.background`): the
node neither waits for the disk nor fails with it.
Clause: P9.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from thyme.events.background import BackgroundWriter
from thyme.events.recorder import EventRecorder
from thyme.events.segments import EventStats, SegmentConfig, SegmentWriter
from thyme.live.node_factory import unwrap_node
from thyme.live.open_node import LiveNode
from thyme.model.ids import Key, NodeId
from thyme.protocol.app_interface import AppEvent, AppRequest
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.encounters.node import EncounterNode

LOAD_EVERY_US = 10_000_000
_NODE_DIGITS = 16
"""Digits of the node id in file names."""


class EventExport:
    """The events of one live node (a `RequestObserver`)."""

    def __init__(
        self, live_node: LiveNode, folder: Path, config: SegmentConfig | None = None
    ) -> None:
        self._live_node = live_node
        self._node_id = live_node.profile.node_id
        family = self._node_id.hex()[:_NODE_DIGITS]
        writer = f"{family}-{secrets.token_hex(4)}"
        self._writer = BackgroundWriter(SegmentWriter(folder, writer, config, family=family))
        self._recorder = EventRecorder(
            writer, live_node.world.world_id, self._writer.put, self._stores_object
        )
        self._neighbours: list[NodeId] = []
        self._load_us = 0
        self._counted = (0, 0, 0, 0)

    def on_request(self, node: NodeId, request: AppRequest, now_us: int) -> None:
        self._recorder.on_request(node, request, now_us)

    def on_event(self, node: NodeId, event: AppEvent, now_us: int) -> None:
        self._recorder.on_event(node, event, now_us)

    def start(self, now_us: int) -> None:
        """Records the start of the node."""
        self._recorder.on_started(self._node_id, now_us)
        self._load_us = now_us

    def sample(self, now_us: int) -> None:
        """Records changes of the neighbours, and every ten seconds the load."""
        current = self._live_node.link.neighbours
        self._neighbours = self._recorder.on_neighbours(
            self._node_id, self._neighbours, current, now_us
        )
        if now_us - self._load_us >= LOAD_EVERY_US:
            self._record_load(now_us)

    def stop(self, now_us: int) -> None:
        """Records the end of the node and writes everything that is queued."""
        self._record_load(now_us)
        self._recorder.on_stopped(self._node_id, now_us)
        self._writer.close()

    def read_stats(self) -> EventStats:
        """The numbers of written and dropped events."""
        return self._writer.read_stats()

    def _record_load(self, now_us: int) -> None:
        self._load_us = now_us
        sockets = self._live_node.sockets
        counted = (
            sockets.datagrams["out"],
            sockets.datagrams["in"],
            sockets.bytes["out"],
            sockets.bytes["in"],
        )
        new = [count - before for count, before in zip(counted, self._counted, strict=True)]
        self._counted = counted
        inner = unwrap_node(self._live_node.node)
        self._recorder.on_load(
            self._node_id,
            now_us,
            cell=inner.routing.cell if isinstance(inner, DcsNode) else None,
            neighbours=len(self._neighbours),
            sent=new[0],
            received=new[1],
            sent_bytes=new[2],
            received_bytes=new[3],
        )

    def _stores_object(self, node: NodeId, key: Key) -> bool:
        inner = unwrap_node(self._live_node.node)
        if isinstance(inner, DcsNode):
            return inner.replicas.get(key) is not None
        if isinstance(inner, EncounterNode):
            return inner.dissemination.memory.get(key) is not None
        return inner.broker is not None and inner.broker.catalogue.state(key) == "there"
