"""Routed node: gives a node multi-hop unicast.

Entry point: `RoutedNode.handle`. The wrapper sits between a driver and an inner node. A message
that the inner node sends to another node becomes a packet, which a `Routing` forwards hop by hop.
The message of a packet that arrives for this node is passed to the inner node as if its sender
were a neighbour. Broadcasts reach only neighbours and are passed on unchanged.
Clauses: E3, L4, R1, R2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import assert_never

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message, Packet
from thyme.protocol.node import (
    Action,
    AppRequested,
    Broadcast,
    CancelTimer,
    ClocksCompared,
    Emit,
    Input,
    Leaving,
    Node,
    PositionChanged,
    Received,
    Send,
    SendFailed,
    SetTimer,
    Started,
    TimerFired,
)
from thyme.protocol.outbox import Outbox
from thyme.routing.interface import InnerStartTimer, Routing, RoutingTraffic

HOPS_MAX = 64
_NO_ACTIONS: list[Action] = []
"""Shared empty result of most inputs; must not be modified."""


class RoutedNode:
    """A node together with its routing; itself a `Node`."""

    def __init__(
        self,
        inner: Node,
        routing: Routing,
        outbox: Outbox,
        *,
        inner_start_us: int = 0,
        hops_max: int = HOPS_MAX,
        size_of: Callable[[Message], int] | None = None,
    ) -> None:
        """`outbox` is the one the routing uses. The inner node starts at `inner_start_us` or with
        this node, whichever is later. With `size_of`, bytes are counted as well."""
        self.inner = inner
        self.routing = routing
        self._outbox = outbox
        self._node_id = inner.node_id
        self._inner_start_us = inner_start_us
        self._hops_max = hops_max
        self._size_of = size_of
        self._control_type = routing.control_type
        self._on_control_message = routing.on_control_message
        self._early_requests: list[AppRequested] = []
        self._inner_started = False

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    @property
    def traffic(self) -> RoutingTraffic:
        """Counts of sent, forwarded, delivered and dropped packets."""
        return self.routing.traffic

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Processes one input; returns the resulting actions in order."""
        if type(event) is Received and type(event.message) is self._control_type:
            if not self._on_control_message(event.sender, event.message, now_us):
                return _NO_ACTIONS
        else:
            self._dispatch(event, now_us)
        actions = self._outbox.drain_actions()
        if self._size_of is not None:
            self._count_bytes(actions, self._size_of)
        return actions

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self.inner.check()
        self.routing.check()
        assert not (self._inner_started and self._early_requests)
        assert not _NO_ACTIONS

    def _dispatch(self, event: Input, now_us: int) -> None:
        match event:
            case Started():
                self.routing.start(now_us)
                if now_us < self._inner_start_us:
                    self._outbox.set_timer(InnerStartTimer(), self._inner_start_us)
                else:
                    self._start_inner(now_us)
            case Received():
                self._on_received(event, now_us)
            case TimerFired():
                self._on_timer(event, now_us)
            case SendFailed():
                self._on_send_failed(event, now_us)
            case AppRequested():
                if self._inner_started:
                    self._handle_inner(event, now_us)
                else:
                    self._early_requests.append(event)
            case Leaving() | PositionChanged() | ClocksCompared():
                self._handle_inner(event, now_us)
            case _:
                assert_never(event)

    def _start_inner(self, now_us: int) -> None:
        self._inner_started = True
        self._handle_inner(Started(), now_us)
        requests, self._early_requests = self._early_requests, []
        for request in requests:
            self._handle_inner(request, now_us)

    def _on_received(self, event: Received, now_us: int) -> None:
        packet = event.message
        if not isinstance(packet, Packet):
            self._handle_inner(event, now_us)
        elif packet.destination == self._node_id:
            if not self._inner_started:
                self.traffic.dropped["not started"] += 1
                return
            self.traffic.delivered += 1
            self.traffic.hops += packet.hops + 1
            self._handle_inner(Received(packet.origin, packet.message), now_us)
        elif packet.origin == self._node_id:
            self.traffic.dropped["came back"] += 1
        elif packet.hops + 1 >= self._hops_max:
            self.traffic.dropped["too many hops"] += 1
        else:
            copy = Packet(packet.origin, packet.destination, packet.hops + 1, packet.message)
            self.routing.forward(copy, now_us)

    def _on_timer(self, event: TimerFired, now_us: int) -> None:
        if isinstance(event.timer, self.routing.timer_types):
            self.routing.on_timer(event.timer, now_us)
        elif isinstance(event.timer, InnerStartTimer):
            self._start_inner(now_us)
        else:
            self._handle_inner(event, now_us)

    def _on_send_failed(self, event: SendFailed, now_us: int) -> None:
        packet = event.message
        if not isinstance(packet, Packet):
            self._handle_inner(event, now_us)
            return
        self.routing.on_send_failed(event.to, packet, now_us)
        if packet.origin == self._node_id:
            self._handle_inner(SendFailed(packet.destination, packet.message), now_us)

    def _handle_inner(self, event: Input, now_us: int) -> None:
        """Passes an input to the inner node and carries out the actions it returns."""
        if not self._inner_started:
            return
        pending: deque[Action] = deque(self.inner.handle(event, now_us))
        while pending:
            action = pending.popleft()
            if isinstance(action, Send) and action.to == self._node_id:
                to_self = Received(self._node_id, action.message)
                pending.extend(self.inner.handle(to_self, now_us))
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
            case Emit():
                self._outbox.emit(action.event)
            case _:
                assert_never(action)

    def _count_bytes(self, actions: list[Action], size_of: Callable[[Message], int]) -> None:
        """Counts the bytes of control messages, own packets and forwarded packets."""
        traffic = self.traffic
        for action in actions:
            if isinstance(action, Broadcast) and type(action.message) is self._control_type:
                traffic.control_bytes += size_of(action.message)
            elif isinstance(action, Send) and isinstance(action.message, Packet):
                if action.message.origin == self._node_id:
                    traffic.sent_bytes += size_of(action.message)
                else:
                    traffic.forwarded_bytes += size_of(action.message)
