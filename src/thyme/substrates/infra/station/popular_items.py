"""Popular items: brings what the clients of a venue download most into its station.

Entry points: `PopularItems.on_cell_data`, and two timers. The decision timer chooses items and
requests them from their replicas; the batch-insert timer inserts what has arrived, a few times in
each cycle, with some slack at the end. An item that arrives in a later cycle is ignored.
Clauses: I7, I9, I10.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from thyme.model.bounded import BoundedDict
from thyme.model.tags import Tag
from thyme.protocol.messages.cell_records import Replica
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.stations import CellData, FetchStored, StoredObject
from thyme.protocol.results import Ok, Result
from thyme.substrates.infra.station.content import Item
from thyme.substrates.infra.station.context import StationContext
from thyme.substrates.infra.station.popularity import ItemId, choose_popular
from thyme.substrates.infra.station.records import CellOfCount
from thyme.substrates.infra.station.subscription_needs import NeedsTable

_SLACK_SHARE = 10
"""The processing slack at the end of a cycle is a tenth of the cycle (I10)."""
_CYCLES_PER_CELL_MAX = 1_000
"""How many processed cycles are remembered for each cell (I7)."""
_CELLS_MAX = 100_000
_ENTRIES_MAX = 1_000
"""How many objects, and how many tags, are counted in one cycle of a cell: what honest nodes send
at most."""
_SUBSCRIPTIONS_PER_NODE = 10
"""How many subscriptions to one tag are counted for each node of the venue."""


class DecisionTimer(msgspec.Struct, frozen=True):
    """The start of a decision cycle (I9)."""


class BatchInsertTimer(msgspec.Struct, frozen=True):
    """The next batch insert of a cycle (I10)."""

    cycle: int
    number: int


class PopularItems:
    """The popular items of one station."""

    def __init__(self, context: StationContext, needs: NeedsTable) -> None:
        self._context = context
        self._settings = context.settings.popularity
        self._needs = needs
        self._processed: BoundedDict[CellOfCount, BoundedDict[int, None]] = BoundedDict(_CELLS_MAX)
        self._is_started = False
        self.cycle = 0
        """The number of the decision cycle: how often the decision timer fired."""
        self._arrived: list[Item] = []
        self.requested_per_cycle: BoundedDict[int, int] = BoundedDict(10_000)
        """The number of items requested from mobile nodes, by cycle (C24)."""

    # Cell data

    def restore(self, now_us: int) -> None:
        """Continues with the downloads and subscriptions from before a restart (B8)."""
        records = self._context.records
        for cycles in records.load_cycles():
            processed = self._processed_of(cycles.cell)
            for cycle in cycles.cycles:
                processed[cycle] = None
        for need in records.load_needs():
            self._needs.record(need.world, need.need)
        for item, saved in records.load_popularity():
            self._context.popularity.restore(item, saved.downloads, saved.replicas)
        if len(self._context.popularity):
            self._start(now_us)

    def _start(self, now_us: int) -> None:
        if not self._is_started:
            self._is_started = True
            self._set_decision_timer(now_us)

    def _processed_of(self, cell: CellOfCount) -> BoundedDict[int, None]:
        processed = self._processed.get(cell)
        if processed is None:
            processed = self._processed[cell] = BoundedDict(_CYCLES_PER_CELL_MAX)
        return processed

    def on_cell_data(self, world: int, message: CellData, population: int, now_us: int) -> None:
        """Adds the cell data of cycles that were not processed before (I7). A node that lies about
        downloads or subscriptions counts no more than all nodes of the venue could."""
        cell = (world, message.cells, message.cell)
        processed = self._processed_of(cell)
        items: dict[ItemId, None] = {}
        tags: dict[Tag, None] = {}
        for cycle in message.cycles:
            if cycle.cycle in processed:
                self._context.counts["cell data again"] += 1
                continue
            processed[cycle.cycle] = None
            self._context.counts["cell data"] += 1
            too_many = max(0, len(cycle.needs) - _ENTRIES_MAX)
            too_many += max(0, len(cycle.downloads) - _ENTRIES_MAX)
            self._context.counts["cell data too long"] += too_many
            for need in cycle.needs[:_ENTRIES_MAX]:
                most = _SUBSCRIPTIONS_PER_NODE * population
                self._needs.record(world, replace(need, count=self._bound(need.count, most)))
                tags[need.tag] = None
            for entry in cycle.downloads[:_ENTRIES_MAX]:
                item = (world, entry.key)
                if not self._context.is_unpublished(*item):
                    # Whoever downloaded an object has it, so nobody downloads it twice.
                    count = self._bound(entry.count, population)
                    self._context.popularity.record(item, count, entry.replicas, self.cycle)
                    items[item] = None
        if items or tags:
            self._save(cell, processed, items, tags)
        self._start(now_us)

    def _bound(self, count: int, most: int) -> int:
        self._context.counts["count reduced"] += count > most
        return max(1, min(count, most))

    def _save(
        self,
        cell: CellOfCount,
        processed: BoundedDict[int, None],
        items: dict[ItemId, None],
        tags: dict[Tag, None],
    ) -> None:
        """Saves what a report changed, before it is confirmed."""
        popularity = self._context.popularity
        changed = {item: found for item in items if (found := popularity.get(item)) is not None}
        world = cell[0]
        needs = {
            (world, tag): need for tag in tags if (need := self._needs.get(world, tag)) is not None
        }
        self._context.records.save_cell_data(cell, processed, changed, needs)

    def processed_cycles(self) -> set[tuple[CellOfCount, int]]:
        """The cycles of cell data that were processed, as far as they are remembered (I7)."""
        return {(cell, cycle) for cell, cycles in self._processed.items() for cycle in cycles}

    # Decisions (I9)

    def _set_decision_timer(self, now_us: int) -> None:
        period_us = self._settings.decision_period_us
        self._context.outbox.set_timer(DecisionTimer(), now_us + period_us)

    def on_decision_timer(self, now_us: int) -> None:
        """Chooses and requests popular items; the first firing only counts."""
        self.cycle += 1
        self._set_decision_timer(now_us)
        self._arrived.clear()
        if self.cycle == 1:
            return
        chosen = self._choose()
        self.requested_per_cycle[self.cycle] = len(chosen)
        for item in chosen:
            popularity = self._context.popularity.get(item)
            assert popularity is not None
            self._request(item, list(popularity.replicas), self.cycle, now_us)
        self._context.popularity.end_cycle()
        self._context.records.keep_only(self._context.popularity.all_items(), self._needs.names())
        self._set_batch_timer(1, now_us)

    def _choose(self) -> list[ItemId]:
        table, settings, content = self._context.popularity, self._settings, self._context.content

        def is_cached(item: ItemId) -> bool:
            return content.has_local(*item)

        if not settings.ranking:
            return [item for item in table.all_items() if not is_cached(item)]
        active = table.active_items(self.cycle, settings.active_window)
        return choose_popular(active, settings.items_max, is_cached)

    def _request(self, item: ItemId, replicas: list[Replica], cycle: int, now_us: int) -> None:
        """Requests an item from its replicas, one after the other."""
        if not replicas or cycle != self.cycle:
            self._context.counts["popular item not found"] += 1
            return
        replica, (world, key) = replicas.pop(0), item

        def on_reply(result: Result[Message], now_us: int) -> None:
            if not self._accept(item, cycle, result):
                self._request(item, replicas, cycle, now_us)

        self._context.mobiles.request_from(
            world, replica, lambda number: FetchStored(number, world, key), now_us, on_reply
        )

    def _accept(self, item: ItemId, cycle: int, result: Result[Message]) -> bool:
        """Keeps an item for the next batch insert; False if another replica should be tried."""
        reply = result.value if isinstance(result, Ok) else None
        if not isinstance(reply, StoredObject) or reply.metadata.key != item[1]:
            return False
        metadata = reply.metadata
        if not metadata.matches_content(reply.data):
            self._context.counts["corrupt item"] += 1
            return False
        if cycle != self.cycle:
            self._context.counts["popular item too late"] += 1
        else:
            self._arrived.append(Item(item[0], metadata, reply.data))
        return True

    # Batch inserts (I10)

    def _set_batch_timer(self, number: int, now_us: int) -> None:
        period_us, batches = self._settings.decision_period_us, self._settings.batch_inserts
        if number <= batches:
            wait_us = (period_us - period_us // _SLACK_SHARE) // batches
            self._context.outbox.set_timer(BatchInsertTimer(self.cycle, number), now_us + wait_us)

    def on_batch_timer(self, timer: BatchInsertTimer, now_us: int) -> None:
        """Inserts the items that have arrived since the last batch."""
        if timer.cycle != self.cycle:
            return
        arrived, self._arrived = self._arrived, []
        is_refused = self._context.unpublished.refuses
        items = [item for item in arrived if not is_refused(item.world, item.metadata)]
        if items:
            self._context.content.insert_popular(items)
        self._set_batch_timer(timer.number + 1, now_us)
