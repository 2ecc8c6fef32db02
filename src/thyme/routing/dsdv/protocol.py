"""DSDV: destination-sequenced distance-vector routing (Perkins and Bhagwat, 1994).

Entry point: `Dsdv`. Timing and update rules are those of the implementation in ns-3, so that the
control traffic is comparable with evaluations that used ns-3: a full dump every 15 s, and a small
update shortly after most received updates. A pending update is cancelled when a neighbour repeats
it first (as in ns-3); it becomes pending again with the next update. ns-3 lets routing loops time
out; here they are prevented, see `thyme.routing.dsdv.routing_table`. Pending updates are kept by
`pending_updates`, packets without a route by `packet_buffer`.
Clauses: R1, R2, R3.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Final

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message, Packet, RouteEntry, RouteUpdate
from thyme.protocol.node import Timer
from thyme.protocol.outbox import Outbox
from thyme.routing.dsdv.config import (
    AdvertTimer,
    BufferedPacketTimer,
    DsdvConfig,
    DumpTimer,
    RouteSettledTimer,
)
from thyme.routing.dsdv.link_quality import LinkQuality
from thyme.routing.dsdv.packet_buffer import PacketBuffer
from thyme.routing.dsdv.pending_updates import PendingUpdate, UpdateQueue
from thyme.routing.dsdv.routing_table import Route, RoutingTable
from thyme.routing.interface import RoutingTraffic

_DUMP_JITTER_US: Final = 25_000
_SEQUENCE_MAX: Final = 2**61
"""Sequence numbers above this one cannot be of a node that counts them."""
_FIRST_DUMP_US_MAX: Final = 1_000
"""Maximum delay of the first dump after a start."""
_DUMPS_MISSED_MAX: Final = 3
"""A route that was not confirmed during this number of dump intervals is marked as lost."""


class Dsdv:
    """DSDV on one node; a `Routing`."""

    control_type = RouteUpdate
    timer_types = (DumpTimer, AdvertTimer, RouteSettledTimer, BufferedPacketTimer)

    def __init__(
        self, node_id: NodeId, outbox: Outbox, rng: Random, config: DsdvConfig | None = None
    ) -> None:
        self._node_id = node_id
        self._outbox = outbox
        self._rng = rng
        self._config = config = config or DsdvConfig()
        self._sequence = 0
        self._table = RoutingTable(_DUMPS_MISSED_MAX * config.dump_interval_us)
        self._updates = UpdateQueue(rng)
        self._buffer = PacketBuffer(
            packets_max=config.buffer_max,
            per_destination_max=config.buffer_per_destination_max,
            wait_us_max=config.buffer_us_max,
        )
        self._failures: dict[NodeId, int] = {}
        extra_hops = config.weak_link_hops
        self._links = LinkQuality(extra_hops) if extra_hops else None
        self._corrected: set[NodeId] = set()
        """Neighbours that were sent a higher number of theirs since the last dump."""
        self._advert_timer_us: int | None = None
        self._settle_timer_us: int | None = None
        self.traffic = RoutingTraffic()
        # Bound methods: most updates change nothing and must be processed quickly.
        self._get_route = self._table.routes.get
        self._record_update_time = self._updates.receive_times_us.append
        self._ready = self._updates.ready

    def start(self, now_us: int) -> None:
        """Starts with a sequence number higher than any of an earlier incarnation."""
        self._sequence = 2 * max(0, now_us // self._config.restart_sequence_step_us)
        self._outbox.set_timer(DumpTimer(), now_us + self._draw_us(_FIRST_DUMP_US_MAX))

    def next_hop(self, destination: NodeId) -> NodeId | None:
        """The neighbour to which packets for a destination are sent; None without a route."""
        route = self._get_route(destination)
        return None if route is None else route.next_hop

    @property
    def routes(self) -> dict[NodeId, Route]:
        """The routes in use, by destination. Read only."""
        return self._table.routes

    @property
    def destinations(self) -> Collection[NodeId]:
        """The nodes to which there is a route."""
        return self._table.routes.keys()

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self._buffer.check()
        routes, updates = self._table.routes, self._updates
        assert self._node_id not in routes
        assert not self._sequence % 2
        assert len(routes) + len(self._table.lost_sequences) <= self._config.destinations_max
        assert not routes.keys() & self._table.lost_sequences.keys()
        assert not updates.ready.keys() & updates.settling.keys()
        for destination, route in routes.items():
            assert not route.sequence % 2
            assert route.hops > 0
            assert route.min_useful_sequence == (
                -1 if destination in updates.ready else route.sequence
            )
            settling = destination in updates.settling
            assert route.confirmed_by == (None if settling else route.next_hop)
        assert all(number % 2 for number in self._table.lost_sequences.values())

    # Received updates

    def on_control_message(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Processes an update; returns False if it changed nothing and nothing is pending.

        Most updates change nothing and take one or two microseconds.
        """
        assert isinstance(message, RouteUpdate)
        get_route = self._get_route
        changed = False
        if self._config.recover_sequence:
            self._check_sequence(sender, message)
        entries = message.entries
        if self._config.sequence_ahead_us_max is not None:
            entries = self._credible_entries(sender, entries, now_us)
        if self._links is not None and (extra := self._links.extra_hops(sender, now_us)):
            entries = tuple((node, sequence, hops + extra) for node, sequence, hops in entries)
        for destination, sequence, hops in entries:
            route = get_route(destination)
            if route is None or sequence > route.min_useful_sequence:
                changed = True
                self._process_entry(sender, destination, sequence, hops, now_us)
            elif sequence == route.min_useful_sequence:
                if hops < route.hops:
                    changed = True
                    self._process_entry(sender, destination, sequence, hops, now_us)
                elif route.confirmed_by == sender:
                    route.confirmed_us = now_us
        self._record_update_time(now_us)
        if changed or self._ready:
            self._set_timers(now_us)
            return True
        return False

    def _check_sequence(self, sender: NodeId, update: RouteUpdate) -> None:
        """Tells a neighbour that its sequence number is lower than one known here."""
        for destination, sequence, _ in update.entries[:1]:
            route = self._get_route(sender)
            known = route.sequence if route else self._table.lost_sequences.get(sender, 0)
            if destination == sender and sequence + 1 < known:
                self._outbox.send(sender, RouteUpdate(((sender, known, 1),)))

    def _credible_entries(
        self, sender: NodeId, entries: tuple[RouteEntry, ...], now_us: int
    ) -> tuple[RouteEntry, ...]:
        """The entries that one neighbour can know: its own; and those of nodes that are not
        neighbours of this one, with numbers that they can have reached."""
        ahead_us = self._config.sequence_ahead_us_max
        assert ahead_us is not None
        latest = 2 * ((now_us + ahead_us) // self._config.restart_sequence_step_us)
        credible: list[RouteEntry] = []
        for entry in entries:
            destination, sequence, hops = entry
            if destination == sender:
                if hops == 1 and not sequence % 2:
                    self._forget_later_sequence(sender, sequence)
                    credible.append(entry)
            elif sequence > latest:
                self.traffic.dropped["incredible route"] += 1
            elif not self._is_neighbour(destination, now_us):
                credible.append(entry)
            elif (
                sequence > self._table.routes[destination].sequence + 1
                and destination not in self._corrected
            ):
                # Others may believe it; its node continues after that number (M36).
                self._corrected.add(destination)
                self._outbox.send(destination, RouteUpdate(((destination, sequence, 1),)))
        return tuple(credible)

    def _is_neighbour(self, destination: NodeId, now_us: int) -> bool:
        """Whether a node is a neighbour whose own updates arrive."""
        route = self._get_route(destination)
        return (
            route is not None
            and route.next_hop == destination
            and now_us - route.confirmed_us <= _DUMPS_MISSED_MAX * self._config.dump_interval_us
        )

    def _forget_later_sequence(self, sender: NodeId, sequence: int) -> None:
        """Forgets a route to a neighbour with a number that the neighbour does not have."""
        route = self._get_route(sender)
        known = route.sequence if route else self._table.lost_sequences.get(sender, 0)
        if known <= sequence + 1:
            return
        self._table.forget(sender)
        self._updates.remove(sender)

    def _recover_sequence(self, sequence: int, now_us: int) -> None:
        """Continues after a sequence number of this node that a neighbour knows (M36)."""
        if self._config.recover_sequence and self._sequence < sequence < _SEQUENCE_MAX:
            self._sequence = sequence + sequence % 2
            self._outbox.set_timer(DumpTimer(), now_us + 1)

    def _process_entry(
        self, sender: NodeId, destination: NodeId, sequence: int, hops: int, now_us: int
    ) -> None:
        """Processes a route entry that may change a route or cancel a pending update."""
        if hops > self._config.hops_max:
            return
        route = self._get_route(destination)
        if route is None:
            self._add_route(sender, destination, sequence, hops, now_us)
            return
        update = self._updates.get(destination)
        known: PendingUpdate | Route = update or route
        if sequence % 2:
            if sequence > known.sequence and sender == route.next_hop:
                self._mark_lost(route, sequence)
                for other in self._table.routes_via(destination):
                    self._mark_lost(other, other.sequence + 1)
            elif update is not None:
                self._suppress(route, update)
        elif sequence > known.sequence and hops == known.hops:
            route.next_hop = route.confirmed_by = sender
            route.min_useful_sequence = -1
            self._updates.add(
                destination, PendingUpdate(sequence, hops, now_us, known.settling_time_us)
            )
        elif sequence > known.sequence or (sequence == known.sequence and hops < known.hops):
            self._start_settling(route, sender, sequence, hops, now_us)
        elif update is not None and not update.settled_at_us:
            if sequence == update.sequence and sender == route.next_hop:
                _apply_update(route, update)
                route.confirmed_us = now_us
                route.min_useful_sequence = -1
            self._suppress(route, update)

    def _add_route(
        self, sender: NodeId, destination: NodeId, sequence: int, hops: int, now_us: int
    ) -> None:
        """Adds a route to a destination to which there was none."""
        table = self._table
        if destination == self._node_id:
            self._recover_sequence(sequence, now_us)
            return
        if sequence % 2:
            return
        if sequence < table.lost_sequences.get(destination, 0):
            return
        if not table.make_space_for(self._config.destinations_max, destination):
            return
        settling_us = self._config.settling_us
        route = Route(destination, sender, sequence, hops, now_us, settling_us)
        route.min_useful_sequence = -1
        table.add(route)
        self._updates.add(destination, PendingUpdate(sequence, hops, now_us, settling_us))

    def _start_settling(
        self, route: Route, sender: NodeId, sequence: int, hops: int, now_us: int
    ) -> None:
        """Uses a route with a changed hop count now, and advertises it once it has settled."""
        weight = self._config.settling_weight
        age_us = max(0, now_us - route.confirmed_us)  # clocks may be set back
        settling_us = max(1, round(weight * route.settling_time_us + (1 - weight) * age_us))
        update = PendingUpdate(sequence, hops, now_us, settling_us, now_us + settling_us)
        route.next_hop = sender
        _apply_update(route, update)
        route.confirmed_by = None
        self._updates.add(route.destination, update)

    def _suppress(self, route: Route, update: PendingUpdate) -> None:
        """Cancels a pending update that a neighbour repeated, unless its hop count is settling."""
        if self._config.suppress_repeated and not update.settled_at_us:
            del self._updates.ready[route.destination]
            route.min_useful_sequence = route.sequence

    def _mark_lost(self, route: Route, sequence: int) -> None:
        """Marks a route as lost and queues the update that says so."""
        self._table.mark_lost(route, sequence)
        update = PendingUpdate(sequence, route.hops, route.confirmed_us, route.settling_time_us)
        self._updates.add(route.destination, update)

    # Sent updates

    def on_timer(self, timer: Timer, now_us: int) -> None:
        """Handles a timer of DSDV."""
        match timer:
            case AdvertTimer():
                self._advert_timer_us = None
                self._advertise(now_us)
            case RouteSettledTimer():
                self._settle_timer_us = None
                if self._updates.release_settled(now_us):
                    self._advertise(now_us)
            case DumpTimer():
                self._dump(now_us)
            case BufferedPacketTimer():
                self._send_next(timer.destination, now_us)
        self._set_timers(now_us)

    def _set_timers(self, now_us: int) -> None:
        if self._ready:
            at_us = self._updates.next_advert_us(now_us)
            if at_us is not None and (
                self._advert_timer_us is None or at_us < self._advert_timer_us
            ):
                self._advert_timer_us = at_us
                self._outbox.set_timer(AdvertTimer(), at_us)
        at_us = self._updates.next_settled_at_us()
        if at_us is not None and at_us != self._settle_timer_us:
            self._settle_timer_us = at_us
            self._outbox.set_timer(RouteSettledTimer(), at_us)

    def _advertise(self, now_us: int) -> None:
        entries: list[RouteEntry] = []
        for destination, update in self._ready.items():
            entries.append((destination, update.sequence, update.hops + 1))
            route = self._get_route(destination)
            if route is not None:
                _apply_update(route, update)
        self._ready.clear()
        if entries:
            self._broadcast(entries, now_us)

    def _dump(self, now_us: int) -> None:
        self._sequence += 2
        self._failures.clear()
        self._corrected.clear()
        self._drop_stale(now_us)
        entries: list[RouteEntry] = []
        for destination, update in self._ready.items():
            route = self._get_route(destination)
            if route is None:
                entries.append((destination, update.sequence, update.hops + 1))
            else:
                _apply_update(route, update)
        self._ready.clear()
        for destination, route in self._table.routes.items():
            entries.append((destination, route.sequence, route.hops + 1))
        self._broadcast(entries, now_us)
        at_us = now_us + self._config.dump_interval_us + self._draw_us(_DUMP_JITTER_US)
        self._outbox.set_timer(DumpTimer(), at_us)

    def _broadcast(self, entries: list[RouteEntry], now_us: int) -> None:
        """Broadcasts an update, whose first entry is the node itself."""
        update = RouteUpdate(((self._node_id, self._sequence, 1), *entries))
        self.traffic.control += 1
        self._outbox.broadcast(update)
        self._housekeep(now_us)

    def _housekeep(self, now_us: int) -> None:
        """Drops stale routes and sends buffered packets; called before each transmission."""
        self._drop_stale(now_us)
        if self._buffer:
            if expired := self._buffer.drop_expired(now_us):
                self.traffic.dropped["waited too long"] += expired
            for destination in self._buffer.destinations:
                self._send_next(destination, now_us)

    def _drop_stale(self, now_us: int) -> None:
        stale = self._table.stale_routes(now_us)
        for route in stale:
            self._mark_lost(route, route.sequence + 1)
        if stale:
            self._record_update_time(now_us)
            self._set_timers(now_us)

    # Packets

    def send(self, packet: Packet, now_us: int) -> None:
        """Sends a packet of this node, or buffers it until there is a route."""
        self._housekeep(now_us)
        next_hop = self.next_hop(packet.destination)
        if next_hop is not None:
            self.traffic.sent += 1
            self._send_to(next_hop, packet, now_us)
        elif not self._buffer.add(packet, now_us):
            self.traffic.dropped["too many wait"] += 1

    def forward(self, packet: Packet, now_us: int) -> None:
        """Forwards a packet of another node, or drops it if there is no route."""
        next_hop = self.next_hop(packet.destination)
        if next_hop is None:
            self.traffic.dropped["no route"] += 1
        else:
            self.traffic.forwarded += 1
            self._send_to(next_hop, packet, now_us)

    def _send_to(self, next_hop: NodeId, packet: Packet, now_us: int) -> None:
        if self._links is not None:
            self._links.count_sent(next_hop, now_us)
        self._outbox.send(next_hop, packet)

    def _send_next(self, destination: NodeId, now_us: int) -> None:
        """Sends the first buffered packet for a destination, and schedules the next one."""
        next_hop = self.next_hop(destination)
        if next_hop is None or destination not in self._buffer:
            return
        self.traffic.sent += 1
        self._send_to(next_hop, self._buffer.pop(destination), now_us)
        if destination in self._buffer:
            at_us = now_us + self._draw_us(self._config.buffer_spacing_us_max)
            self._outbox.set_timer(BufferedPacketTimer(destination), at_us)

    def on_send_failed(self, to: NodeId, packet: Packet, now_us: int) -> None:
        """Counts a packet that a neighbour did not acknowledge as lost.

        With `failures_max`, also marks the routes via that neighbour as lost. By default routes
        do not change, as in ns-3.
        """
        self.traffic.dropped["link"] += 1
        if self._links is not None:
            self._links.count_lost(to, now_us)
        if self._config.failures_max is None:
            return
        failures = self._failures[to] = self._failures.get(to, 0) + 1
        if failures >= self._config.failures_max:
            del self._failures[to]
            for route in self._table.routes_via(to):
                self._mark_lost(route, route.sequence + 1)
            self._record_update_time(now_us)
            self._set_timers(now_us)

    def _draw_us(self, us_max: int) -> int:
        return int(self._rng.random() * (us_max + 1))


def _apply_update(route: Route, update: PendingUpdate) -> None:
    """Copies a pending update, now advertised, into its route."""
    route.sequence = route.min_useful_sequence = update.sequence
    route.hops = update.hops
    route.confirmed_us = update.received_us
    route.settling_time_us = update.settling_time_us
    route.confirmed_by = route.next_hop
