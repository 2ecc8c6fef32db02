"""Copies: files with the bytes of photos of other nodes, which stay when their device is gone.

A world without cells keeps an object on the node that published it alone, so a gallery keeps
copies itself. Entry point: `PhotoCopies`. Which photos are copied is up to `copier`.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import msgspec

from thyme.gallery.web.database import GalleryDatabase
from thyme.gallery.web.responses import RefusedError

DISK_RESERVE_BYTES = 256 * 2**20
"""Disk space that copies leave free."""
_PIECE_BYTES = 256 * 2**10


class PhotoCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A photo whose bytes are in a file of this gallery."""

    bytes: int
    wanted: bool
    """Whether somebody downloaded it: such copies do not count against the limit."""


class PhotoCopies:
    """The copies of the photos of one world."""

    def __init__(self, database: GalleryDatabase, world: str, folder: Path) -> None:
        self._database = database
        self._world = world
        self._folder = folder / sha256(world.encode()).hexdigest()[:16]
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        rows = database.rows("SELECT key, bytes, wanted FROM copies WHERE world = ?", world)
        found = {
            key: PhotoCopy(bytes=size, wanted=bool(wanted))
            for key, size, wanted in rows
            if self._path(key).exists()
        }
        self._copies: dict[str, PhotoCopy] = found
        names = {self._path(key).name for key in found}
        for file in self._folder.iterdir():
            if file.name not in names:
                file.unlink()

    def _path(self, key: str) -> Path:
        return self._folder / sha256(key.encode()).hexdigest()[:32]

    def __contains__(self, key: str) -> bool:
        return key in self._copies

    def items(self) -> list[tuple[str, PhotoCopy]]:
        """The keys of all copied photos, and their copies."""
        return list(self._copies.items())

    @property
    def limited_bytes(self) -> int:
        """The bytes of the copies that nobody asked for."""
        return sum(copy.bytes for copy in self._copies.values() if not copy.wanted)

    async def add(self, key: str, size: int, pieces: AsyncIterator[bytes], *, wanted: bool) -> None:
        """Copies a photo; nothing of it stays if it breaks off."""
        if key not in self._copies:
            if shutil.disk_usage(self._folder).free < size + DISK_RESERVE_BYTES:
                raise RefusedError(507, "disk_full", "the disk of this gallery is full")
            draft = self._folder / f"{secrets.token_hex(8)}.part"
            try:
                with draft.open("wb") as file:
                    async for piece in pieces:
                        await asyncio.to_thread(file.write, piece)
                draft.rename(self._path(key))
            finally:
                draft.unlink(missing_ok=True)
        known = self._copies.get(key)
        copy = PhotoCopy(bytes=size, wanted=wanted or (known is not None and known.wanted))
        self._copies[key] = copy
        self._database.execute(
            "INSERT OR REPLACE INTO copies VALUES (?, ?, ?, ?)",
            *(self._world, key, copy.bytes, int(copy.wanted)),
        )

    async def read(self, key: str, start: int, stop: int) -> AsyncIterator[bytes]:
        """Yields the bytes of a copy."""
        with self._path(key).open("rb") as file:
            file.seek(start)
            left = stop - start
            while left > 0:
                piece = await asyncio.to_thread(file.read, min(left, _PIECE_BYTES))
                if not piece:
                    return
                left -= len(piece)
                yield piece

    def remove(self, key: str) -> None:
        """Removes the copy of a photo, if there is one."""
        if self._copies.pop(key, None) is not None:
            self._path(key).unlink(missing_ok=True)
            self._database.execute(
                "DELETE FROM copies WHERE world = ? AND key = ?", self._world, key
            )
