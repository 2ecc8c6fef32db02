"""World: the interface of Thyme, with async and await.

    async with thyme.join("lisbon") as world:
        key = await world.insert(photo, tags=["goal", "eder"])
        async for note in await world.subscribe("goal & !replay"):
            data = await world.retrieve(note)

Wrong arguments raise at once; what the node or the network could not do raises an `OperationError`
when awaited. Cancelling a wait is safe: no notification is lost by it.
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
"""How many untaken notifications a subscription holds unless told otherwise."""
Opened = tuple[WorldInfo, PortMaker]
"""A world, and the way to a node in it."""


class World:
    """A world that this application has joined, or is about to: use it with `async with`."""

    def __init__(self, open_world: Callable[[], Opened | Awaitable[Opened]]) -> None:
        self._open = open_world
        self._joined: tuple[WorldInfo, Asker] | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        """Joins without `async with`; then `leave` must be called."""
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
        """Leaves the world: subscriptions end, and what is stored stays where it is durable."""
        await self._asker.leave()

    @property
    def info(self) -> WorldInfo:
        """The world's name, identifier and bounds (M21)."""
        return self._member[0]

    @property
    def node_id(self) -> NodeId:
        """Who this node is; the owner of what it inserts."""
        return self._asker.node_id

    @property
    def handlers(self) -> Handlers:
        """The same world for applications that prefer callbacks."""
        return Handlers(self._asker)

    def now_us(self) -> int:
        """What time it is for this node, in microseconds since 1970."""
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
        """Stores an object and tells whom it concerns (M13); returns its key.

        `oid` names it among your own objects (else a name is drawn); `life` lets it expire (M29);
        `copies` and `durable` are guarantees, refused where they cannot be given (M30).
        """
        make = insert_request(data, tags, summary, oid, life, copies, durable)
        key = await answer(self._asker, make)
        assert isinstance(key, Key)
        return key

    async def delete(self, key: Key | Metadata | Notification) -> None:
        """Removes an object of your own, also from the past of later subscriptions (M14)."""
        found = as_key(key)
        await answer(self._asker, lambda ask: Delete(ask=ask, key=found))

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
        """Asks to be told of what matches a formula and was published from `start` to `end`.

        Each end is an aware datetime, a timedelta from now, microseconds since 1970, or None for
        open. The `batch` most recent stored matches come first, `Subscription.more` brings older
        ones; new ones come as they are inserted (M15, M17).
        """
        formula = as_query(query)
        frame = as_frame(start, end, self.now_us())
        count = as_count(batch, "batch")
        subscription = Subscription(self._asker, formula, frame, buffer, as_overflow(overflow))
        await self._begin(
            subscription,
            lambda ask: Subscribe(
                ask=ask, conjunctions=formula.conjunctions, frame=frame, batch=count
            ),
        )
        return subscription

    async def subscriptions(self) -> tuple[Held, ...]:
        """The subscriptions of this node, also those of its earlier lives."""
        held = await answer(self._asker, lambda ask: ListSubscriptions(ask=ask))
        assert isinstance(held, tuple)
        return held

    async def resume(
        self,
        sid: str,
        *,
        buffer: int = BUFFER_MAX,
        overflow: str | Overflow = Overflow.DROP_OLDEST,
    ) -> Subscription:
        """Goes on with a subscription of an earlier life of this node (M27): what was not taken
        then comes now, and nothing twice."""
        name = as_subscription_id(sid)
        held = next((held for held in await self.subscriptions() if held.sid == name), None)
        if held is None:
            raise NotFoundError(f"this node has no subscription {name}")
        subscription = Subscription(
            self._asker, query_of(held.conjunctions), held.frame, buffer, as_overflow(overflow)
        )
        await self._begin(subscription, lambda ask: Resume(ask=ask, sid=held.sid))
        return subscription

    async def unsubscribe(self, sid: str) -> None:
        """Ends a subscription of this node by its identifier (M18)."""
        name = as_subscription_id(sid)
        await answer(self._asker, lambda ask: Unsubscribe(ask=ask, sid=name))

    async def search(
        self,
        query: str | Formula,
        start: Instant | None = None,
        end: Instant | None = None,
        limit: int = 20,
    ) -> Found:
        """Reads the catalogue once (M20): the most recent matches, and how many there are."""
        formula = as_query(query)
        frame = search_frame(start, end, self.now_us())
        count = as_count(limit, "limit")
        found = await answer(
            self._asker,
            lambda ask: Search(
                ask=ask, conjunctions=formula.conjunctions, frame=frame, count=count
            ),
        )
        assert isinstance(found, Found)
        return found

    async def retrieve(self, thing: Notification | Metadata | Key) -> bytes:
        """Gets an object that was notified, its content verified (M19)."""
        metadata = self._asker.metadata_of(thing)
        data = await answer(self._asker, lambda ask: Retrieve(ask=ask, metadata=metadata))
        assert isinstance(data, bytes)
        return data

    async def explain(
        self, thing: Notification | Metadata | Key, subscription: Subscription
    ) -> Explanation:
        """Says why an object does or does not match a subscription (M32)."""
        key = as_key(thing)
        known = await answer(self._asker, lambda ask: LookUp(ask=ask, key=key))
        assert isinstance(known, KnownObject)
        conjunctions = subscription.query.conjunctions
        return explain(known.state, known.metadata, conjunctions, subscription.frame)

    async def _begin(self, subscription: Subscription, make: Callable[[int], Answered]) -> None:
        """Starts a subscription; if the caller stops waiting for it, it is cancelled."""
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
            self._asker.ask(lambda ask: Unsubscribe(ask=ask, sid=sid), lambda _: None)

    @property
    def _member(self) -> tuple[WorldInfo, Asker]:
        if self._joined is None:
            raise EndedError("join the world first: async with thyme.join(…) as world")
        return self._joined

    @property
    def _asker(self) -> Asker:
        return self._member[1]
