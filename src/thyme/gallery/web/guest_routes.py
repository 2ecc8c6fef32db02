"""Guest routes: HTTP handlers for joining, names, invitations, rights and codes to scan.

Entry point: `GuestRoutes`.
"""

from __future__ import annotations

import io

import msgspec
import segno
from aiohttp import web

from thyme.gallery.web.guests import Guest
from thyme.gallery.web.responses import RefusedError, json_response, read_json
from thyme.gallery.web.security import GUEST, Door, GalleryRoute, set_session_cookie
from thyme.gallery.web.state import GalleryState

_CODE_CHARS_MAX = 500


class JoinBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An invitation and the name of the guest."""

    token: str
    name: str


class NameBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new name of a guest."""

    name: str


class GuestBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a guest."""

    rights: str | None = None
    blocked: bool | None = None


class InviteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rights of a personal invitation."""

    rights: str


class CodeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text of a code to scan."""

    text: str


class GuestRoutes:
    """HTTP handlers of guests, for one address of the gallery."""

    def __init__(self, state: GalleryState, door: Door, lan_url: str | None) -> None:
        self._state = state
        self._door = door
        self._lan_url = lan_url

    @property
    def routes(self) -> list[GalleryRoute]:
        """The routes of guests."""
        return [
            GalleryRoute("POST", "/api/join", "", self.join),
            GalleryRoute("GET", "/api/me", "look", self.show_me),
            GalleryRoute("PATCH", "/api/me", "look", self.rename),
            GalleryRoute("DELETE", "/api/me", "look", self.leave),
            GalleryRoute("GET", "/api/invitation", "look", self.show_invitation),
            GalleryRoute("POST", "/api/invitation", "host", self.renew_invitation),
            GalleryRoute("POST", "/api/invitations", "host", self.invite),
            GalleryRoute("GET", "/api/guests", "approve", self.list_guests),
            GalleryRoute("PATCH", "/api/guests/{id}", "host", self.change),
            GalleryRoute("POST", "/api/code", "look", self.draw_code),
        ]

    async def join(self, request: web.Request) -> web.StreamResponse:
        body = await read_json(request, JoinBody)
        address = request.remote or ""
        old = request.cookies.get(self._door.cookie, "")
        guest, secret = self._state.guests.join(body.token, body.name, address, old)
        self._state.subscribe_newcomer(guest.id)
        response = json_response(self._describe(guest), 201)
        set_session_cookie(response, self._door, secret, self._state.settings.session_s)
        return response

    async def show_me(self, request: web.Request) -> web.StreamResponse:
        return json_response(self._describe(request[GUEST]))

    def _describe(self, guest: Guest) -> dict[str, object]:
        settings = self._state.settings
        photos, size = self._state.usage(guest.id)
        return {
            "id": guest.id,
            "name": guest.name,
            "rights": guest.rights,
            "local": self._door.is_local,
            "visitor": self._state.guests.is_visitor(guest.id),
            "encrypted": self._door.scheme == "https",
            "approval": settings.approval,
            "photos": photos,
            "bytes": size,
            "photos_max": None if guest.may("host") else settings.guest_photos_max,
            "bytes_max": None if guest.may("host") else settings.guest_bytes_max,
            "upload_bytes_max": settings.upload_bytes_max,
            "galleries": list(self._state.worlds),
        }

    async def rename(self, request: web.Request) -> web.StreamResponse:
        body = await read_json(request, NameBody)
        self._state.guests.rename(request[GUEST], body.name)
        if request[GUEST].may("host"):
            self._state.announce(self._lan_url)
        return web.Response(status=204)

    async def leave(self, request: web.Request) -> web.StreamResponse:
        self._state.guests.close_session(request.cookies.get(self._door.cookie, ""))
        response = web.Response(status=204)
        response.del_cookie(self._door.cookie)
        return response

    # Invitations

    def _link(self, token: str) -> dict[str, str]:
        if self._lan_url is None:
            raise RefusedError(
                409, "no_lan", "the gallery is for this machine: start it with --lan"
            )
        url = f"{self._lan_url}/j/{token}"
        return {"url": url, "svg": _draw(url)}

    async def show_invitation(self, request: web.Request) -> web.StreamResponse:
        """The invitation, for guests who have the right that it gives."""
        if not request[GUEST].may(self._state.settings.guest_rights):
            raise RefusedError(403, "no_right", "ask the host for the code of this gallery")
        return json_response(self._link(self._state.guests.invitation()))

    async def renew_invitation(self, request: web.Request) -> web.StreamResponse:
        return json_response(self._link(self._state.guests.renew_invitation()))

    async def invite(self, request: web.Request) -> web.StreamResponse:
        body = await read_json(request, InviteBody)
        return json_response(self._link(self._state.guests.invite(body.rights)), 201)

    async def draw_code(self, request: web.Request) -> web.StreamResponse:
        """Draws a code, for example that of a Wi-Fi network on a poster; nothing is stored."""
        body = await read_json(request, CodeBody)
        if not 0 < len(body.text) <= _CODE_CHARS_MAX:
            raise RefusedError(400, "bad_body", f"a code has 1 to {_CODE_CHARS_MAX} characters")
        return json_response({"svg": _draw(body.text)})

    # Guests

    async def list_guests(self, request: web.Request) -> web.StreamResponse:
        found = []
        for guest in self._state.guests.all():
            photos, size = self._state.usage(guest.id)
            facts = {"photos": photos, "bytes": size, "origin": self._state.origin(guest.id)}
            found.append({**msgspec.to_builtins(guest), **facts})
        return json_response(found)

    async def change(self, request: web.Request) -> web.StreamResponse:
        body = await read_json(request, GuestBody)
        guest_id = request.match_info["id"]
        self._state.guests.change(guest_id, rights=body.rights, blocked=body.blocked)
        if body.blocked is not None:
            for world in self._state.worlds:
                self._state.set_hidden(world, f"guest:{guest_id}", hidden=body.blocked)
        self._state.feed.emit("me", guest=guest_id)
        return web.Response(status=204)


def _draw(text: str) -> str:
    """A code to scan, as SVG."""
    out = io.BytesIO()
    segno.make(text, error="m", micro=False).save(
        out, kind="svg", scale=4, border=3, xmldecl=False, dark="#000", light="#fff"
    )
    return out.getvalue().decode()
