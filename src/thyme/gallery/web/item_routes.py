"""Item routes: HTTP handlers for lists of photos, thumbnails, originals, archives and deletes.

Originals come from strangers: only pictures and videos are shown, with the type found when they
were published; everything else is a download. Entry point: `ItemRoutes`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from urllib.parse import quote

import msgspec
from aiohttp import web

from thyme import Query, ThymeError, errors
from thyme.api.http_range import set_range, wanted_range
from thyme.gallery.summary import FILE_TYPE, SHOWN_TYPES
from thyme.gallery.web.archive import file_name_of, write_archive
from thyme.gallery.web.catalogue import Card, Position
from thyme.gallery.web.gallery_world import GalleryWorld, Interest
from thyme.gallery.web.publisher import Publisher
from thyme.gallery.web.responses import RefusedError, json_response, read_json
from thyme.gallery.web.security import GUEST, GalleryRoute
from thyme.gallery.web.state import VIEWS, GalleryState

LIMIT_MAX = 1_000
ARCHIVES_MAX = 100
_ARCHIVE_S_MAX = 600.0
_NEAR_S = 3.0
_CACHED = "private, max-age=31536000, immutable"
_SANDBOX = "default-src 'none'; sandbox"


class MarkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new mark of photos."""

    keys: tuple[str, ...]
    mark: str


class KeysBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some photos; none for all that the guest can see."""

    keys: tuple[str, ...] = ()


class HideBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A photo by its key, a node by its id, or a guest as guest:ID; hidden or not."""

    what: str
    hidden: bool


