"""What was deleted at a base station stays deleted, however many deletes follow (I23, B5)."""

from __future__ import annotations

import pytest

from tests.builders import ALICE, BOB, photo
from thyme.model.metadata import Metadata
from thyme.protocol.messages.common import Unpublish
from thyme.protocol.messages.requests import DeleteObject
from thyme.storage.store import MemoryStore
from thyme.substrates.common import tombstones
from thyme.substrates.infra.station.records import StationRecords
from thyme.substrates.infra.unpublished_items import UnpublishedItems

SECOND_US = 1_000_000
LIMIT = 8
WORLD = 7


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "TOMBSTONES_MAX", LIMIT)


def at_station(store: MemoryStore, now_us: int = 0) -> UnpublishedItems:
    items = UnpublishedItems(store, StationRecords(store))
    items.restore(now_us)
    return items


def unpublish(items: UnpublishedItems, item: Metadata, now_us: int) -> bool:
    return items.add(Unpublish(1, WORLD, item.tags, DeleteObject(1, item.key)), now_us)


def test_b5_a_flood_of_deletes_evicts_those_of_its_author_alone() -> None:
    store = MemoryStore()
    items = at_station(store)
    deleted = photo(1, at_us=1 * SECOND_US, by=BOB)
    assert unpublish(items, deleted, 2 * SECOND_US)

    for number in range(100):
        at_us = (3 + number) * SECOND_US
        unpublish(items, photo(number, at_us=at_us, by=ALICE), at_us)

    assert len(items) == LIMIT
    assert items.refuses(WORLD, deleted)
    assert not unpublish(items, deleted, 200 * SECOND_US)
    assert items.refuses(WORLD, photo(5, at_us=8 * SECOND_US, by=ALICE)), (
        "of the flood, beyond its horizon"
    )
    assert not items.refuses(WORLD, photo(500, at_us=300 * SECOND_US, by=ALICE))
    assert not items.refuses(WORLD, photo(6, at_us=8 * SECOND_US, by=BOB))


def test_b5_deletes_and_horizons_count_after_a_restart() -> None:
    store = MemoryStore()
    items = at_station(store)
    for number in range(2 * LIMIT):
        unpublish(items, photo(number, at_us=number * SECOND_US, by=ALICE), number * SECOND_US)

    again = at_station(store, 100 * SECOND_US)

    assert len(again) == LIMIT
    assert all(
        again.refuses(WORLD, photo(number, at_us=number * SECOND_US, by=ALICE))
        for number in range(2 * LIMIT)
    )
    assert [message.request_id for message in again.messages()] == [0] * LIMIT
