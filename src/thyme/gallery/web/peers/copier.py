"""Copier: copies the photos of other nodes in the background, so that they outlive their device.

It copies the newest first, one at a time, up to a limit, in worlds whose nodes do not store objects
together. Entry point: `PhotoCopier`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from thyme import ThymeError
from thyme.gallery.web.catalogue import Card
from thyme.gallery.web.gallery_world import GalleryWorld
from thyme.gallery.web.responses import RefusedError

_PAUSE_S = 1.0
_CHECK_EVERY = 10
"""After so many pauses one copy is compared with the world: its owner may have deleted it."""
_ROUND = 50
_RETRY_S_MIN, _RETRY_S_MAX = 10.0, 3600.0


class PhotoCopier:
    """Copies the photos of one world."""

    def __init__(
        self, world: GalleryWorld, bytes_max: int, is_hidden: Callable[[str, Card], bool]
    ) -> None:
        self._world = world
        self._bytes_max = bytes_max
        self._is_hidden = is_hidden
        self._retries: dict[str, tuple[float, float]] = {}
        """When a photo that was not found is tried again, and the pause before that."""
        self._unchecked: list[str] = []

    async def run(self) -> None:
        """Copies photos until it is cancelled."""
        while True:
            for _ in range(_CHECK_EVERY):
                await asyncio.sleep(_PAUSE_S)
                for card in self.missing():
                    await self._copy(card)
            await self._check_next()

    async def _check_next(self) -> None:
        """Removes one copy if its owner deleted the photo; all copies have their turn."""
        if not self._unchecked:
            self._unchecked = [key for key, _ in self._world.copies.items()]
        if self._unchecked:
            await self._world.check_copy(self._unchecked.pop())

    def missing(self) -> list[Card]:
        """The newest photos of other nodes that have no copy here and fit."""
        world = self._world
        if not self._bytes_max or not world.is_connected or world.has_cells:
            return []
        now_s, left = time.monotonic(), self._bytes_max - world.copies.limited_bytes
        found: list[Card] = []
        for card in world.catalogue.newest_first():
            waits = self._retries.get(card.key, (0.0, 0.0))[0] > now_s
            if card.owner == world.node_id or card.key in world.copies or waits:
                continue
            if card.size <= left and not self._is_hidden(world.name, card):
                found.append(card)
                left -= card.size
                if len(found) == _ROUND:
                    break
        return found

    async def _copy(self, card: Card) -> None:
        try:
            await self._world.copy(card.key, wanted=False)
            self._retries.pop(card.key, None)
        except (ThymeError, RefusedError, OSError):
            _, pause_s = self._retries.get(card.key, (0.0, _RETRY_S_MIN / 2))
            pause_s = min(2 * pause_s, _RETRY_S_MAX)
            self._retries[card.key] = time.monotonic() + pause_s, pause_s
            if card.key not in self._world.catalogue:
                del self._retries[card.key]
