"""Devices for tests of encounters: nodes that meet when a test says so."""

from __future__ import annotations

from random import Random

from thyme.model.ids import NodeId, ObjectId
from thyme.model.tags import as_tag
from thyme.model.time_frames import ALWAYS, SECOND_US, TimeFrame
from thyme.protocol import app_interface as app
from thyme.protocol.messages.common import Message
from thyme.protocol.node import (
    AppRequested,
    Broadcast,
    Emit,
    PositionChanged,
    Received,
    Send,
    Started,
    TimerFired,
)
from thyme.query.query import Query
from thyme.storage.store import MemoryStore
from thyme.substrates.encounters.config import EncounterConfig, MobUserConfig, Protocol
from thyme.substrates.encounters.dissemination import DiscoveryTimer
from thyme.substrates.encounters.node import EncounterNode


class Device:
    """One node with its application: requests go in, replies and notifications come out."""

    def __init__(
        self, name: str, protocol: Protocol | None = None, store: MemoryStore | None = None
    ) -> None:
        self.store = store or MemoryStore()
        config = EncounterConfig(protocol=protocol or MobUserConfig())
        self.node = EncounterNode(
            NodeId(name.encode()), self.store, Random(sum(name.encode())), config
        )
        self.now_us = 0
        self.outgoing: list[tuple[NodeId | None, Message]] = []
        self.events: list[app.AppEvent] = []
        self._requests = 0
        self.give(Started())

    @property
    def node_id(self) -> NodeId:
        return self.node.node_id

    def give(self, event: object) -> None:
        """Gives the node an input and sorts its actions."""
        for action in self.node.handle(event, self.now_us):  # type: ignore[arg-type]
            match action:
                case Send():
                    self.outgoing.append((action.to, action.message))
                case Broadcast():
                    self.outgoing.append((None, action.message))
                case Emit():
                    self.events.append(action.event)
        self.node.check()

    def ask(self, kind: type, **fields: object) -> app.Finished | app.Failed:
        """Makes a request and returns its answer."""
        self._requests += 1
        self.give(AppRequested(kind(request_id=self._requests, **fields)))
        [answer] = [
            event
            for event in self.events
            if isinstance(event, app.Finished | app.Failed) and event.request_id == self._requests
        ]
        return answer

    def publish(self, name: str, *tags: str, data: bytes = b"", ttl_us: int | None = None) -> None:
        answer = self.ask(
            app.Insert,
            data=data or name.encode(),
            tags=tuple(map(as_tag, tags)),
            oid=ObjectId(name),
            ttl_us=ttl_us,
        )
        assert isinstance(answer, app.Finished), answer

    def subscribe(self, query: str, frame: TimeFrame = ALWAYS) -> app.Finished | app.Failed:
        conjunctions = Query(query).conjunctions
        return self.ask(app.Subscribe, conjunctions=conjunctions, frame=frame, batch=10)

    def move_to(self, x: float, y: float) -> None:
        self.give(PositionChanged((x, y)))

    def discover(self) -> None:
        self.give(TimerFired(DiscoveryTimer()))

    def drain(self) -> list[tuple[NodeId | None, Message]]:
        outgoing, self.outgoing = self.outgoing, []
        return outgoing

    @property
    def notified(self) -> list[str]:
        """The names of the events that the application was notified of, in order."""
        return [
            event.notification.key.oid
            for event in self.events
            if isinstance(event, app.NotificationEvent)
        ]

    @property
    def held(self) -> set[str]:
        """The names of the events in the device's memory."""
        return {event.key.oid for event in self.node.dissemination.memory}


def meet(*devices: Device, log: list[tuple[NodeId, Message]] | None = None) -> None:
    """The first device discovers the others, and all messages between them arrive."""
    devices[0].discover()
    pass_messages(*devices, log=log)


def pass_messages(*devices: Device, log: list[tuple[NodeId, Message]] | None = None) -> None:
    """Delivers messages until no device has any to send."""
    while any(device.outgoing for device in devices):
        for sender in devices:
            for to, message in sender.drain():
                if log is not None:
                    log.append((sender.node_id, message))
                for receiver in devices:
                    if receiver is not sender and to in (None, receiver.node_id):
                        receiver.give(Received(sender.node_id, message))


def wait(*devices: Device, seconds: int) -> None:
    for device in devices:
        device.now_us += seconds * SECOND_US
