"""Input dispatch: passes the inputs of a Thyme-DCS node, except messages, to its components.

Entry point: `InputDispatch.dispatch`.
Clauses: D20, D23, M24, M36.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from thyme.protocol.app_interface import AppRequest, Insert, InsertBatch
from thyme.protocol.node import (
    AppRequested,
    ClocksCompared,
    Leaving,
    PositionChanged,
    SendFailed,
    Started,
    Timer,
    TimerFired,
)
from thyme.substrates.chunks.fetcher import ChunkTransferTimer
from thyme.substrates.common.gap_reader import GapRetryTimer
from thyme.substrates.common.notification_gaps import GapTimer, GapUpkeepTimer
from thyme.substrates.common.subscriber import FrameEndTimer
from thyme.substrates.common.world_lifetime import WorldEndTimer
from thyme.substrates.dcs.client.cell_requests import CellRequestTimer
from thyme.substrates.dcs.client.insert_pacing import InsertPacingTimer
from thyme.substrates.dcs.client.large_replicas import FetchReplicaTimer
from thyme.substrates.dcs.client.notification_receiver import AckTimer
from thyme.substrates.dcs.client.replica_announcements import AnnouncementTimer
from thyme.substrates.dcs.composition import NodeParts
from thyme.substrates.dcs.membership.cell_joining import CellJoinTimer
from thyme.substrates.dcs.membership.position_filter import LeaveCellTimer
from thyme.substrates.dcs.robust.anti_entropy import AntiEntropyTimer
from thyme.substrates.dcs.robust.replica_upkeep import ReplicaUpkeepTimer
from thyme.substrates.dcs.service.cell_service import ExpiryTimer
from thyme.substrates.dcs.service.notification_aggregation import AggregationTimer
from thyme.substrates.dcs.service.pending_notifications import NotificationRetryTimer
from thyme.substrates.dcs.state.stored_cell import DelayedJoinTimer

LocalInput: TypeAlias = (
    Started | AppRequested | TimerFired | SendFailed | Leaving | PositionChanged | ClocksCompared
)
"""An input that is not a message."""


class InputDispatch:
    """Passes the inputs of one node to its components."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        self._started_us = 0

    def dispatch(self, event: LocalInput, now_us: int) -> None:
        """Passes an input to the component that handles it."""
        parts = self._parts
        match event:
            case Started():
                self._start(now_us)
            case AppRequested():
                self._on_request(event.request, now_us)
            case TimerFired():
                self._on_timer(event.timer, now_us)
            case SendFailed():
                taken = parts.routing.on_send_failed(event.to, event.message, now_us)
                if not taken and parts.extension is not None:
                    parts.extension.on_send_failed(event.to, event.message, now_us)
            case PositionChanged():
                filtered = parts.positions.on_position(event.position, parts.routing.cell, now_us)
                parts.membership.on_moved(filtered.cell, now_us, displaced=filtered.displaced)
            case ClocksCompared():
                parts.index.broker.set_clock_ahead(event.ahead_us)
            case Leaving():
                parts.membership.on_leaving(now_us)
            case _:
                assert_never(event)

    def _start(self, now_us: int) -> None:
        """Starts the components; before its time to join, the node only receives beacons."""
        parts = self._parts
        parts.index.broker.expire(now_us)
        parts.replicas.expire(now_us)
        parts.service.notification_delivery.gaps.start(now_us)
        parts.client.subscriber.set_frame_end_timers()
        parts.world_lifetime.set_timer()
        parts.replica_upkeep.schedule_round(now_us)
        parts.large_replicas.start(now_us)
        parts.routing.start(parts.cell, now_us, serving=False)
        parts.membership.start(parts.cell)
        if parts.extension is not None:
            parts.extension.start(now_us)
        self._started_us = now_us
        if now_us < parts.join_at_us:
            parts.outbox.set_timer(DelayedJoinTimer(), parts.join_at_us)
        else:
            parts.joining.start(now_us)

    def _on_request(self, request: AppRequest | InsertBatch, now_us: int) -> None:
        client = self._parts.client
        inserts = request.inserts if isinstance(request, InsertBatch) else (request,)
        for insert in inserts:
            if isinstance(insert, Insert):
                client.tag_popularity.add_tags(insert.tags)
        if not self._parts.world_lifetime.reject_if_ended(request, now_us):
            client.client.on_request(request, now_us)

    def _on_timer(self, timer: Timer, now_us: int) -> None:
        parts = self._parts
        match timer:
            case CellRequestTimer():
                parts.requests.on_timer(timer, now_us)
            case ExpiryTimer():
                parts.service.on_expiry_timer(now_us)
            case NotificationRetryTimer():
                parts.service.notification_delivery.on_timer(timer, now_us)
            case GapTimer():
                parts.service.notification_delivery.gaps.on_timer(timer, now_us)
            case GapUpkeepTimer():
                parts.service.notification_delivery.gaps.on_upkeep_timer(now_us)
            case AggregationTimer():
                parts.service.notification_delivery.aggregator.on_timer(now_us)
            case ChunkTransferTimer():
                parts.large_replicas.fetcher.on_timer(timer, now_us)
            case FetchReplicaTimer():
                parts.large_replicas.on_timer(timer, now_us)
            case ReplicaUpkeepTimer():
                parts.replica_upkeep.on_timer(now_us)
            case AntiEntropyTimer() if parts.anti_entropy is not None:
                parts.anti_entropy.on_timer(timer, now_us)
            case DelayedJoinTimer():
                if not parts.membership.movement.is_moving:
                    parts.joining.start(now_us, now_us - self._started_us)
            case LeaveCellTimer():
                parts.membership.on_moved(parts.positions.leave_cell().cell, now_us)
            case CellJoinTimer():
                parts.joining.on_timer(now_us)
            case _ if not self._on_client_timer(timer, now_us):
                taken = parts.membership.on_timer(timer, now_us)
                taken = taken or parts.routing.on_timer(timer, now_us)
                if not taken and parts.extension is not None:
                    parts.extension.on_timer(timer, now_us)

    def _on_client_timer(self, timer: Timer, now_us: int) -> bool:
        """Passes a timer to a component of the client; returns False if it is of none."""
        client = self._parts.client
        match timer:
            case FrameEndTimer():
                client.subscriber.on_frame_end(timer.sid, now_us)
            case GapRetryTimer():
                client.gap_reader.on_retry_timer(timer, now_us)
            case AckTimer():
                client.notifications.send_acks(now_us)
            case AnnouncementTimer() if client.announcer is not None:
                client.announcer.send_waiting(now_us)
            case InsertPacingTimer() if client.insert_pacer is not None:
                client.insert_pacer.on_timer(now_us)
            case WorldEndTimer():
                client.subscriber.end_all("the life span of its world is over")
            case _:
                return False
        return True
