"""Versions: reads the versions of an object, and makes the key of its next one.

Entry points: `list_versions`, `next_version`. The naming is up to `thyme.model.object_versions`.
Clauses: B9.
"""

from __future__ import annotations

from thyme.api.arguments import as_count, search_frame
from thyme.api.session import NodeSession
from thyme.model.errors import NotFoundError, NotOwnerError
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.object_versions import (
    first_key,
    make_version,
    sort_versions,
    version_number,
    version_tag,
)
from thyme.protocol.app_interface import Lookup, LookupResult, Search, SearchResult
from thyme.query.query import as_query


async def list_versions(session: NodeSession, key: Key, limit: int) -> list[Metadata]:
    """The stored versions of an object, the latest first; raises `NotFoundError` without any."""
    found = list(await _find_later(session, key, as_count(limit, "limit", least=1)))
    if len(found) < limit and (first := await _find_first(session, key)) is not None:
        found.append(first)
    versions = sort_versions(key, found)
    if not versions:
        raise NotFoundError(f"no version of {first_key(key)} is stored")
    return versions[:limit]


async def next_version(session: NodeSession, key: Key) -> Key:
    """The key of a new version of an own object."""
    if key.owner != session.node_id:
        raise NotOwnerError(f"only the owner of {key} can update it")
    later = sort_versions(key, await _find_later(session, key, 1))
    numbers = [version_number(key), *(version_number(each.key) for each in later)]
    return make_version(key, max(numbers), session.now_us())


async def _find_first(session: NodeSession, key: Key) -> Metadata | None:
    """The first version, if it is stored. It has no tag that names the object: in a world with
    cells, only its owner, its broker, and nodes that were notified of it know it."""
    request = Lookup(request_id=session.next_id(), key=first_key(key))
    result = await session.await_reply(request)
    assert isinstance(result, LookupResult)
    if result.metadata is not None or result.state != "unknown":
        return result.metadata
    try:
        return session.resolve_metadata(first_key(key))
    except NotFoundError:
        return None


async def _find_later(session: NodeSession, key: Key, limit: int) -> list[Metadata]:
    """The versions after the first, as the brokers know them."""
    result = await session.await_reply(
        Search(
            request_id=session.next_id(),
            conjunctions=as_query(version_tag(key)).conjunctions,
            frame=search_frame(None, None, session.now_us()),
            count=limit,
        )
    )
    assert isinstance(result, SearchResult)
    return [note.metadata for note in result]
