"""Sharing: publish/subscribe between stations.

Entry point: `StationSharing`. Each station sends its clients' needs to all others at regular
intervals. In its own time slot it answers the needs it has received with popular items. The
receiver stores them in its prefetch cache and tells the cells of their tags, which index them and
notify subscribers. A station whose client downloads such an item tells the source station, which
omits the item for some cycles.
Clauses: I17, I18, I19, I20, B8.
"""

from __future__ import annotations

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Metadata
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata, Replica
from thyme.protocol.messages.cells import ReindexObjects
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.stations import (
    ConsumptionNotice,
    ItemName,
    ProvidedItem,
    ProvideItems,
    SubscriptionNeeds,
)
from thyme.routing.cells import STATION_CELL
from thyme.substrates.infra.station.content import Item
from thyme.substrates.infra.station.context import StationContext
from thyme.substrates.infra.station.subscription_needs import NeedsTable, choose_items
from thyme.substrates.infra.station.time_slots import next_slot_us

_OMITTED_MAX = 100_000
_NOTIFY_OBJECTS_MAX = 20
"""How many objects one message to a cell announces."""
_PAGE_BYTES_MAX = 8 * 2**20
"""A page with several items has at most this many bytes of data."""


class NeedsTimer(msgspec.Struct, frozen=True):
    """Time to send the needs to the other stations (I17)."""


class SlotTimer(msgspec.Struct, frozen=True):
    """The start of the own time slot (I20)."""


class StationSharing:
    """The needs and items that one station exchanges with the others."""

    def __init__(self, context: StationContext, needs: NeedsTable) -> None:
        self._context = context
        self._settings = context.settings.sharing
        self._needs = needs
        self._needs_of: dict[NodeId, SubscriptionNeeds] = {}
        self._omitted: BoundedDict[tuple[NodeId, int, Key], int] = BoundedDict(_OMITTED_MAX)
        """How many more answers to a station omit an item that it has consumed (I19)."""
        self.items_per_answer: list[int] = []
        """The number of items in each answer to a station (C27)."""

    def start(self, now_us: int) -> None:
        """Starts both timers."""
        self._set_needs_timer(now_us)
        self._set_slot_timer(now_us)

    def _set_needs_timer(self, now_us: int) -> None:
        self._context.outbox.set_timer(NeedsTimer(), now_us + self._settings.needs_period_us)

    def _set_slot_timer(self, now_us: int) -> None:
        """Sets the timer of the next own slot, from the stations known now (I20, B8)."""
        context, window_us = self._context, self._settings.reply_window_us
        at_us = next_slot_us(context.stations, context.node_id, window_us, now_us)
        context.outbox.set_timer(SlotTimer(), at_us)

    def on_stations_changed(self, now_us: int) -> None:
        """Computes the slots anew after a station was added or removed (B8)."""
        self._set_slot_timer(now_us)
        for station in [each for each in self._needs_of if each not in self._context.stations]:
            del self._needs_of[station]

    def _send(self, to: NodeId, message: Message, now_us: int) -> None:
        self._context.reliable.send(to, lambda _now_us: message, now_us)

    # Step 1: needs (I17)

    def on_needs_timer(self, now_us: int) -> None:
        """Sends the needs of the own clients to all other stations."""
        self._needs.end_frames(now_us)
        message = self._needs.as_message(self._context.settings.caches.prefetch_data_size)
        for station in self._context.stations if message is not None else ():
            assert message is not None
            self._send(station, message, now_us)
        self._set_needs_timer(now_us)

    def on_needs(self, sender: NodeId, message: SubscriptionNeeds) -> None:
        """Keeps the needs of a station until its next ones."""
        self._needs_of[sender] = message

    # Step 2: items (I18, I20)

    def on_slot_timer(self, now_us: int) -> None:
        """Answers the needs of all other stations, in the own time slot."""
        content = self._context.content
        for station, needs in self._needs_of.items():

            def is_omitted(world: int, key: Key, station: NodeId = station) -> bool:
                return (station, world, key) in self._omitted

            chosen = choose_items(needs, content.find_popular, is_omitted)
            self._send_items(station, chosen, now_us)
        self._count_down()
        self._set_slot_timer(now_us)

    def _send_items(self, station: NodeId, chosen: list[tuple[int, Metadata]], now_us: int) -> None:
        content = self._context.content
        items = [
            ProvidedItem(world, metadata, data)
            for world, metadata in chosen
            if (data := content.popular_data(world, metadata.key)) is not None
        ]
        self.items_per_answer.append(len(items))
        self._context.counts["items to stations"] += len(items)
        pages = _paginate(items, self._settings.page_items_max)
        for number, page in enumerate(pages):
            self._send(station, ProvideItems(number, len(pages), page), now_us)

    def _count_down(self) -> None:
        for name, cycles in list(self._omitted.items()):
            if cycles <= 1:
                del self._omitted[name]
            else:
                self._omitted[name] = cycles - 1

    # Step 3: prefetch (I19)

    def on_items(self, sender: NodeId, message: ProvideItems, now_us: int) -> None:
        """Stores the items of another station, and tells the cells of their tags."""
        context = self._context
        by_cell: dict[tuple[int, CellId], list[IndexedMetadata]] = {}
        for item in message.items:
            metadata, world = item.metadata, item.world
            key = metadata.key
            if world not in context.worlds or context.unpublished.refuses(world, metadata):
                context.counts["item not wanted"] += 1
                continue
            if not metadata.matches_content(item.data) or metadata.has_expired(now_us):
                context.counts["corrupt item"] += 1
                continue
            if not context.verifier.is_genuine(world, metadata):
                continue
            context.sources[world, key] = sender
            context.counts["items from stations"] += 1
            context.content.insert_prefetched(Item(world, metadata, item.data))
            indexed = IndexedMetadata(metadata, (Replica(STATION_CELL, sender),))
            for cell in context.cells_of(world, metadata.tags):
                by_cell.setdefault((world, cell), []).append(indexed)
        for (world, cell), objects in by_cell.items():
            for start in range(0, len(objects), _NOTIFY_OBJECTS_MAX):
                part = tuple(objects[start : start + _NOTIFY_OBJECTS_MAX])
                number = context.wired.next_id()
                context.mobiles.send_to_cell(world, cell, ReindexObjects(number, part), now_us)

    # Consumption (I19)

    def report_consumption(self, world: int, key: Key, now_us: int) -> None:
        """Tells the source station that a client downloaded its item."""
        source = self._context.sources.get((world, key))
        if self._settings.consumption_notices and source in self._context.stations:
            assert source is not None
            self._send(source, ConsumptionNotice((ItemName(world, key),)), now_us)

    def on_consumption(self, sender: NodeId, message: ConsumptionNotice) -> None:
        """Omits consumed items from the next answers to a station."""
        if self._settings.consumed_ignore_cycles:
            for item in message.items:
                name = (sender, item.world, item.key)
                self._omitted[name] = self._settings.consumed_ignore_cycles


def _paginate(items: list[ProvidedItem], items_max: int) -> list[tuple[ProvidedItem, ...]]:
    """Divides items into pages: limited in number, and in bytes unless an item alone has more."""
    pages: list[list[ProvidedItem]] = []
    size = 0
    for item in items:
        if not pages or len(pages[-1]) == items_max or size + len(item.data) > _PAGE_BYTES_MAX:
            pages.append([])
            size = 0
        pages[-1].append(item)
        size += len(item.data)
    return [tuple(page) for page in pages]
