"""Directory: the galleries of other nodes, as they announced themselves, and our announcement.

Each world has one directory. What was announced is in the database, so that a gallery knows the
others after a restart, and lets in guests of a gallery that is gone. Entry point: `PeerDirectory`.
Clauses: M13, M15, M29.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from datetime import timedelta

import msgspec

from thyme import Key, Metadata, ThymeError, World
from thyme.gallery.web.database import GalleryDatabase
from thyme.gallery.web.feed import Feed
from thyme.gallery.web.peers.announcement import (
    ADDRESS_TAG,
    Announcement,
    decode_announcement,
    encode_announcement,
    is_loopback_url,
)

PEERS_MAX = 64
"""How many galleries a world's directory holds; further ones wait until one has expired."""
ANNOUNCED_S = 3600.0
REMEMBERED_S = 24 * 3600.0
"""How long guests of a gallery are let in after its last announcement."""
_RETRY_S = 5.0
_log = logging.getLogger("thyme")


class PeerGallery(msgspec.Struct, frozen=True, kw_only=True):
    """The gallery of another node."""

    owner: str
    """The node, in hexadecimal."""
    announcement: Announcement
    published_us: int
    expires_s: float


class PeerDirectory:
    """The galleries of other nodes in one world."""

    def __init__(self, database: GalleryDatabase, world: str, feed: Feed) -> None:
        self._database = database
        self._world = world
        self._feed = feed
        self._own: Announcement | None = None
        self._own_changed = asyncio.Event()
        self._peers: dict[str, PeerGallery] = {}
        for (entry,) in database.rows("SELECT entry FROM peers WHERE world = ?", world):
            peer = msgspec.msgpack.decode(entry, type=PeerGallery)
            self._peers[peer.owner] = peer

    def set_own(self, announcement: Announcement) -> None:
        """Announces this gallery, from now on so."""
        self._own = announcement
        self._own_changed.set()

    def announced(self) -> list[PeerGallery]:
        """The galleries whose announcements have not expired, newest first."""
        now_s = time.time()
        found = [peer for peer in self._peers.values() if peer.expires_s > now_s]
        return sorted(found, key=lambda peer: -peer.published_us)

    def find_by_key(self, key: bytes) -> PeerGallery | None:
        """The gallery that signs its passes with a key."""
        self._forget_expired()
        return next((p for p in self._peers.values() if p.announcement.key == key), None)

    def receive(self, metadata: Metadata, now_us: int) -> None:
        """Remembers what a node announced; the newest announcement of a node counts."""
        announcement = decode_announcement(metadata.summary)
        owner = metadata.owner.hex()
        known = self._peers.get(owner)
        if announcement is None or (known and known.published_us >= metadata.published_us):
            return
        if self._is_key_of_another(announcement.key, owner):
            return
        if is_loopback_url(announcement.url) and not (self._own and is_loopback_url(self._own.url)):
            return
        self._forget_expired()
        left_s = ANNOUNCED_S - (now_us - metadata.published_us) / 1e6
        if left_s <= 0 or (known is None and len(self._peers) >= PEERS_MAX):
            return
        peer = PeerGallery(
            owner=owner,
            announcement=announcement,
            published_us=metadata.published_us,
            expires_s=time.time() + min(left_s, ANNOUNCED_S),
        )
        self._peers[owner] = peer
        self._database.execute(
            "INSERT OR REPLACE INTO peers VALUES (?, ?, ?)",
            *(self._world, owner, msgspec.msgpack.encode(peer)),
        )
        if known is None or known.announcement != announcement:
            self._feed.emit("galleries", world=self._world)

    def _is_key_of_another(self, key: bytes, owner: str) -> bool:
        """Whether a key for passes belongs to this gallery or to that of another node."""
        others = (peer for peer in self._peers.values() if peer.owner != owner)
        own = self._own is not None and self._own.key == key
        return own or any(peer.announcement.key == key for peer in others)

    def _forget_expired(self) -> None:
        for owner, peer in list(self._peers.items()):
            if peer.expires_s + REMEMBERED_S - ANNOUNCED_S < time.time():
                del self._peers[owner]
                self._database.execute(
                    "DELETE FROM peers WHERE world = ? AND owner = ?", self._world, owner
                )

    async def run(self, world: World) -> None:
        """Announces this gallery and reads the announcements of others."""
        await asyncio.gather(self._announce(world), self._read(world))

    async def _read(self, world: World) -> None:
        while True:
            try:
                async with await world.subscribe(ADDRESS_TAG, batch=PEERS_MAX) as subscription:
                    async for notification in subscription:
                        if notification.metadata.owner != world.node_id:
                            self.receive(notification.metadata, world.now_us())
            except ThymeError as error:
                _log.debug("the addresses of other galleries could not be read: %s", error)
            await asyncio.sleep(_RETRY_S)

    async def _announce(self, world: World) -> None:
        """Announces this gallery, and again before the last announcement expires."""
        fact = f"announced {self._world}"
        while True:
            if self._own is None:
                await self._own_changed.wait()
                continue
            self._own_changed.clear()
            data = encode_announcement(self._own)
            last = self._database.row("SELECT value FROM facts WHERE name = ?", fact)
            try:
                lifetime = timedelta(seconds=ANNOUNCED_S)
                key = await world.insert(data, tags=[ADDRESS_TAG], summary=data, ttl=lifetime)
            except ThymeError as error:
                _log.debug("the address of the gallery could not be announced: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            self._database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", fact, str(key))
            if last is not None:
                with suppress(ThymeError):
                    await world.delete(Key.parse(last[0]))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._own_changed.wait(), ANNOUNCED_S / 2)
