"""Object routes: HTTP handlers for insert, delete, search, lookup and retrieve.

An object is addressed by its key in the path; its bytes are streamed by `object_bodies`.
Entry point: `ObjectRoutes`. The paths are in `server`.
Clauses: M13, M14, M19, M20, M25, M32, M37.
"""

from __future__ import annotations

import re
from datetime import timedelta

from aiohttp import web

from thyme.api.arguments import as_count, as_key, make_insert, search_frame
from thyme.api.content import Uploaded
from thyme.api.session import NodeSession
from thyme.daemon.json_schemas import (
    InsertedBody,
    LookupBody,
    NotificationBody,
    ObjectBody,
    SearchBody,
)
from thyme.daemon.object_bodies import TooLargeError, read_insert_body, write_object
from thyme.daemon.responses import json_response, problem_response
from thyme.model.errors import NotFoundError, OptionError, safe_repr
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.protocol.app_interface import (
    Delete,
    Insert,
    Lookup,
    LookupResult,
    Search,
    SearchResult,
)
from thyme.query.query import as_query

_INTEGER = re.compile(r"-?[0-9]{1,19}")


class ObjectRoutes:
    """HTTP handlers of objects."""

    def __init__(self, session: NodeSession) -> None:
        self._session = session

    async def insert(self, request: web.Request) -> web.StreamResponse:
        options = _query_options(request, "tags", "summary", "oid", "life_s", "copies", "durable")

        def make(data: bytes, summary: bytes | str, upload: str | None = None) -> Insert:
            return make_insert(
                self._session.next_id(),
                data,
                [tag for tag in options.get("tags", "").split(",") if tag.strip()],
                summary,
                options.get("oid"),
                _parse_ttl(options.get("life_s")),
                as_count(_parse_integer(options.get("copies", "1"), "copies"), "copies", least=1),
                _parse_boolean(options.get("durable", "false"), "durable"),
                upload=upload,
            )

        given: bytes | str = options.get("summary", "")
        make(b"", given)  # wrong options are refused before the body is read
        try:
            content, summary = await read_insert_body(self._session, request, given)
        except TooLargeError as error:
            return problem_response(error.code, str(error), 413)
        if isinstance(content, Uploaded):
            insert = make(b"", summary, content.upload)
        else:
            insert = make(content, summary)
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
        return await write_object(self._session, request, metadata)

    async def _find_metadata(self, key: Key) -> Metadata:
        """Metadata from an earlier notification (M19), or from the brokers of the key."""
        try:
            return self._session.resolve_metadata(key)
        except NotFoundError:
            result = await self._look_up(key)
        if result.metadata is None:
            raise NotFoundError(f"{key} cannot be retrieved: its state is {result.state}")
        return result.metadata

    async def _look_up(self, key: Key) -> LookupResult:
        result = await self._session.await_reply(
            Lookup(request_id=self._session.next_id(), key=key)
        )
        assert isinstance(result, LookupResult)
        return result


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
