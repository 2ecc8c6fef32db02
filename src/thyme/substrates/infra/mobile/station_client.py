"""Station client: insert, retrieve, delete and subscribe with the help of a base station.

Entry points: `StationObjectClient` and `StationBrokers`, which wrap those of Thyme-DCS. Without a
station they do what Thyme-DCS does. A retrieve asks the station first, then replicas in the own
venue, then the source station through the own one. A subscription goes to the cells and to the
station, which answers from its caches. A delete goes to both.
Clauses: I21, I22, I23, B8.
"""

from __future__ import annotations

from collections.abc import Callable

from thyme.model.bounded import BoundedDict
from thyme.model.errors import NotFoundError, OperationError
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.protocol.app_interface import AS_USUAL, LookupResult, StorageOptions
from thyme.protocol.messages.common import Message, Unpublish
from thyme.protocol.messages.replies import ObjectData, Page
from thyme.protocol.messages.requests import DeleteObject, FetchObject, FetchPage
from thyme.protocol.messages.stations import ForceFetch
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.routing.cells import STATION_CELL
from thyme.storage.store import RecordTable
from thyme.substrates.common.client_interfaces import (
    BrokerClient,
    BrokerId,
    ObjectClient,
    PageQuery,
    Pages,
)
from thyme.substrates.common.history_reader import merge_pages, total_matches
from thyme.substrates.dcs.client.replica_announcements import announce_at_once
from thyme.substrates.dcs.client.replica_locations import ReplicaLocations
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.state.replica_store import ReplicaRole, StoredReplica
from thyme.substrates.infra.mobile.station_link import StationLink
from thyme.substrates.infra.requests import StationRequests
from thyme.substrates.infra.unpublish_records import UnpublishRecord

_UNPUBLISHED_MAX = 10_000
"""How many deletes that no station confirmed are remembered for the next station."""
_UNCONFIRMED = RecordTable("unconfirmed delete", UnpublishRecord)
CurrentStation = Callable[[], NodeId | None]


