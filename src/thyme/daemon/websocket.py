"""WebSocket: the session of an application in another process with the node.

Frames (`thyme.wire.app_rpc`) carry requests to the node, and replies and events to the application.
An invalid frame closes this session and affects no other. There is no heartbeat: the connection is
local, so the end of the other process closes it, and a process that sleeps keeps its session.
Entry point: `serve_websocket`. The client side is `thyme.api.remote`.
Clauses: M25, M33–M35.
"""

from __future__ import annotations

import asyncio

from aiohttp import WSCloseCode, WSMsgType, web

from thyme.live.shared_node import SharedNode
from thyme.model.errors import DecodeError, ThymeError
from thyme.protocol.app_interface import AppEvent
from thyme.wire.app_rpc import FRAME_BYTES_MAX, decode_request, encode_event

UNSENT_MAX = 100_000
"""Maximum number of frames queued for a slow application; beyond it, its session is closed. The
number of notifications among them is limited by `SharedNode`."""


class _EventQueue:
    """Queues the encoded events until they are sent."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    def on_event(self, event: AppEvent) -> None:
        if self.frames.qsize() >= UNSENT_MAX:
            self.frames.put_nowait(None)
        else:
            self.frames.put_nowait(encode_event(event))

    def on_node_failed(self, error: ThymeError) -> None:
        self.frames.put_nowait(None)


async def serve_websocket(request: web.Request, shared_node: SharedNode) -> web.WebSocketResponse:
    """Serves one application until it disconnects or the node stops."""
    socket = web.WebSocketResponse(max_msg_size=FRAME_BYTES_MAX, compress=False)
    await socket.prepare(request)
    events = _EventQueue()
    session = shared_node.open_session(events)
    sending = asyncio.create_task(_send_frames(socket, events))
    try:
        async for frame in socket:
            if frame.type is WSMsgType.BINARY:
                session.send_request(decode_request(frame.data))
                await shared_node.wait_until_ready()
    except (DecodeError, ThymeError) as error:
        reason = str(error).encode()[:120]
        await socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=reason)
    finally:
        session.close()
        sending.cancel()
    return socket


async def _send_frames(socket: web.WebSocketResponse, events: _EventQueue) -> None:
    try:
        while (frame := await events.frames.get()) is not None:
            await socket.send_bytes(frame)
    except ConnectionError:
        return
    await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the node stopped")
