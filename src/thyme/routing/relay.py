"""The relay: a node that reaches others over several hops.

Stands between a driver and an inner node, and looks to both like the other. What the inner node
sends to somebody becomes a packet that goes from hop to hop, by the ways of a routing; what comes
in packets for this node is handed in as if it had come directly. Broadcasts stay what they are:
heard by those in reach.
Clauses: E3, L4, R1, R2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import assert_never

from thyme.model.ids import NodeId
from thyme.protocol.messages import Message, Packet
from thyme.protocol.node import (
    Action,
    Asked,
    Broadcast,
    CancelTimer,
    Input,
    Leaving,
    Moved,
    Node,
    Received,
    Send,
    SendFailed,
    SetTimer,
    Started,
    Tell,
    TimerFired,
)
from thyme.protocol.outbox import Outbox
from thyme.routing.routing import InnerStarts, Routing, Traffic

HOPS_MAX = 64
_NOTHING: list[Action] = []
"""Returned whenever there is nothing to do, which is most of the time; never changed."""


class Relay:
    """A node, its routing, and the packets between them and the neighbours."""

    def __init__(
        self,
        inner: Node,
        routing: Routing,
        outbox: Outbox,
        *,
        inner_starts_us: int = 0,
        hops_max: int = HOPS_MAX,
        size_of: Callable[[Message], int] | None = None,
    ) -> None:
        """`outbox` is the one the routing uses. The inner node starts at `inner_starts_us` or
        with the relay, whichever is later. With `size_of`, bytes are counted, too."""
        self.inner = inner
        self.routing = routing
        self._outbox = outbox
        self._node_id = inner.node_id
        self._inner_starts_us = inner_starts_us
        self._hops_max = hops_max
        self._size_of = size_of
        self._control = routing.control
        self._hear = routing.hear
        self._early: list[Asked] = []
        self._started = False

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    @property
    def traffic(self) -> Traffic:
        """What was sent, passed on, delivered and dropped."""
        return self.routing.traffic

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Takes one input at its instant; returns the actions to carry out, in order."""
        if type(event) is Received and type(event.message) is self._control:
            if not self._hear(event.sender, event.message, now_us):
                return _NOTHING
        else:
            self._dispatch(event, now_us)
        actions = self._outbox.take()
        if self._size_of is not None:
            self._weigh(actions, self._size_of)
        return actions

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        self.inner.check()
        self.routing.check()
        assert not (self._started and self._early)
        assert not _NOTHING

    def _dispatch(self, event: Input, now_us: int) -> None:
        match event:
            case Started():
                self.routing.start(now_us)
                if now_us < self._inner_starts_us:
                    self._outbox.set_timer(InnerStarts(), self._inner_starts_us)
                else:
                    self._start_inner(now_us)
            case Received():
                self._on_received(event, now_us)
            case TimerFired():
                self._on_timer(event, now_us)
            case SendFailed():
                self._on_send_failed(event, now_us)
            case Asked():
                if self._started:
                    self._feed(event, now_us)
                else:
                    self._early.append(event)
            case Leaving() | Moved():
                self._feed(event, now_us)
            case _:
                assert_never(event)

    def _start_inner(self, now_us: int) -> None:
        self._started = True
        self._feed(Started(), now_us)
        early, self._early = self._early, []
        for asked in early:
            self._feed(asked, now_us)

    def _on_received(self, event: Received, now_us: int) -> None:
        packet = event.message
        if not isinstance(packet, Packet):
            self._feed(event, now_us)
        elif packet.destination == self._node_id:
            if not self._started:
                self.traffic.dropped["not started"] += 1
                return
            self.traffic.delivered += 1
            self.traffic.hops += packet.hops + 1
            self._feed(Received(packet.origin, packet.message), now_us)
        elif packet.origin == self._node_id:
            self.traffic.dropped["came back"] += 1
        elif packet.hops + 1 >= self._hops_max:
            self.traffic.dropped["too many hops"] += 1
        else:
            onward = Packet(packet.origin, packet.destination, packet.hops + 1, packet.message)
            self.routing.forward(onward, now_us)

    def _on_timer(self, event: TimerFired, now_us: int) -> None:
        if isinstance(event.timer, self.routing.timers):
            self.routing.on_timer(event.timer, now_us)
        elif isinstance(event.timer, InnerStarts):
            self._start_inner(now_us)
        else:
            self._feed(event, now_us)

    def _on_send_failed(self, event: SendFailed, now_us: int) -> None:
        packet = event.message
        if not isinstance(packet, Packet):
            self._feed(event, now_us)
            return
        self.routing.on_send_failed(event.to, packet, now_us)
        if packet.origin == self._node_id:
            self._feed(SendFailed(packet.destination, packet.message), now_us)

    def _feed(self, event: Input, now_us: int) -> None:
        """Brings an input to the inner node and carries out what it asks for."""
        if not self._started:
            return
        waiting: deque[Action] = deque(self.inner.handle(event, now_us))
        while waiting:
            action = waiting.popleft()
            if isinstance(action, Send) and action.to == self._node_id:
                own = Received(self._node_id, action.message)
                waiting.extend(self.inner.handle(own, now_us))
            else:
                self._carry_out(action, now_us)

    def _carry_out(self, action: Action, now_us: int) -> None:
        match action:
            case Send():
                self.routing.send(Packet(self._node_id, action.to, 0, action.message), now_us)
            case Broadcast():
                self._outbox.broadcast(action.message)
            case SetTimer():
                self._outbox.set_timer(action.timer, action.at_us)
            case CancelTimer():
                self._outbox.cancel_timer(action.timer)
            case Tell():
                self._outbox.tell(action.told)
            case _:
                assert_never(action)

    def _weigh(self, actions: list[Action], size_of: Callable[[Message], int]) -> None:
        """Counts bytes: of control messages, of own packets, of those of others."""
        traffic = self.traffic
        for action in actions:
            if isinstance(action, Broadcast) and type(action.message) is self._control:
                traffic.control_bytes += size_of(action.message)
            elif isinstance(action, Send) and isinstance(action.message, Packet):
                if action.message.origin == self._node_id:
                    traffic.sent_bytes += size_of(action.message)
                else:
                    traffic.forwarded_bytes += size_of(action.message)
