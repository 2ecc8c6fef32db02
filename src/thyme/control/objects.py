"""Object routes: HTTP handlers for insert, delete, search, lookup and retrieve.

Object bytes are streamed. An object is addressed by its key in the path.
Entry point: `ObjectRoutes`. The paths are in `server`.
Clauses: M13, M14, M19, M20, M25, M32.
"""

from __future__ import annotations

import re
from datetime import timedelta

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from thyme.app.asker import Asker
from thyme.app.inputs import as_count, as_key, insert_request, search_frame
from thyme.app.subscription import answer
from thyme.control.answers import as_json, problem
from thyme.control.bodies import Inserted, Known, Matches, Note, Object
from thyme.model.errors import InputError, NotFoundError, OptionError, ThymeError, shown
from thyme.model.ids import Key
from thyme.model.metadata import Limits, Metadata
from thyme.protocol.requests import Delete, Found, KnownObject, LookUp, Retrieve, Search
from thyme.query.query import as_query

CHUNK_BYTES = 256 * 2**10
_LIMITS = Limits()
_WHOLE = re.compile(r"-?[0-9]{1,19}")


class TooLargeError(InputError):
    """A request body with more bytes than the node accepts."""

    code = "too_large"


class Objects:
    """HTTP handlers of objects."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def insert(self, request: web.Request) -> web.StreamResponse:
        options = _options(request, "tags", "summary", "oid", "life_s", "copies", "durable")
        summary: bytes | str = options.get("summary", "")
        try:
            if request.content_type == "multipart/form-data":
                data, summary = await _parts(request, summary)
            else:
                data = await _body(request)
        except TooLargeError as error:
            return problem(error.code, str(error), 413)
        make = insert_request(
            data,
            [tag for tag in options.get("tags", "").split(",") if tag.strip()],
            summary,
            options.get("oid"),
            _life(options.get("life_s")),
            as_count(_whole(options.get("copies", "1"), "copies"), "copies", least=1),
            _truth(options.get("durable", "false"), "durable"),
        )
        key = await answer(self._asker, make)
        assert isinstance(key, Key)
        return as_json(Inserted(key=str(key)), 201)

    async def delete(self, request: web.Request) -> web.StreamResponse:
        key = as_key(request.match_info["key"])
        await answer(self._asker, lambda request_id: Delete(ask=request_id, key=key))
        return web.Response(status=204)

    async def search(self, request: web.Request) -> web.StreamResponse:
        options = _options(request, "query", "start_us", "end_us", "limit")
        if "query" not in options:
            raise OptionError("a search needs a query: ?query=goal")
        query = as_query(options["query"])
        count = as_count(_whole(options.get("limit", "20"), "limit"), "limit")
        start_us, end_us = (
            _whole(options[name], name) if name in options else None
            for name in ("start_us", "end_us")
        )
        frame = search_frame(start_us, end_us, self._asker.now_us())
        found = await answer(
            self._asker,
            lambda request_id: Search(
                ask=request_id, conjunctions=query.conjunctions, frame=frame, count=count
            ),
        )
        assert isinstance(found, Found)
        notes = tuple(Note.of(note) for note in found)
        return as_json(Matches(total=found.total, notes=notes))

    async def look_up(self, request: web.Request) -> web.StreamResponse:
        known = await self._known(as_key(request.match_info["key"]))
        described = None if known.metadata is None else Object.of(known.metadata)
        return as_json(Known(state=known.state, object=described))

    async def retrieve(self, request: web.Request) -> web.StreamResponse:
        metadata = await self._metadata(as_key(request.match_info["key"]))
        data = await answer(
            self._asker, lambda request_id: Retrieve(ask=request_id, metadata=metadata)
        )
        assert isinstance(data, bytes)
        response = web.StreamResponse()
        response.content_type = "application/octet-stream"
        response.content_length = len(data)
        response.headers["ETag"] = f'"{metadata.digest.hex()}"'
        await response.prepare(request)
        view = memoryview(data)
        for start in range(0, len(data), CHUNK_BYTES):
            await response.write(view[start : start + CHUNK_BYTES])
        await response.write_eof()
        return response

    async def _metadata(self, key: Key) -> Metadata:
        """Metadata from an earlier notification (M19), or from the brokers of the key."""
        try:
            return self._asker.metadata_of(key)
        except NotFoundError:
            known = await self._known(key)
        if known.metadata is None:
            raise NotFoundError(f"{key} cannot be retrieved: its state is {known.state}")
        return known.metadata

    async def _known(self, key: Key) -> KnownObject:
        known = await answer(self._asker, lambda request_id: LookUp(ask=request_id, key=key))
        assert isinstance(known, KnownObject)
        return known


# Request bodies and options


async def _body(request: web.Request) -> bytes:
    if (request.content_length or 0) > _LIMITS.data_bytes_max:
        raise _too_large(_LIMITS.data_bytes_max)
    data = bytearray()
    async for chunk in request.content.iter_chunked(CHUNK_BYTES):
        data += chunk
        if len(data) > _LIMITS.data_bytes_max:
            raise _too_large(_LIMITS.data_bytes_max)
    return bytes(data)


async def _parts(request: web.Request, summary: bytes | str) -> tuple[bytes, bytes | str]:
    """Reads the field `data` and the optional field `summary` of a multipart form."""
    data: bytes | None = None
    try:
        async for part in await request.multipart():
            if not isinstance(part, BodyPartReader) or part.name not in ("data", "summary"):
                raise OptionError('a form may only have the fields "data" and "summary"')
            if part.name == "data":
                data = await _part(part, _LIMITS.data_bytes_max)
            else:
                summary = await _part(part, _LIMITS.summary_bytes_max)
    except ThymeError:
        raise
    except (ValueError, RuntimeError, AssertionError, HttpProcessingError) as error:
        raise OptionError(f"the form cannot be read: {shown(str(error))}") from error
    if data is None:
        raise OptionError('the form has no field "data"')
    return data, summary


async def _part(part: BodyPartReader, bytes_max: int) -> bytes:
    data = bytearray()
    while chunk := await part.read_chunk(CHUNK_BYTES):
        data += chunk
        if len(data) > bytes_max:
            raise _too_large(bytes_max)
    return bytes(data)


def _too_large(bytes_max: int) -> TooLargeError:
    return TooLargeError(f"too large: at most {bytes_max} bytes are accepted")


def _options(request: web.Request, *names: str) -> dict[str, str]:
    """The options in the query string; raises `OptionError` if one is unknown or repeated."""
    for name in request.query:
        if name not in names:
            raise OptionError(f"unknown option {shown(name)}; known are {', '.join(names)}")
        if len(request.query.getall(name)) > 1:
            raise OptionError(f"the option {name} is given more than once")
    return dict(request.query)


def _whole(text: str, name: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise OptionError(f"{name} must be a whole number, not {shown(text)}")
    return int(text)


def _truth(text: str, name: str) -> bool:
    if text not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not {shown(text)}")
    return text == "true"


def _life(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise OptionError(f"life_s must be a number of seconds, not {shown(text)}") from None
