"""World: the public API of Thyme, with async and await.

    async with thyme.join("lisbon") as world:
        key = await world.insert(photo, tags=["goal", "eder"])
        async for note in await world.subscribe("goal & !replay"):
            data = await world.retrieve(note)

Invalid arguments raise an `InputError`; an operation that fails in the node or the network raises
an `OperationError`. Cancelling an `await` is safe and loses no notification.
Clauses: M13–M20, M21, M26–M33, M37, D14.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from thyme.api.arguments import Instant, as_count, as_key, make_insert, search_frame
from thyme.api.callbacks import CallbackWorld
from thyme.api.content import Uploaded, open_whole, read_content, take_content
from thyme.api.session import NodeSession, Outcome
from thyme.api.subscription import Overflow, Subscription, as_overflow
from thyme.api.versions import list_versions, next_version
from thyme.model.errors import (
    ClosedError,
    InputError,
    MetadataError,
    NotFoundError,
    OptionError,
    ThymeError,
)
from thyme.model.ids import Key, NodeId, SubscriptionId, as_subscription_id
from thyme.model.metadata import Metadata
from thyme.model.object_versions import version_tag
from thyme.model.subscriptions import Notification
from thyme.model.time_frames import as_frame
from thyme.model.worlds import WorldInfo
from thyme.protocol.app_interface import (
    Delete,
    ListSubscriptions,
    Lookup,
    LookupResult,
    ReplyValue,
    RequestWithReply,
    Resume,
    Retrieve,
    Search,
    SearchResult,
    Subscribe,
    SubscriptionInfo,
    SubscriptionStarted,
    Unsubscribe,
)
from thyme.protocol.port import PortFactory
from thyme.query.explain import Explanation, explain
from thyme.query.query import Formula, as_query, query_from_conjunctions

BUFFER_MAX = 1_000
"""Default buffer size of a subscription, in notifications."""
OpenedWorld = tuple[WorldInfo, PortFactory]
"""A world and the factory of the port to a node in it."""


class World:
    """A world that the application joins with `async with` and leaves at the end of the block."""

    def __init__(self, open_world: Callable[[], OpenedWorld | Awaitable[OpenedWorld]]) -> None:
        self._open_world = open_world
        self._joined: tuple[WorldInfo, NodeSession] | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        """Joins without `async with`; the application must call `leave` at the end."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if self._joined is not None:
            raise ClosedError("this world has been joined already; join again for another")
        opened = self._open_world()
        info, make_port = opened if isinstance(opened, tuple) else await opened
        session = NodeSession(make_port)
        try:
            session.raise_if_ended()
        except ThymeError:
            await session.leave()
            raise
        self._joined = info, session
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
        await self._session.leave()

    @property
    def info(self) -> WorldInfo:
        """The world's name, id and limits (M21)."""
        return self._joined_or_raise[0]

    @property
    def node_id(self) -> NodeId:
        """The id of this node, which is the owner of the objects that it inserts."""
        return self._session.node_id

    @property
    def callbacks(self) -> CallbackWorld:
        """The same world with callbacks instead of async and await."""
        return CallbackWorld(self._session)

    def now_us(self) -> int:
        """The node's current time in microseconds since 1970."""
        return self._session.now_us()

    async def insert(
        self,
        data: bytes | Path | BinaryIO,
        *,
        tags: Iterable[str],
        summary: bytes | str = b"",
        oid: str | None = None,
        ttl: timedelta | None = None,
        copies: int = 1,
        durable: bool = False,
        replicas: int | str | None = None,
        updates: Key | Metadata | Notification | None = None,
    ) -> Key:
        """Stores an object and notifies the matching subscribers (M13); returns its key.

        A file is given by its path, or open for reading bytes; it is read in chunks and may be
        larger than the memory (M37).
        `oid` is the object id, unique among your objects (default: random); after `ttl` the object
        expires (M29). `copies` and `durable` are guarantees: the insert fails unless so many nodes
        store the object, on disk if `durable` (M30). `replicas` is how many nodes of this node's
        cell should store it, "all" or a number, 1 for this node alone; None for the choice of the
        world. Only worlds with cells replicate (D14). With `updates`, the object becomes the latest
        version of an earlier object of this node, instead of having an `oid` (B9).
        """
        if updates is not None:
            if oid is not None:
                raise OptionError("a new version has the object id of the object that it updates")
            version = await next_version(self._session, as_key(updates))
            oid, tags = version.oid, (*tags, version_tag(version))
        session, upload = self._session, None
        options = (tags, summary, oid, ttl, copies, durable, replicas)
        if not isinstance(data, bytes | bytearray | memoryview | str):
            make_insert(0, b"", *options)  # checks the arguments
            content = await _read_file(session, data)
            if isinstance(content, Uploaded):
                data, upload = b"", content.upload
            else:
                data = content
        insert = make_insert(session.next_id(), data, *options, upload=upload)
        size = len(insert.data) + len(insert.summary)
        await session.insert_gate.enter(size)
        try:
            key = await session.await_reply(insert)
        finally:
            session.insert_gate.leave(size)
        assert isinstance(key, Key)
        return key

    async def versions(
        self, object_ref: Key | Metadata | Notification, limit: int = 20
    ) -> list[Metadata]:
        """The versions of an object, the latest first (B9). Each can be retrieved."""
        return await list_versions(self._session, as_key(object_ref), limit)

    async def delete(self, key: Key | Metadata | Notification) -> None:
        """Deletes an object of this node; later subscriptions do not find it either (M14)."""
        found = as_key(key)
        await self._session.await_reply(Delete(request_id=self._session.next_id(), key=found))

    async def subscribe(
        self,
        query: str | Formula,
        start: Instant | None = None,
        end: Instant | None = None,
        batch: int = 20,
        *,
        buffer: int = BUFFER_MAX,
        overflow: str | Overflow = Overflow.BLOCK,
    ) -> Subscription:
        """Subscribes to objects that match a formula and are published from `start` to `end`.

        `start` and `end` are aware datetimes, timedeltas from now, microseconds since 1970, or None
        for an open end. The `batch` most recent stored matches are delivered first,
        `Subscription.more` requests older ones; new objects follow as they are inserted (M15, M17).
        """
        formula = as_query(query)
        frame = as_frame(start, end, self.now_us())
        count = as_count(batch, "batch")
        subscription = Subscription(self._session, formula, frame, buffer, as_overflow(overflow))
        await self._start_subscription(
            subscription,
            Subscribe(
                request_id=self._session.next_id(),
                conjunctions=formula.conjunctions,
                frame=frame,
                batch=count,
            ),
        )
        return subscription

    async def subscriptions(self) -> tuple[SubscriptionInfo, ...]:
        """The subscriptions of this node, including those of earlier incarnations."""
        active = await self._session.await_reply(
            ListSubscriptions(request_id=self._session.next_id())
        )
        assert isinstance(active, tuple)
        return active

    async def resume(
        self,
        sid: str,
        *,
        buffer: int = BUFFER_MAX,
        overflow: str | Overflow = Overflow.BLOCK,
    ) -> Subscription:
        """Resumes a subscription from an earlier incarnation of this node (M27): notifications not
        consumed then are delivered now, and none twice."""
        subscription_id = as_subscription_id(sid)
        info = next(
            (info for info in await self.subscriptions() if info.sid == subscription_id), None
        )
        if info is None:
            raise NotFoundError(f"this node has no subscription {subscription_id}")
        subscription = Subscription(
            self._session,
            query_from_conjunctions(info.conjunctions),
            info.frame,
            buffer,
            as_overflow(overflow),
        )
        await self._start_subscription(
            subscription, Resume(request_id=self._session.next_id(), sid=info.sid)
        )
        return subscription

    async def unsubscribe(self, sid: str) -> None:
        """Ends a subscription of this node by its id (M18)."""
        subscription_id = as_subscription_id(sid)
        await self._session.await_reply(
            Unsubscribe(request_id=self._session.next_id(), sid=subscription_id),
        )

    async def search(
        self,
        query: str | Formula,
        start: Instant | None = None,
        end: Instant | None = None,
        limit: int = 20,
    ) -> SearchResult:
        """Searches the catalogue once (M20): the most recent matches and their total number."""
        formula = as_query(query)
        frame = search_frame(start, end, self.now_us())
        count = as_count(limit, "limit")
        result = await self._session.await_reply(
            Search(
                request_id=self._session.next_id(),
                conjunctions=formula.conjunctions,
                frame=frame,
                count=count,
            ),
        )
        assert isinstance(result, SearchResult)
        return result

    async def retrieve(self, object_ref: Notification | Metadata | Key) -> bytes:
        """Retrieves a notified object and verifies its content (M19)."""
        metadata = self._session.resolve_metadata(object_ref)
        data = await self._session.await_reply(
            Retrieve(request_id=self._session.next_id(), metadata=metadata)
        )
        assert isinstance(data, bytes)
        return data

    async def retrieve_to(self, object_ref: Notification | Metadata | Key, path: Path) -> int:
        """Retrieves a notified object to a file, in chunks; returns its size (M37). The file is
        complete, or unchanged if the retrieve fails. Repeated after a failure, it goes on with the
        chunks that the node has."""
        size = 0
        with open_whole(path) as file:
            async for piece in self.read(object_ref):
                size += await asyncio.to_thread(file.write, piece)
        return size

    async def read(
        self,
        object_ref: Notification | Metadata | Key,
        start: int = 0,
        stop: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Yields the bytes of a notified object from `start` up to `stop`, verified, in pieces
        (M37)."""
        metadata = self._session.resolve_metadata(object_ref)
        if start < 0 or (stop is not None and stop < start):
            raise OptionError(f"a range begins at 0 or later, and ends after: not {start}..{stop}")
        async for piece in read_content(self._session, metadata, start, stop):
            yield piece

    async def explain(
        self, object_ref: Notification | Metadata | Key, subscription: Subscription
    ) -> Explanation:
        """Explains why an object does or does not match a subscription (M32)."""
        key = as_key(object_ref)
        result = await self._session.await_reply(
            Lookup(request_id=self._session.next_id(), key=key)
        )
        assert isinstance(result, LookupResult)
        conjunctions = subscription.query.conjunctions
        return explain(result.state, result.metadata, conjunctions, subscription.frame)

    async def _start_subscription(
        self, subscription: Subscription, request: RequestWithReply
    ) -> None:
        """Starts a subscription; cancels it if the caller no longer waits for it."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_done(outcome: Outcome[ReplyValue]) -> None:
            if isinstance(outcome.value, SubscriptionStarted):
                subscription.start(outcome.value.sid, outcome.value.total)
            if started.done():
                self._cancel_orphan(subscription.sid)
            elif outcome.error is not None:
                started.set_exception(outcome.error)
            else:
                started.set_result(None)

        self._session.send_request(request, on_done)
        await started

    def _cancel_orphan(self, sid: SubscriptionId) -> None:
        if sid:
            self._session.send_request(
                Unsubscribe(request_id=self._session.next_id(), sid=sid), lambda _: None
            )

    @property
    def _joined_or_raise(self) -> tuple[WorldInfo, NodeSession]:
        if self._joined is None:
            raise ClosedError("join the world first: async with thyme.join(…) as world")
        return self._joined

    @property
    def _session(self) -> NodeSession:
        return self._joined_or_raise[1]


async def _read_file(session: NodeSession, source: Path | BinaryIO) -> bytes | Uploaded:
    """Reads a file to insert; uploads a large one to the node."""
    if isinstance(source, Path):
        try:
            opened = source.open("rb")
        except OSError as error:
            raise InputError(f"the file {source} cannot be read: {error.strerror}") from error
        with opened:
            return await _read_file(session, opened)
    if not hasattr(source, "read"):
        raise MetadataError(f"an object must be bytes or a file, not {type(source).__name__}")
    return await take_content(session, lambda count: asyncio.to_thread(source.read, count))
