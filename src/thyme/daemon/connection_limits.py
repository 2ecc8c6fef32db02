"""Connection limits: connections to the HTTP API that never send a request are closed.

Entry point: `LimitedRunner`. A connection has ten seconds for the header of its first request, and
few may wait at a time; later requests have the keep-alive timeout of aiohttp.
Clauses: B5.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from thyme.daemon.responses import Handler

HEADER_S_MAX = 10.0
WAITING_MAX = 128
"""Maximum number of connections that have not sent the header of a request yet; the oldest one is
closed for a new one."""
HEADER_BYTES_MAX = 8_190


class LimitedRunner(web.AppRunner):
    """Runs an application, and closes connections without a request."""

    def __init__(self, app: web.Application) -> None:
        app.middlewares.insert(0, self._on_request)
        # Handlers of closed connections are cancelled, so that their feeds can be read again.
        super().__init__(
            app,
            access_log=None,
            shutdown_timeout=2.0,
            handler_cancellation=True,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
        )
        self._waiting: dict[Any, None] = {}

    @property
    def server(self) -> Any:
        """The function that makes the protocol of each connection."""
        return None if super().server is None else self._connect

    def _connect(self) -> Any:
        made = super().server
        assert made is not None
        connection = made()
        self._waiting[connection] = None
        asyncio.get_running_loop().call_later(HEADER_S_MAX, self._close, connection)
        if len(self._waiting) > WAITING_MAX:
            self._close(next(iter(self._waiting)))
        return connection

    def _close(self, connection: Any) -> None:
        if connection in self._waiting:
            del self._waiting[connection]
            connection.force_close()

    @property
    def _on_request(self) -> Any:
        @web.middleware
        async def count_request(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._waiting.pop(request.protocol, None)
            return await handler(request)

        return count_request
