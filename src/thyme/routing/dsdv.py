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

from random import Random

from thyme.model.ids import NodeId
from thyme.protocol.messages import Hearsay, Message, Packet, RouteUpdate
from thyme.protocol.node import Timer
from thyme.protocol.outbox import Outbox
from thyme.routing.dsdv_config import DsdvConfig, DumpDue, NewsDue, SettleDue, WaitingDue
from thyme.routing.news import News, NewsDesk
from thyme.routing.routing import Traffic
from thyme.routing.table import Route, Table
from thyme.routing.waiting import Waiting


class Dsdv:
    """DSDV on one node; a `Routing`."""

    control = RouteUpdate
    timers = (DumpDue, NewsDue, SettleDue, WaitingDue)

    def __init__(
        self, node_id: NodeId, outbox: Outbox, rng: Random, config: DsdvConfig | None = None
    ) -> None:
        self._node_id = node_id
        self._outbox = outbox
        self._rng = rng
        self._config = config = config or DsdvConfig()
        self._sequence = 0
        self._table = Table(config.dumps_missed_max * config.dump_every_us)
        self._desk = NewsDesk(rng, config.update_jitter_us)
        self._waiting = Waiting(
            packets_max=config.waiting_max,
            per_destination_max=config.waiting_per_destination_max,
            wait_us_max=config.waiting_us_max,
        )
        self._failures: dict[NodeId, int] = {}
        self._news_timer_us: int | None = None
        self._settle_timer_us: int | None = None
        self.traffic = Traffic()
        # Bound methods: most updates change nothing and must be processed quickly.
        self._find = self._table.routes.get
        self._note = self._desk.heard.append
        self._fresh = self._desk.fresh

    def start(self, now_us: int) -> None:
        """Starts with a sequence number higher than any of an earlier incarnation."""
        self._sequence = 2 * max(0, now_us // self._config.lives_apart_us)
        self._outbox.set_timer(DumpDue(), now_us + self._draw(self._config.first_dump_us_max))

    def next_hop(self, destination: NodeId) -> NodeId | None:
        """The neighbour to which packets for a destination are sent; None without a route."""
        route = self._find(destination)
        return None if route is None else route.next_hop

    @property
    def routes(self) -> dict[NodeId, Route]:
        """The routes in use, by destination. Read only."""
        return self._table.routes

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self._waiting.check()
        routes, desk = self._table.routes, self._desk
        assert self._node_id not in routes
        assert not self._sequence % 2
        assert len(routes) + len(self._table.lost) <= self._config.destinations_max
        assert not routes.keys() & self._table.lost.keys()
        assert not desk.fresh.keys() & desk.settling.keys()
        for destination, route in routes.items():
            assert not route.sequence % 2
            assert route.hops > 0
            assert route.bar == (-1 if destination in desk.fresh else route.sequence)
            settling = destination in desk.settling
            assert route.teller == (None if settling else route.next_hop)
        assert all(number % 2 for number in self._table.lost.values())

    # Received updates

    def hear(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Processes an update; returns False if it changed nothing and nothing is pending.

        Most updates change nothing and take one or two microseconds.
        """
        assert isinstance(message, RouteUpdate)
        find = self._find
        changed = False
        for destination, sequence, hops in message.entries:
            route = find(destination)
            if route is None or sequence > route.bar:
                changed = True
                self._learn(sender, destination, sequence, hops, now_us)
            elif sequence == route.bar:
                if hops < route.hops:
                    changed = True
                    self._learn(sender, destination, sequence, hops, now_us)
                elif route.teller == sender:
                    route.heard_us = now_us
        self._note(now_us)
        if changed or self._fresh:
            self._set_timers(now_us)
            return True
        return False

    def _learn(
        self, sender: NodeId, destination: NodeId, sequence: int, hops: int, now_us: int
    ) -> None:
        """Processes a route entry that may change a route or cancel a pending update."""
        if hops > self._config.hops_max:
            return
        route = self._find(destination)
        if route is None:
            self._find_out(sender, destination, sequence, hops, now_us)
            return
        news = self._desk.find(destination)
        known: News | Route = news or route
        if sequence % 2:
            if sequence > known.sequence and sender == route.next_hop:
                self._lose(route, sequence)
                for other in self._table.over(destination):
                    self._lose(other, other.sequence + 1)
            elif news is not None:
                self._take_back(route, news)
        elif sequence > known.sequence and hops == known.hops:
            route.next_hop = route.teller = sender
            route.bar = -1
            self._desk.put(destination, News(sequence, hops, now_us, known.settling_us))
        elif sequence > known.sequence or (sequence == known.sequence and hops < known.hops):
            self._let_settle(route, sender, sequence, hops, now_us)
        elif news is not None and not news.settles_us:
            if sequence == news.sequence and sender == route.next_hop:
                _merge(route, news)
                route.heard_us = now_us
                route.bar = -1
            self._take_back(route, news)

    def _find_out(
        self, sender: NodeId, destination: NodeId, sequence: int, hops: int, now_us: int
    ) -> None:
        """Adds a route to a destination to which there was none."""
        table = self._table
        if destination == self._node_id or sequence % 2:
            return
        if sequence < table.lost.get(destination, 0):
            return
        if not table.has_room(self._config.destinations_max, destination):
            return
        settling_us = self._config.settling_us
        route = Route(destination, sender, sequence, hops, now_us, settling_us)
        route.bar = -1
        table.add(route)
        self._desk.put(destination, News(sequence, hops, now_us, settling_us))

    def _let_settle(
        self, route: Route, sender: NodeId, sequence: int, hops: int, now_us: int
    ) -> None:
        """Uses a route with a changed hop count now, and advertises it once it has settled."""
        weight = self._config.settling_weight
        age_us = max(0, now_us - route.heard_us)  # clocks may be set back
        settling_us = max(1, round(weight * route.settling_us + (1 - weight) * age_us))
        news = News(sequence, hops, now_us, settling_us, now_us + settling_us)
        route.next_hop = sender
        _merge(route, news)
        route.teller = None
        self._desk.put(route.destination, news)

    def _take_back(self, route: Route, news: News) -> None:
        """Cancels a pending update that a neighbour repeated, unless its hop count is settling."""
        if self._config.take_back and not news.settles_us:
            del self._desk.fresh[route.destination]
            route.bar = route.sequence

    def _lose(self, route: Route, sequence: int) -> None:
        """Marks a route as lost and queues the update that says so."""
        self._table.give_up(route, sequence)
        news = News(sequence, route.hops, route.heard_us, route.settling_us)
        self._desk.put(route.destination, news)

    # Sent updates

    def on_timer(self, timer: Timer, now_us: int) -> None:
        """Handles a timer of DSDV."""
        match timer:
            case NewsDue():
                self._news_timer_us = None
                self._tell_news(now_us)
            case SettleDue():
                self._settle_timer_us = None
                if self._desk.settle(now_us):
                    self._tell_news(now_us)
            case DumpDue():
                self._dump(now_us)
            case WaitingDue():
                self._send_one(timer.destination, now_us)
        self._set_timers(now_us)

    def _set_timers(self, now_us: int) -> None:
        if self._fresh:
            at_us = self._desk.occasion_us(now_us)
            if at_us is not None and (self._news_timer_us is None or at_us < self._news_timer_us):
                self._news_timer_us = at_us
                self._outbox.set_timer(NewsDue(), at_us)
        at_us = self._desk.settles_us()
        if at_us is not None and at_us != self._settle_timer_us:
            self._settle_timer_us = at_us
            self._outbox.set_timer(SettleDue(), at_us)

    def _tell_news(self, now_us: int) -> None:
        entries: list[Hearsay] = []
        for destination, news in self._fresh.items():
            entries.append((destination, news.sequence, news.hops + 1))
            route = self._find(destination)
            if route is not None:
                _merge(route, news)
        self._fresh.clear()
        if entries:
            self._broadcast(entries, now_us)

    def _dump(self, now_us: int) -> None:
        self._sequence += 2
        self._failures.clear()
        self._drop_stale(now_us)
        entries: list[Hearsay] = []
        for destination, news in self._fresh.items():
            route = self._find(destination)
            if route is None:
                entries.append((destination, news.sequence, news.hops + 1))
            else:
                _merge(route, news)
        self._fresh.clear()
        for destination, route in self._table.routes.items():
            entries.append((destination, route.sequence, route.hops + 1))
        self._broadcast(entries, now_us)
        config = self._config
        at_us = now_us + config.dump_every_us + self._draw(config.dump_jitter_us)
        self._outbox.set_timer(DumpDue(), at_us)

    def _broadcast(self, entries: list[Hearsay], now_us: int) -> None:
        """Broadcasts an update, whose first entry is the node itself."""
        update = RouteUpdate(((self._node_id, self._sequence, 1), *entries))
        self.traffic.control += 1
        self._outbox.broadcast(update)
        self._freshen(now_us)

    def _freshen(self, now_us: int) -> None:
        """Drops stale routes and sends buffered packets; called before each transmission."""
        self._drop_stale(now_us)
        if self._waiting:
            if expired := self._waiting.expire(now_us):
                self.traffic.dropped["waited too long"] += expired
            for destination in self._waiting.destinations:
                self._send_one(destination, now_us)

    def _drop_stale(self, now_us: int) -> None:
        stale = self._table.stale(now_us)
        for route in stale:
            self._lose(route, route.sequence + 1)
        if stale:
            self._note(now_us)
            self._set_timers(now_us)

    # Packets

    def send(self, packet: Packet, now_us: int) -> None:
        """Sends a packet of this node, or buffers it until there is a route."""
        self._freshen(now_us)
        next_hop = self.next_hop(packet.destination)
        if next_hop is not None:
            self.traffic.sent += 1
            self._outbox.send(next_hop, packet)
        elif not self._waiting.put(packet, now_us):
            self.traffic.dropped["too many wait"] += 1

    def forward(self, packet: Packet, now_us: int) -> None:
        """Forwards a packet of another node, or drops it if there is no route."""
        next_hop = self.next_hop(packet.destination)
        if next_hop is None:
            self.traffic.dropped["no route"] += 1
        else:
            self.traffic.forwarded += 1
            self._outbox.send(next_hop, packet)

    def _send_one(self, destination: NodeId, now_us: int) -> None:
        """Sends the first buffered packet for a destination, and schedules the next one."""
        next_hop = self.next_hop(destination)
        if next_hop is None or destination not in self._waiting:
            return
        self.traffic.sent += 1
        self._outbox.send(next_hop, self._waiting.take(destination))
        if destination in self._waiting:
            at_us = now_us + self._draw(self._config.waiting_apart_us_max)
            self._outbox.set_timer(WaitingDue(destination), at_us)

    def on_send_failed(self, to: NodeId, packet: Packet, now_us: int) -> None:
        """Counts a packet that a neighbour did not acknowledge as lost.

        With `failures_max`, also marks the routes via that neighbour as lost. By default routes
        do not change, as in ns-3.
        """
        self.traffic.dropped["link"] += 1
        if self._config.failures_max is None:
            return
        failures = self._failures[to] = self._failures.get(to, 0) + 1
        if failures >= self._config.failures_max:
            del self._failures[to]
            for route in self._table.over(to):
                self._lose(route, route.sequence + 1)
            self._note(now_us)
            self._set_timers(now_us)

    def _draw(self, most: int) -> int:
        return int(self._rng.random() * (most + 1))


def _merge(route: Route, news: News) -> None:
    """Copies a pending update, now advertised, into its route."""
    route.sequence = route.bar = news.sequence
    route.hops = news.hops
    route.heard_us = news.heard_us
    route.settling_us = news.settling_us
    route.teller = route.next_hop
