"""The ether: many nodes, no radio. Every node reaches every other, perfectly or with trouble.

The smallest driver there is: it carries out what nodes ask for, in virtual time, deterministically
from a seed. Multi-node stories are told in it, and a world of one lives in it, paced by a real
clock (`thyme.app.pacing`). Messages cross it as bytes, as they would cross a network.
Clauses: M12, S8.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import assert_never

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages import Message
from thyme.protocol.node import (
    Action,
    Asked,
    Broadcast,
    CancelTimer,
    Input,
    Node,
    Received,
    Send,
    SetTimer,
    Started,
    Tell,
    Timer,
    TimerFired,
)
from thyme.protocol.requests import Request, Told
from thyme.sim.streams import stream
from thyme.storage.store import Store
from thyme.wire import decode, encode


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to messages on their way; the default is a perfect ether."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_us_min: int = 1_000
    delay_us_max: int = 1_000
    """Delays drawn from a range let messages overtake each other."""


PERFECT = Conditions()


@dataclass(slots=True)
class _Member:
    node: Node
    store: Store
    on_told: Callable[[Told], None]
    skew_us: int
    alive: bool = True
    # The number of the pending event of each timer; an event with another number is stale.
    timers: dict[Timer, int] = field(default_factory=dict)


@dataclass(slots=True)
class Traffic:
    """What crossed the ether."""

    messages: int = 0
    bytes: int = 0
    lost: int = 0
    by_type: Counter[str] = field(default_factory=Counter)


Journal = Callable[[int, NodeId, Input | Action], None]
"""Told of each input and each action: the instant, the node, and what it was."""


class Ether:
    """Nodes, their clock, and the messages between them."""

    def __init__(
        self,
        *,
        seed: int = 0,
        conditions: Conditions = PERFECT,
        start_us: int = 0,
        journal: Journal | None = None,
    ) -> None:
        self.now_us = start_us
        self.conditions = conditions
        self.traffic = Traffic()
        self._rng = stream(seed, "ether")
        self._journal = journal
        self._members: dict[NodeId, _Member] = {}
        self._queue: list[tuple[int, int, NodeId, Input]] = []
        self._numbers = count()
        self._groups: dict[NodeId, int] = {}
        self._told: deque[tuple[_Member, Told]] = deque()
        self._telling = False

    def add(
        self,
        node: Node,
        store: Store,
        on_told: Callable[[Told], None],
        *,
        skew_us: int = 0,
    ) -> None:
        """Brings a node up now; its clock is `skew_us` ahead of the ether's."""
        self._members[node.node_id] = _Member(node, store, on_told, skew_us)
        self._feed(node.node_id, Started())

    def remove(self, node_id: NodeId) -> None:
        """Takes a node away, as a crash would: nothing more reaches it or comes from it."""
        self._members.pop(node_id).alive = False

    def ask(self, node_id: NodeId, request: Request) -> None:
        """The application of a node asks for something, now."""
        self._feed(node_id, Asked(request))

    def partition(self, *groups: Iterable[NodeId]) -> None:
        """From now on only nodes of the same group hear each other."""
        self._groups = {node: number for number, group in enumerate(groups) for node in group}

    def heal(self) -> None:
        """Ends every trouble: no partition, no loss, no duplicates."""
        self._groups = {}
        self.conditions = PERFECT

    def next_us(self) -> int | None:
        """The instant of the next thing that will happen."""
        return self._queue[0][0] if self._queue else None

    def step(self) -> bool:
        """Lets the next thing happen; False if nothing will."""
        if not self._queue:
            return False
        at_us, number, node_id, event = heapq.heappop(self._queue)
        self.now_us = max(self.now_us, at_us)
        member = self._members.get(node_id)
        if member is not None and not _stale(member, event, number):
            self._feed(node_id, event)
        return True

    def run(self, until_us: int) -> None:
        """Lets everything up to an instant happen."""
        while (at_us := self.next_us()) is not None and at_us <= until_us:
            self.step()
        self.now_us = max(self.now_us, until_us)

    def _feed(self, node_id: NodeId, event: Input) -> None:
        member = self._members[node_id]
        actions = member.node.handle(event, self.now_us + member.skew_us)
        member.store.commit()
        if self._journal is not None:
            for entry in (event, *actions):
                self._journal(self.now_us, node_id, entry)
        for action in actions:
            self._carry_out(member, action)
        self._tell()

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

    def _carry_out(self, member: _Member, action: Action) -> None:
        match action:
            case Send():
                self._transmit(member.node.node_id, action.to, action.message)
            case Broadcast():
                for other in self._members:
                    if other != member.node.node_id:
                        self._transmit(member.node.node_id, other, action.message)
            case SetTimer():
                at_us = max(self.now_us, action.at_us - member.skew_us)
                event = TimerFired(action.timer)
                member.timers[action.timer] = self._schedule(at_us, member.node.node_id, event)
            case CancelTimer():
                member.timers.pop(action.timer, None)
            case Tell():
                self._told.append((member, action.told))
            case _:
                assert_never(action)

    def _transmit(self, sender: NodeId, to: NodeId, message: Message) -> None:
        packet = encode(message)
        self.traffic.messages += 1
        self.traffic.bytes += len(packet)
        self.traffic.by_type[type(message).__name__] += 1
        if to not in self._members or self._groups.get(sender) != self._groups.get(to):
            self.traffic.lost += 1
            return
        conditions = self.conditions
        copies = 2 if self._rng.random() < conditions.duplication else 1
        for _ in range(copies):
            if self._rng.random() < conditions.loss:
                self.traffic.lost += 1
                continue
            delay_us = self._rng.randint(conditions.delay_us_min, conditions.delay_us_max)
            self._schedule(self.now_us + delay_us, to, Received(sender, decode(packet)))

    def _schedule(self, at_us: int, node_id: NodeId, event: Input) -> int:
        number = next(self._numbers)
        heapq.heappush(self._queue, (at_us, number, node_id, event))
        return number


def _stale(member: _Member, event: Input, number: int) -> bool:
    """Whether an event is of a timer that was moved or cancelled; else lets the timer go."""
    if not isinstance(event, TimerFired):
        return False
    if member.timers.get(event.timer) != number:
        return True
    del member.timers[event.timer]
    return False
