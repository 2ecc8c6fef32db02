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

from thyme.api.world import OpenedWorld
from thyme.live.status import NodeStatus, SharesStatus, StationStatus
from thyme.model.errors import (
    ClosedError,
    CorruptError,
    DecodeError,
    InputError,
    NotFoundError,
    OperationTimeoutError,
    OptionError,
    ThymeError,
    WorldError,
    error_for_code,
    safe_repr,
)
from thyme.model.ids import NodeId
from thyme.model.worlds import Area, WorldInfo, WorldSettings
from thyme.protocol.app_interface import AppRequest
from thyme.protocol.port import NodeListener
from thyme.wire.app_rpc import FRAME_BYTES_MAX, decode_event, encode_request

CONNECT_TIMEOUT_S = 10.0
LEAVE_S_MAX = 2.0
CHUNK_BYTES = 256 * 2**10
CONTINUE_S_MAX = 60.0
"""How long a download that broke off waits for its node to return."""
_CONTINUE_AFTER_S = 0.5


class NodeUnreachableError(InputError):
    """No node can be reached at the given address."""

    code = "no_node"
    not_listening = False
    """Whether no process listens at the address; a node may still be starting."""


async def open_remote(url: str, name: str | None) -> OpenedWorld:
    """Connects to a running node; if `name` is given, the node must be in this world."""
    node_url = normalise_url(url)
    session = ClientSession(
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
    )
    try:
        asked_ns = time.monotonic_ns()
        status = await fetch_status(session, node_url)
        # The node read its clock between request and reply.
        origin_us = status.now_us - (asked_ns + time.monotonic_ns()) // 2_000
        if name is not None and name not in (status.world.name, status.world.wid):
            raise WorldError(
                f"the node at {node_url} is in the world {safe_repr(status.world.name)}, "
                f"not {safe_repr(name)}"
            )
        socket = await session.ws_connect(
            f"{node_url}/v1/line", max_msg_size=FRAME_BYTES_MAX, compress=0
        )
    except (ClientError, OSError, ValueError) as error:
        await session.close()
        if isinstance(error, InputError):
            raise
        raise _unreachable_error(node_url, error) from error
    except BaseException:
        await session.close()
        raise
    return _world_info(status), lambda listener: RemotePort(
        node_url, session, socket, status, origin_us, listener
    )


def normalise_url(url: str) -> str:
    """Checks the URL of a node and removes a slash at its end."""
    if not url.startswith("http://"):
        raise OptionError(
            f"the URL of a running node is like http://127.0.0.1:8473, not {safe_repr(url)}; "
            "for a world by its name, use thyme.join or thyme.join_network"
        )
    return url.rstrip("/")


async def fetch_status(session: ClientSession, node_url: str) -> NodeStatus:
    """Requests the status of a node."""
    status = await fetch_any_status(session, node_url)
    if isinstance(status, StationStatus):
        raise NodeUnreachableError(
            f"at {node_url} is the base station {safe_repr(status.station)}, not a node: "
            "use the URL of a node"
        )
    return status


async def fetch_any_status(session: ClientSession, node_url: str) -> NodeStatus | StationStatus:
    """Requests the status of a node or a base station."""
    try:
        async with session.get(f"{node_url}/v1/status") as response:
            response.raise_for_status()
            body = await response.read()
            is_station = "station" in msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            if is_station:
                return msgspec.json.decode(body, type=StationStatus)
            return msgspec.json.decode(body, type=NodeStatus)
    except (ClientError, OSError, ValueError, msgspec.MsgspecError) as error:
        raise _unreachable_error(node_url, error) from error


async def fetch_shares(session: ClientSession, node_url: str) -> SharesStatus:
    """Requests what neighbours and authors cost a node."""
    try:
        async with session.get(f"{node_url}/v1/peers") as response:
            response.raise_for_status()
            return msgspec.json.decode(await response.read(), type=SharesStatus)
    except (ClientError, OSError, ValueError, msgspec.MsgspecError) as error:
        raise _unreachable_error(node_url, error) from error


def _unreachable_error(node_url: str, error: Exception) -> NodeUnreachableError:
    not_listening = isinstance(error, aiohttp.ClientConnectorError)
    reason = "" if not_listening else f" ({str(error) or type(error).__name__})"
    unreachable = NodeUnreachableError(
        f"no node answers at {node_url}{reason}; start one with: thyme node"
    )
    unreachable.not_listening = not_listening
    return unreachable


