"""Versions of an object as a session reads them (B9)."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from thyme.api.session import NodeSession
from thyme.api.versions import list_versions
from thyme.model.errors import NotFoundError
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata, make_metadata
from thyme.model.object_versions import make_version, version_tag
from thyme.model.subscriptions import Notification
from thyme.protocol.app_interface import Lookup, LookupResult, Search, SearchResult

PHOTO = Key(ObjectId("photo"), NodeId(b"ana"))
FIRST = make_metadata(PHOTO, b"one", ["goal"], 1)
SECOND_KEY = make_version(PHOTO, 0, 2)
SECOND = make_metadata(SECOND_KEY, b"two", ["goal", version_tag(PHOTO)], 2)


class ScriptedSession:
    """A session whose brokers know the second version only."""

    node_id = NodeId(b"rui")

    def __init__(self, state: str, notified: tuple[Metadata, ...]) -> None:
        self._state = state
        self._notified = {metadata.key: metadata for metadata in notified}

    def next_id(self) -> int:
        return 1

    async def await_reply(self, request: Lookup | Search) -> LookupResult | SearchResult:
        if isinstance(request, Lookup):
            return LookupResult(self._state)
        found = Notification(SubscriptionId("search"), SECOND, 3, from_history=True)
        return SearchResult((found,), 1, 0)

    def resolve_metadata(self, key: Key) -> Metadata:
        if key not in self._notified:
            raise NotFoundError(f"{key} was not notified here")
        return self._notified[key]


@pytest.mark.parametrize(
    ("state", "notified", "listed"),
    [
        ("unknown", (FIRST,), [SECOND, FIRST]),
        ("unknown", (), [SECOND]),
        ("deleted", (FIRST,), [SECOND]),
    ],
    ids=["notified", "not-notified", "deleted"],
)
def test_b9_a_first_version_that_no_broker_knows_is_listed_if_it_was_notified(
    state: str, notified: tuple[Metadata, ...], listed: list[Metadata]
) -> None:
    """It has no tag that names the object, so a search for versions does not find it."""
    session = cast(NodeSession, ScriptedSession(state, notified))

    assert asyncio.run(list_versions(session, SECOND_KEY, 10)) == listed
