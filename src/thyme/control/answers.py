"""Answers: what goes back over HTTP, and how failures look there.

Every failure is a JSON object with the code of its error and words; wrong input is 4xx, and nothing
that a caller sends makes a node fail.
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
    """Which character of a query is wrong."""


def as_json(value: object, status: int = 200) -> web.Response:
    """A value as JSON."""
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json")


def problem(error: str, message: str, status: int, position: int | None = None) -> web.Response:
    """A failure as JSON."""
    return as_json(Problem(error=error, message=message, position=position), status)


def of_error(error: ThymeError) -> web.Response:
    """An error as JSON."""
    status = next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 500)
    position = error.position if isinstance(error, QuerySyntaxError) else None
    return problem(error.code, str(error), status, position)


@web.middleware
async def in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns whatever is raised into JSON."""
    try:
        return await handler(request)
    except ThymeError as error:
        return of_error(error)
    except web.HTTPException as answer:
        if answer.status < 400:
            raise
        words = {404: "no such page", 405: f"{request.method} is not offered here"}
        message = words.get(answer.status, answer.reason)
        response = problem(_CODES.get(answer.status, "bad_request"), message, answer.status)
        if "Allow" in answer.headers:
            response.headers["Allow"] = answer.headers["Allow"]
        return response
    except (ConnectionResetError, ConnectionError):
        raise
    except Exception:
        _log.exception("a request could not be handled")
        return problem("error", "something went wrong here; the log says what", 500)


_CODES = {404: "no_such_page", 405: "no_such_method", 413: "too_large"}


@web.middleware
async def from_here(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Lets in whoever came by a loopback name: a page from elsewhere must not use the node."""
    origin = request.headers.get("Origin")
    if not is_loopback(_host_of(f"//{request.host}")) or (
        origin is not None and not is_loopback(_host_of(origin))
    ):
        return problem("forbidden", "this is for applications on this machine", 403)
    return await handler(request)


def is_loopback(host: str | None) -> bool:
    """Whether a host is this machine, by its name or address."""
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
