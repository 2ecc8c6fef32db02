"""Photos: publishes photos with thumbnails and follows those of others, for scripts and bots.

Entry points: `publish_photo`, `follow`.
Clauses: M13, M15, M16.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec

from thyme import Key, Metadata, World
from thyme.api.arguments import Instant
from thyme.gallery.pictures import PictureFacts, prepare_file
from thyme.gallery.summary import PhotoSummary, decode_summary, encode_summary

GALLERY_TAG = "gallery"
"""Every object that a gallery publishes has this tag, by which galleries find all of them."""


class Photo(msgspec.Struct, frozen=True, kw_only=True):
    """A photo that somebody published; `World.retrieve(photo.metadata)` retrieves it."""

    metadata: Metadata
    summary: PhotoSummary

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that people gave it."""
        return tuple(tag for tag in self.metadata.tags if tag != GALLERY_TAG)


async def publish_photo(
    world: World,
    source: Path | bytes,
    *,
    tags: Iterable[str] = (),
    title: str = "",
    by: str = "",
    file_name: str = "",
    keep_location: bool = False,
) -> Key:
    """Publishes a photo, video or other file with its thumbnail; returns its key.

    The file itself stays as it is. Place and device are removed from the published copy unless
    `keep_location` is true. `by` is the name shown with the photo.
    """
    with tempfile.TemporaryDirectory(prefix="thyme-photo-") as folder:
        copy = Path(folder) / "photo"
        await asyncio.to_thread(_copy_to, source, copy)
        facts = await asyncio.to_thread(prepare_file, copy, keep_location=keep_location)
        if not file_name and isinstance(source, Path):
            file_name = source.name
        summary = make_summary(facts, title=title, by=by, file_name=file_name)
        return await insert_photo(world, copy, tags, summary)


def make_summary(facts: PictureFacts, *, title: str, by: str, file_name: str) -> PhotoSummary:
    """The summary of a prepared file."""
    return PhotoSummary(
        title=title,
        by=by,
        file_name=file_name,
        type=facts.type,
        width=facts.width,
        height=facts.height,
        taken_us=facts.taken_us,
        thumbnail=facts.thumbnail,
    )


async def insert_photo(
    world: World,
    path: Path,
    tags: Iterable[str],
    summary: PhotoSummary,
    *,
    oid: str | None = None,
) -> Key:
    """Inserts a prepared file into the world."""
    words = [*tags, GALLERY_TAG]
    return await world.insert(path, tags=words, summary=encode_summary(summary), oid=oid)


async def follow(
    world: World,
    query: str = GALLERY_TAG,
    start: Instant | None = None,
    end: Instant | None = None,
    *,
    batch: int = 20,
) -> AsyncIterator[Photo]:
    """Yields the photos that match a formula: the `batch` newest stored ones, then new ones."""
    async with await world.subscribe(query, start, end, batch) as subscription:
        async for notification in subscription:
            metadata = notification.metadata
            yield Photo(metadata=metadata, summary=decode_summary(metadata.summary))


def _copy_to(source: Path | bytes, copy: Path) -> None:
    if isinstance(source, bytes):
        copy.write_bytes(source)
        return
    with source.open("rb") as file, copy.open("wb") as out:
        while piece := file.read(2**20):
            out.write(piece)
