"""HTTP ranges: which bytes of an object a request asks for (RFC 9110).

Entry point: `wanted_range`, which the HTTP API of the node and the gallery share.
"""

from __future__ import annotations

from aiohttp import web


def wanted_range(request: web.Request, size: int, etag: str = "") -> tuple[int, int] | None:
    """The bytes to send: all, or those of the header `Range`; None if it names no byte. A header
    that cannot be read, or that is for other content than `etag`, is ignored."""
    if request.headers.get("If-Range", etag) != etag:
        return 0, size
    try:
        wanted = request.http_range
    except ValueError:
        return 0, size
    if wanted.start is None and wanted.stop is None:
        return 0, size
    start, stop, _ = wanted.indices(size)
    return (start, stop) if start < stop else None


def set_range(response: web.StreamResponse, start: int, stop: int, size: int) -> None:
    """Sets length and range of a response, and its status if it is a part of the object."""
    response.content_length = stop - start
    response.headers["Accept-Ranges"] = "bytes"
    if (start, stop) != (0, size):
        response.set_status(206)
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
