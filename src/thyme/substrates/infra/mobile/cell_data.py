"""Cell data: counts downloads and subscriptions of a cell, and reports them to the station.

Entry point: `CellDataReporter`. Every node of a cell counts the same messages, cycle by cycle. At
the end of a cycle, the node with the highest stability index sends all unconfirmed cycles; once the
station has confirmed them, its beacons name them, and the other nodes drop their data. If the
sender dies, the next stable node still has them.
Clauses: I5, I6, I7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key, NodeId
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.model.tags import Tag
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.protocol.messages.stations import COUNT_MAX, CellCycle, DownloadCount, TagNeed
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import STATION_CELL, BeaconReceived, CellRouting
from thyme.substrates.dcs.state.cell_index import CellIndex
from thyme.substrates.infra.mobile.stability import CYCLES_MAX, StabilityPart, stability_index

_ENTRIES_MAX = 1_000
"""The maximum number of objects, and of tags, that a node counts in one cycle."""
_COUNTED_MAX = 10_000
"""How many recent subscriptions a node remembers to have counted."""
_CYCLES_KEPT_MAX = 60
"""How many unconfirmed cycles a node keeps."""
_CYCLES_SENT_MAX = 20
"""How many cycles one report contains."""
_SPREAD_US = SECOND_US // 2
"""Reports are sent this long after the end of a cycle: the messages of the cycle have arrived."""
_PATIENCE_CYCLES = 3
"""How many cycles stay unconfirmed until one more node of the cell reports them."""
_PEER_TIMEOUT_US = 4 * SECOND_US
"""A cell peer without a beacon for this time no longer counts as stable."""


class CellCycleTimer(msgspec.Struct, frozen=True):
    """The end of a cycle of cell data."""


class CellDataConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of cell data."""

    period_us: int = 10 * SECOND_US
    """The length of a cycle."""
    wait_us: int = 15 * SECOND_US
    """How long a new node observes its cell before it may report for it (I6)."""
    locations_max: int = 10
    """The maximum number of replicas that a report names for an object."""


@dataclass(slots=True)
class _Counts:
    downloads: dict[Key, int] = field(default_factory=dict)
    needs: dict[Tag, TagNeed] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.downloads or self.needs)


@dataclass(slots=True)
class _Peer:
    encoded: bytes
    part: StabilityPart
    seen_us: int


SendReport = Callable[[CellId, tuple[CellCycle, ...], Callable[[int], None], int], bool]
"""Sends cycles of a cell to the station; calls the function once the station confirmed them.
Returns False if there is no station."""


