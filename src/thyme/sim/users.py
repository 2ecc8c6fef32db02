"""Users: simulated applications that issue the operations of a trace and log the results.

Entry point: `Users`. Each user is the application of one device. A user reads the whole history of
its subscriptions, page by page; retrieves some of the objects it is notified of; and resumes its
subscriptions after a restart of its device. `thyme.sim.results.summary` evaluates the logs.
Clauses: S7, S10, S14, M16, M17, M27.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import msgspec

from thyme.model.frames import SECOND_US
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.protocol import requests
from thyme.protocol.requests import Begun, CaughtUp, Failed, Finished, Notified, Told, Value
from thyme.sim.world import WirelessWorld
from thyme.traces.operations import Delete, Insert, Operation, Subscribe, Unsubscribe
from thyme.traces.reactions import Reaction
from thyme.traces.trace import Trace, kind_of

BATCH = 50
"""Number of past notifications that a user requests at once (M17)."""
READ_ON_US = SECOND_US
"""Delay between a notification from history and the request for the next page."""


class Attempt(msgspec.Struct):
    """Log entry of one operation: when it was issued, when and how it ended."""

    kind: str
    user: int
    name: str
    """Identifier of the object or subscription in the trace."""
    issued_us: int
    ended_us: int | None = None
    code: str = "pending"
    """`ok`; the code of a failure; `pending` if the operation had not ended when the run ended;
    `down` if the device stopped before the operation ended."""


class Heard(msgspec.Struct, frozen=True):
    """Log entry of one notification that a user received."""

    user: int
    sid: str
    """Identifier of the subscription in the trace."""
    oid: str
    published_us: int
    told_us: int


class _Following:
    """A subscription that a user issued, from its request to its end."""

    __slots__ = ("answered", "ended", "name", "revoke", "sid")

    def __init__(self, name: str) -> None:
        self.name = name
        self.answered = False
        """Whether the subscribe request was answered."""
        self.sid: SubscriptionId | None = None
        """Identifier given by the node; None until the subscription has started."""
        self.ended = False
        self.revoke: Attempt | None = None
        """The unsubscribe operation that waits for the answer to the subscribe request."""


OnEnd = Callable[[Value, str], None]
"""Called with the value of the reply and `ok`, or with None and the code of a failure."""


class _User:
    """The state of one user; it outlives the incarnations of the user's device."""

    __slots__ = ("asks", "followings", "number", "reading_on", "retrieved", "waiting")

    def __init__(self, number: int) -> None:
        self.number = number
        self.asks = 0
        self.waiting: dict[int, tuple[Attempt | None, OnEnd]] = {}
        self.followings: dict[str, _Following] = {}
        self.reading_on: set[SubscriptionId] = set()
        """Subscriptions for which the request of the next history page is scheduled."""
        self.retrieved: set[str] = set()


