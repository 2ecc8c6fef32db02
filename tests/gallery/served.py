"""A node with a gallery in this process, its guests as HTTP clients, and pictures to publish."""

from __future__ import annotations

import asyncio
import io
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, CookieJar
from PIL import Image

from tests.daemon.pages import Pages, a_node
from thyme.gallery.settings import GallerySettings
from thyme.gallery.web.server import ServedGallery, serve_gallery

WORLD = "lisbon"
PATIENCE_S = 60.0


def a_jpeg(number: int = 0, size: tuple[int, int] = (64, 48), **options: Any) -> bytes:
    """A small picture; each number gives another one."""
    out = io.BytesIO()
    Image.new("RGB", size, (number * 37 % 256, 120, number * 91 % 256)).save(out, "JPEG", **options)
    return out.getvalue()


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


class Visitor:
    """A guest, or the host, of a gallery."""

    def __init__(self, url: str, session: ClientSession) -> None:
        self.url = url
        self.session = session

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Sends a request; returns the status and the body of the response."""
        async with self.session.request(method, self.url + path, **options) as response:
            if response.content_type == "application/json":
                return response.status, await response.json()
            return response.status, await response.read()

    async def upload(
        self, data: bytes, name: str = "a.jpg", **fields: str
    ) -> tuple[int, dict[str, Any]]:
        """Uploads a file in one request; returns the status and what became of it."""
        headers = tus_headers(len(data), filename=name, **fields)
        headers["Content-Type"] = "application/offset+octet-stream"
        path = f"{self.url}/api/w/{WORLD}/uploads"
        async with self.session.post(path, headers=headers, data=data) as response:
            if response.status != 201:
                return response.status, await response.json()
            location = response.headers["Location"]
        return 201, await self.outcome(location)

    async def outcome(self, location: str) -> dict[str, Any]:
        """Waits until an upload is published or refused."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                _, upload = await self.ask("GET", location)
                if upload["state"] not in ("receiving", "processing"):
                    found: dict[str, Any] = upload
                    return found
                await asyncio.sleep(0.02)

    async def items(self, view: str = "available", **options: str) -> list[dict[str, Any]]:
        """The photos of a view."""
        status, page = await self.ask(
            "GET", f"/api/w/{WORLD}/items", params={"view": view, **options}
        )
        assert status == 200, page
        found: list[dict[str, Any]] = page["items"]
        return found

    async def wait_for_items(self, count: int, view: str = "available") -> list[dict[str, Any]]:
        """Waits until a view has so many photos."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await self.items(view)
                if len(found) == count:
                    return found
                await asyncio.sleep(0.02)


class GalleryUnderTest:
    """A running gallery with its node."""

    def __init__(self, node: Pages, served: ServedGallery, stack: AsyncExitStack) -> None:
        self.node = node
        self.served = served
        self._stack = stack

    @property
    def token(self) -> str:
        """The invitation for everybody."""
        return self.served.state.guests.invitation()

    async def a_visitor(self, url: str | None = None) -> Visitor:
        """Somebody at the address for guests who has not joined yet."""
        jar = CookieJar(unsafe=True)  # for addresses by number
        session = await self._stack.enter_async_context(ClientSession(cookie_jar=jar))
        return Visitor(url or self.served.lan_url or "", session)

    async def host(self) -> Visitor:
        """The person at this machine."""
        return await self.a_visitor(self.served.url)

    async def guest(self, name: str = "Ana", token: str | None = None) -> Visitor:
        """Somebody who joined with an invitation."""
        visitor = await self.a_visitor()
        body = {"token": token or self.token, "name": name}
        status, reply = await visitor.ask("POST", "/api/join", json=body)
        assert status == 201, reply
        return visitor


@asynccontextmanager
async def a_gallery(
    folder: Path, *, network: Any = None, **settings: Any
) -> AsyncIterator[GalleryUnderTest]:
    """Starts a node and a gallery for it."""
    wanted = {} if network is None else {"network": network}
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(a_node(**wanted))
        yield await add_gallery(stack, folder, node, **settings)


async def add_gallery(
    stack: AsyncExitStack, folder: Path, node: Pages, **settings: Any
) -> GalleryUnderTest:
    """Starts a gallery for a node."""
    chosen = {"local": ("127.0.0.1", 0), "lan": ("127.0.0.1", 0), **settings}
    served = await stack.enter_async_context(
        serve_gallery(GallerySettings(folder=folder, nodes=((WORLD, node.url),), **chosen))
    )
    return GalleryUnderTest(node, served, stack)


def tus_headers(length: int, **fields: str) -> dict[str, str]:
    """The headers that announce an upload."""
    encoded = (f"{name} {b64encode(text.encode()).decode()}" for name, text in fields.items())
    return {
        "Tus-Resumable": "1.0.0",
        "Upload-Length": str(length),
        "Upload-Metadata": ",".join(encoded),
    }
