"""Spreading: telling all nodes of a cell, once, or until each has said that it heard.

A broadcast reaches most. Where spreading is to be sure, each node that hears one says so to whoever
spread it; those who did not are sent the message again, one by one. A cell answers only then: what
it answers for is known to all of it. Who never answers is waited for no longer than a moment.
Clauses: D7, B2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.cell_messages import (
    AnnounceReplica,
    BackUp,
    HoldObject,
    IndexObject,
    SpreadHeard,
)
from thyme.protocol.cells import CellId
from thyme.protocol.messages import CellSpread, FetchObject, FetchPage, FetchStatus, Message
from thyme.protocol.outbox import Outbox
from thyme.routing.cells.config import CellsConfig

_QUESTIONS = FetchObject | FetchPage | FetchStatus
_COPIES = AnnounceReplica | BackUp | HoldObject


class SpreadTimer(msgspec.Struct, frozen=True):
    """Time to tell those again who did not say that they heard."""

    origin: NodeId
    number: int
    cell: CellId


@dataclass(slots=True)
class _Spread:
    message: CellSpread
    missing: dict[NodeId, None]
    then: list[Callable[[int], None]] = field(default_factory=list)
    tries: int = 1


class Spreading:
    """What one node spreads in its cell."""

    def __init__(self, outbox: Outbox, config: CellsConfig) -> None:
        self._outbox = outbox
        self.config = config
        self._under_way: dict[SpreadTimer, _Spread] = {}
        self.repeated = 0
        self.unheard = 0

    def __len__(self) -> int:
        return len(self._under_way)

    def concerns_all(self, message: Message) -> bool:
        """Whether all nodes of a cell should hear a message; of a question, one is enough."""
        return self.config.spread_questions or not isinstance(message, _QUESTIONS)

    def is_sure(self, message: Message) -> bool:
        """Whether nodes say that they heard a message; not of copies, which are many, and of which
        it is enough that most have them."""
        return self.config.spread_tries_max > 1 and not isinstance(message, _COPIES | _QUESTIONS)

    def start(self, spread: CellSpread, others: Iterable[NodeId], now_us: int) -> None:
        """Broadcasts a message to these nodes of the cell."""
        self._outbox.broadcast(spread)
        missing = dict.fromkeys(others)
        full = len(self._under_way) >= self.config.spreads_max
        if missing and not full and self.is_sure(spread.message):
            timer = SpreadTimer(spread.origin, spread.number, spread.cell)
            self._under_way[timer] = _Spread(spread, missing)
            self._outbox.set_timer(timer, now_us + self.config.spread_wait_us)

    def when_heard(
        self, origin: NodeId, number: int, cell: CellId, then: Callable[[int], None], now_us: int
    ) -> None:
        """Calls a function when all have heard a message, or did not answer for a while."""
        spread = self._under_way.get(SpreadTimer(origin, number, cell))
        if spread is None:
            then(now_us)
        else:
            spread.then.append(then)

    def on_spread(self, sender: NodeId, spread: CellSpread) -> None:
        """Says that a message was heard, each time it is."""
        if self.is_sure(spread.message):
            heard = SpreadHeard(spread.origin, spread.number, spread.cell)
            self._outbox.send(sender, heard)

    def on_heard(self, sender: NodeId, heard: SpreadHeard, now_us: int) -> None:
        """One more has heard."""
        timer = SpreadTimer(heard.origin, heard.number, heard.cell)
        if (spread := self._under_way.get(timer)) is not None:
            spread.missing.pop(sender, None)
            if not spread.missing:
                self._end(timer, now_us)

    def on_send_failed(self, to: NodeId, message: CellSpread, now_us: int) -> None:
        """One of those who did not answer is not there."""
        self.on_heard(to, SpreadHeard(message.origin, message.number, message.cell), now_us)

    def on_timer(self, timer: SpreadTimer, now_us: int) -> list[NodeId]:
        """Tells those again who did not answer; returns those who never did."""
        spread = self._under_way.get(timer)
        if spread is None:
            return []
        if spread.tries >= self.config.spread_tries_max:
            self.unheard += len(spread.missing)
            self._end(timer, now_us)
            return list(spread.missing)
        many = isinstance(spread.message.message, IndexObject)
        if many and spread.tries >= self.config.spread_hold_tries:
            self._answer(spread, now_us)
        wait_us = self.config.spread_wait_us << spread.tries
        spread.tries += 1
        self.repeated += len(spread.missing)
        for node in spread.missing:
            self._outbox.send(node, spread.message)
        self._outbox.set_timer(timer, now_us + wait_us)
        return []

    def _end(self, timer: SpreadTimer, now_us: int) -> None:
        spread = self._under_way.pop(timer)
        self._outbox.cancel_timer(timer)
        self._answer(spread, now_us)

    def _answer(self, spread: _Spread, now_us: int) -> None:
        held_back, spread.then = spread.then, []
        for then in held_back:
            then(now_us)

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        assert len(self._under_way) <= self.config.spreads_max
        assert all(spread.missing for spread in self._under_way.values())