class CellDataReporter:
    """The cell data that one node counts."""

    def __init__(
        self,
        node_id: NodeId,
        routing: CellRouting,
        index: CellIndex,
        outbox: Outbox,
        config: CellDataConfig,
        send_report: SendReport,
    ) -> None:
        self._node_id = node_id
        self._routing = routing
        self._index = index
        self._outbox = outbox
        self._config = config
        self._send_report = send_report
        self.venue = 0
        """The number of the venue, for beacons."""
        self.battery = 1.0
        """The battery level of the device, 0 to 1."""
        self._started_us = 0
        self._cell = routing.cell
        self._counts = _Counts()
        self._unconfirmed: BoundedDict[int, _Counts] = BoundedDict(_CYCLES_KEPT_MAX)
        self._confirmed: list[int] = []
        self._counted: BoundedDict[SubscriptionKey, frozenset[CellId]] = BoundedDict(_COUNTED_MAX)
        """The cells in which a subscription was counted."""
        self._peers: dict[NodeId, _Peer] = {}
        self._last_part: tuple[StabilityPart, bytes] | None = None
        """What the last beacon said, and its bytes."""
        self.reports_sent = 0

    def start(self, now_us: int) -> None:
        """Starts the first cycle."""
        self._started_us = now_us
        self._cell = self._routing.cell
        self._set_timer(now_us)

    @property
    def period_us(self) -> int:
        """The length of a cycle."""
        return self._config.period_us

    def set_period(self, period_us: int, now_us: int) -> None:
        """Uses cycles of another length from now on, and waits accordingly longer or shorter (I6);
        all nodes of a cell learn it from their station."""
        if period_us != self._config.period_us:
            wait_us = period_us * 3 // 2
            self._config = replace(self._config, period_us=period_us, wait_us=wait_us)
            self._set_timer(now_us)

    def _set_timer(self, now_us: int) -> None:
        """Cycles end at the same instants on all nodes: multiples of their length."""
        period_us = self._config.period_us
        ends_us = (now_us - _SPREAD_US) // period_us * period_us + period_us
        self._outbox.set_timer(CellCycleTimer(), ends_us + _SPREAD_US)

    # Counting (I5)

    def count_download(self, key: Key, cell: CellId) -> None:
        """Counts a download of an object, in the cell of its first tag only: an object with several
        tags is indexed by several cells. Objects of other venues do not count. `cell` is the
        cell addressed: the own one, or an empty one whose proxy it is."""
        metadata = self._index.get_object(key)
        if metadata is None or self._routing.cell_of_key(metadata.tags[0]) != cell:
            return
        if source_station(self._index, key) is None:
            downloads = self._counts.downloads
            if key in downloads or len(downloads) < _ENTRIES_MAX:
                downloads[key] = min(downloads.get(key, 0) + 1, COUNT_MAX)

    def count_subscription(self, subscription: SubscriptionRecord, cell: CellId) -> None:
        """Counts a subscription for each of its tags that a cell looks after: the own one, or an
        empty one whose proxy it is. A subscription that was received again does not count."""
        known = self._index.get_subscription(subscription.key) is not None
        counted = self._counted.get(subscription.key, frozenset())
        if known and (not counted or cell in counted):
            return
        self._counted.refresh(subscription.key, counted | {cell})
        frame, needs = subscription.frame, self._counts.needs
        tags = {tag for conjunction in subscription.conjunctions for tag in conjunction.positive}
        for tag in sorted(tags):
            if self._routing.cell_of_key(tag) == cell:
                need = TagNeed(tag, 1, frame.start_us, frame.end_us)
                if tag in needs:
                    needs[tag] = needs[tag].joined_with(need)
                elif len(needs) < _ENTRIES_MAX:
                    needs[tag] = need

    # Beacons (I6, I7)

    def beacon_part(self, now_us: int) -> bytes:
        """The stability of this node, and the cycles that the station confirmed to it."""
        part = self._own_part(now_us)
        if self._last_part is None or self._last_part[0] != part:
            self._last_part = part, part.encode()
        return self._last_part[1]

    def _own_part(self, now_us: int) -> StabilityPart:
        uptime_us = now_us - self._started_us
        index = stability_index(uptime_us, self.battery)
        ready = uptime_us >= self._config.wait_us and self._routing.serving
        return StabilityPart(index, ready, tuple(self._confirmed), self.venue)

    def on_beacon(self, beacon: BeaconReceived, part: bytes, now_us: int) -> None:
        """Notes the stability of a cell peer, and drops cycles that the station confirmed to it."""
        if beacon.cell != self._routing.cell:
            self._peers.pop(beacon.node, None)
            return
        peer = self._peers.get(beacon.node)
        if peer is not None and peer.encoded == part:  # most beacons repeat the last one
            peer.seen_us = now_us
        else:
            decoded = StabilityPart.decode(part)
            if decoded is None:
                return
            peer = self._peers[beacon.node] = _Peer(part, decoded, now_us)
        if self._unconfirmed:
            for cycle in peer.part.confirmed:
                self._unconfirmed.pop(cycle, None)

    def is_stable_node(self, now_us: int) -> bool:
        """Whether this node speaks for its cell: the highest index, then the lowest id (I6)."""
        return self._rank(now_us) == 0

    def _rank(self, now_us: int) -> int | None:
        """How many nodes of the cell are more stable; None if this node may not speak for it."""
        own = self._own_part(now_us)
        if not own.is_candidate:
            return None
        limit_us, mine = now_us - _PEER_TIMEOUT_US, (-own.index, self._node_id)
        return sum(
            (-peer.part.index, node_id) < mine
            for node_id, peer in self._peers.items()
            if peer.part.is_candidate and peer.seen_us >= limit_us
        )

    # Reports (I7)

    def on_timer(self, now_us: int) -> None:
        """Ends a cycle; the stable node reports all unconfirmed ones. If it does not, whatever its
        beacons say about its stability, the next one stands in after some cycles, and so on."""
        cycle = now_us // self._config.period_us - 1
        if self._routing.cell != self._cell:  # the data of another cell
            self._cell = self._routing.cell
            self._unconfirmed.clear()
            self._peers.clear()
        elif self._counts and cycle not in self._confirmed:
            self._unconfirmed[cycle] = self._counts
        self._counts = _Counts()
        limit_us = now_us - _PEER_TIMEOUT_US
        for node_id in [node for node, peer in self._peers.items() if peer.seen_us < limit_us]:
            del self._peers[node_id]
        rank, oldest = self._rank(now_us), min(self._unconfirmed, default=cycle)
        if rank is not None and rank <= (cycle - oldest) // _PATIENCE_CYCLES:
            self.report(now_us)
        self._set_timer(now_us)

    def report(self, now_us: int) -> None:
        """Sends the unconfirmed cycles to the station, also if there are none: the station learns
        the stable node of the cell (I8)."""
        numbers = tuple(self._unconfirmed)[:_CYCLES_SENT_MAX]
        cycles = tuple(self._as_cycle(number) for number in numbers)

        def on_confirmed(now_us: int) -> None:
            for number in numbers:
                self._unconfirmed.pop(number, None)
            self._confirmed = [*self._confirmed, *numbers][-CYCLES_MAX:]

        if self._send_report(self._routing.cell, cycles, on_confirmed, now_us):
            self.reports_sent += 1

    def _as_cycle(self, number: int) -> CellCycle:
        counts = self._unconfirmed[number]
        downloads = tuple(
            DownloadCount(key, count, self._replicas_of(key))
            for key, count in counts.downloads.items()
        )
        return CellCycle(number, downloads, tuple(counts.needs.values()))

    def _replicas_of(self, key: Key) -> tuple[Replica, ...]:
        metadata = self._index.get_object(key)
        if metadata is None:
            return ()
        indexed = self._index.with_replication_list(metadata)
        # Those that downloaded the object first: requests spread over them, not over the stable
        # nodes of cells.
        return (*indexed.passive, *indexed.active)[: self._config.locations_max]

    @property
    def is_counting(self) -> bool:
        """Whether something was counted in the current cycle."""
        return bool(self._counts)

    @property
    def unconfirmed_cycles(self) -> tuple[int, ...]:
        """The cycles that this node would report."""
        return tuple(self._unconfirmed)


def source_station(index: CellIndex, key: Key) -> NodeId | None:
    """The source station of an object of another venue; None for an object of this one (I4)."""
    metadata = index.get_object(key)
    active = () if metadata is None else index.with_replication_list(metadata).active
    return next((replica.node for replica in active if replica.cell == STATION_CELL), None)
