"""Map hub: passes the events of a live network to the pages that watch it.

A page that opens later gets a header and a snapshot first: nodes, neighbours and replicas as they
are. Each watcher has a queue; one that is too slow loses events, and gets their number.
Entry points: `MapHub.publish`, `MapHub.watch`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator

import msgspec
from msgspec.structs import replace

from thyme.map.recording import (
    GapEvent,
    MoveEvent,
    NeighbourEvent,
    NodeEvent,
    PowerEvent,
    RecordedEvent,
    RecordingHeader,
    ReplicaEvent,
    encode_line,
    shift_event,
)
from thyme.model.positions import Position
from thyme.protocol.messages.description import CONTROL

QUEUE_MAX = 20_000
"""Events that wait for one watcher; more are dropped and counted."""
BATCH_S = 0.05
"""Time in which events are collected before they are sent together."""
IDLE_S = 15.0
"""After so long without an event an empty batch is sent, to notice that a watcher is gone."""
WATCHERS_MAX = 20


class _NodeState(msgspec.Struct):
    name: str
    place: Position
    role: str
    on: bool = True


class NetworkState:
    """The nodes, neighbours and replicas of a network, as its events tell."""

    def __init__(self) -> None:
        self.nodes: list[_NodeState] = []
        self.neighbours: dict[tuple[int, int], None] = {}
        self.replicas: dict[tuple[int, str], str] = {}

    def apply(self, event: RecordedEvent) -> None:
        """Follows an event."""
        match event:
            case NodeEvent():
                self.nodes.append(_NodeState(event.name, event.place, event.role))
            case PowerEvent():
                self.nodes[event.node].on = event.on
            case MoveEvent():
                self.nodes[event.node].place = event.end
            case NeighbourEvent() if event.on:
                self.neighbours[event.node, event.peer] = None
            case NeighbourEvent():
                self.neighbours.pop((event.node, event.peer), None)
            case ReplicaEvent() if event.role:
                self.replicas[event.node, event.oid] = event.role
            case ReplicaEvent():
                self.replicas.pop((event.node, event.oid), None)
            case _:
                pass

    def snapshot(self, at_us: int) -> Iterator[RecordedEvent]:
        """The events that lead to this state, apart from the nodes in the header."""
        for number, node in enumerate(self.nodes):
            yield PowerEvent(at_us, number, node.on)
        for one, other in self.neighbours:
            yield NeighbourEvent(at_us, one, other, True)
        for (number, oid), role in self.replicas.items():
            yield ReplicaEvent(at_us, number, oid, role)


class MapAbout(msgspec.Struct, frozen=True, kw_only=True):
    """What the header says about a network."""

    title: str
    range_m: float = 0.0
    area: tuple[float, float] | None = None
    grid: tuple[int, int, float] | None = None


class _Watcher:
    """The events that wait for one page."""

    def __init__(self, start_us: int) -> None:
        self.start_us = start_us
        self.events: deque[RecordedEvent] = deque()
        self.dropped = 0
        self.arrived = asyncio.Event()

    def add(self, event: RecordedEvent) -> None:
        if len(self.events) >= QUEUE_MAX:
            self.dropped += 1
        else:
            self.events.append(event)
        self.arrived.set()

    def drain(self) -> list[bytes]:
        """The waiting events as lines, with instants since the start of the watcher."""
        events: list[RecordedEvent] = list(self.events)
        self.events.clear()
        self.arrived.clear()
        if self.dropped:
            events.append(GapEvent(events[-1].at_us, self.dropped))
            self.dropped = 0
        return [encode_line(shift_event(event, -self.start_us)) for event in events]


class MapHub:
    """Passes events to watchers; instants of published events are microseconds since 1970."""

    def __init__(self, about: MapAbout) -> None:
        self.about = about
        self.state = NetworkState()
        self._watchers: set[_Watcher] = set()
        self._closed = False
        self._last_us = 0

    @property
    def watched(self) -> bool:
        """Whether anybody watches."""
        return bool(self._watchers)

    @property
    def is_full(self) -> bool:
        """Whether there are as many watchers as there may be."""
        return len(self._watchers) >= WATCHERS_MAX

    def publish(self, event: RecordedEvent) -> None:
        """Passes an event on; instants never run backwards."""
        if event.at_us < self._last_us:
            event = replace(event, at_us=self._last_us)
        self._last_us = event.at_us
        self.state.apply(event)
        for watcher in self._watchers:
            watcher.add(event)

    def find_node(self, name: str) -> int | None:
        """The number of a node; None if it is not known."""
        return next((at for at, node in enumerate(self.state.nodes) if node.name == name), None)

    async def watch(self, now_us: int) -> AsyncIterator[list[bytes]]:
        """Yields batches of lines: the header, the present state, then events as they come; an
        empty batch from time to time if there are none."""
        now_us = max(now_us, self._last_us)
        watcher = _Watcher(now_us)
        self._watchers.add(watcher)
        for event in self.state.snapshot(now_us):
            watcher.add(event)
        try:
            yield [encode_line(self._header(now_us)), *watcher.drain()]
            while not self._closed:
                try:
                    await asyncio.wait_for(watcher.arrived.wait(), IDLE_S)
                except TimeoutError:
                    yield []
                    continue
                await asyncio.sleep(BATCH_S)
                if lines := watcher.drain():
                    yield lines
        finally:
            self._watchers.discard(watcher)

    def close(self) -> None:
        """Ends all watches."""
        self._closed = True
        for watcher in self._watchers:
            watcher.arrived.set()

    def _header(self, now_us: int) -> RecordingHeader:
        nodes, about = self.state.nodes, self.about
        return RecordingHeader(
            start_us=now_us,
            nodes=tuple(node.name for node in nodes),
            places=tuple(node.place for node in nodes),
            roles=tuple(node.role for node in nodes),
            range_m=about.range_m,
            title=about.title,
            area=about.area,
            grid=about.grid,
            control=tuple(sorted(CONTROL)),
        )
