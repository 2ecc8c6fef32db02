"""Responses: makes HTTP responses from values and errors; middleware of the HTTP API.

Every failure is a JSON object with an error code and a message. Invalid input gets a 4xx status; no
input makes the node fail.
Entry points: `json_response`, `error_middleware`, `loopback_only`.
Clauses: M9, M25.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from thyme.model.errors import (
    CorruptError,
    EndedError,
    FullError,
    InputError,
    NotFoundError,
    NotOwnerError,
    OperationTimeoutError,
    QuerySyntaxError,
    QuotaError,
    RejectedError,
    StoreError,
    ThymeError,
    UnsupportedError,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_log = logging.getLogger("thyme")

STATUSES: dict[type[ThymeError], int] = {
    InputError: 400,
    NotOwnerError: 403,
    NotFoundError: 404,
    RejectedError: 409,
    EndedError: 410,
    UnsupportedError: 422,
    QuotaError: 429,
    CorruptError: 502,
    OperationTimeoutError: 504,
    FullError: 507,
    StoreError: 507,
}


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why something was not done."""

    error: str
    """The code of the error."""
    message: str
    position: int | None = None
    """Index of the wrong character in a query."""


def as_json(value: object, status: int = 200) -> web.Response:
    """Makes a JSON response from a value."""
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json")


def problem(error: str, message: str, status: int, position: int | None = None) -> web.Response:
    """Makes a JSON response for a failure."""
    return as_json(Problem(error=error, message=message, position=position), status)


def of_error(error: ThymeError) -> web.Response:
    """Makes a JSON response for a `ThymeError`, with the matching HTTP status."""
    status = next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 500)
    position = error.position if isinstance(error, QuerySyntaxError) else None
    return problem(error.code, str(error), status, position)


@web.middleware
async def in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Converts every exception of a handler to a JSON response."""
    try:
        return await handler(request)
    except ThymeError as error:
        return of_error(error)
    except web.HTTPException as http_error:
        if http_error.status < 400:
            raise
        messages = {404: "no such page", 405: f"{request.method} is not allowed here"}
        message = messages.get(http_error.status, http_error.reason)
        response = problem(_CODES.get(http_error.status, "bad_request"), message, http_error.status)
        if "Allow" in http_error.headers:
            response.headers["Allow"] = http_error.headers["Allow"]
        return response
    except (ConnectionResetError, ConnectionError):
        raise
    except Exception:
        _log.exception("a request could not be handled")
        return problem("error", "internal error, see the log of the node", 500)


_CODES = {404: "no_such_page", 405: "no_such_method", 413: "too_large"}


@web.middleware
async def from_here(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Accepts only requests with loopback host and origin, so that no web page uses the node."""
    origin = request.headers.get("Origin")
    if not is_loopback(_host_of(f"//{request.host}")) or (
        origin is not None and not is_loopback(_host_of(origin))
    ):
        return problem("forbidden", "only applications on this machine may use this node", 403)
    return await handler(request)


def is_loopback(host: str | None) -> bool:
    """Whether a host name or address is that of the loopback interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
