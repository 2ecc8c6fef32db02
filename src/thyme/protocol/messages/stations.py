"""Messages of Thyme-Infrastructure: between mobile nodes and base stations, and between stations.

Declared by the rules of `messages.common`, which also has the messages that contain another message
(`ToStation`, `RouteToNode`, `RouteToCell`, `Unpublish`) and the union of all messages. A station
also answers the requests that brokers and cells answer.
Clauses: I2, I3, I5, I7, I11, I17–I19, I22, I24.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from thyme.model.errors import WorldError
from thyme.model.ids import Key, NodeId, RequestId, as_node_id
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag, check_tags
from thyme.model.worlds import check_world_name
from thyme.protocol.messages.cell_records import CELLS_MAX, CellId, Replica, as_cell_id
from thyme.protocol.messages.list_limits import Items, Records
from thyme.protocol.messages.traits import BaseMessage, RecordKind

CYCLE_US_MIN, CYCLE_US_MAX = 1_000_000, 86_400_000_000
"""The shortest and the longest cycle of cell data: beacons have 32 bits for the number of one."""
COUNT_MAX = 1_000_000
"""The largest count in one entry of cell data: what a node that lies can add at a time."""


class WorldEntry(msgspec.Struct, frozen=True, array_like=True):
    """A world as stations list it: identifier, name and number of cells (I2)."""

    world: int
    name: str
    cells: int

    def __post_init__(self) -> None:
        check_world_name(self.name)
        if not 0 <= self.world < 2**62:
            raise WorldError(f"a world's number is 0 or more, not {self.world}")
        if not 1 <= self.cells < CELLS_MAX:
            raise WorldError(f"a world has 1 to {CELLS_MAX - 1} cells, not {self.cells}")


class DownloadCount(msgspec.Struct, frozen=True, array_like=True):
    """Downloads of one object in one cycle, and the replicas that have the object (I5)."""

    key: Key
    count: int
    replicas: Records[Replica]

    def __post_init__(self) -> None:
        _check_count(self.count)


class TagNeed(msgspec.Struct, frozen=True, array_like=True):
    """Subscriptions to one tag, with the earliest start and the latest end of their time frames;
    nil is an open end (I5)."""

    tag: Tag
    count: int
    start_us: int | None = None
    end_us: int | None = None

    def __post_init__(self) -> None:
        check_tags((self.tag,))
        _check_count(self.count)

    def joined_with(self, other: TagNeed) -> TagNeed:
        """The sum of two needs: one time frame that covers both (I5, I17)."""
        starts, ends = (self.start_us, other.start_us), (self.end_us, other.end_us)
        return TagNeed(
            self.tag,
            min(self.count + other.count, COUNT_MAX),
            None if None in starts else min(at for at in starts if at is not None),
            None if None in ends else max(at for at in ends if at is not None),
        )

    def covers(self, published_us: int) -> bool:
        """Whether an instant is in the time frame (I18)."""
        after = self.start_us is None or self.start_us <= published_us
        return after and (self.end_us is None or published_us <= self.end_us)


class CellCycle(msgspec.Struct, frozen=True, array_like=True):
    """The cell data of one cycle; its timestamp is the number of the cycle (I7)."""

    cycle: int
    downloads: Items[DownloadCount]
    needs: Items[TagNeed]


class WorldNeeds(msgspec.Struct, frozen=True, array_like=True):
    """The subscription needs of one world (I17)."""

    world: int
    needs: Items[TagNeed]


class ProvidedItem(msgspec.Struct, frozen=True, array_like=True):
    """An object that a station provides to another one (I18)."""

    world: int
    metadata: Metadata
    data: bytes


class ItemName(msgspec.Struct, frozen=True, array_like=True):
    """An object in a world."""

    world: int
    key: Key


class WorldProbe(BaseMessage, frozen=True, array_like=True, tag=52):
    """Return the list of worlds (I2). A station answers with `WorldList`."""

    label = "WorldProbe"

    request_id: RequestId


class WorldList(BaseMessage, frozen=True, array_like=True, tag=53):
    """All worlds that the station knows (I2); also sent to other stations, with number 0 (I3)."""

    label = "WorldList"

    request_id: RequestId
    worlds: Items[WorldEntry]
    incarnation: int
    """A random number that a station draws at each start: its caches were empty then."""
    cell_data_us: int | None = None
    """The length of a cycle of cell data, the same on all nodes of a cell (I7); None for their own
    setting."""

    def __post_init__(self) -> None:
        if self.cell_data_us is not None and not CYCLE_US_MIN <= self.cell_data_us <= CYCLE_US_MAX:
            raise ValueError(f"a cycle has a second to a day, not {self.cell_data_us} us")


class CreateWorld(BaseMessage, frozen=True, array_like=True, tag=54):
    """Create a world for all stations (I3). Answered by a `WorldList` with this world only, or by
    `Refused`."""

    label = "CreateWorld"

    request_id: RequestId
    name: str

    def __post_init__(self) -> None:
        check_world_name(self.name)


class CellData(BaseMessage, frozen=True, array_like=True, tag=55):
    """Downloads and subscription needs of a cell, in cycles that no station confirmed yet (I5, I7).
    Answered by `Done`."""

    label = "CellData"

    request_id: RequestId
    cell: CellId
    cells: int
    """The number of cells of the world, as the sender knows it."""
    cycles: Items[CellCycle]

    def __post_init__(self) -> None:
        as_cell_id(self.cell)

    def cells_referenced(self) -> Iterable[CellId]:
        downloads = (entry for cycle in self.cycles for entry in cycle.downloads)
        return (replica.cell for entry in downloads for replica in entry.replicas)


class FetchStored(BaseMessage, frozen=True, array_like=True, tag=56):
    """Return an object with its metadata (I9, I22). Answered by `StoredObject` or `Refused`."""

    label = "FetchStored"
    operation = "retrieve"
    reads_only = True

    request_id: RequestId
    world: int
    key: Key


class StoredObject(BaseMessage, frozen=True, array_like=True, tag=57):
    """An object with its metadata."""

    label = "StoredObject"
    operation = "retrieve"
    records = (("metadata", RecordKind.METADATA),)

    request_id: RequestId
    metadata: Metadata
    data: bytes


class StorageUpdate(BaseMessage, frozen=True, array_like=True, tag=60):
    """The nearest station has stored these objects, or no longer stores them (I11). To a cell; not
    answered."""

    label = "InfraStorageUpdate"

    keys: Items[Key]
    is_stored: bool


class ForceFetch(BaseMessage, frozen=True, array_like=True, tag=61):
    """Return an object, if need be from its source station (I22). Answered by `ObjectData` or
    `Refused`."""

    label = "ForceDownload"
    operation = "retrieve"
    reads_only = True

    request_id: RequestId
    key: Key
    source: NodeId | None
    """The object's source station, if the sender knows it (I4)."""

    def __post_init__(self) -> None:
        if self.source is not None:
            as_node_id(self.source)


