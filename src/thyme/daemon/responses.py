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
    ClosedError,
    CorruptError,
    DiskFullError,
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

HTTP_STATUS_BY_ERROR: dict[type[ThymeError], int] = {
    InputError: 400,
    NotOwnerError: 403,
    NotFoundError: 404,
    RejectedError: 409,
    ClosedError: 410,
    UnsupportedError: 422,
    QuotaError: 429,
    CorruptError: 502,
    OperationTimeoutError: 504,
    DiskFullError: 507,
    StoreError: 507,
}


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why something was not done."""

    error: str
    """The code of the error."""
    message: str
    position: int | None = None
    """Index of the wrong character in a query."""


def json_response(value: object, status: int = 200) -> web.Response:
    """Makes a JSON response from a value."""
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json")


def problem_response(
    error: str, message: str, status: int, position: int | None = None
) -> web.Response:
    """Makes a JSON response for a failure."""
    return json_response(ErrorBody(error=error, message=message, position=position), status)


def error_response(error: ThymeError) -> web.Response:
    """Makes a JSON response for a `ThymeError`, with the matching HTTP status."""
    status = next(
        (code for kind, code in HTTP_STATUS_BY_ERROR.items() if isinstance(error, kind)), 500
    )
    position = error.position if isinstance(error, QuerySyntaxError) else None
    return problem_response(error.code, str(error), status, position)


@web.middleware
async def error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Converts every exception of a handler to a JSON response."""
    try:
        return await handler(request)
    except ThymeError as error:
        return error_response(error)
    except web.HTTPException as http_error:
        if http_error.status < 400:
            raise
        messages = {404: "no such page", 405: f"{request.method} is not allowed here"}
        message = messages.get(http_error.status, http_error.reason)
        response = problem_response(
            _ERROR_CODES.get(http_error.status, "bad_request"), message, http_error.status
        )
        if "Allow" in http_error.headers:
            response.headers["Allow"] = http_error.headers["Allow"]
        return response
    except (ConnectionResetError, ConnectionError):
        raise
    except Exception:
        _log.exception("a request could not be handled")
        return problem_response("error", "internal error, see the log of the node", 500)


_ERROR_CODES = {404: "no_such_page", 405: "no_such_method", 413: "too_large"}


@web.middleware
async def loopback_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Accepts only requests with loopback host and origin, so that no web page uses the node."""
    origin = request.headers.get("Origin")
    if not is_loopback(_parse_host(f"//{request.host}")) or (
        origin is not None and not is_loopback(_parse_host(origin))
    ):
        return problem_response(
            "forbidden", "only applications on this machine may use this node", 403
        )
    return await handler(request)


def is_loopback(host: str | None) -> bool:
    """Whether a host name or address is that of the loopback interface."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _parse_host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
