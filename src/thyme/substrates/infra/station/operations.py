"""Operations: what a station does for the subscribe, download and unpublish of its clients.

Entry point: `StationOperations`. A lookup is answered once from the caches and not stored. A
download is served from the caches; a forced one is fetched from the object's source station, which
takes it from its caches or its own mobile nodes. An unpublish is passed on to all stations until
each has confirmed it; the object never comes back into a cache.
Clauses: I21, I22, I23, B8.
"""

from __future__ import annotations

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.errors import NotFoundError
from thyme.model.ids import Key, NodeId, RequestId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import Replica
from thyme.protocol.messages.common import Message, Unpublish, unpublished_key
from thyme.protocol.messages.stations import FetchStored, ForceFetch, StoredObject
from thyme.protocol.results import Ok, Result
from thyme.substrates.infra.station.content import Item
from thyme.substrates.infra.station.context import StationContext
from thyme.substrates.infra.station.popularity import ItemId
from thyme.substrates.infra.station.sharing import StationSharing

_REPEAT_US = 5 * SECOND_US
"""The time between two attempts to reach a station that has not confirmed an unpublish."""
_UNCONFIRMED_MAX = 100_000


class UnpublishTimer(msgspec.Struct, frozen=True):
    """Time to repeat unpublishes that some station has not confirmed."""


