"""Gallery world: the connection of a gallery to one world, through a node on this machine.

The connection is made again whenever the node was restarted; requests wait for it. Notifications
of all subscriptions fill the catalogue and reach open pages through the feed.
Entry point: `GalleryWorld`.
Clauses: M13–M19, M27, M32.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from thyme import (
    Key,
    Notification,
    Query,
    Subscription,
    ThymeError,
    TimeFrame,
    World,
    connect,
    errors,
)
from thyme.api.remote import fetch_shares, fetch_status
from thyme.gallery.photos import GALLERY_TAG, insert_photo
from thyme.gallery.summary import PhotoSummary
from thyme.gallery.web.catalogue import Card, PhotoCatalogue
from thyme.gallery.web.database import GalleryDatabase
from thyme.gallery.web.feed import Feed
from thyme.gallery.web.peers.copies import PhotoCopies
from thyme.gallery.web.peers.directory import PeerDirectory
from thyme.gallery.web.responses import RefusedError

_PAGE = 500
_RECONNECT_S_MIN, _RECONNECT_S_MAX = 0.2, 5.0
_GONE_STATES = ("deleted", "expired", "evicted")
_STATUS_S_MAX = 5.0
_CHECK_S_MAX, _CHECK_AWAY_S_MAX = 10.0, 1.0
"""How long a node that is near, or is not, is asked whether it deleted a photo."""
_log = logging.getLogger("thyme")


class Interest(msgspec.Struct, frozen=True):
    """A formula and a time frame that somebody subscribed to."""

    query: str = GALLERY_TAG
    start_us: int | None = None
    end_us: int | None = None

    def wants(self, card: Card) -> bool:
        """Whether a photo matches."""
        inside = _as_frame(self.start_us, self.end_us).contains(card.published_us)
        conjunctions = _as_query(self.query).conjunctions
        return inside and any(conjunction.matches(card.tags) for conjunction in conjunctions)


_as_frame = lru_cache(1_000)(TimeFrame)
_as_query = lru_cache(1_000)(Query)


class GalleryWorld:
    """One world of a gallery."""

    def __init__(
        self, name: str, url: str, database: GalleryDatabase, feed: Feed, folder: Path
    ) -> None:
        self.name = name
        self.url = url
        self.catalogue = PhotoCatalogue(database, name)
        self.copies = PhotoCopies(database, name, folder / "copies")
        self.directory = PeerDirectory(database, name, feed)
        self._feed = feed
        self._world: World | None = None
        self._connected = asyncio.Event()
        self._interests: dict[Interest, asyncio.Task[None] | None] = {Interest(): None}

    # Connection

    @property
    def is_connected(self) -> bool:
        """Whether the node answers."""
        return self._world is not None

    async def run(self) -> None:
        """Keeps the connection until it is cancelled."""
        delay_s = _RECONNECT_S_MIN
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # leaving a world may end with its own error instead
            try:
                async with connect(self.url) as world:
                    delay_s = _RECONNECT_S_MIN
                    await self._use(world)
            except ThymeError as error:
                _log.debug("no connection to %s: %s", self.url, error)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RECONNECT_S_MAX)

    async def _use(self, world: World) -> None:
        """Reads all subscriptions until the connection ends."""
        self._world = world
        self._connected.set()
        self._feed.emit("status", world=self.name)
        peers = asyncio.create_task(self.directory.run(world))
        try:
            for interest in self._interests:
                self._interests[interest] = asyncio.create_task(self._read(world, interest))
            everything = self._interests[Interest()]
            assert everything is not None
            await everything
        finally:
            self._world = None
            self._connected.clear()
            self._feed.emit("status", world=self.name)
            tasks = [peers, *(task for task in self._interests.values() if task is not None)]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def is_closed(self) -> bool:
        """Whether only nodes that know the secret of the world take part in it."""
        return self.joined_now().info.closed

    @property
    def has_cells(self) -> bool:
        """Whether the nodes of the world store objects together, in cells."""
        info = None if self._world is None else self._world.info
        return info is not None and (info.area is not None or info.cells is not None)

    async def joined(self) -> World:
        """The world, once the node answers."""
        while self._world is None:
            await self._connected.wait()
        return self._world

    def joined_now(self) -> World:
        """The world; raises `RefusedError` if the node does not answer."""
        if self._world is None:
            raise RefusedError(503, "no_node", "the node of this gallery does not answer")
        return self._world

    # Subscriptions

    def add_interest(self, interest: Interest) -> None:
        """Subscribes to a formula in addition."""
        if interest not in self._interests:
            world = self._world
            self._interests[interest] = (
                None if world is None else asyncio.create_task(self._read(world, interest))
            )

    def drop_interest(self, interest: Interest) -> None:
        """Ends a subscription that nobody has any more."""
        if interest != Interest() and (task := self._interests.pop(interest, None)) is not None:
            task.cancel()

    async def _read(self, world: World, interest: Interest) -> None:
        """Reads the notifications of one subscription, older ones page by page."""
        paging: asyncio.Task[None] | None = None
        seen: set[str] = set()
        drained = asyncio.Event()
        try:
            subscription = await world.subscribe(
                interest.query, interest.start_us, interest.end_us, batch=100
            )
            try:
                paging = asyncio.create_task(self._read_history(world, subscription, seen, drained))
                async for notification in subscription:
                    seen.add(str(notification.key))
                    self._on_notification(notification)
                    if not subscription.buffered:
                        drained.set()
                await paging
            finally:
                if paging is not None:
                    paging.cancel()
                with suppress(ThymeError):
                    await subscription.cancel()
        except ThymeError as error:
            _log.warning("a subscription of the gallery ended: %s", error)

    async def _read_history(
        self, world: World, subscription: Subscription, seen: set[str], drained: asyncio.Event
    ) -> None:
        """Requests all past matches, then looks for photos that were deleted meanwhile."""
        started_us = world.now_us()
        try:
            await subscription.caught_up()
            more = True
            while more:
                drained.clear()
                if subscription.buffered:
                    await drained.wait()
                more = bool(await subscription.more(_PAGE))
            for card in list(self.catalogue.newest_first()):
                if card.key not in seen and card.published_us < started_us:
                    await self.check(card.key, subscription)
        except ThymeError as error:
            _log.debug("the history could not be read: %s", error)

    def _on_notification(self, notification: Notification) -> None:
        if self.catalogue.add(notification.metadata) is not None:
            self._feed.emit("item", world=self.name, key=str(notification.key))

    async def check(self, key: str, subscription: Subscription | None = None) -> None:
        """Removes a photo from the catalogue if its owner deleted it, or it expired."""
        world = self.joined_now()
        if subscription is None:
            async with await world.subscribe(GALLERY_TAG, batch=0) as own:
                return await self.check(key, own)
        explanation = await world.explain(Key.parse(key), subscription)
        if explanation.state in _GONE_STATES:
            self.forget(key)
        return None

    async def check_copy(self, key: str) -> None:
        """Removes a copied photo that its owner deleted, if the owner can be asked."""
        status, card = await self.status(), self.catalogue.get(key)
        if status is None or card is None or self._world is None:
            return
        near = any(entry["node"] == card.owner for entry in status["neighbours"])
        with suppress(ThymeError, TimeoutError):
            async with asyncio.timeout(_CHECK_S_MAX if near else _CHECK_AWAY_S_MAX):
                await self.check(key)

    def forget(self, key: str) -> None:
        """Removes a photo from the catalogue and from open pages."""
        self.copies.remove(key)
        if self.catalogue.remove(key):
            self._feed.emit("gone", world=self.name, key=key)

    # Objects

    async def new_key(self) -> Key:
        """The key of a photo to be published."""
        world = await self.joined()
        return Key(secrets.token_hex(8), world.node_id)  # type: ignore[arg-type]

    async def publish(
        self, path: Path, key: Key, tags: Iterable[str], summary: PhotoSummary
    ) -> None:
        """Publishes a prepared file; waits for the node if it is away."""
        world = await self.joined()
        await insert_photo(world, path, tags, summary, oid=key.oid)

    async def delete(self, key: str) -> None:
        """Deletes a photo that this node published."""
        with suppress(errors.NotFoundError):
            await self.joined_now().delete(Key.parse(key))
        self.forget(key)

    async def read(self, key: str, start: int = 0, stop: int | None = None) -> AsyncIterator[bytes]:
        """Yields the bytes of a photo, retrieved from wherever it is."""
        metadata = self.catalogue.metadata(key)
        if metadata is None:
            raise RefusedError(404, "not_found", "there is no such photo; it may have been deleted")
        if key in self.copies and start == 0:
            await self.check_copy(key)
        if key in self.copies:
            async for piece in self.copies.read(
                key, start, metadata.size if stop is None else stop
            ):
                yield piece
            return
        try:
            async for piece in self.joined_now().read(metadata, start, stop):
                yield piece
        except errors.NotFoundError:
            await self.check(key)
            raise

    async def copy(self, key: str, *, wanted: bool) -> None:
        """Keeps the bytes of a photo of another node here, also when that node is gone."""
        card = self.catalogue.get(key)
        if card is None or card.owner != self.node_id:
            size = 0 if card is None else card.size
            await self.copies.add(key, size, self.read(key), wanted=wanted)
            if key not in self.catalogue:  # it was deleted meanwhile
                self.copies.remove(key)

    @property
    def node_id(self) -> str | None:
        """The id of the node, in hexadecimal; None while it does not answer."""
        return None if self._world is None else self._world.node_id.hex()

    async def status(self) -> dict[str, Any] | None:
        """The status of the node; None if it does not answer."""
        timeout = aiohttp.ClientTimeout(total=_STATUS_S_MAX)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            try:
                found: dict[str, Any] = msgspec.to_builtins(await fetch_status(session, self.url))
            except (ThymeError, TimeoutError):
                return None
        return found

    async def kept_for_others(self) -> dict[str, tuple[int, int]]:
        """Number and bytes of what is kept here for each other node: replicas and copies."""
        kept = await self._replicas()
        for key, copy in self.copies.items():
            card = self.catalogue.get(key)
            if card is not None:
                photos, size = kept.get(card.owner, (0, 0))
                kept[card.owner] = photos + 1, size + copy.bytes
        return kept

    async def _replicas(self) -> dict[str, tuple[int, int]]:
        """Number and bytes of the replicas that the node stores for each other node (D14)."""
        if not self.has_cells:
            return {}
        timeout = aiohttp.ClientTimeout(total=_STATUS_S_MAX)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            try:
                authors = (await fetch_shares(session, self.url)).authors
            except (ThymeError, TimeoutError):
                return {}
        own = self.node_id
        return {a.node: (a.objects, a.bytes) for a in authors if a.objects and a.node != own}
