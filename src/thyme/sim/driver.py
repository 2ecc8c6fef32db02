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
from thyme.protocol.messages import Message
from thyme.protocol.node import (
    Action,
    Asked,
    Broadcast,
    CancelTimer,
    Input,
    Leaving,
    Node,
    Send,
    SetTimer,
    Started,
    Tell,
    Timer,
    TimerFired,
)
from thyme.protocol.requests import Request, Told
from thyme.sim.kernel import Kernel
from thyme.storage.store import MemoryStore, Store


class Carrier(Protocol):
    """A network that moves messages between nodes one hop apart."""

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """Sends a message to one node; it may be lost."""
        ...

    def broadcast(self, sender: NodeId, message: Message) -> None:
        """Sends a message to every node in range; it may be lost."""
        ...


class Member:
    """A running node, with its store, clock skew, timers and application."""

    __slots__ = ("alive", "commit", "handle", "node_id", "on_told", "skew_us", "timers")

    def __init__(
        self, node: Node, store: Store, on_told: Callable[[Told], None], skew_us: int
    ) -> None:
        self.node_id = node.node_id
        self.handle = node.handle
        # Called after every input; a store in memory needs no commit.
        self.commit = None if type(store) is MemoryStore else store.commit
        self.on_told = on_told
        self.skew_us = skew_us
        self.alive = True
        self.timers: dict[Timer, Due] = {}
        """The pending event of each timer; any other event of that timer is stale."""


class Due:
    """A timer that is set, with its instant by the node's own clock."""

    __slots__ = ("at_us", "member", "timer")

    def __init__(self, member: Member, timer: Timer, at_us: int) -> None:
        self.member = member
        self.timer = timer
        self.at_us = at_us


Journal = Callable[[int, NodeId, Input | Action], None]
"""Called with each input and each action: the instant, the node, and the input or action."""


class Driver:
    """Runs nodes: their clocks, their timers, and the events for their applications."""

    def __init__(self, kernel: Kernel, carrier: Carrier, journal: Journal | None = None) -> None:
        self._kernel = kernel
        self._carrier = carrier
        self._journal = journal
        self._members: dict[NodeId, Member] = {}
        self._told: deque[tuple[Member, Told]] = deque()
        self._telling = False

    def __contains__(self, node_id: NodeId) -> bool:
        return node_id in self._members

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._members)

    def add(
        self, node: Node, store: Store, on_told: Callable[[Told], None], skew_us: int = 0
    ) -> None:
        """Starts a node now; its clock is `skew_us` ahead of the kernel's."""
        self._members[node.node_id] = Member(node, store, on_told, skew_us)
        self.feed(node.node_id, Started())

    def remove(self, node_id: NodeId) -> None:
        """Stops a node as a crash would: it receives no more inputs, and its timers do not fire."""
        self._members.pop(node_id).alive = False

    def leave(self, node_id: NodeId) -> None:
        """Gives a node the input `Leaving`; `remove` stops it later."""
        self.feed(node_id, Leaving())

    def ask(self, node_id: NodeId, request: Request) -> None:
        """Submits a request of the node's application, now."""
        self.feed(node_id, Asked(request))

    def set_skew(self, node_id: NodeId, skew_us: int) -> None:
        """Sets a node's clock; pending timers are rescheduled by the new clock (S8)."""
        member = self._members[node_id]
        member.skew_us = skew_us
        for timer, due in list(member.timers.items()):
            self._set_timer(member, timer, due.at_us)

    def feed(self, node_id: NodeId, event: Input) -> None:
        """Delivers an input to a node and carries out the actions that the node returns."""
        member = self._members.get(node_id)
        if member is None:
            return
        now_us = self._kernel.now_us
        actions = member.handle(event, now_us + member.skew_us)
        if member.commit is not None:
            member.commit()
        if self._journal is not None:
            for entry in (event, *actions):
                self._journal(now_us, node_id, entry)
        if actions:  # most inputs cause no action
            self._carry_out_all(member, actions)

    def feed_all(self, node_ids: Iterable[NodeId], event: Input) -> None:
        """Delivers one input to many nodes: the same as `deliver` for each of them, but faster."""
        if self._journal is not None:
            for node_id in node_ids:
                self.feed(node_id, event)
            return
        find, now_us = self._members.get, self._kernel.now_us
        for node_id in node_ids:
            member = find(node_id)
            if member is None:
                continue
            actions = member.handle(event, now_us + member.skew_us)
            if member.commit is not None:
                member.commit()
            if actions:
                self._carry_out_all(member, actions)

    def _carry_out_all(self, member: Member, actions: list[Action]) -> None:
        for action in actions:
            self._carry_out(member, action)
        if self._told:
            self._tell()

    def _carry_out(self, member: Member, action: Action) -> None:
        match action:
            case Send():
                self._carrier.send(member.node_id, action.to, action.message)
            case Broadcast():
                self._carrier.broadcast(member.node_id, action.message)
            case SetTimer():
                self._set_timer(member, action.timer, action.at_us)
            case CancelTimer():
                member.timers.pop(action.timer, None)
            case Tell():
                self._told.append((member, action.told))
            case _:
                assert_never(action)

    def _set_timer(self, member: Member, timer: Timer, at_us: int) -> None:
        due = member.timers[timer] = Due(member, timer, at_us)
        now_us = self._kernel.now_us
        self._kernel.at(max(now_us, at_us - member.skew_us), self._fire, due)

    def _fire(self, due: Due) -> None:
        member, timer = due.member, due.timer
        if member.alive and member.timers.get(timer) is due:
            del member.timers[timer]
            self.feed(member.node_id, TimerFired(timer))

    def _tell(self) -> None:
        """Passes the pending events to the applications, in order. A request that an application
        makes meanwhile is handled at once; the events that it causes are queued."""
        if self._telling:
            return
        self._telling = True
        try:
            while self._told:
                member, told = self._told.popleft()
                if member.alive:
                    member.on_told(told)
        finally:
            self._telling = False
