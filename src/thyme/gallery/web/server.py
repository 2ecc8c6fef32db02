"""Gallery server: serves the gallery at an address for this machine and at one for guests.

The two addresses are two applications with the same routes: what a request may do depends on
`security`. Entry point: `serve_gallery`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.resources import files

import aiohttp
import msgspec
from aiohttp import web

from thyme import InputError
from thyme.gallery.settings import GallerySettings
from thyme.gallery.web.feed_routes import FeedRoutes
from thyme.gallery.web.guest_routes import GuestRoutes
from thyme.gallery.web.item_routes import ItemRoutes
from thyme.gallery.web.peers.routes import PeerRoutes
from thyme.gallery.web.publisher import Publisher
from thyme.gallery.web.responses import RefusedError, error_middleware
from thyme.gallery.web.security import Door, GalleryRoute, add_headers, make_security
from thyme.gallery.web.state import GalleryState
from thyme.map.routes import EVENTS_PATH, MapRoutes, read_stream

ASSETS = files("thyme.gallery.web") / "assets"
ASSET_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".ts": "text/plain",
}
READ_BYTES_MAX = 16 * 2**10
"""How much of a body may wait in memory before its connection pauses; a hundred send at once."""
PAGES = ("/", "/wall", "/poster", "/j/{token}")


class GalleryServerError(InputError):
    """The gallery cannot listen at an address."""

    code = "bad_address"


class ServedGallery(msgspec.Struct, frozen=True, kw_only=True):
    """A running gallery: its state and its addresses."""

    state: GalleryState
    url: str
    lan_url: str | None
    publisher: Publisher

    @property
    def invitation_url(self) -> str | None:
        """The link for guests, which the code to scan holds."""
        if self.lan_url is None:
            return None
        return f"{self.lan_url}/j/{self.state.guests.invitation()}"


@asynccontextmanager
async def serve_gallery(settings: GallerySettings) -> AsyncIterator[ServedGallery]:
    """Serves a gallery until the end of the block."""
    state = GalleryState(settings)
    publisher = Publisher(state)
    items = ItemRoutes(state, publisher)
    runners: list[web.AppRunner] = []
    tasks: list[asyncio.Task[None]] = []
    try:
        lan_url = None
        if settings.lan is not None:
            lan_url = await _listen(settings, state, items, runners, settings.lan, None)
        url = await _listen(settings, state, items, runners, settings.local, lan_url, local=True)
        state.announce(lan_url)
        jobs = (
            *(world.run() for world in state.worlds.values()),
            *(copier.run() for copier in state.copiers.values()),
            publisher.run(),
            items.run_postponed_downloads(),
        )
        tasks += [asyncio.create_task(job) for job in jobs]
        yield ServedGallery(state=state, url=url, lan_url=lan_url, publisher=publisher)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for runner in runners:
            await runner.cleanup()
        state.database.close()


async def _listen(
    settings: GallerySettings,
    state: GalleryState,
    items: ItemRoutes,
    runners: list[web.AppRunner],
    address: tuple[str, int],
    lan_url: str | None,
    *,
    local: bool = False,
) -> str:
    """Serves the gallery at one address; returns its URL."""
    host, port = address
    listener = _open_socket(host, port)
    port = listener.getsockname()[1]
    tls = None if local or settings.tls is None else _load_certificate(settings)
    scheme = "http" if tls is None else "https"
    names = ("localhost", "127.0.0.1", "[::1]") if local else settings.lan_names
    hosts = {f"{name.lower()}:{port}" for name in (host, *names)}
    if port == (80 if tls is None else 443):
        hosts |= {name.lower() for name in (host, *names)}
    url = f"{scheme}://{settings.lan_names[0] if tls and settings.lan_names else host}:{port}"
    door = Door(is_local=local, hosts=frozenset(hosts), scheme=scheme, cookie=f"thyme-guest-{port}")
    app = make_app(state, items, door, lan_url if local else url)
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=1.0,
        handler_cancellation=True,
        read_bufsize=READ_BYTES_MAX,
    )
    await runner.setup()
    runners.append(runner)
    await web.SockSite(runner, listener, ssl_context=tls).start()
    return url


def make_app(
    state: GalleryState, items: ItemRoutes, door: Door, lan_url: str | None
) -> web.Application:
    """Makes the application of one address."""
    rights: dict[object, str] = {}
    app = web.Application(middlewares=[error_middleware, make_security(door, state.guests, rights)])
    for route in all_routes(state, items, door, lan_url):
        rights[route.handler] = route.right
        app.router.add_route(route.method, route.path, route.handler)
    app.on_response_prepare.append(add_headers)
    return app


def all_routes(
    state: GalleryState, items: ItemRoutes, door: Door, lan_url: str | None
) -> list[GalleryRoute]:
    """All routes of a gallery with the rights that they demand."""
    uploads = items.publisher.uploads
    return [
        *(GalleryRoute("GET", path, "", show_page) for path in PAGES),
        GalleryRoute("GET", "/assets/{name}", "", show_asset),
        GalleryRoute("GET", "/generate_204", "", answer_probe),
        GalleryRoute("GET", "/hotspot-detect.html", "", answer_probe),
        *GuestRoutes(state, door, lan_url).routes,
        *PeerRoutes(state, door).routes,
        *FeedRoutes(state).routes,
        *items.routes,
        *map_routes(state),
        GalleryRoute("POST", "/api/w/{world}/uploads", "publish", uploads.create),
        GalleryRoute("OPTIONS", "/api/w/{world}/uploads", "", uploads.show_options),
        GalleryRoute("GET", "/api/uploads/{id}", "publish", uploads.describe),
        GalleryRoute("HEAD", "/api/uploads/{id}", "publish", uploads.describe),
        GalleryRoute("PATCH", "/api/uploads/{id}", "publish", uploads.append),
        GalleryRoute("DELETE", "/api/uploads/{id}", "publish", uploads.remove),
        GalleryRoute("PUT", "/api/uploads/{id}/still", "publish", uploads.receive_still),
    ]


def map_routes(state: GalleryState) -> list[GalleryRoute]:
    """The map of the node of a gallery; what happens on it only the host sees."""

    async def watch(request: web.Request) -> AsyncIterator[list[bytes]]:
        name = request.query.get("gallery", next(iter(state.worlds)))
        async with aiohttp.ClientSession() as session:
            with suppress(aiohttp.ClientError, TimeoutError):  # the page connects again
                async for lines in read_stream(session, state.world(name).url):
                    yield lines

    routes = MapRoutes(watch).by_path.items()
    return [
        GalleryRoute("GET", path, "host" if path == EVENTS_PATH else "", handler)
        for path, handler in routes
    ]


async def show_page(request: web.Request) -> web.StreamResponse:
    """The page; what it shows depends on its path and the guest."""
    page = (ASSETS / "index.html").read_bytes()
    return web.Response(
        body=page, content_type="text/html", charset="utf-8", headers={"Cache-Control": "no-cache"}
    )


async def show_asset(request: web.Request) -> web.StreamResponse:
    """A file of the page, compressed."""
    name = request.match_info["name"]
    ending = "." + name.rpartition(".")[2]
    asset = ASSETS / name
    if "/" in name or name.startswith(".") or ending not in ASSET_TYPES or not asset.is_file():
        raise RefusedError(404, "not_found", "no such file")
    response = web.Response(
        body=asset.read_bytes(),
        content_type=ASSET_TYPES[ending],
        charset="utf-8",
        headers={"Cache-Control": "no-cache"},
    )
    response.enable_compression()
    return response


async def answer_probe(request: web.Request) -> web.StreamResponse:
    """Tells a phone that this network works, so that it stays in it."""
    if request.path == "/generate_204":
        return web.Response(status=204)
    return web.Response(text="<HTML><BODY>Success</BODY></HTML>", content_type="text/html")


def _open_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        why = {
            errno.EADDRINUSE: f"port {port} is in use on {host}: choose another",
            errno.EACCES: f"no permission for port {port}: choose one above 1023",
        }
        text = why.get(error.errno or 0, f"cannot listen on {host}, port {port}: {error.strerror}")
        raise GalleryServerError(text) from error
    listener.setblocking(False)
    return listener


def _load_certificate(settings: GallerySettings) -> ssl.SSLContext:
    assert settings.tls is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(*settings.tls)
    except (OSError, ssl.SSLError) as error:
        raise GalleryServerError(f"the certificate cannot be read: {error}") from error
    return context
