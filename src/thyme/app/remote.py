"""Remote node: uses a node in another process on this machine over one WebSocket.

Requests and events are sent in order as frames (`thyme.wire.app_rpc`), so an application can do
everything that it can do with a node in its own process. Leaving closes the connection; the node
keeps running. Entry point: `open_remote`. The server side is `thyme.daemon.websocket`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec
from aiohttp import ClientError, ClientSession, ClientWebSocketResponse, WSMsgType

from thyme.app.world import Opened
from thyme.live.status import Status
from thyme.model.errors import (
    DecodeError,
    EndedError,
    InputError,
    OptionError,
    ThymeError,
    WorldError,
    failure,
    shown,
)
from thyme.model.ids import NodeId
from thyme.model.worlds import Area, WorldInfo
from thyme.protocol.port import Listener
from thyme.protocol.requests import Request
from thyme.wire.asking import FRAME_BYTES_MAX, decode_told, encode_request

CONNECT_S = 10.0
LEAVE_S_MAX = 2.0
CHUNK_BYTES = 256 * 2**10


class NoNodeError(InputError):
    """No node can be reached at the given address."""

    code = "no_node"
    silent = False
    """Whether no process listens at the address; a node may still be starting."""


async def open_remote(url: str, name: str | None) -> Opened:
    """Connects to a running node; if `name` is given, the node must be in this world."""
    base = base_of(url)
    session = ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S))
    try:
        status = await status_of(session, base)
        if name is not None and name not in (status.world.name, status.world.wid):
            raise WorldError(
                f"the node at {base} is in the world {shown(status.world.name)}, not {shown(name)}"
            )
        socket = await session.ws_connect(
            f"{base}/v1/line", max_msg_size=FRAME_BYTES_MAX, compress=0
        )
    except (ClientError, OSError, ValueError) as error:
        await session.close()
        if isinstance(error, InputError):
            raise
        raise _no_node(base, error) from error
    except BaseException:
        await session.close()
        raise
    return _info(status), lambda listener: RemotePort(base, session, socket, status, listener)


def base_of(url: str) -> str:
    """Checks the URL of a node and removes a slash at its end."""
    if not url.startswith("http://"):
        raise OptionError(f"the URL of a node is like http://127.0.0.1:8473, not {shown(url)}")
    return url.rstrip("/")


async def status_of(session: ClientSession, base: str) -> Status:
    """Requests the status of a node."""
    try:
        async with session.get(f"{base}/v1/status") as response:
            response.raise_for_status()
            return msgspec.json.decode(await response.read(), type=Status)
    except (ClientError, OSError, ValueError, msgspec.MsgspecError) as error:
        raise _no_node(base, error) from error


def _no_node(base: str, error: Exception) -> NoNodeError:
    silent = isinstance(error, aiohttp.ClientConnectorError)
    words = "" if silent else f" ({str(error) or type(error).__name__})"
    found = NoNodeError(f"no node answers at {base}{words}; start one with: thyme node")
    found.silent = silent
    return found


def _info(status: Status) -> WorldInfo:
    world = status.world
    return WorldInfo(
        world.name,
        world.wid,
        area=None if world.area_m is None else Area(*world.area_m),
        cell_m=world.cell_m,
        ends_us=world.ends_us,
        substrate=world.substrate,
        server=None if world.server is None else NodeId(bytes.fromhex(world.server)),
        closed=world.closed,
    )


class RemotePort:
    """The connection of one application to a node in another process (a `NodePort`)."""

    def __init__(
        self,
        base: str,
        session: ClientSession,
        socket: ClientWebSocketResponse,
        status: Status,
        listener: Listener,
    ) -> None:
        self._base = base
        self._session = session
        self._socket = socket
        self._listener = listener
        self._node_id = NodeId(bytes.fromhex(status.node))
        self._origin_us = status.now_us - time.monotonic_ns() // 1_000
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue()
        self._ended = False
        self._tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._send()),
            asyncio.create_task(self._hear()),
        ]

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    def now_us(self) -> int:
        return self._origin_us + time.monotonic_ns() // 1_000

    def ask(self, request: Request) -> None:
        if self._ended:
            raise EndedError("this world has been left")
        self._unsent.put_nowait(encode_request(request))

    def close(self) -> None:
        """Closes the connection at once."""
        self._ended = True
        for task in self._tasks:
            task.cancel()
        if not self._session.closed:
            self._tasks.append(asyncio.ensure_future(self._session.close()))

    async def leave(self) -> None:
        """Sends the queued requests, then closes the connection."""
        self._ended = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._unsent.join(), LEAVE_S_MAX)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._socket.close()
        await self._session.close()

    async def _send(self) -> None:
        try:
            while True:
                await self._socket.send_bytes(await self._unsent.get())
                self._unsent.task_done()
        except (ConnectionError, ClientError):
            return  # the receiving task handles the closed connection

    async def _hear(self) -> None:
        try:
            async for frame in self._socket:
                if frame.type is WSMsgType.BINARY:
                    self._listener.on_told(decode_told(frame.data))
        except (ClientError, ConnectionError, DecodeError):
            pass
        if not self._ended:
            self._ended = True
            self._listener.on_broken(EndedError(f"the node at {self._base} closed the connection"))


async def fetch(url: str, path: str, write: Callable[[bytes], object]) -> int:
    """Downloads a path of the HTTP API in chunks; returns the number of bytes."""
    base = base_of(url)
    size = 0
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
    try:
        async with ClientSession(timeout=timeout) as session, session.get(base + path) as response:
            if response.status != 200:
                raise _failure(await response.read())
            async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                write(chunk)
                size += len(chunk)
    except (ClientError, OSError) as error:
        raise _no_node(base, error) from error
    return size


def _failure(body: bytes) -> ThymeError:
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return failure("", "unexpected response of the node")
    return failure(str(found.get("error", "")), str(found.get("message", "")))
