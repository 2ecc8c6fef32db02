"""World: the public API of Thyme, with async and await.

    async with thyme.join("lisbon") as world:
        key = await world.insert(photo, tags=["goal", "eder"])
        async for note in await world.subscribe("goal & !replay"):
            data = await world.retrieve(note)

Invalid arguments raise an `InputError`; an operation that fails in the node or the network raises
an `OperationError`. Cancelling an `await` is safe and loses no notification.
Clauses: M13–M20, M21, M26–M33.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from thyme.app.asker import Asker, Outcome
from thyme.app.handlers import Handlers
from thyme.app.inputs import Instant, as_count, as_key, insert_request, search_frame
from thyme.app.port import PortMaker
from thyme.app.subscription import Overflow, Subscription, answer, as_overflow
from thyme.model.errors import EndedError, NotFoundError
from thyme.model.frames import as_frame
from thyme.model.ids import Key, NodeId, SubscriptionId, as_subscription_id
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.model.worlds import WorldInfo
from thyme.protocol.requests import (
    Answered,
    Begun,
    Delete,
    Found,
    Held,
    KnownObject,
    ListSubscriptions,
    LookUp,
    Resume,
    Retrieve,
    Search,
    Subscribe,
    Unsubscribe,
    Value,
)
from thyme.query.explain import Explanation, explain
from thyme.query.query import Formula, as_query, query_of

BUFFER_MAX = 1_000
"""Default buffer size of a subscription, in notifications."""
Opened = tuple[WorldInfo, PortMaker]
"""A world and the factory of the port to a node in it."""


class World:
    """A world that the application joins with `async with` and leaves at the end of the block."""

    def __init__(self, open_world: Callable[[], Opened | Awaitable[Opened]]) -> None:
        self._open = open_world
        self._joined: tuple[WorldInfo, Asker] | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        """Joins without `async with`; the application must call `leave` at the end."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if self._joined is not None:
            raise EndedError("this world has been joined already; join again for another")
        opened = self._open()
        info, make_port = opened if isinstance(opened, tuple) else await opened
        self._joined = info, Asker(make_port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Leaves the world: subscriptions end; durable data stays stored."""
        await self._asker.leave()

    @property
    def info(self) -> WorldInfo:
        """The world's name, id and limits (M21)."""
        return self._member[0]

    @property
    def node_id(self) -> NodeId:
        """The id of this node, which is the owner of the objects that it inserts."""
        return self._asker.node_id

    @property
    def handlers(self) -> Handlers:
        """The same world with callbacks instead of async and await."""
        return Handlers(self._asker)

    def now_us(self) -> int:
        """The node's current time in microseconds since 1970."""
        return self._asker.now_us()

    async def insert(
        self,
        data: bytes,
        *,
        tags: Iterable[str],
        summary: bytes | str = b"",
        oid: str | None = None,
        life: timedelta | None = None,
        copies: int = 1,
        durable: bool = False,
    ) -> Key:
        """Stores an object and notifies the matching subscribers (M13); returns its key.

        `oid` is the object id, unique among your objects (default: random); after `ttl` the object
        expires (M29); `copies` and `durable` are guarantees: the insert fails if the substrate
        cannot give them (M30).
        """
        make = insert_request(data, tags, summary, oid, life, copies, durable)
        key = await answer(self._asker, make)
        assert isinstance(key, Key)
        return key

    async def delete(self, key: Key | Metadata | Notification) -> None:
        """Deletes an object of this node; later subscriptions do not find it either (M14)."""
        found = as_key(key)
        await answer(self._asker, lambda request_id: Delete(ask=request_id, key=found))

    async def subscribe(
        self,
        query: str | Formula,
        start: Instant | None = None,
        end: Instant | None = None,
        batch: int = 20,
        *,
        buffer: int = BUFFER_MAX,
        overflow: str | Overflow = Overflow.DROP_OLDEST,
    ) -> Subscription:
        """Subscribes to objects that match a formula and are published from `start` to `end`.

        `start` and `end` are aware datetimes, timedeltas from now, microseconds since 1970, or None
        for an open end. The `batch` most recent stored matches are delivered first,
        `Subscription.more` requests older ones; new objects follow as they are inserted (M15, M17).
        """
        formula = as_query(query)
        frame = as_frame(start, end, self.now_us())
        count = as_count(batch, "batch")
        subscription = Subscription(self._asker, formula, frame, buffer, as_overflow(overflow))
        await self._begin(
            subscription,
            lambda request_id: Subscribe(
                ask=request_id, conjunctions=formula.conjunctions, frame=frame, batch=count
            ),
        )
        return subscription

    async def subscriptions(self) -> tuple[Held, ...]:
        """The subscriptions of this node, including those of earlier incarnations."""
        held = await answer(self._asker, lambda request_id: ListSubscriptions(ask=request_id))
        assert isinstance(held, tuple)
        return held

    async def resume(
        self,
        sid: str,
        *,
        buffer: int = BUFFER_MAX,
        overflow: str | Overflow = Overflow.DROP_OLDEST,
    ) -> Subscription:
        """Resumes a subscription from an earlier incarnation of this node (M27): notifications not
        consumed then are delivered now, and none twice."""
        name = as_subscription_id(sid)
        held = next((held for held in await self.subscriptions() if held.sid == name), None)
        if held is None:
            raise NotFoundError(f"this node has no subscription {name}")
        subscription = Subscription(
            self._asker, query_of(held.conjunctions), held.frame, buffer, as_overflow(overflow)
        )
        await self._begin(subscription, lambda request_id: Resume(ask=request_id, sid=held.sid))
        return subscription

    async def unsubscribe(self, sid: str) -> None:
        """Ends a subscription of this node by its id (M18)."""
        name = as_subscription_id(sid)
        await answer(self._asker, lambda request_id: Unsubscribe(ask=request_id, sid=name))

    async def search(
        self,
        query: str | Formula,
        start: Instant | None = None,
        end: Instant | None = None,
        limit: int = 20,
    ) -> Found:
        """Searches the catalogue once (M20): the most recent matches and their total number."""
        formula = as_query(query)
        frame = search_frame(start, end, self.now_us())
        count = as_count(limit, "limit")
        found = await answer(
            self._asker,
            lambda request_id: Search(
                ask=request_id, conjunctions=formula.conjunctions, frame=frame, count=count
            ),
        )
        assert isinstance(found, Found)
        return found

    async def retrieve(self, thing: Notification | Metadata | Key) -> bytes:
        """Retrieves a notified object and verifies its content (M19)."""
        metadata = self._asker.metadata_of(thing)
        data = await answer(
            self._asker, lambda request_id: Retrieve(ask=request_id, metadata=metadata)
        )
        assert isinstance(data, bytes)
        return data

    async def explain(
        self, thing: Notification | Metadata | Key, subscription: Subscription
    ) -> Explanation:
        """Explains why an object does or does not match a subscription (M32)."""
        key = as_key(thing)
        known = await answer(self._asker, lambda request_id: LookUp(ask=request_id, key=key))
        assert isinstance(known, KnownObject)
        conjunctions = subscription.query.conjunctions
        return explain(known.state, known.metadata, conjunctions, subscription.frame)

    async def _begin(self, subscription: Subscription, make: Callable[[int], Answered]) -> None:
        """Starts a subscription; cancels it if the caller no longer waits for it."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_done(outcome: Outcome[Value]) -> None:
            if isinstance(outcome.value, Begun):
                subscription.begin(outcome.value.sid, outcome.value.total)
            if begun.done():
                self._abandon(subscription.sid)
            elif outcome.error is not None:
                begun.set_exception(outcome.error)
            else:
                begun.set_result(None)

        self._asker.ask(make, on_done)
        await begun

    def _abandon(self, sid: SubscriptionId) -> None:
        if sid:
            self._asker.ask(lambda request_id: Unsubscribe(ask=request_id, sid=sid), lambda _: None)

    @property
    def _member(self) -> tuple[WorldInfo, Asker]:
        if self._joined is None:
            raise EndedError("join the world first: async with thyme.join(…) as world")
        return self._joined

    @property
    def _asker(self) -> Asker:
        return self._member[1]
