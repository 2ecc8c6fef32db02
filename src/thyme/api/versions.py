"""Versions: reads the versions of an object, and makes the key of its next one.

Entry points: `list_versions`, `next_version`. The naming is up to `thyme.model.object_versions`.
Clauses: B9.
"""

from __future__ import annotations

from thyme.api.arguments import as_count
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
from thyme.model.time_frames import INSTANT_MAX_US, TimeFrame
from thyme.protocol.app_interface import Lookup, LookupResult, Search, SearchResult
from thyme.query.query import as_query

_READ_MIN = 100
"""Brokers order versions by publication time, so those published while the clock of their owner was
ahead come before the latest: more are read than asked for."""
_READ_ALL = 100_000


async def list_versions(session: NodeSession, key: Key, limit: int) -> list[Metadata]:
    """The stored versions of an object, the latest first; raises `NotFoundError` without any."""
    count = max(as_count(limit, "limit", least=1), _READ_MIN)
    found = await _find_later(session, key, count)
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
    later, now_us = await _find_later(session, key, 1), session.now_us()
    if later and later[0].published_us > now_us:  # the clock was set back since
        later = await _find_later(session, key, _READ_ALL)
    numbers = [version_number(each.key) for each in sort_versions(key, later)]
    return make_version(key, max([version_number(key), *numbers]), now_us)


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
    """The versions after the first, as the brokers know them: the most recent by their publication
    times, which may be ahead of the clock of this node."""
    result = await session.await_reply(
        Search(
            request_id=session.next_id(),
            conjunctions=as_query(version_tag(key)).conjunctions,
            frame=TimeFrame(None, INSTANT_MAX_US),
            count=limit,
        )
    )
    assert isinstance(result, SearchResult)
    return [note.metadata for note in result]
