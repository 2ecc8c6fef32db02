"""Station contents: which objects of a cell the nearest station stores, as far as the cell knows.

Entry point: `StationContents`. The station tells the indexing cells about each insertion and
eviction. A cell leaves these objects out when it answers a new subscription: the station returns
them itself. Later pages and searches are answered in full.
Clauses: I4, I11, I21.
"""

from __future__ import annotations

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key
from thyme.protocol.messages.cells import CellPage
from thyme.protocol.messages.requests import FetchPage, StartSubscription
from thyme.protocol.messages.stations import StorageUpdate
from thyme.routing.cells import Delivery
from thyme.substrates.dcs.service.cell_service import CellService, first_page_request

_KEYS_MAX = 10_000
"""How many objects a node remembers to be in the station."""


class StationContents:
    """The flag `in_nearest_infrastructure` of the objects that one node indexes (I4)."""

    def __init__(self) -> None:
        self._keys: BoundedDict[Key, None] = BoundedDict(_KEYS_MAX)

    def __contains__(self, key: Key) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def clear(self) -> None:
        """Forgets everything: the station is lost, or another one is the nearest now."""
        self._keys.clear()

    def on_update(self, delivery: Delivery, message: StorageUpdate, now_us: int) -> None:
        """Handles a message of the station about its caches (I11)."""
        for key in message.keys:
            if message.is_stored:
                self._keys.refresh(key, None)
            else:
                self._keys.pop(key, None)

    def first_page(
        self, service: CellService, delivery: Delivery, request: StartSubscription, now_us: int
    ) -> CellPage:
        """The first page for a new subscription, without the objects in the station (I21)."""
        wanted = first_page_request(request)
        subscription = request.subscription
        in_station = [
            metadata
            for key in self._keys
            if (metadata := service.index.get_object(key)) is not None
            and subscription.matches(metadata)
        ]
        if not in_station:
            return service.read_page(delivery, wanted, now_us)
        enough = FetchPage(
            wanted.request_id, wanted.conjunctions, wanted.frame, wanted.count + len(in_station)
        )
        page = service.read_page(delivery, enough, now_us)
        items = [item for item in page.items if item.metadata.key not in self._keys]
        total = max(len(items), page.total - len(in_station))
        shown = tuple(items[: wanted.count])
        return CellPage(wanted.request_id, total, shown, total > len(shown))