class StationOperations:
    """The operations of one station."""

    def __init__(self, context: StationContext, sharing: StationSharing) -> None:
        self._context = context
        self._sharing = sharing
        self._unconfirmed: dict[NodeId, BoundedDict[ItemId, Unpublish]] = {}
        self._is_timer_set = False

    # Subscribe (I21)

    def look_up(self, world: int, request: wire.FetchPage, now_us: int) -> wire.Page:
        """A page of the cached objects that match, newest first."""
        content = self._context.content
        content.remove_expired(now_us)
        found = content.find_page(
            world, request.conjunctions, request.frame, max(request.count, 0), request.before
        )
        self._context.counts["lookups"] += 1
        return wire.Page(request.request_id, found.total, found.items, found.has_more)

    # Download (I22)

    def download(self, world: int, request_id: RequestId, key: Key, now_us: int) -> Message:
        """The data of a cached object; counts what the station serves."""
        data = self._read(world, key, now_us)
        if data is None:
            self._context.counts["downloads missed"] += 1
            detail = f"{key} is not in the station"
            return wire.Refused(request_id, NotFoundError.code, detail)
        return wire.ObjectData(request_id, key, data)

    def _read(self, world: int, key: Key, now_us: int) -> bytes | None:
        cache = self._context.content.cache_of(world, key)
        found = self._context.content.read(world, key)
        self._context.on_download(world, key, None if found is None else cache)
        if found is None:
            return None
        data, is_consumed = found
        self._context.counts["downloads served"] += 1
        if is_consumed:
            self._sharing.report_consumption(world, key, now_us)
        return data

    def force_download(self, client: NodeId, world: int, request: ForceFetch, now_us: int) -> None:
        """Serves an object from the caches, or fetches it from its source station. A client that
        came from another venue may not know the source: then all stations are asked (B8)."""
        context, key = self._context, request.key
        data = self._read(world, key, now_us)
        if data is not None:
            context.outbox.send(client, wire.ObjectData(request.request_id, key, data))
            return
        source = context.sources.get((world, key), request.source)
        sources = [source] if source in context.stations else list(context.stations)
        context.counts["forced downloads"] += bool(sources)
        self._fetch_from_stations(client, world, request, sources, now_us)

    def _fetch_from_stations(
        self,
        client: NodeId,
        world: int,
        request: ForceFetch,
        sources: list[NodeId],
        now_us: int,
    ) -> None:
        """Fetches an object from the first of some stations that has it."""
        context, key, number = self._context, request.key, request.request_id
        if not sources or context.is_unpublished(world, key):
            detail = f"no other station has {key}"
            context.outbox.send(client, wire.Refused(number, NotFoundError.code, detail))
            return
        source, *others = sources

        def on_reply(result: Result[Message], now_us: int) -> None:
            reply = result.value if isinstance(result, Ok) else None
            if isinstance(reply, StoredObject) and self._keep(world, key, source, reply, now_us):
                context.outbox.send(client, wire.ObjectData(number, key, reply.data))
            else:
                self._fetch_from_stations(client, world, request, others, now_us)

        fetch_id = context.wired.next_id()
        context.wired.send(source, fetch_id, FetchStored(fetch_id, world, key), now_us, on_reply)

    def _keep(self, world: int, key: Key, source: NodeId, reply: StoredObject, now_us: int) -> bool:
        """Caches an object that was fetched from afar, before it goes to the client (I22)."""
        metadata = reply.metadata
        valid = metadata.key == key and metadata.matches_content(reply.data)
        valid = valid and self._context.verifier.is_genuine(world, metadata)
        if not valid or self._context.unpublished.refuses(world, metadata):
            return False
        self._context.sources[world, key] = source
        self._context.content.insert_consumed(Item(world, metadata, reply.data))
        self._sharing.report_consumption(world, key, now_us)
        return True

    def fetch_for_station(self, sender: NodeId, request: FetchStored, now_us: int) -> None:
        """Serves another station: from the caches, else from a mobile node of this venue."""
        context, world, key = self._context, request.world, request.key
        item = context.content.read_item(world, key)
        if item is not None:
            reply = StoredObject(request.request_id, item.metadata, item.data)
            context.outbox.send(sender, reply)
            return
        popularity = context.popularity.get((world, key))
        known = () if popularity is None else popularity.replicas
        replicas = dict.fromkeys((*known, *context.owner_replicas(world, key)))
        self._fetch_from_mobiles(sender, request, list(replicas), now_us)

    def _fetch_from_mobiles(
        self, sender: NodeId, request: FetchStored, replicas: list[Replica], now_us: int
    ) -> None:
        context, world, key = self._context, request.world, request.key
        if not replicas or context.is_unpublished(world, key):
            detail = f"{key} is neither in the station nor on a known node"
            refused = wire.Refused(request.request_id, NotFoundError.code, detail)
            context.outbox.send(sender, refused)
            return
        replica = replicas.pop(0)

        def on_reply(result: Result[Message], now_us: int) -> None:
            reply = result.value if isinstance(result, Ok) else None
            if isinstance(reply, StoredObject) and reply.metadata.key == key:
                answer = StoredObject(request.request_id, reply.metadata, reply.data)
                context.outbox.send(sender, answer)
            else:
                self._fetch_from_mobiles(sender, request, replicas, now_us)

        context.mobiles.request_from(
            world, replica, lambda number: FetchStored(number, world, key), now_us, on_reply
        )

    # Unpublish (I23)

    def unpublish(self, message: Unpublish, now_us: int, *, from_station: bool) -> None:
        """Deletes an object here, and passes the delete on: to the own cells and, if a client sent
        it, to all stations. The owner sent its delete to the cells of its venue, too, which may
        have lost it."""
        context, item = self._context, (message.world, unpublished_key(message))
        is_new = context.unpublished.add(message, now_us)
        context.content.purge(*item)
        context.popularity.forget(item)
        context.records.remove_item(item)
        context.sources.pop(item, None)
        if not is_new:
            return
        context.counts["unpublished"] += 1
        self._tell_cells(message, now_us)
        if not from_station:
            for station in context.stations:
                self._pass_on(station, message, now_us)

    def _tell_cells(self, message: Unpublish, now_us: int) -> None:
        for cell in self._context.cells_of(message.world, message.tags):
            self._context.mobiles.send_to_each_in_cell(message.world, cell, message, now_us)

    def on_world_added(self, world: int, now_us: int) -> None:
        """Tells the cells of a world about deletes that arrived before the world was known."""
        for message in self._context.unpublished.messages():
            if message.world == world:
                self._tell_cells(message, now_us)

    def on_station_returned(self, station: NodeId, now_us: int) -> None:
        """Repeats all deletes for a station that has started: its caches and tombstones are gone
        (B8)."""
        for message in self._context.unpublished.messages():
            self._pass_on(station, message, now_us)

    def _pass_on(self, station: NodeId, message: Unpublish, now_us: int) -> None:
        unconfirmed = self._unconfirmed.setdefault(station, BoundedDict(_UNCONFIRMED_MAX))
        unconfirmed[message.world, unpublished_key(message)] = message
        self._send_unpublish(station, message, now_us)

    def _send_unpublish(self, station: NodeId, message: Unpublish, now_us: int) -> None:
        context = self._context
        number = context.wired.next_id()

        def on_reply(result: Result[Message], now_us: int) -> None:
            if isinstance(result, Ok):
                self._unconfirmed[station].pop((message.world, unpublished_key(message)), None)
            elif not self._is_timer_set:
                self._is_timer_set = True
                context.outbox.set_timer(UnpublishTimer(), now_us + _REPEAT_US)

        copy = Unpublish(number, message.world, message.tags, message.delete)
        context.wired.send(station, number, copy, now_us, on_reply)

    def on_unpublish_timer(self, now_us: int) -> None:
        """Repeats the unpublishes that stations have not confirmed."""
        self._is_timer_set = False
        for station, unconfirmed in self._unconfirmed.items():
            if station in self._context.stations:
                for message in list(unconfirmed.values()):
                    self._send_unpublish(station, message, now_us)

    @property
    def unconfirmed(self) -> int:
        """The number of unpublishes that some station has not confirmed."""
        return sum(map(len, self._unconfirmed.values()))
