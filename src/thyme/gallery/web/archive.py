"""Archive: streams photos as one ZIP file, without holding them in memory or on disk.

Entry point: `write_archive`. Photos that cannot be retrieved are listed in a text in the archive.
"""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime

from aiohttp import web

from thyme import ThymeError
from thyme.gallery.summary import clean_file_name
from thyme.gallery.web.catalogue import Card
from thyme.gallery.web.gallery_world import GalleryWorld
from thyme.gallery.web.responses import RefusedError

_EXTENSIONS = {
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/webp": ".webp",
    "image/gif": ".gif",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
}


class _PieceBuffer:
    """A file for `zipfile` that only collects the bytes written to it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        return

    def drain(self) -> bytes:
        """The bytes since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def file_name_of(card: Card) -> str:
    """A file name for a photo: that of its file, with the ending of its type."""
    name = clean_file_name(card.file_name) or clean_file_name(card.title[:40]) or "photo"
    ending = _EXTENSIONS.get(card.type)
    if ending and not name.lower().endswith((ending, ".jpeg", ".mov", ".m4v")):
        name = name.rpartition(".")[0] or name
        name += ending
    return name


def archive_name_of(card: Card, used: set[str]) -> str:
    """The unique name of a photo in an archive: time, author and file name."""
    at = datetime.fromtimestamp(card.published_us / 1e6, UTC).strftime("%Y%m%d-%H%M%S")
    by = clean_file_name(card.by.replace(" ", "-"))
    base = "_".join(part for part in (at, by, file_name_of(card)) if part)
    name, number = base, 1
    while name in used:
        number += 1
        stem, dot, ending = base.rpartition(".")
        name = f"{stem}-{number}{dot}{ending}"
    used.add(name)
    return name


async def write_archive(
    request: web.Request, world: GalleryWorld, keys: tuple[str, ...]
) -> web.StreamResponse:
    """Responds with a ZIP file of photos."""
    response = web.StreamResponse()
    response.content_type = "application/zip"
    name = clean_file_name(f"{world.name}.zip")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    await response.prepare(request)
    buffer = _PieceBuffer()
    used: set[str] = set()
    missing: list[str] = []
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload]
        for key in keys:
            card = world.catalogue.get(key)
            if card is None:
                continue
            info = zipfile.ZipInfo(archive_name_of(card, used), _zip_time(card.published_us))
            pieces = aiter(world.read(key))
            try:
                piece = await anext(pieces, b"")
            except (ThymeError, RefusedError) as error:
                missing.append(f"{info.filename}: {error}")
                continue
            try:
                with archive.open(info, "w", force_zip64=True) as entry:
                    while piece:
                        entry.write(piece)
                        await response.write(buffer.drain())
                        piece = await anext(pieces, b"")
            except (ThymeError, RefusedError):
                if request.transport is not None:  # a torn archive must not look complete
                    request.transport.abort()
                return response
        if missing:
            archive.writestr("missing.txt", "\n".join(missing))
    await response.write(buffer.drain())
    await response.write_eof()
    return response


def _zip_time(published_us: int) -> tuple[int, int, int, int, int, int]:
    at = datetime.fromtimestamp(published_us / 1e6, UTC)
    return max(1980, at.year), at.month, at.day, at.hour, at.minute, at.second
