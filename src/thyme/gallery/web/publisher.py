"""Publisher: prepares complete uploads and publishes them, or lets them wait for approval.

Entry point: `Publisher`. Photos are prepared one after the other and published two at a time, so
that many uploads need little memory. If the node is away, photos wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from hashlib import sha256
from pathlib import Path

import msgspec

from thyme import ThymeError
from thyme.gallery.photos import make_summary
from thyme.gallery.picture_worker import PictureWorker
from thyme.gallery.pictures import PictureError
from thyme.gallery.summary import PhotoSummary
from thyme.gallery.web.gallery_world import GalleryWorld
from thyme.gallery.web.guests import Guest
from thyme.gallery.web.responses import RefusedError
from thyme.gallery.web.state import GalleryState
from thyme.gallery.web.uploads import Upload, Uploads

_AT_ONCE = 2
_log = logging.getLogger("thyme")


class PendingPhoto(msgspec.Struct, frozen=True, kw_only=True):
    """A photo that waits for approval; its bytes are in the file with its id."""

    id: str
    world: str
    guest: str
    digest: bytes
    size: int
    tags: tuple[str, ...]
    summary: PhotoSummary


class Publisher:
    """Publishes complete uploads."""

    def __init__(self, state: GalleryState) -> None:
        self._state = state
        self._queue: asyncio.Queue[Upload] = asyncio.Queue()
        self._worker = PictureWorker()
        self._folder = state.settings.folder / "pending"
        self._folder.mkdir(exist_ok=True)
        self.uploads = Uploads(state, self._queue.put_nowait)

    async def run(self) -> None:
        """Publishes uploads until it is cancelled."""
        await self._worker.start()
        self.uploads.resume()
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(_AT_ONCE):
                    tasks.create_task(self._publish_uploads())
                tasks.create_task(self._expire())
        finally:
            await self._worker.close()

    async def _publish_uploads(self) -> None:
        while True:
            upload = await self._queue.get()
            try:
                await self._handle(upload)
            except (PictureError, ThymeError) as error:
                self.uploads.finish(upload, "failed", message=str(error), code=error.code)
            except OSError as error:
                message = f"the disk of the gallery failed: {error.strerror}"
                self.uploads.finish(upload, "failed", message=message, code="disk")
            except Exception:
                _log.exception("an upload could not be published")
                message = "internal error of the gallery"
                self.uploads.finish(upload, "failed", message=message, code="error")

    async def _expire(self) -> None:
        while True:
            self.uploads.expire()
            await asyncio.sleep(600)

    async def _handle(self, upload: Upload) -> None:
        world = self._state.worlds.get(upload.world)
        guest = self._state.guests.find(upload.guest)
        if world is None or guest is None or guest.blocked:
            message = "you may not publish here"
            self.uploads.finish(upload, "failed", message=message, code="no_right")
            return
        path = self.uploads.path(upload)
        facts = await self._worker.prepare(
            path, keep_location=upload.keep_location, still=self.uploads.still_path(upload)
        )
        photo = PendingPhoto(
            id=upload.id,
            world=upload.world,
            guest=guest.id,
            digest=await asyncio.to_thread(_digest_file, path),
            size=path.stat().st_size,
            tags=upload.tags,
            summary=make_summary(
                facts, title=upload.title, by=guest.name, file_name=upload.file_name
            ),
        )
        needs_approval = self._state.settings.approval and not guest.may("approve")
        if not needs_approval:  # nothing may wait between the comparison and the new post
            await world.joined()
        known = self._state.find_post(upload.world, photo.digest)
        if known is not None or self._is_pending(photo):
            self.uploads.finish(upload, "duplicate", message="it is here already", key=known or "")
        elif needs_approval:
            self._keep_pending(photo, path)
            self.uploads.finish(upload, "pending")
        else:
            key = await self._publish(world, photo, path)
            self.uploads.finish(upload, "published", key=key)

    async def _publish(self, world: GalleryWorld, photo: PendingPhoto, path: Path) -> str:
        """Publishes a photo; its author is known before the first notification of it."""
        key = await world.new_key()
        self._state.add_post(world.name, str(key), photo.guest, photo.digest, photo.size)
        try:
            await world.publish(path, key, photo.tags, photo.summary)
        except BaseException:
            self._state.drop_post(world.name, str(key))
            raise
        return str(key)

    # Approval

    def pending(self, world: str, guest: Guest) -> list[PendingPhoto]:
        """The photos that wait for approval: all for who may approve, else one's own."""
        rows = self._state.database.rows(
            "SELECT entry FROM pending WHERE world = ? AND (guest = ? OR ?) ORDER BY rowid",
            *(world, guest.id, guest.may("approve")),
        )
        return [msgspec.msgpack.decode(entry, type=PendingPhoto) for (entry,) in rows]

    def find_pending(self, pending_id: str) -> PendingPhoto:
        """A photo that waits for approval."""
        row = self._state.database.row("SELECT entry FROM pending WHERE id = ?", pending_id)
        if row is None:
            raise RefusedError(404, "not_found", "this photo does not wait any more")
        return msgspec.msgpack.decode(row[0], type=PendingPhoto)

    async def decide(self, pending_id: str, *, approved: bool) -> str:
        """Publishes a photo that waits, or removes it; returns the key of a published one."""
        photo = self.find_pending(pending_id)
        key = ""
        if approved:
            key = await self._publish(
                self._state.world(photo.world), photo, self._folder / photo.id
            )
        self._state.database.execute("DELETE FROM pending WHERE id = ?", photo.id)
        (self._folder / photo.id).unlink(missing_ok=True)
        self._state.feed.emit("approval", world=photo.world)
        self._state.feed.emit(
            "decision", world=photo.world, guest=photo.guest, id=photo.id, approved=approved
        )
        return key

    def _keep_pending(self, photo: PendingPhoto, path: Path) -> None:
        shutil.copyfile(path, self._folder / photo.id)
        self._state.database.execute(
            "INSERT OR REPLACE INTO pending VALUES (?, ?, ?, ?, ?)",
            *(photo.id, photo.world, photo.guest, photo.size, msgspec.msgpack.encode(photo)),
        )
        self._state.feed.emit("approval", world=photo.world)

    def _is_pending(self, photo: PendingPhoto) -> bool:
        rows = self._state.database.rows("SELECT entry FROM pending WHERE world = ?", photo.world)
        others = (msgspec.msgpack.decode(entry, type=PendingPhoto) for (entry,) in rows)
        return any(other.digest == photo.digest for other in others)


def _digest_file(path: Path) -> bytes:
    digest = sha256()
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.digest()
