"""Uploads: receives files in resumable steps, by the tus protocol 1.0.

Bytes go to a file at once, so a torn upload goes on where it was, also after a restart. Size,
quota and disk space are checked before the first byte. Complete files go to `Publisher`.
Extensions: creation, creation-with-upload, termination, expiration.
Entry point: `Uploads`.
"""

from __future__ import annotations

import asyncio
import binascii
import secrets
import shutil
import time
from base64 import b64decode
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path

import msgspec
from aiohttp import web

from thyme.gallery.summary import TITLE_CHARS_MAX, clean_file_name, clean_text
from thyme.gallery.web.guests import Guest
from thyme.gallery.web.responses import RefusedError, json_response
from thyme.gallery.web.security import GUEST
from thyme.gallery.web.state import GalleryState

TUS_VERSION = "1.0.0"
EXPIRES_S = 24 * 3600.0
DISK_RESERVE_BYTES = 64 * 2**20
"""Disk space that uploads leave free."""
UPLOADS_PER_GUEST_MAX = 200
STILL_BYTES_MAX = 512 * 2**10
_PIECE_BYTES = 64 * 2**10
_BODY_TYPE = "application/offset+octet-stream"
_DONE_STATES = ("published", "pending", "duplicate", "failed")


class Upload(msgspec.Struct, kw_only=True):
    """One upload; its bytes are in the file with its id."""

    id: str
    world: str
    guest: str
    length: int
    created_s: float
    file_name: str = ""
    title: str = ""
    tags: tuple[str, ...] = ()
    keep_location: bool = False
    state: str = "receiving"
    """receiving, processing, published, pending, duplicate or failed."""
    message: str = ""
    code: str = ""
    """The code of the error of a failed upload."""
    key: str = ""


