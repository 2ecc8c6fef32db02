"""Object routes: HTTP handlers for insert, delete, search, lookup and retrieve.

Object bytes are streamed. An object is addressed by its key in the path.
Entry point: `ObjectRoutes`. The paths are in `server`.
Clauses: M13, M14, M19, M20, M25, M32.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from thyme.api.arguments import as_count, as_key, make_insert, search_frame
from thyme.api.session import NodeSession
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
from thyme.model.subscriptions import matches_object
from thyme.protocol.app_interface import (
    Delete,
    ListSubscriptions,
    Lookup,
    LookupResult,
    Retrieve,
    Search,
    SearchResult,
)
from thyme.query.query import as_query

CHUNK_BYTES = 256 * 2**10
_LIMITS = Limits()
_INSERT_OPTIONS = ("tags", "summary", "oid", "life_s", "copies", "durable", "replicas")
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
        summary: bytes | str = options.get("summary", "")
        try:
            if request.content_type == "multipart/form-data":
                data, summary = await _read_form(request, summary)
            else:
                data = await _read_body(request)
        except TooLargeError as error:
            return problem_response(error.code, str(error), 413)
        insert = make_insert(
            self._session.next_id(),
            data,
            [tag for tag in options.get("tags", "").split(",") if tag.strip()],
            summary,
            options.get("oid"),
            _parse_ttl(options.get("life_s")),
            _parse_integer(options.get("copies", "1"), "copies"),
            _parse_boolean(options.get("durable", "false"), "durable"),
            _parse_replicas(options.get("replicas")),
        )
        key = await self._session.await_reply(insert)
        assert isinstance(key, Key)
        return json_response(InsertedBody(key=str(key)), 201)

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
        return json_response(SearchBody(total=result.total, notes=notifications))

    async def look_up(self, request: web.Request) -> web.StreamResponse:
        result = await self._look_up(as_key(request.match_info["key"]))
        metadata = None if result.metadata is None else ObjectBody.from_metadata(result.metadata)
        return json_response(LookupBody(state=result.state, object=metadata))

    async def retrieve(self, request: web.Request) -> web.StreamResponse:
        metadata = await self._find_metadata(as_key(request.match_info["key"]))
        data = await self._session.await_reply(
            Retrieve(request_id=self._session.next_id(), metadata=metadata)
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


# Request bodies and options


async def _read_body(request: web.Request) -> bytes:
    if (request.content_length or 0) > _LIMITS.data_bytes_max:
        raise _too_large_error(_LIMITS.data_bytes_max)
    data = bytearray()
    async for chunk in request.content.iter_chunked(CHUNK_BYTES):
        data += chunk
        if len(data) > _LIMITS.data_bytes_max:
            raise _too_large_error(_LIMITS.data_bytes_max)
    return bytes(data)


async def _read_form(request: web.Request, summary: bytes | str) -> tuple[bytes, bytes | str]:
    """Reads the field `data` and the optional field `summary` of a multipart form."""
    data: bytes | None = None
    try:
        async for field in await request.multipart():
            if not isinstance(field, BodyPartReader) or field.name not in ("data", "summary"):
                raise OptionError('a form may only have the fields "data" and "summary"')
            if field.name == "data":
                data = await _read_field(field, _LIMITS.data_bytes_max)
            else:
                summary = await _read_field(field, _LIMITS.summary_bytes_max)
    except ThymeError:
        raise
    except (ValueError, RuntimeError, AssertionError, HttpProcessingError) as error:
        raise OptionError(f"the form cannot be read: {safe_repr(str(error))}") from error
    if data is None:
        raise OptionError('the form has no field "data"')
    return data, summary


async def _read_field(field: BodyPartReader, bytes_max: int) -> bytes:
    data = bytearray()
    while chunk := await field.read_chunk(CHUNK_BYTES):
        data += chunk
        if len(data) > bytes_max:
            raise _too_large_error(bytes_max)
    return bytes(data)


def _too_large_error(bytes_max: int) -> TooLargeError:
    return TooLargeError(f"too large: at most {bytes_max} bytes are accepted")


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
