"""WebSocket: the session of an application in another process with the node.

Frames (`thyme.wire.app_rpc`) carry requests to the node, and replies and events to the application.
An invalid frame closes this session and affects no other.
Entry point: `serve_websocket`. The client side is `thyme.api.remote`.
Clauses: M25, M33.
"""

from __future__ import annotations

import asyncio

from aiohttp import WSCloseCode, WSMsgType, web

from thyme.live.switchboard import Switchboard
from thyme.model.errors import DecodeError, ThymeError
from thyme.protocol.requests import Told
from thyme.wire.asking import FRAME_BYTES_MAX, decode_request, encode_told

UNSENT_MAX = 100_000
"""Maximum number of frames queued for a slow application; beyond it, its session is closed."""
HEARTBEAT_S = 20.0


class _Ear:
    """Queues the encoded events until they are sent."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    def on_told(self, told: Told) -> None:
        if self.frames.qsize() >= UNSENT_MAX:
            self.frames.put_nowait(None)
        else:
            self.frames.put_nowait(encode_told(told))

    def on_broken(self, error: ThymeError) -> None:
        self.frames.put_nowait(None)


async def serve_line(request: web.Request, board: Switchboard) -> web.WebSocketResponse:
    """Serves one application until it disconnects or the node stops."""
    socket = web.WebSocketResponse(
        max_msg_size=FRAME_BYTES_MAX, heartbeat=HEARTBEAT_S, compress=False
    )
    await socket.prepare(request)
    ear = _Ear()
    line = board.line(ear)
    sending = asyncio.create_task(_send(socket, ear))
    try:
        async for frame in socket:
            if frame.type is WSMsgType.BINARY:
                line.ask(decode_request(frame.data))
    except (DecodeError, ThymeError) as error:
        reason = str(error).encode()[:120]
        await socket.close(code=WSCloseCode.UNSUPPORTED_DATA, message=reason)
    finally:
        line.close()
        sending.cancel()
    return socket


async def _send(socket: web.WebSocketResponse, ear: _Ear) -> None:
    try:
        while (frame := await ear.frames.get()) is not None:
            await socket.send_bytes(frame)
    except ConnectionError:
        return
    await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the node stopped")
