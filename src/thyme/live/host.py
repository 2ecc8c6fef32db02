"""The host: runs a node on real sockets and a real clock, on the running asyncio loop.

Inputs that have come together are handled together, under one commit of the store, and only then
are their actions carried out: nothing is acknowledged that could be lost. The clock is read once
from the wall and then runs with the monotonic one, so that a corrected wall clock never moves time
backwards under a node.
Clauses: M24, M28.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from heapq import heappop, heappush
from typing import assert_never

from thyme.live.link import Link
from thyme.live.notary import TOGETHER_MAX
from thyme.live.sockets import Sockets
from thyme.live.terms import Address, Came, GaveUp
from thyme.model.errors import EndedError, StoreError
from thyme.model.ids import NodeId
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
    Timer,
    TimerFired,
)
from thyme.protocol.port import Listener
from thyme.protocol.requests import Insert, Request, Together
from thyme.storage.store import Store

_log = logging.getLogger("thyme")
BATCH_MAX = 256
"""How many inputs share a commit at most."""
LEAVE_US_MAX = 5_000_000
CALM_S = 0.05
CALM_MIN = 3
"""A node that leaves stays until nothing has been under way for so many looks."""
_SLEEP_US_MAX = 3_600_000_000


class Clock:
    """Microseconds since 1970 that never go back."""

    def __init__(self) -> None:
        self._origin_us = time.time_ns() // 1_000 - time.monotonic_ns() // 1_000

    def now_us(self) -> int:
        """What time it is."""
        return self._origin_us + time.monotonic_ns() // 1_000


class Host:
    """A node in the real world, as its application reaches it (a `Port`)."""

    def __init__(
        self, node: Node, store: Store, link: Link, sockets: Sockets, listener: Listener
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = Clock()
        self._node = node
        self._store = store
        self._link = link
        self._sockets = sockets
        self._listener = listener
        self._inbox: deque[Input] = deque()
        self._sending: asyncio.Handle | None = None
        self._timers: dict[Timer, int] = {}
        self._heap: list[tuple[int, int, Timer]] = []
        self._serial = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_us = 0
        self._turn: asyncio.Handle | None = None
        self._ended: EndedError | None = None
        sockets.on_datagram = self._on_datagram
        self._put(Started())

    @property
    def node_id(self) -> NodeId:
        return self._node.node_id

    @property
    def link(self) -> Link:
        """The neighbours."""
        return self._link

    def now_us(self) -> int:
        return self._clock.now_us()

    def ask(self, request: Request) -> None:
        if self._ended is not None:
            raise self._ended
        self._put(Asked(request))

    def move(self, place: tuple[float, float]) -> None:
        """The device is at another place now."""
        self._put(Moved(place))

    async def leave(self) -> None:
        """Says goodbye, stays until it is heard, and is gone."""
        if self._ended is None:
            self._put(Leaving())
            until_us = self.now_us() + LEAVE_US_MAX
            calm = 0
            while calm < CALM_MIN and self.now_us() < until_us and self._ended is None:
                await asyncio.sleep(CALM_S)
                calm = 0 if self._link.busy else calm + 1
        self.close()

    def close(self) -> None:
        """Gone at once; what is committed stays."""
        if self._ended is None:
            self._end(EndedError("this world has been left"))

    # Inputs

    def _put(self, event: Input) -> None:
        self._inbox.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._inbox and self._turn is None and self._ended is None:
            self._turn = self._loop.call_soon(self._take_turn)

    def _on_datagram(self, datagram: bytes, address: Address) -> None:
        if self._ended is None:
            self._link.hear(datagram, address, self.now_us())
            self._carry_out_effects()
            self._set_alarm()
            if not self._inbox:
                self._send_soon()

    def _on_alarm(self) -> None:
        self._alarm = None
        now_us = self.now_us()
        while self._heap and self._heap[0][0] <= now_us:
            at_us, _, timer = heappop(self._heap)
            if self._timers.get(timer) == at_us:
                del self._timers[timer]
                self._put(TimerFired(timer))
        self._link.tick(now_us)
        self._carry_out_effects()
        self._set_alarm()
        self._send_all()

    def _take_turn(self) -> None:
        """Handles what has come, stores it, and then says so."""
        self._turn = None
        actions: list[Action] = []
        try:
            for _ in range(BATCH_MAX):
                if not self._inbox:
                    break
                actions += self._node.handle(self._next_input(), self.now_us())
            self._store.commit()
        except StoreError as error:
            self._break(error)
            return
        except Exception as error:
            # A mistake of ours: half of an input must neither be stored nor acted upon (M24).
            _log.exception("an input could not be handled; the node stops")
            self._break(EndedError(f"a mistake of ours, see the log: {error!r}"))
            return
        for action in actions:
            self._carry_out(action)
        self._carry_out_effects()
        self._set_alarm()
        if any(isinstance(action, Tell) for action in actions):
            self._send_soon()
        else:
            self._send_all()
        self._wake()

    def _next_input(self) -> Input:
        """What came first; inserts that came one after the other are one input (B5)."""
        inbox = self._inbox
        event = inbox.popleft()
        if (insert := _insert_in(event)) is None or not inbox or _insert_in(inbox[0]) is None:
            return event
        inserts = [insert]
        while inbox and (insert := _insert_in(inbox[0])) and len(inserts) < TOGETHER_MAX:
            inserts.append(insert)
            inbox.popleft()
        return Asked(Together(tuple(inserts)))

    # Actions

    def _carry_out(self, action: Action) -> None:
        match action:
            case Send():
                self._link.send(action.to, action.message, self.now_us())
            case Broadcast():
                self._link.broadcast(action.message, self.now_us())
            case SetTimer():
                self._timers[action.timer] = action.at_us
                self._serial += 1
                heappush(self._heap, (action.at_us, self._serial, action.timer))
            case CancelTimer():
                self._timers.pop(action.timer, None)
            case Tell():
                self._listener.on_told(action.told)
            case _:
                assert_never(action)

    def _carry_out_effects(self) -> None:
        for effect in self._link.take():
            match effect:
                case Came():
                    self._put(Received(effect.sender, effect.message))
                case GaveUp():
                    self._put(SendFailed(effect.to, effect.message))
                case _:
                    assert_never(effect)

    def _send_soon(self) -> None:
        """After all that came was handled, and who waits for it was woken: more then travels as
        one, and on a busy machine sending hands the processor to whoever gets it."""
        if self._sending is None:
            self._sending = self._loop.call_soon(self._send_all)

    def _send_all(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        if self._ended is None:
            for transmit in self._link.transmits():
                self._sockets.send(transmit.datagram, transmit.to)

    def _set_alarm(self) -> None:
        """Wakes when the first timer, or the link, has something to do. An alarm that is early
        does no harm, and is cheaper than another one for each datagram."""
        if self._ended is not None:
            return
        while self._heap and self._timers.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        at_us = self._link.next_us()
        if self._heap:
            at_us = min(at_us, self._heap[0][0])
        if self._alarm is not None:
            if self._alarm_us <= at_us:
                return
            self._alarm.cancel()
        wait_us = min(max(0, at_us - self.now_us()), _SLEEP_US_MAX)
        self._alarm_us = at_us
        self._alarm = self._loop.call_later(wait_us / 1e6, self._on_alarm)

    def _break(self, error: StoreError | EndedError) -> None:
        self._end(EndedError(f"this world stopped: {error}"))
        self._listener.on_broken(error)

    def _end(self, error: EndedError) -> None:
        self._ended = error
        for handle in (self._alarm, self._turn, self._sending):
            if handle is not None:
                handle.cancel()
        self._sockets.close()
        self._store.close()


def _insert_in(event: Input) -> Insert | None:
    request = event.request if isinstance(event, Asked) else None
    return request if isinstance(request, Insert) else None
