"""Shared node: lets several applications use one node.

Each application has a session, which is a `NodePort`. Requests get a new request id on their way to
the node, so that each reply goes to the session that made the request; the events of a subscription
go to the session that started or resumed it. When a session is closed, its subscriptions stay
active but paused; a session that resumes one gets the notifications not consumed before (M27).
Entry point: `SharedNode.open_session`.
Clauses: M13–M20, M27.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import msgspec

from thyme.model.errors import EndedError, ThymeError
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.protocol.port import Listener, Port, PortMaker
from thyme.protocol.requests import (
    Answered,
    Begun,
    CatchUp,
    CaughtUp,
    Failed,
    Finished,
    Notified,
    Pause,
    Request,
    Resume,
    SubscriptionOver,
    Take,
    Told,
)

READERS_MAX = 1_000
"""Number of ended subscriptions whose session is remembered."""


class _Asked(msgspec.Struct, frozen=True):
    """A request without a reply yet; one made by `SharedNode` itself has a `sid`, no session."""

    line: Line | None
    ask: int
    kind: str
    at_us: int
    sid: SubscriptionId | None = None


class _Reading:
    """A subscription and the session that receives its events."""

    __slots__ = ("line", "over", "total", "untaken")

    def __init__(self) -> None:
        self.line: Line | None = None
        """None while no session owns the subscription."""
        self.total = 0
        self.untaken: dict[Key, None] = {}
        """Keys of notifications delivered and not consumed."""
        self.over = False


class Tally:
    """Counts and durations of the requests to a node."""

    def __init__(self) -> None:
        self.finished: Counter[str] = Counter()
        """Successful requests, by kind of request."""
        self.failed: Counter[tuple[str, str]] = Counter()
        """Failed requests, by kind of request and failure code."""
        self.took_us: Counter[str] = Counter()
        """Total duration of requests, by kind of request."""
        self.notified = 0


class Switchboard:
    """Passes requests and events between one node and the sessions of its applications."""

    def __init__(self, start: PortMaker) -> None:
        self._next_ask = 0
        self._asked: dict[int, _Asked] = {}
        self._readings: dict[SubscriptionId, _Reading] = {}
        self._over: dict[SubscriptionId, None] = {}
        self._lines: dict[Line, None] = {}
        self._broken: ThymeError | None = None
        self.tally = Tally()
        self.node: Port = start(self)

    def line(self, listener: Listener) -> Line:
        """Opens a session for an application."""
        if self._broken is not None:
            raise EndedError(f"the node stopped: {self._broken}")
        line = Line(self, listener)
        self._lines[line] = None
        return line

    @property
    def lines(self) -> int:
        """Number of open sessions."""
        return len(self._lines)

    @property
    def broken(self) -> ThymeError | None:
        """The error that stopped the node; None while it runs."""
        return self._broken

    # Requests of the sessions

    def ask(self, line: Line, request: Request) -> None:
        """Passes a request of a session to the node."""
        match request:
            case Take():
                if (reading := self._readings.get(request.sid)) is not None:
                    reading.untaken.pop(request.key, None)
                self.node.ask(request)
            case Pause():
                self.node.ask(request)
            case Resume() if self._is_free(request.sid):
                self._take_up(line, request)
            case _:
                self._pass_in(line, request)

    def drop(self, line: Line) -> None:
        """Removes a closed session and pauses its subscriptions."""
        self._lines.pop(line, None)
        for sid, reading in list(self._readings.items()):
            if reading.line is line:
                self._set_free(sid, reading)

    def hang_up(self, why: ThymeError) -> None:
        """Reports to every session that the node has stopped."""
        for line in list(self._lines):
            line.listener.on_broken(why)

    def _pass_in(
        self, line: Line | None, request: Answered, sid: SubscriptionId | None = None
    ) -> None:
        self._next_ask += 1
        number = self._next_ask
        kind = request.label
        self._asked[number] = _Asked(line, request.ask, kind, self.node.now_us(), sid)
        try:
            self.node.ask(msgspec.structs.replace(request, ask=number))
        except BaseException:
            del self._asked[number]
            raise

    def _is_free(self, sid: SubscriptionId) -> bool:
        """Whether a subscription of this incarnation is active without a session."""
        reading = self._readings.get(sid)
        return reading is not None and reading.line is None

    def _set_free(self, sid: SubscriptionId, reading: _Reading) -> None:
        reading.line = None
        if reading.over:
            del self._readings[sid]
            self._over.pop(sid, None)
            return
        with suppress(EndedError):  # the node has stopped; there is nothing to pause
            self.node.ask(Pause(sid=sid))

    def _take_up(self, line: Line, request: Resume) -> None:
        """Gives a subscription without a session to a session that resumes it."""
        reading = self._readings[request.sid]
        reading.line = line
        line.listener.on_told(Finished(request.ask, Begun(request.sid, reading.total)))
        refused, reading.untaken = tuple(reading.untaken), {}
        self._pass_in(None, CatchUp(ask=0, sid=request.sid, refused=refused), request.sid)

    # Events of the node

    def on_told(self, told: Told) -> None:
        match told:
            case Finished() | Failed():
                self._on_answer(told)
            case Notified():
                self.tally.notified += 1
                if (reading := self._readings.get(told.note.sid)) is not None:
                    reading.untaken[told.note.key] = None
                self._pass_on(told.note.sid, told)
            case CaughtUp():
                if (reading := self._readings.get(told.sid)) is not None:
                    reading.total = told.total
                self._pass_on(told.sid, told)
            case SubscriptionOver():
                self._pass_on(told.sid, told)
                self._on_over(told.sid)

    def on_broken(self, error: ThymeError) -> None:
        self._broken = error
        self.hang_up(error)

    def _on_answer(self, told: Finished | Failed) -> None:
        asked = self._asked.pop(told.ask)
        self._count(asked, told)
        if asked.sid is not None:
            total = self._readings[asked.sid].total if asked.sid in self._readings else 0
            code = told.code if isinstance(told, Failed) else ""
            self._pass_on(asked.sid, CaughtUp(asked.sid, total, code))
            return
        assert asked.line is not None
        if isinstance(told, Finished) and isinstance(told.value, Begun):
            self._on_begun(asked.line, told.value)
        if asked.line in self._lines:
            asked.line.listener.on_told(msgspec.structs.replace(told, ask=asked.ask))

    def _on_begun(self, line: Line, begun: Begun) -> None:
        reading = self._readings[begun.sid] = _Reading()
        reading.total = begun.total
        reading.line = line
        self._over.pop(begun.sid, None)
        if line not in self._lines:  # the session was closed meanwhile
            self._set_free(begun.sid, reading)

    def _pass_on(self, sid: SubscriptionId, told: Told) -> None:
        reading = self._readings.get(sid)
        if reading is not None and reading.line is not None:
            reading.line.listener.on_told(told)

    def _on_over(self, sid: SubscriptionId) -> None:
        """Marks a subscription as ended; its session can still read its history."""
        reading = self._readings.get(sid)
        if reading is None:
            return
        reading.over = True
        if reading.line is None:
            del self._readings[sid]
            return
        self._over[sid] = None
        if len(self._over) > READERS_MAX:
            oldest = next(iter(self._over))
            del self._over[oldest], self._readings[oldest]

    def _count(self, asked: _Asked, told: Finished | Failed) -> None:
        self.tally.took_us[asked.kind] += self.node.now_us() - asked.at_us
        if isinstance(told, Failed):
            self.tally.failed[asked.kind, told.code] += 1
        else:
            self.tally.finished[asked.kind] += 1


class Line:
    """The session of one application with a shared node (a `NodePort`)."""

    def __init__(self, board: Switchboard, listener: Listener) -> None:
        self._board = board
        self._open = True
        self.listener = listener

    @property
    def node_id(self) -> NodeId:
        return self._board.node.node_id

    def now_us(self) -> int:
        return self._board.node.now_us()

    def ask(self, request: Request) -> None:
        if not self._open:
            raise EndedError("this world has been left")
        self._board.ask(self, request)

    def close(self) -> None:
        """Closes the session; the node keeps running."""
        self._open = False
        self._board.drop(self)
