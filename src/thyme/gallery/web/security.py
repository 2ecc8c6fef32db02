"""Security: decides for every request whether it may reach its handler, and adds the headers that
protect the pages.

A request must name a host of this gallery (against DNS rebinding), must not come from a page of
another origin, and its guest must have the right that the route demands. Requests at the address
for this machine have the rights of the host; all others need the cookie of a session.
Entry points: `GalleryRoute`, `make_security`, `add_headers`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from thyme.gallery.web.guests import Guest, Guests
from thyme.gallery.web.responses import Handler, RefusedError

GUEST = web.RequestKey("guest", Guest)
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self' blob:; connect-src 'self'; font-src 'self'; manifest-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class GalleryRoute(msgspec.Struct, frozen=True):
    """A route of the gallery and the right that it demands; an empty right is for everybody."""

    method: str
    path: str
    right: str
    handler: Callable[[web.Request], Any]


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """An address at which the gallery is served."""

    is_local: bool
    """Whether only this machine reaches it, so that its users are the host."""
    hosts: frozenset[str]
    """The values of the header `Host` that belong to this address."""
    scheme: str = "http"
    cookie: str = "thyme"

    @property
    def origins(self) -> frozenset[str]:
        """The origins of the pages of this address."""
        return frozenset(f"{self.scheme}://{host}" for host in self.hosts)


def make_security(door: Door, guests: Guests, rights: dict[Any, str]) -> Any:
    """Makes the middleware of an address; `rights` has the right that each handler demands."""

    @web.middleware
    async def security(request: web.Request, handler: Handler) -> web.StreamResponse:
        _check_host(request, door)
        _check_origin(request, door)
        right = rights.get(request.match_info.handler, "")
        if right:
            guest = _find_guest(request, door, guests)
            if guest.blocked:
                raise RefusedError(403, "blocked", "the host has blocked you in this gallery")
            if not guest.may(right):
                raise RefusedError(
                    403, "no_right", f"you have no right to this: it needs {right!r}"
                )
            request[GUEST] = guest
        return await handler(request)

    return security


def _find_guest(request: web.Request, door: Door, guests: Guests) -> Guest:
    if door.is_local:
        return guests.host
    secret = request.cookies.get(door.cookie)
    if not secret:
        raise RefusedError(401, "not_joined", "scan the code of this gallery to come in")
    return guests.find_session(secret)


def _check_host(request: web.Request, door: Door) -> None:
    if request.headers.get("Host", "").lower() not in door.hosts:
        raise RefusedError(421, "wrong_host", "this is not the address of this gallery")


def _check_origin(request: web.Request, door: Door) -> None:
    origin = request.headers.get("Origin")
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if request.method in _SAFE_METHODS:
        foreign = site == "cross-site" and request.headers.get("Sec-Fetch-Mode") != "navigate"
    else:
        foreign = site not in ("same-origin", "none")
    if foreign or (origin is not None and origin not in door.origins):
        raise RefusedError(403, "wrong_origin", "a page of another origin may not use this gallery")


def set_session_cookie(
    response: web.StreamResponse, door: Door, secret: str, session_s: float
) -> None:
    """Gives a browser the secret of its guest's session."""
    response.set_cookie(
        door.cookie,
        secret,
        max_age=int(session_s),
        httponly=True,
        samesite="Strict",
        secure=door.scheme == "https",
    )


async def add_headers(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Adds the headers that protect the pages, unless a handler has set stricter ones."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