class Uploads:
    """The uploads of all guests, and the HTTP handlers of tus."""

    def __init__(self, state: GalleryState, on_complete: Callable[[Upload], None]) -> None:
        self._state = state
        self._on_complete = on_complete
        self._folder = state.settings.folder / "uploads"
        self._folder.mkdir(exist_ok=True)
        self._uploads: dict[str, Upload] = {}
        self._writing: set[str] = set()
        for record in sorted(self._folder.glob("*.json")):
            upload = msgspec.json.decode(record.read_bytes(), type=Upload)
            self._uploads[upload.id] = upload

    def resume(self) -> None:
        """Hands over the uploads that were complete when the gallery stopped."""
        for upload in list(self._uploads.values()):
            if upload.state == "processing":
                self._on_complete(upload)

    def path(self, upload: Upload) -> Path:
        """The file of an upload."""
        return self._folder / upload.id

    def still_path(self, upload: Upload) -> Path:
        """The file of the still picture of a video, which the page may send before the video."""
        return self._folder / f"{upload.id}.still"

    def save(self, upload: Upload) -> None:
        """Saves the record of an upload and updates the guest's pages."""
        record = self._folder / f"{upload.id}.json"
        draft = record.with_suffix(".draft")  # a full disk must not leave half a record
        draft.write_bytes(msgspec.json.encode(upload))
        draft.replace(record)
        self._state.feed.emit(
            "upload",
            world=upload.world,
            guest=upload.guest,
            id=upload.id,
            state=upload.state,
            message=upload.message,
            code=upload.code,
            published=upload.key,
        )

    def finish(
        self, upload: Upload, state: str, *, message: str = "", code: str = "", key: str = ""
    ) -> None:
        """Ends an upload; its file is removed."""
        upload.state, upload.message, upload.code, upload.key = state, message, code, key
        self._unlink_files(upload)
        self.save(upload)

    def expire(self) -> None:
        """Removes uploads that are older than a day."""
        for upload in list(self._uploads.values()):
            if upload.created_s < time.time() - EXPIRES_S and upload.state != "processing":
                self._remove(upload)

    def _remove(self, upload: Upload) -> None:
        self._uploads.pop(upload.id, None)
        self._unlink_files(upload)
        (self._folder / f"{upload.id}.json").unlink(missing_ok=True)

    def _unlink_files(self, upload: Upload) -> None:
        self.path(upload).unlink(missing_ok=True)
        self.still_path(upload).unlink(missing_ok=True)

    # Handlers

    async def create(self, request: web.Request) -> web.StreamResponse:
        """POST: announces a file, with its first bytes if they are in the body."""
        _check_version(request)
        guest = request[GUEST]
        world = self._state.world(request.match_info["world"])
        length = _header_number(request, "Upload-Length")
        self._check_space(guest, length)
        fields = _parse_metadata(request.headers.get("Upload-Metadata", ""))
        words = fields.get("tags", "").split(",")
        upload = Upload(
            id=secrets.token_hex(12),
            world=world.name,
            guest=guest.id,
            length=length,
            created_s=time.time(),
            file_name=clean_file_name(fields.get("filename", "")),
            title=clean_text(fields.get("title", ""), TITLE_CHARS_MAX),
            tags=_check_tags([word.strip().lstrip("#") for word in words if word.strip()]),
            keep_location=fields.get("location") == "keep",
        )
        self._uploads[upload.id] = upload
        self.path(upload).touch()
        self.save(upload)
        if request.headers.get("Content-Type") == _BODY_TYPE:
            await self._receive(request, upload)
        elif not length:
            self._complete(upload)
        headers = self._headers(upload) | {"Location": f"/api/uploads/{upload.id}"}
        return web.Response(status=201, headers=headers)

    async def describe(self, request: web.Request) -> web.StreamResponse:
        """HEAD: how many bytes have arrived. GET: what became of the upload."""
        upload = self._find(request)
        if request.method == "GET":
            return json_response(upload)
        headers = self._headers(upload) | {
            "Upload-Length": str(upload.length),
            "Cache-Control": "no-store",
        }
        return web.Response(status=200, headers=headers)

    async def append(self, request: web.Request) -> web.StreamResponse:
        """PATCH: the next bytes."""
        _check_version(request)
        upload = self._find(request)
        if request.headers.get("Content-Type") != _BODY_TYPE:
            raise RefusedError(415, "bad_type", f"the body of a PATCH must be {_BODY_TYPE}")
        if _header_number(request, "Upload-Offset") != self._offset(upload):
            raise RefusedError(409, "wrong_offset", f"the upload is at {self._offset(upload)}")
        await self._receive(request, upload)
        return web.Response(status=204, headers=self._headers(upload))

    async def receive_still(self, request: web.Request) -> web.StreamResponse:
        """PUT: a picture from a video, made by the page; before the last byte of the video."""
        upload = self._find(request)
        if upload.state != "receiving":
            raise RefusedError(409, "complete", "the upload is complete")
        still = bytearray()
        while piece := await request.content.readany():
            still += piece
            if len(still) > STILL_BYTES_MAX:
                limit = STILL_BYTES_MAX >> 10
                raise RefusedError(413, "too_large", f"a still picture has at most {limit} kB")
        if upload.state == "receiving":
            self.still_path(upload).write_bytes(still)
        return web.Response(status=204)

    async def remove(self, request: web.Request) -> web.StreamResponse:
        """DELETE: the upload is given up."""
        upload = self._find(request)
        if upload.state == "processing" or upload.id in self._writing:
            raise RefusedError(423, "busy", "the upload is being processed")
        self._remove(upload)
        return web.Response(status=204, headers={"Tus-Resumable": TUS_VERSION})

    async def show_options(self, request: web.Request) -> web.StreamResponse:
        """OPTIONS: what this server can do."""
        headers = {
            "Tus-Resumable": TUS_VERSION,
            "Tus-Version": TUS_VERSION,
            "Tus-Extension": "creation,creation-with-upload,termination,expiration",
            "Tus-Max-Size": str(self._state.settings.upload_bytes_max),
        }
        return web.Response(status=204, headers=headers)

    async def _receive(self, request: web.Request, upload: Upload) -> None:
        """Writes the body of a request to the file of an upload."""
        if upload.state != "receiving":
            raise RefusedError(409, "complete", "the upload is complete")
        if upload.id in self._writing:
            raise RefusedError(423, "busy", "another request is writing to this upload")
        offset = self._offset(upload)
        self._writing.add(upload.id)
        try:
            with self.path(upload).open("ab") as file:
                while piece := await request.content.read(_PIECE_BYTES):
                    offset += len(piece)
                    if offset > upload.length:
                        raise RefusedError(400, "too_long", "more bytes than were announced")
                    await asyncio.to_thread(file.write, piece)
        finally:
            self._writing.discard(upload.id)
        if offset == upload.length:
            self._complete(upload)

    def _complete(self, upload: Upload) -> None:
        upload.state = "processing"
        try:
            self.save(upload)
        except OSError:
            upload.state = "receiving"  # an empty PATCH completes it when there is space again
            raise
        self._on_complete(upload)

    def _offset(self, upload: Upload) -> int:
        done = upload.state != "receiving"
        return upload.length if done else self.path(upload).stat().st_size

    def _find(self, request: web.Request) -> Upload:
        upload = self._uploads.get(request.match_info["id"])
        if upload is None or upload.guest != request[GUEST].id:
            raise RefusedError(404, "no_upload", "there is no such upload; it may have expired")
        return upload

    def _headers(self, upload: Upload) -> dict[str, str]:
        return {
            "Tus-Resumable": TUS_VERSION,
            "Upload-Offset": str(self._offset(upload)),
            "Upload-Expires": formatdate(upload.created_s + EXPIRES_S, usegmt=True),
        }

    # Limits

    def _check_space(self, guest: Guest, length: int) -> None:
        """Refuses a file that is too large for the gallery, the guest or the disk."""
        settings = self._state.settings
        if length > settings.upload_bytes_max:
            raise RefusedError(
                413, "too_large", f"a file has at most {_mega(settings.upload_bytes_max)}"
            )
        photos, size = self._state.usage(guest.id)
        active = [
            upload
            for upload in self._uploads.values()
            if upload.guest == guest.id and upload.state not in _DONE_STATES
        ]
        if len(active) >= UPLOADS_PER_GUEST_MAX:
            raise RefusedError(429, "too_many", "too many unfinished uploads: wait for some")
        if not guest.may("host"):
            if photos + len(active) + 1 > settings.guest_photos_max:
                raise RefusedError(
                    403, "over_quota", f"you may publish {settings.guest_photos_max} photos here"
                )
            waiting = sum(upload.length for upload in active)
            if size + waiting + length > settings.guest_bytes_max:
                limit = _mega(settings.guest_bytes_max)
                raise RefusedError(403, "over_quota", f"you may publish {limit} here, no more")
        unwritten = sum(
            upload.length - self._offset(upload)
            for upload in self._uploads.values()
            if upload.state == "receiving"
        )
        free = shutil.disk_usage(self._folder).free
        if free < unwritten + 2 * length + DISK_RESERVE_BYTES:
            raise RefusedError(507, "disk_full", "the disk of this gallery is full")


def _check_tags(words: list[str]) -> tuple[str, ...]:
    from thyme.api.arguments import make_insert

    made = make_insert(0, b"", [*words, "gallery"], b"", None, None, 1, False, None)
    return tuple(tag for tag in made.tags if tag != "gallery")


def _check_version(request: web.Request) -> None:
    if request.headers.get("Tus-Resumable") != TUS_VERSION:
        raise RefusedError(412, "bad_version", f"this server speaks tus {TUS_VERSION}")


def _header_number(request: web.Request, name: str) -> int:
    text = request.headers.get(name, "")
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise RefusedError(400, "bad_header", f"{name} must be a number")
    return int(text)


def _parse_metadata(text: str) -> dict[str, str]:
    """The fields of the header Upload-Metadata: names with values in Base64."""
    fields: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.strip().partition(" ")
        try:
            fields[name] = b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise RefusedError(400, "bad_header", "a value of Upload-Metadata is no text") from None
    return fields


def _mega(size: int) -> str:
    return f"{size / 2**20:,.0f} MB"