def _world_info(status: NodeStatus) -> WorldInfo:
    world = status.world
    settings = WorldSettings(
        profile=world.profile or WorldSettings().profile,
        key_choice=world.key_choice,
        replicas=world.replicas,
    )
    return WorldInfo(
        world.name,
        world.wid,
        area=None if world.area_m is None else Area(*world.area_m),
        cell_m=world.cell_m,
        cells=world.cells,
        ends_us=world.ends_us,
        substrate=world.substrate,
        server=None if world.server is None else NodeId(bytes.fromhex(world.server)),
        closed=world.closed,
        durable_or_settings=False if settings == WorldSettings() else settings,
    )


class RemotePort:
    """The connection of one application to a node in another process (a `NodePort`)."""

    def __init__(
        self,
        node_url: str,
        session: ClientSession,
        socket: ClientWebSocketResponse,
        status: NodeStatus,
        origin_us: int,
        listener: NodeListener,
    ) -> None:
        """`origin_us` is the node's time at which the monotonic clock of this process was 0."""
        self._url = node_url
        self._session = session
        self._socket = socket
        self._listener = listener
        self._node_id = NodeId(bytes.fromhex(status.node))
        self._origin_us = origin_us
        self._unsent_frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._closed = False
        self._tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._send()),
            asyncio.create_task(self._receive()),
        ]

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    def now_us(self) -> int:
        return self._origin_us + time.monotonic_ns() // 1_000

    def send_request(self, request: AppRequest) -> None:
        if self._closed:
            raise ClosedError("this world has been left")
        self._unsent_frames.put_nowait(encode_request(request))

    def close(self) -> None:
        """Closes the connection at once."""
        self._closed = True
        self._cancel_tasks()
        if not self._session.closed:
            self._tasks.append(asyncio.ensure_future(self._session.close()))

    async def leave(self) -> None:
        """Sends the queued requests, then closes the connection, also if it is cancelled."""
        self._closed = True
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._unsent_frames.join(), LEAVE_S_MAX)
            self._cancel_tasks()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._socket.close()
        finally:
            self._cancel_tasks()
            await self._session.close()

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _send(self) -> None:
        try:
            while True:
                await self._socket.send_bytes(await self._unsent_frames.get())
                self._unsent_frames.task_done()
        except (ConnectionError, ClientError):
            return  # the receiving task handles the closed connection

    async def _receive(self) -> None:
        try:
            async for frame in self._socket:
                if frame.type is WSMsgType.BINARY:
                    self._listener.on_event(decode_event(frame.data))
        except (ClientError, ConnectionError, DecodeError):
            pass
        if not self._closed:
            self._closed = True
            self._listener.on_node_failed(
                ClosedError(f"the node at {self._url} closed the connection")
            )


async def download(url: str, path: str, write: Callable[[bytes], object]) -> int:
    """Downloads a path of the HTTP API; returns the number of bytes. If the connection breaks, or
    the node restarts, the download goes on where it was (M37)."""
    node_url = normalise_url(url)
    download_state = _Download(write)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
    async with ClientSession(timeout=timeout) as session:
        while True:
            try:
                await download_state.read_rest(session, node_url + path)
                return download_state.size
            except (ClientError, OSError) as error:
                if not download_state.may_continue():
                    raise _unreachable_error(node_url, error) from error
            except (NotFoundError, OperationTimeoutError):  # a node that restarted finds its cell
                if not download_state.may_continue():
                    raise
            await asyncio.sleep(_CONTINUE_AFTER_S)


class _Download:
    """The bytes received so far, and the content that they belong to."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self.size = 0
        self._etag: str | None = None
        self._progress_s = time.monotonic()

    def may_continue(self) -> bool:
        """Whether bytes arrived, the last ones not long ago."""
        return self.size > 0 and time.monotonic() - self._progress_s < CONTINUE_S_MAX

    async def read_rest(self, session: ClientSession, page: str) -> None:
        headers = {}
        if self._etag is not None:
            headers = {"Range": f"bytes={self.size}-", "If-Range": self._etag}
        async with session.get(page, headers=headers) as response:
            if response.status not in (200, 206):
                raise _error_from_body(await response.read())
            if self.size and response.status != 206:
                raise CorruptError("the object changed while it was downloaded: download it again")
            self._etag = response.headers.get("ETag")
            async for piece in response.content.iter_chunked(CHUNK_BYTES):
                self._write(piece)
                self.size += len(piece)
                self._progress_s = time.monotonic()


def _error_from_body(body: bytes) -> ThymeError:
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return error_for_code("", "unexpected response of the node")
    return error_for_code(str(fields.get("error", "")), str(fields.get("message", "")))
