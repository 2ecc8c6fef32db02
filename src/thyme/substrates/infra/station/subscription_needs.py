"""Subscription needs: what the clients of a station subscribe to, and which items meet such needs.

Entry points: `NeedsTable` at the station whose clients subscribe, and `choose_items` at the station
that provides. A tag gets a share of the receiver's prefetch cache by its share of subscriptions.
Tags that analytics found popular are needed, too, although nobody here may subscribe to them yet.
Clauses: I5, I9, I17, I18, P9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag
from thyme.protocol.messages.stations import SubscriptionNeeds, TagNeed, WorldNeeds
from thyme.substrates.infra.station.popularity import divide_by_weight

_POPULAR_MIN = 100
"""Popular tags count as so many subscriptions, if there are fewer."""
_TAGS_MAX = 20_000
"""How many tags a station counts; the one that was needed longest ago is forgotten."""


class NeedsTable:
    """The subscriptions of one venue, by world and tag."""

    def __init__(self) -> None:
        self._needs: BoundedDict[tuple[int, Tag], TagNeed] = BoundedDict(_TAGS_MAX)
        self._popular: dict[tuple[int, Tag], float] = {}

    def __len__(self) -> int:
        return len(self._needs)

    def record(self, world: int, need: TagNeed) -> None:
        """Adds subscriptions to a tag, as a cell reported them (I5)."""
        known = self._needs.get((world, need.tag))
        self._needs.refresh((world, need.tag), need if known is None else known.joined_with(need))

    def get(self, world: int, tag: Tag) -> TagNeed | None:
        """The subscriptions to a tag."""
        return self._needs.get((world, tag))

    def names(self) -> Iterable[tuple[int, Tag]]:
        """The worlds and tags with subscriptions."""
        return self._needs.keys()

    def end_frames(self, now_us: int) -> None:
        """Forgets tags whose subscriptions have all ended."""
        ended = [
            name
            for name, need in self._needs.items()
            if need.end_us is not None and need.end_us < now_us
        ]
        for name in ended:
            del self._needs[name]

    def set_popular(self, tags: Mapping[tuple[int, Tag], float]) -> None:
        """Replaces the popular tags, by their downloads in all venues (P9)."""
        self._popular = dict(tags)

    def as_message(self, prefetch_max: int) -> SubscriptionNeeds | None:
        """The needs for the other stations; None if there are none (I17)."""
        needs = self._with_popular()
        if not needs:
            return None
        by_world: dict[int, list[TagNeed]] = {}
        for (world, _), need in needs.items():
            by_world.setdefault(world, []).append(need)
        worlds = tuple(WorldNeeds(world, tuple(found)) for world, found in by_world.items())
        total = sum(need.count for need in needs.values())
        return SubscriptionNeeds(total, prefetch_max, worlds)

    def _with_popular(self) -> dict[tuple[int, Tag], TagNeed]:
        """The needs with the popular tags, which together count as much as all subscriptions."""
        needs = dict(self._needs.items())
        own = sum(need.count for need in needs.values())
        weights = dict(enumerate(self._popular.values()))
        shares = divide_by_weight(max(own, _POPULAR_MIN), weights)
        for number, (world, tag) in enumerate(self._popular):
            if shares[number]:
                need, known = TagNeed(tag, shares[number]), needs.get((world, tag))
                needs[world, tag] = need if known is None else known.joined_with(need)
        return needs


def entries_for_tag(prefetch_max: int, count: int, total: int, available: int) -> int:
    """How many items of a tag are provided: min(S_cache × sub_count / T_subs, #LPC_tag) (I18)."""
    return min(prefetch_max * count // max(total, 1), available)


def choose_items(
    needs: SubscriptionNeeds,
    find_by_tag: Callable[[int, Tag], Iterable[Metadata]],
    is_omitted: Callable[[int, Key], bool],
) -> list[tuple[int, Metadata]]:
    """The items that meet the needs of a station: inside the time frames, without the omitted ones,
    each once, and not more than its prefetch cache holds (I18, I19)."""
    chosen: dict[tuple[int, Key], Metadata] = {}
    for world_needs in needs.worlds:
        world = world_needs.world
        for need in sorted(world_needs.needs, key=lambda need: (-need.count, need.tag)):
            found = [
                metadata
                for metadata in find_by_tag(world, need.tag)
                if need.covers(metadata.published_us) and not is_omitted(world, metadata.key)
            ]
            found.sort(key=lambda metadata: (-metadata.published_us, metadata.key))
            share = entries_for_tag(needs.prefetch_max, need.count, needs.total, len(found))
            for metadata in found[:share]:
                chosen[world, metadata.key] = metadata
    items = [(world, metadata) for (world, _), metadata in chosen.items()]
    return items[: max(needs.prefetch_max, 0)]