class StationObjectClient:
    """The `ObjectClient` of a mobile node."""

    def __init__(
        self,
        context: NodeContext,
        world: int,
        objects: ObjectClient,
        replica_locations: ReplicaLocations,
        requests: StationRequests,
        station: CurrentStation,
    ) -> None:
        self._context = context
        self._world = world
        self._objects = objects
        self._replica_locations = replica_locations
        self._requests = requests
        self._station = station
        self._unpublished: BoundedDict[Key, Unpublish] = BoundedDict(_UNPUBLISHED_MAX)
        """The deletes that no station has confirmed; they survive the end of the process."""
        for _, record in context.store.load(_UNCONFIRMED):
            self._unpublished[record.key] = record.as_message(requests.next_id())
        self.previous_station: NodeId | None = None
        """The station of the venue that this node came from: it may know objects that the node was
        notified of there."""
        self.served_by_station = 0
        self.served_by_mobiles = 0
        self.forced = 0

    def insert(
        self,
        metadata: Metadata,
        data: bytes,
        now_us: int,
        on_result: OnResult[object],
        options: StorageOptions = AS_USUAL,
    ) -> None:
        self._objects.insert(metadata, data, now_us, on_result, options)

    def look_up(self, key: Key, now_us: int, on_result: OnResult[LookupResult]) -> None:
        self._objects.look_up(key, now_us, on_result)

    # Delete (I23)

    def delete(self, key: Key, now_us: int, on_result: OnResult[object]) -> None:
        """Deletes an object at its cells, and has the station delete it in all venues."""
        stored = self._context.replicas.get(key)
        if stored is not None and stored.role is ReplicaRole.OWN:
            request_id = self._requests.next_id()
            delete: Message = DeleteObject(request_id, key)
            authenticator = self._context.requests.authenticator
            if authenticator is not None:
                cell = self._context.routing.cell
                delete = authenticator.sign_message(delete, now_us, cell)
            tags = stored.metadata.tags
            message = Unpublish(request_id, self._world, tags, delete)
            evicted = self._unpublished.put(key, message)
            if evicted is not None:
                self._context.store.remove(_UNCONFIRMED, str(evicted))
            self._context.store.put(_UNCONFIRMED, str(key), UnpublishRecord.of(message))
            self._send_unpublish(key, now_us)
        self._objects.delete(key, now_us, on_result)

    def repeat_deletes(self, now_us: int) -> None:
        """Sends the deletes that no station has confirmed, to a new station (B8)."""
        for key in list(self._unpublished):
            self._send_unpublish(key, now_us)

    def _send_unpublish(self, key: Key, now_us: int) -> None:
        station, message = self._station(), self._unpublished[key]

        def on_reply(result: Result[Message], now_us: int) -> None:
            if isinstance(result, Ok):
                self._unpublished.pop(key, None)
                self._context.store.remove(_UNCONFIRMED, str(key))

        if station is not None:
            self._requests.send(station, message.request_id, message, now_us, on_reply)

    # Retrieve (I22)

    def retrieve(self, metadata: Metadata, now_us: int, on_result: OnResult[bytes]) -> None:
        """Retrieves an object from this node, the station, replicas in the venue, or afar."""
        station = self._station()
        replicas = self._context.replicas
        replicas.expire(now_us)
        if replicas.get(metadata.key) is not None:
            self._objects.retrieve(metadata, now_us, on_result)
            return
        if station is None:
            self._retrieve_without_station(metadata, now_us, on_result)
            return
        request_id = self._requests.next_id()

        def on_reply(result: Result[Message], now_us: int) -> None:
            if self._accept(metadata, result, now_us, on_result):
                self.served_by_station += 1
            else:
                self._retrieve_nearby(metadata, now_us, on_result)

        request = FetchObject(request_id, metadata.key)
        self._requests.send(
            station, request_id, request, now_us, on_reply, data_bytes=metadata.size, tries_max=2
        )

    def _retrieve_without_station(
        self, metadata: Metadata, now_us: int, on_result: OnResult[bytes]
    ) -> None:
        """Retrieves from other nodes; if that fails and there is a station by now, from it: a node
        on its way to another venue has nobody to ask until it arrives (B8)."""

        def on_replies(result: Result[bytes], now_us: int) -> None:
            if isinstance(result, Ok) or self._station() is None:
                on_result(result, now_us)
            else:
                self.retrieve(metadata, now_us, on_result)

        self._objects.retrieve(metadata, now_us, on_replies)

    def _accept(
        self, metadata: Metadata, result: Result[Message], now_us: int, on_result: OnResult[bytes]
    ) -> bool:
        """Ends a retrieve with the station's bytes; False if it has none, or the wrong ones."""
        reply = result.value if isinstance(result, Ok) else None
        if not (isinstance(reply, ObjectData) and metadata.matches_content(reply.data)):
            return False
        self._keep_replica(metadata, reply.data, now_us)
        on_result(Ok(reply.data), now_us)
        return True

    def _keep_replica(self, metadata: Metadata, data: bytes, now_us: int) -> None:
        """Keeps a passive replica and announces it, as after a retrieve from another node (D13):
        the cells count the download."""
        context = self._context
        if not context.config.replication.passive:
            return
        try:
            replica = StoredReplica(metadata, ReplicaRole.PASSIVE)
            context.replicas.add_replica(replica, data, now_us)
        except OperationError:
            return  # no space for it
        announce_at_once(context.routing, metadata, now_us)

    def _retrieve_nearby(self, metadata: Metadata, now_us: int, on_result: OnResult[bytes]) -> None:
        source = self._source_of(metadata.key)

        def on_nearby(result: Result[bytes], now_us: int) -> None:
            if isinstance(result, Ok):
                self.served_by_mobiles += 1
                on_result(result, now_us)
            else:
                self._retrieve_afar(metadata, source, result, now_us, on_result)

        indexed = self._replica_locations.get(metadata.key)
        only_afar = indexed is not None and all(
            replica.cell == STATION_CELL for replica in (*indexed.active, *indexed.passive)
        )
        if not only_afar:
            self._objects.retrieve(metadata, now_us, on_nearby)
            return

        def on_afar(result: Result[bytes], now_us: int) -> None:
            if isinstance(result, Ok):
                on_result(result, now_us)
            else:  # somebody of this venue may have downloaded it since: the cells know
                self._replica_locations.forget(metadata.key)
                self._objects.retrieve(metadata, now_us, on_result)

        missing = Failure(NotFoundError.code, f"{metadata.key} has no replica in this venue")
        self._retrieve_afar(metadata, source, missing, now_us, on_afar)

    def _source_of(self, key: Key) -> NodeId | None:
        indexed = self._replica_locations.get(key)
        active = () if indexed is None else indexed.active
        return next((replica.node for replica in active if replica.cell == STATION_CELL), None)

    def _retrieve_afar(
        self,
        metadata: Metadata,
        source: NodeId | None,
        nearby: Failure,
        now_us: int,
        on_result: OnResult[bytes],
    ) -> None:
        """The forced download: the station fetches the object from its source station."""
        station = self._station()
        if station is None:
            on_result(nearby, now_us)
            return
        request_id = self._requests.next_id()

        def on_reply(result: Result[Message], now_us: int) -> None:
            if self._accept(metadata, result, now_us, on_result):
                self.forced += 1
            else:
                on_result(nearby, now_us)

        request = ForceFetch(request_id, metadata.key, source or self.previous_station)
        self._requests.send(
            station, request_id, request, now_us, on_reply, data_bytes=4 * metadata.size
        )


