"""Responses: JSON responses of the gallery, and errors as JSON with a code and a message.

Entry points: `json_response`, `read_json`, `RefusedError`, `error_middleware`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from thyme import InputError, OperationError, QuerySyntaxError, ThymeError, errors

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Body = TypeVar("Body")
_BODY_BYTES_MAX = 64 * 2**10
_COMPRESSED_BYTES_MIN = 2_000
_log = logging.getLogger("thyme")

_STATUS_BY_ERROR: dict[type[ThymeError], int] = {
    InputError: 400,
    errors.NotOwnerError: 403,
    errors.NotFoundError: 404,
    errors.RejectedError: 409,
    errors.ClosedError: 503,
    errors.QuotaError: 507,
    errors.DiskFullError: 507,
    errors.OperationTimeoutError: 504,
    OperationError: 502,
}


class RefusedError(Exception):
    """A request that is not carried out: HTTP status, error code and message for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def json_response(value: object, status: int = 200) -> web.Response:
    """Makes a JSON response; a large one is compressed."""
    body = msgspec.json.encode(value)
    response = web.Response(body=body, status=status, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    if len(body) > _COMPRESSED_BYTES_MIN:
        response.enable_compression()
    return response


async def read_json(request: web.Request, kind: type[Body]) -> Body:
    """The JSON body of a request."""
    if request.content_type != "application/json":
        raise RefusedError(415, "bad_type", "the body must be application/json")
    if (request.content_length or 0) > _BODY_BYTES_MAX:
        raise RefusedError(413, "too_large", f"the body has at most {_BODY_BYTES_MAX} bytes")
    body = await request.content.read(_BODY_BYTES_MAX + 1)
    while len(body) <= _BODY_BYTES_MAX and (piece := await request.content.read(_BODY_BYTES_MAX)):
        body += piece
    if len(body) > _BODY_BYTES_MAX:
        raise RefusedError(413, "too_large", f"the body has at most {_BODY_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise RefusedError(400, "bad_body", f"the body cannot be read: {error}") from error


def problem(status: int, code: str, message: str, **facts: Any) -> web.Response:
    """Makes the JSON response of an error."""
    return json_response({"error": code, "message": message, **facts}, status)


@web.middleware
async def error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Converts exceptions of handlers to JSON responses."""
    try:
        return await handler(request)
    except RefusedError as refused:
        return problem(refused.status, refused.code, str(refused))
    except ThymeError as error:
        status = next(
            (code for kind, code in _STATUS_BY_ERROR.items() if isinstance(error, kind)), 500
        )
        if isinstance(error, QuerySyntaxError):
            where = f"at character {error.position}"
            message = f"{where}: found {error.found}, expected {error.expected}"
            return problem(status, error.code, message, position=error.position)
        return problem(status, error.code, str(error))
    except web.HTTPException as http_error:
        if http_error.status < 400:
            raise
        return problem(http_error.status, "bad_request", http_error.reason)
    except (ConnectionError, TimeoutError):
        raise
    except OSError as error:
        _log.exception("a request could not be handled")
        return problem(507, "disk", f"the disk of the gallery failed: {error.strerror}")
    except Exception:
        _log.exception("a request could not be handled")
        return problem(500, "error", "internal error, see the log of the gallery")
