"""RAPID: probabilistic gossip that is blind to topics, a rival of MobUser (U7).

Entry point: `Rapid`. A device counts its neighbours, then broadcasts each of its events with a
probability that falls with their number; so do the neighbours that it discovered, as encounters are
exchanges in both directions. A device that receives a new event forwards it in the same way after a
random wait. Without neighbours it sends nothing but its probe. Source: the MobUser paper. That the
probability falls with the number of neighbours is in the abstract of V. Drabkin, R. Friedman,
G. Kliot, M. Segal, "RAPID: Reliable probabilistic dissemination in wireless ad-hoc networks", SRDS
2007; the value of the probability and the gossip of discovered neighbours are our choices. Its
corrective gossip of message headers is left out: the MobUser paper describes RAPID as pure gossip.
Clause: U7.
"""

from __future__ import annotations

from thyme.model.ids import Key, NodeId
from thyme.model.positions import Position
from thyme.model.tags import Tag
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.encounters import EncounterEvents, NeighbourProbe
from thyme.protocol.node import Timer
from thyme.substrates.encounters.config import (
    EVENTS_PER_EXCHANGE_MAX,
    EXCHANGES_PER_MINUTE_MAX,
    RapidConfig,
)
from thyme.substrates.encounters.dissemination import (
    ForwardTimer,
    GossipTimer,
    NodeServices,
    ReplyGossipTimer,
    ReplyLimit,
    is_acceptable,
)
from thyme.substrates.encounters.event_memory import Reception, SingleList
from thyme.substrates.encounters.events import CarriedEvent, pack_events, unpack_events


class Rapid:
    """The RAPID protocol of one device; a `Dissemination`."""

    def __init__(self, services: NodeServices, config: RapidConfig) -> None:
        self._services = services
        self._config = config
        self.memory = SingleList(config.memory_events, config.when_full)
        self.user_topics: frozenset[Tag] = frozenset()
        self.exchanges = 0
        self._neighbours: set[NodeId] = set()
        self._neighbours_before = 1
        """The number of neighbours at the last discovery, at least 1."""
        self._to_forward: list[Key] = []
        self._replying = False
        """Whether a gossip for a neighbour's discovery is due."""
        self._reply_limit = ReplyLimit(EXCHANGES_PER_MINUTE_MAX)

    @property
    def discovery_us(self) -> int:
        return self._config.discovery_us

    def discover(self, now_us: int) -> None:
        self.memory.drop_expired(now_us)
        self._neighbours.clear()
        self._services.outbox.broadcast(NeighbourProbe(False))
        self._services.outbox.set_timer(GossipTimer(), now_us + self._config.replies_us)

    def on_message(self, sender: NodeId, message: Message, now_us: int) -> bool:
        match message:
            case NeighbourProbe():
                self._on_probe(sender, message, now_us)
            case EncounterEvents():
                self._on_events(message, now_us)
            case _:
                return False
        return True

    def on_timer(self, timer: Timer, now_us: int) -> None:
        match timer:
            case GossipTimer():
                if self._neighbours:
                    self._neighbours_before = len(self._neighbours)
                    self._gossip(list(self.memory))
            case ReplyGossipTimer():
                self._replying = False
                self._gossip(list(self.memory))
            case ForwardTimer():
                events = [self.memory.get(key) for key in self._to_forward]
                self._to_forward = []
                self._gossip([event for event in events if event is not None])

    def on_send_failed(self, to: NodeId) -> None:
        """RAPID keeps nothing about its neighbours that a lost message would change."""

    def on_position(self, position: Position, now_us: int) -> None:
        """RAPID does not use positions."""

    def _on_probe(self, sender: NodeId, message: NeighbourProbe, now_us: int) -> None:
        if message.is_reply:
            if len(self._neighbours) < EXCHANGES_PER_MINUTE_MAX:
                self._neighbours.add(sender)
        elif self._reply_limit.allows_reply(now_us):
            self._services.outbox.send(sender, NeighbourProbe(True))
            if not self._replying:
                self._replying = True
                at_us = now_us + self._config.replies_us
                self._services.outbox.set_timer(ReplyGossipTimer(), at_us)
        else:
            self._services.dropped["too many exchanges"] += 1

    def _gossip(self, events: list[CarriedEvent]) -> None:
        """Broadcasts each event with a probability that falls with the number of neighbours."""
        services = self._services
        probability = min(1.0, self._config.forwarders_expected / self._neighbours_before)
        chosen = [event for event in events if services.rng.random() < probability]
        if chosen:
            items, data = pack_events(chosen[:EVENTS_PER_EXCHANGE_MAX])
            services.outbox.broadcast(EncounterEvents(0, items, data))

    def _on_events(self, message: EncounterEvents, now_us: int) -> None:
        self.exchanges += 1
        services = self._services
        flooded = len(message.items) - EVENTS_PER_EXCHANGE_MAX
        if flooded > 0:
            services.dropped["flooded events"] += flooded
        events, corrupt = unpack_events(
            message.items[:EVENTS_PER_EXCHANGE_MAX], message.data, self.memory.get
        )
        if corrupt:
            services.dropped["corrupt events"] += corrupt
        for event in events:
            if is_acceptable(event, services.limits, now_us):
                self._receive(event, now_us)
            else:
                services.dropped["unacceptable events"] += 1

    def _receive(self, event: CarriedEvent, now_us: int) -> None:
        services = self._services
        match self.memory.receive(event):
            case Reception.NEW:
                if not self.user_topics.isdisjoint(event.topics):
                    services.on_new_event(event, now_us)
                if not self._to_forward:
                    wait_us = int(services.rng.random() * self._config.forward_us_max)
                    services.outbox.set_timer(ForwardTimer(), now_us + wait_us)
                self._to_forward.append(event.key)
            case Reception.DROPPED:
                services.dropped["memory full"] += 1

    def check(self) -> None:
        self.memory.check()
        assert len(self._to_forward) <= EVENTS_PER_EXCHANGE_MAX * EXCHANGES_PER_MINUTE_MAX
