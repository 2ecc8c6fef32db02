"""The switchboard: one node, and all the applications that use it.

Every line is a port of its own. Requests are numbered anew on their way in, so that each answer
finds the line that asked; news of a subscription goes to the line that began or resumed it. A line
that is closed leaves its subscriptions standing: the node pauses them, and whoever resumes one
hears what was not taken before (M27).
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
"""Of how many subscriptions that are over it is remembered who read them."""


class _Asked(msgspec.Struct, frozen=True):
    """A request under way; one of the switchboard's own has a subscription instead of a line."""

    line: Line | None
    ask: int
    kind: str
    at_us: int
    sid: SubscriptionId | None = None


class _Reading:
    """A subscription, and who reads it."""

    __slots__ = ("line", "over", "total", "untaken")

    def __init__(self) -> None:
        self.line: Line | None = None
        """None while nobody does."""
        self.total = 0
        self.untaken: dict[Key, None] = {}
        """What was told and not taken."""
        self.over = False


class Tally:
    """What was asked of a node, and how it ended."""

    def __init__(self) -> None:
        self.finished: Counter[str] = Counter()
        """By kind of request."""
        self.failed: Counter[tuple[str, str]] = Counter()
        """By kind of request and code of failure."""
        self.took_us: Counter[str] = Counter()
        """The time that all together took, by kind."""
        self.notified = 0


class Switchboard:
    """Connects lines to a node."""

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
        """A new line, for an application."""
        if self._broken is not None:
            raise EndedError(f"the node stopped: {self._broken}")
        line = Line(self, listener)
        self._lines[line] = None
        return line

    @property
    def lines(self) -> int:
        """How many applications there are."""
        return len(self._lines)

    @property
    def broken(self) -> ThymeError | None:
        """Why the node is gone for good, if it is."""
        return self._broken

    # What lines say

    def ask(self, line: Line, request: Request) -> None:
        """Passes on what a line asks."""
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
        """A line is closed: nobody hears what it would have."""
        self._lines.pop(line, None)
        for sid, reading in list(self._readings.items()):
            if reading.line is line:
                self._set_free(sid, reading)

    def hang_up(self, why: ThymeError) -> None:
        """Tells every line that there is nobody to ask any more."""
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
        """Whether a subscription of this life stands, and nobody reads it."""
        reading = self._readings.get(sid)
        return reading is not None and reading.line is None

    def _set_free(self, sid: SubscriptionId, reading: _Reading) -> None:
        reading.line = None
        if reading.over:
            del self._readings[sid]
            self._over.pop(sid, None)
            return
        with suppress(EndedError):  # then nobody will resume it in this life
            self.node.ask(Pause(sid=sid))

    def _take_up(self, line: Line, request: Resume) -> None:
        """A line goes on where another has stopped."""
        reading = self._readings[request.sid]
        reading.line = line
        line.listener.on_told(Finished(request.ask, Begun(request.sid, reading.total)))
        refused, reading.untaken = tuple(reading.untaken), {}
        self._pass_in(None, CatchUp(ask=0, sid=request.sid, refused=refused), request.sid)

    # What the node says

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
        if line not in self._lines:  # who asked did not wait for it
            self._set_free(begun.sid, reading)

    def _pass_on(self, sid: SubscriptionId, told: Told) -> None:
        reading = self._readings.get(sid)
        if reading is not None and reading.line is not None:
            reading.line.listener.on_told(told)

    def _on_over(self, sid: SubscriptionId) -> None:
        """One that is over can still be read from: `More` brings its past."""
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
    """One application's port to a shared node."""

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
        """Hangs up; the node goes on."""
        self._open = False
        self._board.drop(self)
