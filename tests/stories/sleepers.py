"""Live nodes with their links in virtual time, which can be stopped as processes are."""

from __future__ import annotations

from random import Random

from tests.transport.pipe import Pipe
from thyme.live.clocks.timers import TimerQueue
from thyme.live.node_factory import make_node
from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo
from thyme.protocol.app_interface import AppEvent, AppRequest
from thyme.protocol.node import (
    AppRequested,
    Broadcast,
    CancelTimer,
    Emit,
    Input,
    Node,
    Received,
    Send,
    SendFailed,
    SetTimer,
    Started,
    TimerFired,
)
from thyme.storage.store import MemoryStore
from thyme.transport.link_config import MessageReceived


class Sleepers(Pipe):
    """Nodes of one world, each with its link and its timers."""

    def __init__(self, world: WorldInfo, *names: NodeId, begin_us: int) -> None:
        super().__init__()
        self.now_us = begin_us
        self.told: list[tuple[NodeId, AppEvent]] = []
        self.nodes: dict[NodeId, Node] = {}
        self._timers: dict[NodeId, TimerQueue] = {}
        for number, name in enumerate(names):
            self.add(name, world)
            self._timers[name] = TimerQueue()
            self.nodes[name] = make_node(world, name, MemoryStore(), Random(number), (20.0, 20.0))
            self.feed(name, Started())

    def ask(self, name: NodeId, request: AppRequest) -> None:
        self.feed(name, AppRequested(request))

    def feed(self, name: NodeId, event: Input) -> None:
        """Lets a node handle an input, and carries out what it wants."""
        link, timers = self.links[name], self._timers[name]
        for action in self.nodes[name].handle(event, self.now_us):
            match action:
                case Send():
                    link.send(action.to, action.message, self.now_us)
                case Broadcast():
                    link.broadcast(action.message, self.now_us)
                case SetTimer():
                    timers.set(action.timer, action.at_us)
                case CancelTimer():
                    timers.cancel(action.timer)
                case Emit():
                    self.told.append((name, action.event))
        self.nodes[name].check()
        self.carry(name)

    def next_tick_us(self, name: NodeId) -> int:
        tick_us, timer_us = super().next_tick_us(name), self._timers[name].next_due_us()
        return tick_us if timer_us is None else min(tick_us, timer_us)

    def tick(self, name: NodeId) -> None:
        super().tick(name)
        for timer in self._timers[name].pop_due(self.now_us):
            self.feed(name, TimerFired(timer))

    def carry(self, name: NodeId) -> None:
        for event in self.links[name].drain_events():
            if isinstance(event, MessageReceived):
                self.feed(name, Received(event.sender, event.message))
            else:
                self.feed(name, SendFailed(event.to, event.message))
        super().carry(name)