class ItemRoutes:
    """HTTP handlers of photos."""

    def __init__(self, state: GalleryState, publisher: Publisher) -> None:
        self._state = state
        self.publisher = publisher
        self._archives: dict[str, tuple[str, str, tuple[str, ...], float]] = {}

    @property
    def routes(self) -> list[GalleryRoute]:
        """The routes of photos."""
        return [
            GalleryRoute("GET", "/api/w/{world}/items", "look", self.list_items),
            GalleryRoute("GET", "/api/w/{world}/thumbnails/{key}", "look", self.show_thumbnail),
            GalleryRoute("GET", "/api/w/{world}/objects/{key}", "look", self.show_object),
            GalleryRoute("POST", "/api/w/{world}/marks", "look", self.set_marks),
            GalleryRoute("POST", "/api/w/{world}/archives", "look", self.make_archive),
            GalleryRoute("GET", "/api/archives/{id}", "look", self.show_archive),
            GalleryRoute("DELETE", "/api/w/{world}/items/{key}", "publish", self.delete),
            GalleryRoute("GET", "/api/w/{world}/pending", "look", self.list_pending),
            GalleryRoute("GET", "/api/w/{world}/pending/{id}", "look", self.show_pending),
            GalleryRoute("POST", "/api/w/{world}/pending/{id}", "approve", self.approve),
            GalleryRoute("DELETE", "/api/w/{world}/pending/{id}", "publish", self.reject),
            GalleryRoute("GET", "/api/w/{world}/hidden", "approve", self.list_hidden),
            GalleryRoute("POST", "/api/w/{world}/hidden", "approve", self.hide),
        ]

    def _world(self, request: web.Request) -> GalleryWorld:
        return self._state.world(request.match_info["world"])

    def _card(self, request: web.Request, world: GalleryWorld) -> Card:
        """The card of the photo in the path, if the guest may see it."""
        card = world.catalogue.get(request.match_info["key"])
        guest = request[GUEST]
        if card is None or (self._state.is_hidden(world.name, card) and not guest.may("approve")):
            raise RefusedError(404, "not_found", "there is no such photo any more")
        return card

    async def list_items(self, request: web.Request) -> web.StreamResponse:
        world = self._world(request)
        view = request.query.get("view", "available")
        if view not in VIEWS:
            raise RefusedError(400, "bad_view", f"a view is one of {', '.join(VIEWS)}")
        text = request.query.get("query")
        limit = request.query.get("limit", "100")
        if not limit.isdecimal() or not 1 <= int(limit[:9]) <= LIMIT_MAX:
            raise RefusedError(400, "bad_limit", f"the limit is a number from 1 to {LIMIT_MAX}")
        last = self._state.feed.last
        items, following = self._state.items(
            request[GUEST],
            world,
            view,
            interest=None if not text else Interest(str(Query(text))),
            by=request.query.get("by"),
            before=_parse_position(request.query.get("before")),
            limit=int(limit),
        )
        return json_response(
            {"items": items, "next": following, "event": self._state.feed.event_id(last)}
        )

    async def show_thumbnail(self, request: web.Request) -> web.StreamResponse:
        world = self._world(request)
        card = self._card(request, world)
        thumbnail = world.catalogue.thumbnail(card.key)
        if not thumbnail:
            raise RefusedError(404, "no_thumbnail", "this object has no thumbnail")
        return web.Response(
            body=thumbnail, content_type="image/webp", headers={"Cache-Control": _CACHED}
        )

    async def show_object(self, request: web.Request) -> web.StreamResponse:
        """The original: shown in the page, or saved with ?save."""
        world = self._world(request)
        card = self._card(request, world)
        wanted = wanted_range(request, card.size)
        if wanted is None:
            message = f"no bytes in this range: the object has {card.size} bytes"
            raise RefusedError(416, "bad_range", message)
        start, stop = wanted
        response = web.StreamResponse()
        set_range(response, start, stop, card.size)
        shown = card.type in SHOWN_TYPES and "save" not in request.query
        response.content_type = card.type if shown else FILE_TYPE
        kind = "inline" if shown else "attachment"
        name = quote(file_name_of(card))
        response.headers.update(
            {
                "Content-Disposition": f"{kind}; filename*=UTF-8''{name}",
                "Content-Security-Policy": _SANDBOX,
                "Cache-Control": _CACHED,
            }
        )
        pieces = aiter(world.read(card.key, start, stop))
        piece = await anext(pieces, b"")  # an object that cannot be retrieved has an error response
        await response.prepare(request)
        try:
            while piece:
                await response.write(piece)
                piece = await anext(pieces, b"")
        except ThymeError:
            if request.transport is not None:  # the browser notices that bytes are missing
                request.transport.abort()
            return response
        await response.write_eof()
        return response

    async def set_marks(self, request: web.Request) -> web.StreamResponse:
        """Keeps, discards or postpones photos; a download is retrieved before it is marked."""
        world = self._world(request)
        body = await read_json(request, MarkBody)
        for key in body.keys[:LIMIT_MAX]:
            if key not in world.catalogue:
                raise RefusedError(404, "not_found", "there is no such photo any more")
            if body.mark == "downloaded":
                await world.copy(key, wanted=True)
            self._state.set_mark(request[GUEST].id, world.name, key, body.mark)
        return web.Response(status=204)

    async def run_postponed_downloads(self) -> None:
        """Downloads postponed photos as soon as their node or a base station is near."""
        while True:
            await asyncio.sleep(_NEAR_S)
            waiting = self._state.waiting_downloads()
            for name in {world for _, world, _ in waiting}:
                world = self._state.worlds[name]
                status = await world.status()
                if status is None:
                    continue
                near = {neighbour["node"] for neighbour in status["neighbours"]}
                for guest, _, key in (entry for entry in waiting if entry[1] == name):
                    card = world.catalogue.get(key)
                    if card is None:
                        continue
                    is_near = status["base_station"] or card.owner in (*near, status["node"])
                    if is_near or key in world.copies:
                        await self._download(world, guest, key)

    async def _download(self, world: GalleryWorld, guest: str, key: str) -> None:
        try:
            await world.copy(key, wanted=True)
        except (ThymeError, RefusedError, OSError):
            return  # it is tried again
        self._state.set_mark(guest, world.name, key, "downloaded")

    # Archives

    async def make_archive(self, request: web.Request) -> web.StreamResponse:
        """Prepares a link to an archive of some or all photos."""
        world = self._world(request)
        body = await read_json(request, KeysBody)
        guest = request[GUEST]
        visible = [
            card.key
            for card in world.catalogue.newest_first()
            if not self._state.is_hidden(world.name, card)
        ]
        chosen = set(body.keys)
        keys = tuple(key for key in visible if not chosen or key in chosen)
        if not keys:
            raise RefusedError(404, "not_found", "there are no such photos")
        now_s = time.monotonic()
        for archive_id, (*_, made_s) in list(self._archives.items()):
            if made_s < now_s - _ARCHIVE_S_MAX or len(self._archives) >= ARCHIVES_MAX:
                del self._archives[archive_id]
        archive_id = secrets.token_hex(12)
        self._archives[archive_id] = guest.id, world.name, keys, now_s
        return json_response({"url": f"/api/archives/{archive_id}"}, 201)

    async def show_archive(self, request: web.Request) -> web.StreamResponse:
        entry = self._archives.get(request.match_info["id"])
        if entry is None or entry[0] != request[GUEST].id:
            raise RefusedError(404, "not_found", "this archive has expired: make it again")
        return await write_archive(request, self._state.world(entry[1]), entry[2])

    # Deletes and approval

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """Deletes a photo of the guest, or, for the host, any that this node published."""
        world = self._world(request)
        card = self._card(request, world)
        author = self._state.author(world.name, card.key)
        guest = request[GUEST]
        if author != guest.id and not (guest.may("host") and card.owner == world.node_id):
            raise errors.NotOwnerError("only who published a photo can delete it")
        await world.delete(card.key)
        self._state.drop_post(world.name, card.key)
        return web.Response(status=204)

    async def list_pending(self, request: web.Request) -> web.StreamResponse:
        found = [
            {
                "id": photo.id,
                "title": photo.summary.title,
                "by": photo.summary.by,
                "file_name": photo.summary.file_name,
                "has_thumbnail": bool(photo.summary.thumbnail),
                "tags": photo.tags,
                "mine": photo.guest == request[GUEST].id,
            }
            for photo in self.publisher.pending(self._world(request).name, request[GUEST])
        ]
        return json_response(found)

    async def show_pending(self, request: web.Request) -> web.StreamResponse:
        """The thumbnail of a photo that waits for approval."""
        photo = self.publisher.find_pending(request.match_info["id"])
        guest = request[GUEST]
        if photo.guest != guest.id and not guest.may("approve"):
            raise RefusedError(404, "not_found", "this photo does not wait any more")
        if not photo.summary.thumbnail:
            raise RefusedError(404, "no_thumbnail", "this object has no thumbnail")
        return web.Response(
            body=photo.summary.thumbnail,
            content_type="image/webp",
            headers={"Cache-Control": "no-store"},
        )

    async def approve(self, request: web.Request) -> web.StreamResponse:
        key = await self.publisher.decide(request.match_info["id"], approved=True)
        return json_response({"key": key})

    async def reject(self, request: web.Request) -> web.StreamResponse:
        """Rejects a photo that waits; its author takes it back."""
        photo = self.publisher.find_pending(request.match_info["id"])
        guest = request[GUEST]
        if photo.guest != guest.id and not guest.may("approve"):
            raise RefusedError(403, "no_right", "you have no right to do this: it needs 'approve'")
        await self.publisher.decide(photo.id, approved=False)
        return web.Response(status=204)

    async def list_hidden(self, request: web.Request) -> web.StreamResponse:
        return json_response(self._state.hidden(self._world(request).name))

    async def hide(self, request: web.Request) -> web.StreamResponse:
        body = await read_json(request, HideBody)
        if len(body.what) > 200:
            raise RefusedError(400, "bad_body", "a photo, a node or a guest has a shorter name")
        self._state.set_hidden(self._world(request).name, body.what, hidden=body.hidden)
        return web.Response(status=204)


def _parse_position(text: str | None) -> Position | None:
    if not text:
        return None
    published_us, _, key = text.partition(".")
    if not published_us.isascii() or not published_us.isdecimal() or len(published_us) > 18:
        raise RefusedError(400, "bad_position", "a page begins where the page before it ended")
    return int(published_us), key
