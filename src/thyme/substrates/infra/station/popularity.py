"""Popularity: downloads of objects, as cells report them, and the choice of the most popular ones.

Entry points: `PopularityTable.record` and `choose_popular`. An object is active while its latest
download is at most some cycles old. Each world gets a share of the items by its share of the
downloads of active objects.
Clauses: I7, I9, B8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key
from thyme.protocol.messages.cell_records import Replica

ItemId = tuple[int, Key]
"""An object of a world."""
_ITEMS_MAX = 100_000


@dataclass(slots=True)
class ItemPopularity:
    """Downloads of one object."""

    downloads: float
    last_cycle: int
    """The decision cycle in which the latest download was reported."""
    replicas: tuple[Replica, ...]


class PopularityTable:
    """The popularity of the objects of one venue."""

    def __init__(self, locations_max: int, decay: float = 1.0) -> None:
        """`decay` multiplies all counts at the end of a cycle; 1 for none, as in the paper."""
        self._locations_max = locations_max
        self._decay = decay
        self._items: BoundedDict[ItemId, ItemPopularity] = BoundedDict(_ITEMS_MAX)

    def __len__(self) -> int:
        return len(self._items)

    def get(self, item: ItemId) -> ItemPopularity | None:
        """The popularity of an object; None if nobody downloaded it."""
        return self._items.get(item)

    def record(self, item: ItemId, count: int, replicas: tuple[Replica, ...], cycle: int) -> None:
        """Adds downloads of an object, and the replicas that are known now."""
        known = self._items.get(item)
        downloads = count + (0.0 if known is None else known.downloads)
        older = () if known is None else known.replicas
        merged = tuple(dict.fromkeys((*replicas, *older)))[: self._locations_max]
        self._items.refresh(item, ItemPopularity(downloads, cycle, merged))

    def restore(self, item: ItemId, downloads: float, replicas: tuple[Replica, ...]) -> None:
        """Adds an object as it was before a restart; it counts as active in the first cycles."""
        self._items[item] = ItemPopularity(downloads, 0, replicas)

    def forget(self, item: ItemId) -> None:
        """Removes an object that was deleted."""
        self._items.pop(item, None)

    def end_cycle(self) -> None:
        """Lets all counts decay (B8)."""
        if self._decay < 1.0:
            for popularity in self._items.values():
                popularity.downloads *= self._decay

    def active_items(self, cycle: int, window: int) -> dict[ItemId, ItemPopularity]:
        """The objects downloaded in the last `window` cycles, or in the current one (I9)."""
        return {
            item: popularity
            for item, popularity in self._items.items()
            if 0 <= cycle - popularity.last_cycle <= window
        }

    def all_items(self) -> dict[ItemId, ItemPopularity]:
        """All objects: the choice without the ranking algorithm."""
        return dict(self._items)


def choose_popular(
    active: dict[ItemId, ItemPopularity], items_max: int, is_cached: Callable[[ItemId], bool]
) -> list[ItemId]:
    """The most popular objects that are not cached: at most `items_max`, divided among worlds by
    their share of all downloads (I9)."""
    by_world: dict[int, list[ItemId]] = {}
    for item in active:
        by_world.setdefault(item[0], []).append(item)
    weights = {
        world: sum(active[item].downloads for item in items) for world, items in by_world.items()
    }
    shares = divide_by_weight(items_max, weights)
    chosen: list[ItemId] = []
    for world in sorted(by_world):
        candidates = [item for item in by_world[world] if not is_cached(item)]
        candidates.sort(key=lambda item: (-active[item].downloads, item))
        chosen.extend(candidates[: shares[world]])
    return chosen


def divide_by_weight(total: int, weights: dict[int, float]) -> dict[int, int]:
    """Divides a number into whole shares in proportion to weights; never more than the number. The
    largest remainders are rounded up."""
    whole = sum(weights.values())
    if not whole:
        return dict.fromkeys(weights, 0)
    exact = {name: total * weight / whole for name, weight in weights.items()}
    shares = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (shares[name] - exact[name], name))
    for name in by_remainder[: total - sum(shares.values())]:
        shares[name] += 1
    return shares
