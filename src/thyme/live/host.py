"""Host: runs a node on the running asyncio loop, with UDP sockets and the system clock.

The host handles waiting inputs as a batch with one commit of the store and executes their actions
after the commit: a node acknowledges only committed data. The wall clock is read once, at start;
after that the monotonic clock advances the time, so that a corrected wall clock never moves the
node's time backwards.
Entry point: `Host`. Retransmission and neighbours are up to `thyme.transport.link`.
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
"""Maximum number of inputs in one commit."""
LEAVE_US_MAX = 5_000_000
CALM_S = 0.05
CALM_MIN = 3
"""A leaving node stays until this many polls in a row find no unacknowledged message."""
_SLEEP_US_MAX = 3_600_000_000


class Clock:
    """Clock that counts microseconds since 1970 and never runs backwards."""

    def __init__(self) -> None:
        self._origin_us = time.time_ns() // 1_000 - time.monotonic_ns() // 1_000

    def now_us(self) -> int:
        """The current time in microseconds since 1970."""
        return self._origin_us + time.monotonic_ns() // 1_000


class Host:
    """Runs one node in real time and gives its application access to it (a `NodePort`)."""

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
        """The link to the neighbours."""
        return self._link

    def now_us(self) -> int:
        return self._clock.now_us()

    def ask(self, request: Request) -> None:
        if self._ended is not None:
            raise self._ended
        self._put(Asked(request))

    def move(self, place: tuple[float, float]) -> None:
        """Tells the node its new position, in metres."""
        self._put(Moved(place))

    async def leave(self) -> None:
        """Leaves the world gracefully: waits until the neighbours acknowledged it, then closes."""
        if self._ended is None:
            self._put(Leaving())
            deadline_us = self.now_us() + LEAVE_US_MAX
            idle_polls = 0
            while idle_polls < CALM_MIN and self.now_us() < deadline_us and self._ended is None:
                await asyncio.sleep(CALM_S)
                idle_polls = 0 if self._link.busy else idle_polls + 1
        self.close()

    def close(self) -> None:
        """Stops the node at once; committed data stays in the store."""
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
        """Handles waiting inputs, commits the store, then executes the actions."""
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
            # A bug: a half-handled input must be neither stored nor acted upon (M24).
            _log.exception("an input could not be handled; the node stops")
            self._break(EndedError(f"internal error, see the log: {error!r}"))
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
        """The oldest waiting input; consecutive inserts become one `InsertBatch` (B5)."""
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
        """Defers sending until the loop has run the callbacks that are ready: more messages then
        share a datagram, and local readers are not delayed by the send."""
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
        """Sets the alarm for the first due timer or link deadline. An alarm that is already set
        for an earlier time stays: an early alarm is harmless and cheaper than a new one per
        datagram."""
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
