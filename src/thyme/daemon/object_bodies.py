"""Object bodies: reads the bytes of objects from HTTP requests, and writes ranges to responses.

Large bodies pass in pieces, so that memory does not grow with their size.
Entry points: `read_insert_body`, `write_object`.
Clauses: M13, M19, M25, M37.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from thyme.api.content import Uploaded, read_content, take_content
from thyme.api.session import NodeSession
from thyme.daemon.responses import problem_response
from thyme.model.errors import InputError, OptionError, ThymeError, safe_repr
from thyme.model.metadata import Limits, Metadata
from thyme.model.object_chunks import CHUNK_BYTES, LARGE_BYTES_MAX

_SUMMARY_BYTES_MAX = Limits().summary_bytes_max


class TooLargeError(InputError):
    """A request body with more bytes than the node accepts."""

    code = "too_large"


class _BoundedReader:
    """Reads exactly so many bytes, unless the body ends; counts them against a limit."""

    def __init__(self, read_some: Callable[[int], Awaitable[bytes]], bytes_max: int) -> None:
        self._read_some = read_some
        self._bytes_max = bytes_max
        self._size = 0

    async def read(self, count: int) -> bytes:
        pieces: list[bytes] = []
        missing = count
        while missing and (piece := await self._read_some(missing)):
            pieces.append(piece)
            missing -= len(piece)
        self._size += count - missing
        if self._size > self._bytes_max:
            raise _too_large_error(self._bytes_max)
        return b"".join(pieces)


async def read_insert_body(
    session: NodeSession, request: web.Request, summary: bytes | str
) -> tuple[bytes | Uploaded, bytes | str]:
    """The content and the summary of an object to insert."""
    if (request.content_length or 0) > LARGE_BYTES_MAX:
        raise _too_large_error(LARGE_BYTES_MAX)
    if request.content_type == "multipart/form-data":
        return await _read_form(session, request, summary)
    reader = _BoundedReader(request.content.read, LARGE_BYTES_MAX)
    return await take_content(session, reader.read), summary


async def _read_form(
    session: NodeSession, request: web.Request, summary: bytes | str
) -> tuple[bytes | Uploaded, bytes | str]:
    """Reads the field `data` and the optional field `summary` of a multipart form."""
    content: bytes | Uploaded | None = None
    try:
        async for field in await request.multipart():
            if not isinstance(field, BodyPartReader) or field.name not in ("data", "summary"):
                raise OptionError('a form may only have the fields "data" and "summary"')
            if field.name == "data":
                reader = _BoundedReader(_field_reader(field), LARGE_BYTES_MAX)
                content = await take_content(session, reader.read)
            else:
                reader = _BoundedReader(_field_reader(field), _SUMMARY_BYTES_MAX)
                summary = await reader.read(_SUMMARY_BYTES_MAX + 1)
    except ThymeError:
        raise
    except (ValueError, RuntimeError, AssertionError, HttpProcessingError) as error:
        raise OptionError(f"the form cannot be read: {safe_repr(str(error))}") from error
    if content is None:
        raise OptionError('the form has no field "data"')
    return content, summary


def _field_reader(field: BodyPartReader) -> Callable[[int], Awaitable[bytes]]:
    """Reads a field of a form, which returns pieces that may be longer than asked for."""
    buffered = b""

    async def read_some(count: int) -> bytes:
        nonlocal buffered
        if not buffered:
            buffered = await field.read_chunk(CHUNK_BYTES)
        piece, buffered = buffered[:count], buffered[count:]
        return piece

    return read_some


def _too_large_error(bytes_max: int) -> TooLargeError:
    return TooLargeError(f"too large: at most {bytes_max} bytes are accepted")


async def write_object(
    session: NodeSession, request: web.Request, metadata: Metadata
) -> web.StreamResponse:
    """Responds with an object, or with the range of it that the request asks for."""
    etag = f'"{metadata.digest.hex()}"'
    wanted = _wanted_range(request, metadata.size, etag)
    if wanted is None:
        message = f"no bytes in this range: the object has {metadata.size} bytes"
        refusal = problem_response("bad_range", message, 416)
        refusal.headers["Content-Range"] = f"bytes */{metadata.size}"
        return refusal
    start, stop = wanted
    is_part = (start, stop) != (0, metadata.size)
    response = web.StreamResponse(status=206 if is_part else 200)
    response.content_type = "application/octet-stream"
    response.content_length = stop - start
    response.headers.update({"ETag": etag, "Accept-Ranges": "bytes"})
    if is_part:
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{metadata.size}"
    pieces = aiter(read_content(session, metadata, start, stop))
    piece = await anext(pieces, b"")  # an object that cannot be retrieved has an error response
    await response.prepare(request)
    try:
        while piece:
            await response.write(piece)
            piece = await anext(pieces, b"")
    except ThymeError:
        if request.transport is not None:  # the reader notices and asks for the rest
            request.transport.abort()
        return response
    await response.write_eof()
    return response


def _wanted_range(request: web.Request, size: int, etag: str) -> tuple[int, int] | None:
    """The bytes to send: all, or those of the header `Range`; None if it names no byte. A header
    that cannot be read, or that is for other content, is ignored (RFC 9110)."""
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