class Users:
    """Simulates all users of a run."""

    def __init__(
        self,
        world: WirelessWorld,
        names: Sequence[NodeId],
        trace: Trace,
        *,
        origin_us: int,
        reaction: Reaction,
        seed: int,
    ) -> None:
        self._world = world
        self._names = names
        self._numbers = {name: number for number, name in enumerate(names)}
        self._trace = trace
        self._users = [_User(number) for number in range(trace.users)]
        self._up = [False] * len(names)
        self._origin_us = origin_us
        self._reaction = reaction
        self._seed = seed
        self._by_sid: dict[SubscriptionId, str] = {}
        self._heard: list[tuple[int, SubscriptionId, Metadata, int]] = []
        self.attempts: list[Attempt] = []
        """Log of all operations, in order of issue."""

    def begin(self) -> None:
        """Schedules every operation of the trace.

        Events that were scheduled earlier for the same instant, such as a restart of the user's
        device, are processed before the operation.
        """
        for operation in self._trace.operations:
            self._world.kernel.at(self._origin_us + operation.at_us, self._issue, operation)

    @property
    def told(self) -> int:
        """Number of notifications that users received so far."""
        return len(self._heard)

    def heard(self) -> list[Heard]:
        """Returns the log of all received notifications, in order of receipt."""
        return [
            Heard(
                user,
                self._by_sid.get(sid, f"unknown:{sid}"),
                metadata.key.oid,
                metadata.published_us,
                told_us,
            )
            for user, sid, metadata, told_us in self._heard
        ]

    def on_life(self, node_id: NodeId, life: int) -> None:
        """Handles the start or stop of a device.

        After a stop, the pending operations of its user end with `down`; after a restart, the user
        resumes its subscriptions.
        """
        number = self._numbers[node_id]
        self._up[number] = life > 0
        if number >= len(self._users):
            return
        user = self._users[number]
        if not life:
            waiting, user.waiting = user.waiting, {}
            user.reading_on.clear()
            for attempt, on_end in waiting.values():
                if attempt is not None:
                    attempt.code = "down"
                on_end(None, "down")
        elif life > 1:
            for following in user.followings.values():
                if following.sid is not None and not following.ended:
                    self._resume(user, following.sid)

    def _resume(self, user: _User, sid: SubscriptionId) -> None:
        self._ask(user, None, lambda number: requests.Resume(ask=number, sid=sid))

    def on_told(self, node_id: NodeId, told: Told) -> None:
        """Handles an application event of a device."""
        number = self._numbers[node_id]
        if number >= len(self._users):
            return
        user = self._users[number]
        match told:
            case Finished():
                self._end(user, told.ask, told.value, "ok")
            case Failed():
                self._end(user, told.ask, None, told.code)
            case Notified():
                self._on_notified(user, told)
            case CaughtUp():
                if told.total > BATCH:
                    self._ask_more(user, told.sid)
            case _:
                pass  # the end of a subscription is expected

    # Operations

    def _issue(self, operation: Operation) -> None:
        user = self._users[operation.user]
        name = operation.oid if isinstance(operation, Insert | Delete) else operation.sid
        attempt = self._attempt(kind_of(operation), user, name)
        match operation:
            case Insert():
                self._insert(user, attempt, operation)
            case Delete():
                key = Key(ObjectId(operation.oid), self._names[user.number])
                self._ask(user, attempt, lambda number: requests.Delete(ask=number, key=key))
            case Subscribe():
                self._subscribe(user, attempt, operation)
            case Unsubscribe():
                following = user.followings[operation.sid]
                following.revoke = attempt
                if following.answered:
                    self._revoke(user, following)
            case _:
                assert_never(operation)

    def _attempt(self, kind: str, user: _User, name: str) -> Attempt:
        attempt = Attempt(kind, user.number, name, self._world.now_us)
        self.attempts.append(attempt)
        return attempt

    def _insert(self, user: _User, attempt: Attempt, insert: Insert) -> None:
        data = insert.text.encode() if insert.text else bytes(insert.size)
        self._ask(
            user,
            attempt,
            lambda number: requests.Insert(
                ask=number,
                data=data,
                tags=insert.tags,
                summary=bytes(insert.summary_size),
                oid=ObjectId(insert.oid),
                life_us=insert.life_us,
            ),
        )

    def _subscribe(self, user: _User, attempt: Attempt, subscribe: Subscribe) -> None:
        following = user.followings[subscribe.sid] = _Following(subscribe.sid)

        def on_end(value: Value, code: str) -> None:
            following.answered = True
            if isinstance(value, Begun):
                following.sid = value.sid
                self._by_sid[value.sid] = following.name
            if following.revoke is not None:
                self._revoke(user, following)

        self._ask(
            user,
            attempt,
            lambda number: requests.Subscribe(
                ask=number,
                conjunctions=subscribe.conjunctions,
                frame=subscribe.frame_from(self._origin_us),
                batch=BATCH,
            ),
            on_end,
        )

    def _revoke(self, user: _User, following: _Following) -> None:
        attempt, sid = following.revoke, following.sid
        following.ended = True
        if sid is None:
            assert attempt is not None
            attempt.ended_us, attempt.code = self._world.now_us, "no_subscription"
            return
        self._ask(user, attempt, lambda number: requests.Unsubscribe(ask=number, sid=sid))

    def _ask_more(self, user: _User, sid: SubscriptionId) -> None:
        def on_end(value: Value, code: str) -> None:
            if isinstance(value, int) and value >= BATCH:
                self._ask_more(user, sid)

        self._ask(
            user, None, lambda number: requests.More(ask=number, sid=sid, count=BATCH), on_end
        )

    def _read_on(self, argument: tuple[_User, SubscriptionId]) -> None:
        user, sid = argument
        if sid in user.reading_on:
            user.reading_on.discard(sid)
            self._ask_more(user, sid)

    # Reactions

    def _on_notified(self, user: _User, told: Notified) -> None:
        metadata = told.note.metadata
        self._heard.append((user.number, told.note.sid, metadata, self._world.now_us))
        self._world.ask(
            self._names[user.number], requests.Take(sid=told.note.sid, key=metadata.key)
        )
        if told.note.past and told.note.sid not in user.reading_on:
            # In LS every owner answers separately, so no reply gives the total count (L7).
            user.reading_on.add(told.note.sid)
            read_on_us = self._world.now_us + READ_ON_US
            self._world.kernel.at(read_on_us, self._read_on, (user, told.note.sid))
        oid = metadata.key.oid
        if oid in user.retrieved or metadata.key.owner == self._names[user.number]:
            return
        user.retrieved.add(oid)
        delay_us = self._reaction.delay_us(self._seed, user.number, oid)
        if delay_us is not None:
            self._world.kernel.at(self._world.now_us + delay_us, self._retrieve, (user, metadata))

    def _retrieve(self, argument: tuple[_User, Metadata]) -> None:
        user, metadata = argument
        if not self._up[user.number]:
            return
        attempt = self._attempt("retrieve", user, metadata.key.oid)
        self._ask(user, attempt, lambda number: requests.Retrieve(ask=number, metadata=metadata))

    # Requests and replies

    def _ask(
        self,
        user: _User,
        attempt: Attempt | None,
        make: Callable[[int], requests.Request],
        on_end: OnEnd | None = None,
    ) -> None:
        user.asks += 1
        user.waiting[user.asks] = attempt, on_end or _no_matter
        self._world.ask(self._names[user.number], make(user.asks))

    def _end(self, user: _User, number: int, value: Value, code: str) -> None:
        attempt, on_end = user.waiting.pop(number, (None, _no_matter))
        if attempt is not None:
            attempt.ended_us = self._world.now_us
            attempt.code = code
        on_end(value, code)


def _no_matter(value: Value, code: str) -> None:
    """Ignores a reply."""
