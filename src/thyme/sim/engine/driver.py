"""Driver: delivers inputs to nodes and carries out their actions, in virtual time.

Entry point: `Driver.deliver`. A `MessageNetwork` (`IdealNetwork` or `WirelessNetwork`) moves the
messages between nodes. After each input the driver commits the node's store, and only then carries
out the node's actions, so that no change is acknowledged before it is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, assert_never

from thyme.model.ids import NodeId
from thyme.protocol.app_interface import AppEvent, AppRequest
from thyme.protocol.messages.common import Message
from thyme.protocol.node import (
    Action,
    AppRequested,
    Broadcast,
    CancelTimer,
    Emit,
    Input,
    Leaving,
    Node,
    Received,
    Send,
    SetTimer,
    Started,
    Timer,
    TimerFired,
)
from thyme.protocol.quick_receiver import QuickReceiver
from thyme.sim.engine.kernel import Kernel
from thyme.storage.store import MemoryStore, Store


class MessageNetwork(Protocol):
    """A network that moves messages between nodes one hop apart."""

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """Sends a message to one node; it may be lost."""
        ...

    def broadcast(self, sender: NodeId, message: Message) -> None:
        """Sends a message to every node in range; it may be lost."""
        ...


class DrivenNode:
    """A running node, with its store, clock skew, timers and application."""

    __slots__ = (
        "alive",
        "commit",
        "handle",
        "node_id",
        "on_event",
        "quick_receiver",
        "skew_us",
        "timers",
    )

    def __init__(
        self, node: Node, store: Store, on_event: Callable[[AppEvent], None], skew_us: int
    ) -> None:
        self.node_id = node.node_id
        self.handle = node.handle
        quick = getattr(node, "quick_receiver", None)
        self.quick_receiver = quick if isinstance(quick, QuickReceiver) else None
        """The layer of the node that recognises messages which cause no action, if it has one."""
        # Called after every input; a store in memory needs no commit.
        self.commit = None if type(store) is MemoryStore else store.commit
        self.on_event = on_event
        self.skew_us = skew_us
        self.alive = True
        self.timers: dict[Timer, PendingTimer] = {}
        """The pending event of each timer; any other event of that timer is stale."""


class PendingTimer:
    """A timer that is set, with its instant by the node's own clock."""

    __slots__ = ("at_us", "driven", "timer")

    def __init__(self, driven: DrivenNode, timer: Timer, at_us: int) -> None:
        self.driven = driven
        self.timer = timer
        self.at_us = at_us


Journal = Callable[[int, NodeId, Input | Action], None]
"""Called with each input and each action: the instant, the node, and the input or action."""


class Driver:
    """Runs nodes: their clocks, their timers, and the events for their applications."""

    def __init__(
        self, kernel: Kernel, network: MessageNetwork, journal: Journal | None = None
    ) -> None:
        self._kernel = kernel
        self._network = network
        self._journal = journal
        self._driven_nodes: dict[NodeId, DrivenNode] = {}
        self._pending_events: deque[tuple[DrivenNode, AppEvent]] = deque()
        self._emitting = False

    def __contains__(self, node_id: NodeId) -> bool:
        return node_id in self._driven_nodes

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._driven_nodes)

    def add(
        self, node: Node, store: Store, on_event: Callable[[AppEvent], None], skew_us: int = 0
    ) -> None:
        """Starts a node now; its clock is `skew_us` ahead of the kernel's."""
        self._driven_nodes[node.node_id] = DrivenNode(node, store, on_event, skew_us)
        self.deliver(node.node_id, Started())

    def get(self, node_id: NodeId) -> DrivenNode | None:
        """A running node, as `deliver_all` takes it; None if it does not run."""
        return self._driven_nodes.get(node_id)

    def remove(self, node_id: NodeId) -> None:
        """Stops a node as a crash would: it receives no more inputs, and its timers do not fire."""
        self._driven_nodes.pop(node_id).alive = False

    def leave(self, node_id: NodeId) -> None:
        """Gives a node the input `Leaving`; `remove` stops it later."""
        self.deliver(node_id, Leaving())

    def send_request(self, node_id: NodeId, request: AppRequest) -> None:
        """Submits a request of the node's application, now."""
        self.deliver(node_id, AppRequested(request))

    def set_skew(self, node_id: NodeId, skew_us: int) -> None:
        """Sets a node's clock; pending timers are rescheduled by the new clock (S8)."""
        driven = self._driven_nodes[node_id]
        driven.skew_us = skew_us
        for timer, pending in list(driven.timers.items()):
            self._set_timer(driven, timer, pending.at_us)

    def deliver(self, node_id: NodeId, event: Input) -> None:
        """Delivers an input to a node and carries out the actions that the node returns."""
        driven = self._driven_nodes.get(node_id)
        if driven is None:
            return
        now_us = self._kernel.now_us
        actions = driven.handle(event, now_us + driven.skew_us)
        if driven.commit is not None:
            driven.commit()
        if self._journal is not None:
            for entry in (event, *actions):
                self._journal(now_us, node_id, entry)
        if actions:  # most inputs cause no action
            self._carry_out_all(driven, actions)

    def deliver_all(self, nodes: Iterable[DrivenNode | None], event: Received) -> None:
        """Delivers one message to many running nodes: as `deliver` for each of them, but faster."""
        if self._journal is not None:
            for driven in nodes:
                if driven is not None:
                    self.deliver(driven.node_id, event)
            return
        sender, message = event.sender, event.message
        now_us = self._kernel.now_us
        for driven in nodes:
            if driven is None or not driven.alive:
                continue
            quick = driven.quick_receiver
            local_us = now_us + driven.skew_us
            if quick is not None and quick.receive_quickly(sender, message, local_us):
                continue
            actions = driven.handle(event, local_us)
            if driven.commit is not None:
                driven.commit()
            if actions:
                self._carry_out_all(driven, actions)

    def _carry_out_all(self, driven: DrivenNode, actions: list[Action]) -> None:
        for action in actions:
            self._carry_out(driven, action)
        if self._pending_events:
            self._emit_pending()

    def _carry_out(self, driven: DrivenNode, action: Action) -> None:
        match action:
            case Send():
                self._network.send(driven.node_id, action.to, action.message)
            case Broadcast():
                self._network.broadcast(driven.node_id, action.message)
            case SetTimer():
                self._set_timer(driven, action.timer, action.at_us)
            case CancelTimer():
                driven.timers.pop(action.timer, None)
            case Emit():
                self._pending_events.append((driven, action.event))
            case _:
                assert_never(action)

    def _set_timer(self, driven: DrivenNode, timer: Timer, at_us: int) -> None:
        pending = driven.timers[timer] = PendingTimer(driven, timer, at_us)
        now_us = self._kernel.now_us
        self._kernel.schedule(max(now_us, at_us - driven.skew_us), self._fire_timer, pending)

    def _fire_timer(self, pending: PendingTimer) -> None:
        driven, timer = pending.driven, pending.timer
        if driven.alive and driven.timers.get(timer) is pending:
            del driven.timers[timer]
            self.deliver(driven.node_id, TimerFired(timer))

    def _emit_pending(self) -> None:
        """Passes the pending events to the applications, in order. A request that an application
        makes meanwhile is handled at once; the events that it causes are queued."""
        if self._emitting:
            return
        self._emitting = True
        try:
            while self._pending_events:
                driven, event = self._pending_events.popleft()
                if driven.alive:
                    driven.on_event(event)
        finally:
            self._emitting = False