class StationBrokers:
    """The `BrokerClient` of a mobile node: the key cells, and the station as one more broker."""

    def __init__(self, brokers: BrokerClient, requests: StationRequests, link: StationLink) -> None:
        self._brokers = brokers
        self._requests = requests
        self._link = link
        self.items_from_cells = 0
        """Past objects that cells returned to new subscriptions (C36)."""
        self.items_from_station = 0

    def _station(self) -> NodeId | None:
        return self._link.station

    def subscribe(
        self,
        subscription: SubscriptionRecord,
        batch: int,
        now_us: int,
        on_started: Callable[[int, int], None],
        on_result: OnResult[Pages],
    ) -> None:
        """Subscribes at the cells, and looks up the station's caches at the same time (I21). Cells
        leave out what they know to be in the station; so without its answer, they are asked for
        everything."""
        station = self._station()
        if station is None and not self._link.losses:
            self._brokers.subscribe(subscription, batch, now_us, on_started, on_result)
            return
        query = PageQuery(subscription.conjunctions, subscription.frame, batch)
        results: dict[str, Result[Pages]] = {}

        def on_part(name: str, result: Result[Pages], now_us: int) -> None:
            results[name] = result
            if len(results) < 2:
                return
            cells, cached = results["cells"], results["station"]
            self.items_from_cells += _count_items(cells)
            self.items_from_station += _count_items(cached)
            if isinstance(cells, Ok) and isinstance(cached, Ok):
                finish(Ok({**cells.value, **cached.value}), now_us)
            elif isinstance(cells, Ok):
                self._brokers.search(query, now_us, finish)
            else:
                finish(cells, now_us)

        def finish(result: Result[Pages], now_us: int) -> None:
            if isinstance(result, Ok):
                on_started(total_matches(result.value), now_us)
            on_result(result, now_us)

        self._brokers.subscribe(
            subscription,
            batch,
            now_us,
            lambda _total, _now_us: None,
            lambda result, now_us: on_part("cells", result, now_us),
        )
        self._ask_station(
            station, query, now_us, lambda result, now_us: on_part("station", result, now_us)
        )

    def _ask_station(
        self, station: NodeId | None, query: PageQuery, now_us: int, on_result: OnResult[Pages]
    ) -> None:
        if station is None:
            on_result(Failure(NotFoundError.code, "there is no station"), now_us)
            return
        request_id = self._requests.next_id()
        request = FetchPage(request_id, query.conjunctions, query.frame, query.count, query.before)

        def on_reply(result: Result[Message], now_us: int) -> None:
            if isinstance(result, Ok) and isinstance(result.value, Page):
                on_result(Ok({station: result.value}), now_us)
            else:
                detail = "the station did not answer"
                on_result(Failure(NotFoundError.code, detail), now_us)

        self._requests.send(station, request_id, request, now_us, on_reply)

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_result: OnResult[object]) -> None:
        self._brokers.unsubscribe(key, now_us, on_result)

    def drop_subscription(
        self, broker_id: BrokerId, key: SubscriptionKey, now_us: int, on_result: OnResult[object]
    ) -> None:
        self._brokers.drop_subscription(broker_id, key, now_us, on_result)

    def search(self, query: PageQuery, now_us: int, on_result: OnResult[Pages]) -> None:
        """Searches the cells, which answer in full, and the station."""
        station = self._station()
        if station is None:
            self._brokers.search(query, now_us, on_result)
            return

        def on_cells(cells: Result[Pages], now_us: int) -> None:
            def on_station(cached: Result[Pages], now_us: int) -> None:
                if isinstance(cells, Ok) and isinstance(cached, Ok):
                    on_result(Ok({**cells.value, **cached.value}), now_us)
                else:
                    on_result(cells, now_us)

            if isinstance(cells, Ok) and self._station() == station:
                self._ask_station(station, query, now_us, on_station)
            else:
                on_result(cells, now_us)

        self._brokers.search(query, now_us, on_cells)

    def fetch_next_page(
        self, broker_id: BrokerId, query: PageQuery, now_us: int, on_result: OnResult[Page]
    ) -> None:
        """Fetches the next page from a cell or from the station. If the station is gone, the cells
        are asked instead: the subscriber drops the objects it has seen."""
        if isinstance(broker_id, int):
            self._brokers.fetch_next_page(broker_id, query, now_us, on_result)
            return
        station = self._station()

        def on_pages(result: Result[Pages], now_us: int) -> None:
            on_result(result.map(lambda pages: _as_one_page(pages, query.count)), now_us)

        def on_reply(result: Result[Pages], now_us: int) -> None:
            if isinstance(result, Ok):
                on_pages(result, now_us)
            else:
                self._brokers.search(query, now_us, on_pages)

        if station == broker_id:
            self._ask_station(station, query, now_us, on_reply)
        else:
            self._brokers.search(query, now_us, on_pages)


def _count_items(result: Result[Pages]) -> int:
    return sum(len(page.items) for page in result.value.values()) if isinstance(result, Ok) else 0


def _as_one_page(pages: Pages, count: int) -> Page:
    """One page with the items of several, newest first."""
    items = tuple(merge_pages(pages, count))
    total = total_matches(pages)
    has_more = any(page.has_more for page in pages.values()) or any(
        len([item for item in page.items if item in items]) < len(page.items)
        for page in pages.values()
    )
    return Page(0, total, items, has_more)