class SubscriptionNeeds(BaseMessage, frozen=True, array_like=True, tag=62):
    """What the clients of the sending station subscribe to (I17). Between stations; not
    answered."""

    label = "SubscriptionNeeds"

    total: int
    """The number of subscriptions in all worlds."""
    prefetch_max: int
    """The number of entries of the sender's prefetch cache."""
    worlds: Items[WorldNeeds]


class ProvideItems(BaseMessage, frozen=True, array_like=True, tag=63):
    """Popular objects of the sending station for the needs of the receiver (I18): page `page` of
    `pages`, counted from 0 (B8). Between stations; not answered."""

    label = "SubscriptionNeedsReply"

    page: int
    pages: int
    items: Records[ProvidedItem]


class ConsumptionNotice(BaseMessage, frozen=True, array_like=True, tag=68):
    """Clients of the sender downloaded these objects of the receiver (I19). Between stations; not
    answered."""

    label = "ConsumptionNotice"

    items: Items[ItemName]


def _check_count(count: int) -> None:
    if not 0 < count <= COUNT_MAX:
        raise ValueError(f"a count is from 1 to {COUNT_MAX:,}, not {count}")


StationMessage = (
    WorldProbe
    | WorldList
    | CreateWorld
    | CellData
    | FetchStored
    | StoredObject
    | StorageUpdate
    | ForceFetch
    | SubscriptionNeeds
    | ProvideItems
    | ConsumptionNotice
)
"""Messages to, from and between stations that contain no other message."""
