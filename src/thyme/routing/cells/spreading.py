"""Cell broadcast: sends a message to all nodes of a cell, with or without acknowledgements.

Entry point: `CellBroadcaster`, used by `geographic`. A broadcast reaches most nodes. If it is
acknowledged, each receiver sends a `CellBroadcastAck`, and the others get the message again by
unicast. The cell replies to a request after all nodes have acknowledged it, so that the confirmed
state is known to all of them. A node that never acknowledges delays the reply by a few tries only.
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
    """Timer at which a broadcast is repeated to nodes that did not acknowledge it."""

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
    """Broadcasts of one node in its cell."""

    def __init__(self, outbox: Outbox, config: CellsConfig) -> None:
        self._outbox = outbox
        self.config = config
        self._under_way: dict[SpreadTimer, _Spread] = {}
        self.repeated = 0
        self.unheard = 0

    def __len__(self) -> int:
        return len(self._under_way)

    def concerns_all(self, message: Message) -> bool:
        """Whether a message is for all nodes of a cell; one node is enough for a read request."""
        return self.config.spread_questions or not isinstance(message, _QUESTIONS)

    def is_sure(self, message: Message) -> bool:
        """Whether nodes acknowledge a message.

        Replicas are not acknowledged: there are many, and it suffices that most nodes get them.
        """
        return self.config.spread_tries_max > 1 and not isinstance(message, _COPIES | _QUESTIONS)

    def start(self, spread: CellSpread, others: Iterable[NodeId], now_us: int) -> None:
        """Broadcasts a message, and waits for the acknowledgements of the other nodes if needed."""
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
        """Calls a function once all nodes have acknowledged a message, or after the last try."""
        spread = self._under_way.get(SpreadTimer(origin, number, cell))
        if spread is None:
            then(now_us)
        else:
            spread.then.append(then)

    def on_spread(self, sender: NodeId, spread: CellSpread) -> None:
        """Acknowledges a received broadcast, also a repeated one."""
        if self.is_sure(spread.message):
            heard = SpreadHeard(spread.origin, spread.number, spread.cell)
            self._outbox.send(sender, heard)

    def on_heard(self, sender: NodeId, heard: SpreadHeard, now_us: int) -> None:
        """Records the acknowledgement of one node."""
        timer = SpreadTimer(heard.origin, heard.number, heard.cell)
        if (spread := self._under_way.get(timer)) is not None:
            spread.missing.pop(sender, None)
            if not spread.missing:
                self._end(timer, now_us)

    def on_send_failed(self, to: NodeId, message: CellSpread, now_us: int) -> None:
        """Stops waiting for a node that is out of reach."""
        self.on_heard(to, SpreadHeard(message.origin, message.number, message.cell), now_us)

    def on_timer(self, timer: SpreadTimer, now_us: int) -> list[NodeId]:
        """Repeats a broadcast to nodes that did not acknowledge it; after the last try, returns
        these nodes."""
        spread = self._under_way.get(timer)
        if spread is None:
            return []
        if spread.tries >= self.config.spread_tries_max:
            self.unheard += len(spread.missing)
            self._end(timer, now_us)
            return list(spread.missing)
        is_insert = isinstance(spread.message.message, IndexObject)
        if is_insert and spread.tries >= self.config.spread_hold_tries:
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
        callbacks, spread.then = spread.then, []
        for callback in callbacks:
            callback(now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._under_way) <= self.config.spreads_max
        assert all(spread.missing for spread in self._under_way.values())
