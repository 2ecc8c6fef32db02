"""Peer routes: HTTP handlers for the galleries of other nodes and for guests who come from them.

Entry point: `PeerRoutes`.
"""

from __future__ import annotations

import time

import msgspec
from aiohttp import web

from thyme.gallery.web.guests import Guest
from thyme.gallery.web.peers.announcement import Announcement
from thyme.gallery.web.peers.passes import open_pass
from thyme.gallery.web.responses import RefusedError, json_response, read_json
from thyme.gallery.web.security import GUEST, Door, GalleryRoute, set_session_cookie
from thyme.gallery.web.state import GalleryState

PASS_S = 24 * 3600
_CLOCK_ERROR_S = 3600


class VisitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pass, signed by another gallery."""

    guest_pass: str = msgspec.field(name="pass")


class PeerRoutes:
    """HTTP handlers of other galleries, for one address of this one."""

    def __init__(self, state: GalleryState, door: Door) -> None:
        self._state = state
        self._door = door

    @property
    def routes(self) -> list[GalleryRoute]:
        """The routes of other galleries."""
        return [
            GalleryRoute("GET", "/api/w/{world}/galleries", "look", self.list_galleries),
            GalleryRoute("POST", "/api/visit", "", self.visit),
        ]

    async def list_galleries(self, request: web.Request) -> web.StreamResponse:
        """The galleries of other nodes, with links by which this guest can come in there."""
        world = self._state.world(request.match_info["world"])
        status = await world.status()
        near = set() if status is None else {entry["node"] for entry in status["neighbours"]}
        peers = [
            peer
            for peer in world.directory.announced()
            if not self._state.is_node_hidden(world.name, peer.owner)
        ]
        peers.sort(key=lambda peer: peer.owner not in near)
        return json_response(
            [
                {
                    "node": peer.owner,
                    "name": peer.announcement.name,
                    "url": peer.announcement.url,
                    "link": self._link(request[GUEST], peer.announcement),
                    "near": peer.owner in near,
                }
                for peer in peers
            ]
        )

    def _link(self, guest: Guest, target: Announcement) -> str:
        """A link with a pass behind `#`: browsers send that part to nobody."""
        expires_s = int(time.time()) + PASS_S
        signed = self._state.signer.sign(target.key, guest.id, guest.name, expires_s)
        return f"{target.url}/#pass={signed}"

    async def visit(self, request: web.Request) -> web.StreamResponse:
        """Lets in a guest of another gallery."""
        body = await read_json(request, VisitBody)
        guests, address = self._state.guests, request.remote or ""
        guests.check_tries(address)
        found = open_pass(body.guest_pass)
        if found is None or found.audience != self._state.signer.public_key:
            guests.count_wrong_try(address)
            raise RefusedError(403, "bad_pass", "this link is not valid: scan the code instead")
        now_s = time.time()
        if not now_s < found.expires_s < now_s + PASS_S + _CLOCK_ERROR_S:
            raise RefusedError(403, "expired_pass", "this link has expired: scan the code instead")
        rights = self._rights(found.issuer)
        guest, secret = guests.visit(found.issuer, found.guest, found.name or "Guest", rights)
        self._state.subscribe_newcomer(guest.id)
        response = json_response({"name": guest.name, "rights": guest.rights}, 201)
        set_session_cookie(response, self._door, secret, self._state.settings.session_s)
        return response

    def _rights(self, issuer: bytes) -> str:
        """The rights of guests of another gallery, which must be known in all worlds of this one.

        Who has the secret of a closed world is trusted to choose guests. In an open world everybody
        can announce a gallery, and see its photos: their guests may look.
        """
        rights = self._state.settings.guest_rights
        for world in self._state.worlds.values():
            peer = world.directory.find_by_key(issuer)
            if peer is None or self._state.is_node_hidden(world.name, peer.owner):
                text = "this gallery does not know yours: scan the code instead"
                raise RefusedError(403, "unknown_gallery", text)
            if not world.is_closed:
                rights = "look"
        return rights
