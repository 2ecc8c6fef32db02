"""Plain content: a station's caches without limits, in three dicts; the slow twin of the caches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import TimeFrame
from thyme.query.cursor import Cursor, cursor_at
from thyme.substrates.infra.station.content import ContentChange, ContentPage, Item

Items = dict[tuple[int, Key], Item]


class PlainContent:
    """The `StationContent` of a station with unlimited memory."""

    def __init__(self) -> None:
        self.local: Items = {}
        self.prefetched: Items = {}
        self.consumed: Items = {}
        self._changes: list[ContentChange] = []

    def _all(self) -> tuple[Items, Items, Items]:
        return self.local, self.prefetched, self.consumed

    def _store(self, items: Items, item: Item) -> None:
        name = (item.world, item.metadata.key)
        if not any(name in each for each in self._all()):
            self._changes.append(ContentChange(item.world, item.metadata, True))
        items[name] = item

    def has_local(self, world: int, key: Key) -> bool:
        return (world, key) in self.local

    def insert_popular(self, items: Iterable[Item]) -> None:
        for item in items:
            self._store(self.local, item)

    def find_popular(self, world: int, tag: Tag) -> Iterator[Metadata]:
        for (of, _), item in self.local.items():
            if of == world and tag in item.metadata.tags:
                yield item.metadata

    def popular_data(self, world: int, key: Key) -> bytes | None:
        item = self.local.get((world, key))
        return None if item is None else item.data

    def insert_prefetched(self, item: Item) -> None:
        self._store(self.prefetched, item)

    def insert_consumed(self, item: Item) -> None:
        self._store(self.consumed, item)

    def read(self, world: int, key: Key) -> tuple[bytes, bool] | None:
        name = (world, key)
        for items in (self.local, self.consumed):
            if name in items:
                return items[name].data, False
        item = self.prefetched.pop(name, None)
        if item is None:
            return None
        self.consumed[name] = item
        return item.data, True

    def cache_of(self, world: int, key: Key) -> str | None:
        names = ("local_popularity", "prefetch", "global")
        found = [
            name for name, items in zip(names, self._all(), strict=True) if (world, key) in items
        ]
        return found[0] if found else None

    def read_item(self, world: int, key: Key) -> Item | None:
        return next((items[world, key] for items in self._all() if (world, key) in items), None)

    def find_page(
        self,
        world: int,
        conjunctions: tuple[Conjunction, ...],
        frame: TimeFrame,
        count: int,
        before: Cursor | None,
    ) -> ContentPage:
        found = {
            cursor_at(item.metadata): item.metadata
            for items in self._all()
            for (of, _), item in items.items()
            if of == world
            and any(each.matches(item.metadata.tags) for each in conjunctions)
            and frame.contains(item.metadata.published_us)
        }
        rest = [found[at] for at in sorted(found, reverse=True) if before is None or at < before]
        return ContentPage(len(found), tuple(rest[:count]), has_more=len(rest) > count)

    def purge(self, world: int, key: Key) -> bool:
        found = [item for items in self._all() if (item := items.pop((world, key), None))]
        if found:
            self._changes.append(ContentChange(world, found[0].metadata, False))
        return bool(found)

    def remove_expired(self, now_us: int) -> None:
        for items in self._all():
            for name in [n for n, item in items.items() if item.metadata.has_expired(now_us)]:
                self.purge(*name)

    def drain_changes(self) -> list[ContentChange]:
        changes, self._changes = self._changes, []
        return changes

    def parts(self) -> dict[str, int]:
        return {}

    def statistics(self) -> dict[str, dict[str, float]]:
        return {}
