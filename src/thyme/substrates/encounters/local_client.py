"""Local client: the objects and the brokers of an encounter node are the device itself.

Entry points: `LocalObjects`, an `ObjectClient`, and `LocalBroker`, a `BrokerClient`. A device knows
only its own events and those it received: it cannot delete an event everywhere, and past matches
are those in its memory.
Clauses: M13, M15, M17, M19, M32, U10.
"""

from __future__ import annotations

from collections.abc import Callable

from thyme.model.errors import NotFoundError, RejectedError, UnsupportedError
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction, SubscriptionKey, SubscriptionRecord
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import AS_USUAL, LookupResult, StorageOptions
from thyme.protocol.messages.replies import Page
from thyme.protocol.results import Failure, Ok, OnResult
from thyme.query.cursor import cursor_at
from thyme.storage.store import RecordTable, Store
from thyme.substrates.common.catalogue import THERE, UNKNOWN
from thyme.substrates.common.client_interfaces import (
    BrokerId,
    PageQuery,
    Pages,
)
from thyme.substrates.encounters.event_memory import EventMemory
from thyme.substrates.encounters.events import CarriedEvent

OWN_EVENTS = RecordTable("own event", Metadata)
"""The device's own events; those of others are not stored across restarts."""
DELETE_REFUSED = (
    "events cannot be deleted in an encounter world: copies are on devices that nobody can reach; "
    "give an event a time to live instead"
)


class LocalObjects:
    """Access to the events of this device; an `ObjectClient`."""

    def __init__(
        self, memory: EventMemory, store: Store, on_inserted: Callable[[CarriedEvent, int], None]
    ) -> None:
        self._memory = memory
        self._store = store
        self._on_inserted = on_inserted
        for name, metadata in store.load(OWN_EVENTS):
            data = store.get_data(name)
            if data is not None:
                memory.add_own(CarriedEvent(metadata, data))

    def insert(
        self,
        metadata: Metadata,
        data: bytes,
        now_us: int,
        on_result: OnResult[object],
        options: StorageOptions = AS_USUAL,
    ) -> None:
        known = self._memory.own.get(metadata.key)
        if known is not None:
            on_result(_taken(metadata.key), now_us)
            return
        event = CarriedEvent(metadata, data)
        try:
            self._memory.add_own(event)
        except RejectedError as error:
            on_result(Failure.from_error(error), now_us)
            return
        name = str(metadata.key)
        self._store.put(OWN_EVENTS, name, metadata)
        self._store.put_data(name, data)
        on_result(Ok(None), now_us)
        self._on_inserted(event, now_us)

    def delete(self, key: Key, now_us: int, on_result: OnResult[object]) -> None:
        on_result(Failure(UnsupportedError.code, DELETE_REFUSED), now_us)

    def retrieve(self, metadata: Metadata, now_us: int, on_result: OnResult[bytes]) -> None:
        event = self._find(metadata.key, now_us)
        if event is None:
            detail = f"{metadata.key} is not in the memory of this device (any more)"
            on_result(Failure(NotFoundError.code, detail), now_us)
        elif event.data is None:
            detail = f"only the metadata of {metadata.key} has arrived: the encounter broke off"
            on_result(Failure(NotFoundError.code, detail), now_us)
        else:
            on_result(Ok(event.data), now_us)

    def look_up(self, key: Key, now_us: int, on_result: OnResult[LookupResult]) -> None:
        event = self._find(key, now_us)
        found = (
            LookupResult(UNKNOWN, None) if event is None else LookupResult(THERE, event.metadata)
        )
        on_result(Ok(found), now_us)

    def _find(self, key: Key, now_us: int) -> CarriedEvent | None:
        event = self._memory.get(key)
        return None if event is None or event.metadata.has_expired(now_us) else event


def _taken(key: Key) -> Failure:
    return Failure(RejectedError.code, f"{key} is taken: an object never changes")


Matches = Callable[[tuple[Conjunction, ...], TimeFrame, Metadata], bool]


class LocalBroker:
    """The memory of this device as the only broker; a `BrokerClient`."""

    def __init__(self, node_id: NodeId, memory: EventMemory, matches: Matches) -> None:
        self._node_id = node_id
        self._memory = memory
        self._matches = matches

    def subscribe(
        self,
        subscription: SubscriptionRecord,
        batch: int,
        now_us: int,
        on_started: Callable[[int, int], None],
        on_result: OnResult[Pages],
    ) -> None:
        page = self._read_page(
            PageQuery(subscription.conjunctions, subscription.frame, batch), now_us
        )
        on_started(page.total, now_us)
        on_result(Ok({self._node_id: page}), now_us)

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_result: OnResult[object]) -> None:
        on_result(Ok(None), now_us)

    def drop_subscription(
        self, broker_id: BrokerId, key: SubscriptionKey, now_us: int, on_result: OnResult[object]
    ) -> None:
        on_result(Ok(None), now_us)

    def search(self, query: PageQuery, now_us: int, on_result: OnResult[Pages]) -> None:
        on_result(Ok({self._node_id: self._read_page(query, now_us)}), now_us)

    def fetch_next_page(
        self, broker_id: BrokerId, query: PageQuery, now_us: int, on_result: OnResult[Page]
    ) -> None:
        on_result(Ok(self._read_page(query, now_us)), now_us)

    def _read_page(self, query: PageQuery, now_us: int) -> Page:
        """The newest matches in the memory before the cursor; the total counts this device only."""
        found = [
            event.metadata
            for event in self._memory
            if not event.metadata.has_expired(now_us)
            and self._matches(query.conjunctions, query.frame, event.metadata)
        ]
        before = [
            metadata
            for metadata in found
            if query.before is None or cursor_at(metadata) < query.before
        ]
        before.sort(key=cursor_at, reverse=True)
        count = max(0, query.count)
        return Page(0, len(found), tuple(before[:count]), len(before) > count)
