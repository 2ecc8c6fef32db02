"""The driver: brings inputs to nodes and carries out their actions, in virtual time.

What it does not know is how a message gets from one node to another: a carrier does that, be it an
ether or a radio. After each input the node's store is committed, and only then are its actions
carried out, so that nothing is acknowledged that could be lost.
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
    """Whatever takes messages from node to node."""

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """Takes a message to one node, if it can."""
        ...

    def broadcast(self, sender: NodeId, message: Message) -> None:
        """Takes a message to every node in reach, as far as it can."""
        ...


class Member:
    """A node in the hands of the driver."""

    __slots__ = ("alive", "commit", "handle", "node_id", "on_told", "skew_us", "timers")

    def __init__(
        self, node: Node, store: Store, on_told: Callable[[Told], None], skew_us: int
    ) -> None:
        self.node_id = node.node_id
        self.handle = node.handle
        # Called after every input: what is kept in memory alone needs no commit.
        self.commit = None if type(store) is MemoryStore else store.commit
        self.on_told = on_told
        self.skew_us = skew_us
        self.alive = True
        self.timers: dict[Timer, Due] = {}
        """The pending event of each timer; any other event of that timer is stale."""


class Due:
    """A timer that will fire, and when, by its node's clock."""

    __slots__ = ("at_us", "member", "timer")

    def __init__(self, member: Member, timer: Timer, at_us: int) -> None:
        self.member = member
        self.timer = timer
        self.at_us = at_us


Journal = Callable[[int, NodeId, Input | Action], None]
"""Told of each input and each action: the instant, the node, and what it was."""


class Driver:
    """Nodes, their clocks and timers, and their applications."""

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
        """Brings a node up now; its clock is `skew_us` ahead of the kernel's."""
        self._members[node.node_id] = Member(node, store, on_told, skew_us)
        self.feed(node.node_id, Started())

    def remove(self, node_id: NodeId) -> None:
        """Takes a node away, as a crash would: nothing more reaches it or comes from it."""
        self._members.pop(node_id).alive = False

    def leave(self, node_id: NodeId) -> None:
        """Tells a node that it is about to go; `remove` takes it away."""
        self.feed(node_id, Leaving())

    def ask(self, node_id: NodeId, request: Request) -> None:
        """The application of a node asks for something, now."""
        self.feed(node_id, Asked(request))

    def set_skew(self, node_id: NodeId, skew_us: int) -> None:
        """Sets a node's clock; timers it has set are due by the new one (S8)."""
        member = self._members[node_id]
        member.skew_us = skew_us
        for timer, due in list(member.timers.items()):
            self._set_timer(member, timer, due.at_us)

    def feed(self, node_id: NodeId, event: Input) -> None:
        """Brings an input to a node and carries out what it asks for."""
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
        if actions:  # most inputs ask for nothing
            self._carry_out_all(member, actions)

    def feed_all(self, node_ids: Iterable[NodeId], event: Input) -> None:
        """Brings one input to many nodes: what `feed` does for each of them, in less time."""
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
        """Tells the applications, one thing after the other: what they ask for meanwhile is
        carried out at once, but what comes of it waits its turn."""
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
