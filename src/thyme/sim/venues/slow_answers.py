"""Slow answers: mobile nodes that take seconds to answer a request of the station.

Entry point: `SlowAnswers`, a node around another one. Phones throttle applications in the
background: four of five requests are answered within 20 s, the others within 30 s.
Clause: I10. Source: thesis, section 5.3.5.
"""

from __future__ import annotations

from random import Random

import msgspec

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.common import RouteToNode
from thyme.protocol.messages.stations import FetchStored
from thyme.protocol.node import Action, Input, Node, Received, SetTimer, TimerFired

_QUICK_SHARE = 0.8
_QUICK_US, _SLOW_US = 20 * SECOND_US, 30 * SECOND_US


class HeldRequestTimer(msgspec.Struct, frozen=True):
    """Time to handle a request that was held back."""

    number: int


class SlowAnswers:
    """A mobile node that handles requests of its station late, and all other inputs at once."""

    def __init__(self, inner: Node, rng: Random) -> None:
        self.inner = inner
        self._rng = rng
        self._held: dict[int, Received] = {}
        self._requests = 0

    @property
    def node_id(self) -> NodeId:
        return self.inner.node_id

    def handle(self, event: Input, now_us: int) -> list[Action]:
        if isinstance(event, TimerFired) and isinstance(event.timer, HeldRequestTimer):
            return self.inner.handle(self._held.pop(event.timer.number), now_us)
        if isinstance(event, Received) and self._is_request(event):
            self._requests += 1
            self._held[self._requests] = event
            return [SetTimer(HeldRequestTimer(self._requests), now_us + self._draw_wait_us())]
        return self.inner.handle(event, now_us)

    def _is_request(self, event: Received) -> bool:
        message = event.message
        if isinstance(message, RouteToNode) and message.node == self.node_id:
            message = message.message
        return isinstance(message, FetchStored)

    def _draw_wait_us(self) -> int:
        is_quick = self._rng.random() < _QUICK_SHARE
        return self._rng.randint(*((0, _QUICK_US) if is_quick else (_QUICK_US, _SLOW_US)))

    def check(self) -> None:
        self.inner.check()
