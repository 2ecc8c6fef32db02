"""Object routes: HTTP handlers for insert, delete, search, lookup and retrieve.

An object is addressed by its key in the path. Bodies of requests and responses pass in pieces, so
that memory does not grow with the size of an object.
Entry point: `ObjectRoutes`. The paths are in `server`.
Clauses: M13, M14, M19, M20, M25, M32, M37.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from thyme.api.arguments import as_count, as_key, make_insert, search_frame
from thyme.api.content import Uploaded, read_content, take_content
from thyme.api.http_range import set_range, wanted_range
from thyme.api.session import NodeSession
from thyme.api.versions import list_versions, next_version
from thyme.daemon.json_schemas import (
    InsertedBody,
    LookupBody,
    NotificationBody,
    ObjectBody,
    SearchBody,
)
from thyme.daemon.responses import json_response, problem_response
from thyme.model.errors import InputError, NotFoundError, OptionError, ThymeError, safe_repr
from thyme.model.ids import Key
from thyme.model.metadata import Limits, Metadata
from thyme.model.object_chunks import CHUNK_BYTES, LARGE_BYTES_MAX
from thyme.model.object_versions import version_tag
from thyme.model.subscriptions import matches_object
from thyme.protocol.app_interface import (
    Delete,
    Insert,
    ListSubscriptions,
    Lookup,
    LookupResult,
    Search,
    SearchResult,
)
from thyme.query.query import as_query

_SUMMARY_BYTES_MAX = Limits().summary_bytes_max
_INSERT_OPTIONS = ("tags", "summary", "oid", "life_s", "copies", "durable", "replicas", "updates")
_INTEGER = re.compile(r"-?[0-9]{1,19}")


class TooLargeError(InputError):
    """A request body with more bytes than the node accepts."""

    code = "too_large"


class ObjectRoutes:
    """HTTP handlers of objects."""

    def __init__(self, session: NodeSession, was_notified: Callable[[Key], bool]) -> None:
        """`was_notified` tells whether an application of this node was notified of an object."""
        self._session = session
        self._was_notified = was_notified

    async def insert(self, request: web.Request) -> web.StreamResponse:
        options = _query_options(request, *_INSERT_OPTIONS)
        if "updates" in options:
            options = await self._as_version(options)

        def make(data: bytes, summary: bytes | str, upload: str | None = None) -> Insert:
            return make_insert(
                self._session.next_id(),
                data,
                [tag for tag in options.get("tags", "").split(",") if tag.strip()],
                summary,
                options.get("oid"),
                _parse_ttl(options.get("life_s")),
                _parse_integer(options.get("copies", "1"), "copies"),
                _parse_boolean(options.get("durable", "false"), "durable"),
                _parse_replicas(options.get("replicas")),
                upload=upload,
            )

        given: bytes | str = options.get("summary", "")
        make(b"", given)  # wrong options are refused before the body is read
        try:
            content, summary = await _read_insert_body(self._session, request, given)
        except TooLargeError as error:
            return problem_response(error.code, str(error), 413)
        if isinstance(content, Uploaded):
            insert = make(b"", summary, content.upload)
        else:
            insert = make(content, summary)
        key = await self._session.await_reply(insert)
        assert isinstance(key, Key)
        return json_response(InsertedBody(key=str(key)), 201)

    async def _as_version(self, options: dict[str, str]) -> dict[str, str]:
        """The options of an insert that updates an object (B9)."""
        if "oid" in options:
            raise OptionError("a new version has the object id of the object that it updates")
        version = await next_version(self._session, as_key(options["updates"]))
        tags = f"{options.get('tags', '')},{version_tag(version)}"
        return {**options, "oid": version.oid, "tags": tags}

    async def list_versions(self, request: web.Request) -> web.StreamResponse:
        options = _query_options(request, "limit")
        count = _parse_integer(options.get("limit", "20"), "limit")
        found = await list_versions(self._session, as_key(request.match_info["key"]), count)
        return json_response(tuple(map(ObjectBody.from_metadata, found)))

    async def delete(self, request: web.Request) -> web.StreamResponse:
        key = as_key(request.match_info["key"])
        await self._session.await_reply(Delete(request_id=self._session.next_id(), key=key))
        return web.Response(status=204)

    async def search(self, request: web.Request) -> web.StreamResponse:
        options = _query_options(request, "query", "start_us", "end_us", "limit")
        if "query" not in options:
            raise OptionError("a search needs a query: ?query=goal")
        query = as_query(options["query"])
        count = as_count(_parse_integer(options.get("limit", "20"), "limit"), "limit")
        start_us, end_us = (
            _parse_integer(options[name], name) if name in options else None
            for name in ("start_us", "end_us")
        )
        frame = search_frame(start_us, end_us, self._session.now_us())
        result = await self._session.await_reply(
            Search(
                request_id=self._session.next_id(),
                conjunctions=query.conjunctions,
                frame=frame,
                count=count,
            ),
        )
        assert isinstance(result, SearchResult)
        notifications = tuple(NotificationBody.from_notification(note) for note in result)
        return json_response(
            SearchBody(total=result.total, unanswered=result.unanswered, notes=notifications)
        )

    async def look_up(self, request: web.Request) -> web.StreamResponse:
        result = await self._look_up(as_key(request.match_info["key"]))
        metadata = None if result.metadata is None else ObjectBody.from_metadata(result.metadata)
        return json_response(LookupBody(state=result.state, object=metadata))

    async def retrieve(self, request: web.Request) -> web.StreamResponse:
        metadata = await self._find_metadata(as_key(request.match_info["key"]))
        return await _write_object(self._session, request, metadata)

    async def _find_metadata(self, key: Key) -> Metadata:
        """Metadata of a notified object (M19), or of one of this node: from the notification, or
        from the brokers of the key. After a restart of the node, objects that match its
        subscriptions count as notified."""
        try:
            return self._session.resolve_metadata(key)
        except NotFoundError:
            result = await self._look_up(key)
        if result.metadata is None:
            raise NotFoundError(f"{key} cannot be retrieved: its state is {result.state}")
        own = key.owner == self._session.node_id
        if not (own or self._was_notified(key) or await self._is_wanted(result.metadata)):
            raise NotFoundError(
                f"{key} was not notified here: only notified objects can be retrieved; "
                "subscribe to it, or search for it, first"
            )
        return result.metadata

    async def _is_wanted(self, metadata: Metadata) -> bool:
        """Whether an object matches a subscription of this node."""
        request = ListSubscriptions(request_id=self._session.next_id())
        active = await self._session.await_reply(request)
        assert isinstance(active, tuple)
        return any(matches_object(info.conjunctions, info.frame, metadata) for info in active)

    async def _look_up(self, key: Key) -> LookupResult:
        result = await self._session.await_reply(
            Lookup(request_id=self._session.next_id(), key=key)
        )
        assert isinstance(result, LookupResult)
        return result


# Bodies


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


async def _read_insert_body(
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


async def _write_object(
    session: NodeSession, request: web.Request, metadata: Metadata
) -> web.StreamResponse:
    """Responds with an object, or with the range of it that the request asks for."""
    etag = f'"{metadata.digest.hex()}"'
    wanted = wanted_range(request, metadata.size, etag)
    if wanted is None:
        message = f"no bytes in this range: the object has {metadata.size} bytes"
        refusal = problem_response("bad_range", message, 416)
        refusal.headers["Content-Range"] = f"bytes */{metadata.size}"
        return refusal
    start, stop = wanted
    response = web.StreamResponse()
    response.content_type = "application/octet-stream"
    response.headers["ETag"] = etag
    set_range(response, start, stop, metadata.size)
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


# Options


def _query_options(request: web.Request, *names: str) -> dict[str, str]:
    """The options in the query string; raises `OptionError` if one is unknown or repeated."""
    for name in request.query:
        if name not in names:
            raise OptionError(f"unknown option {safe_repr(name)}; known are {', '.join(names)}")
        if len(request.query.getall(name)) > 1:
            raise OptionError(f"the option {name} is given more than once")
    return dict(request.query)


def _parse_integer(text: str, name: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise OptionError(f"{name} must be a whole number, not {safe_repr(text)}")
    return int(text)


def _parse_replicas(text: str | None) -> int | str | None:
    return text if text in (None, "all") else _parse_integer(text, "replicas")


def _parse_boolean(text: str, name: str) -> bool:
    if text not in ("true", "false"):
        raise OptionError(f"{name} must be true or false, not {safe_repr(text)}")
    return text == "true"


def _parse_ttl(text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise OptionError(f"life_s must be a number of seconds, not {safe_repr(text)}") from None
