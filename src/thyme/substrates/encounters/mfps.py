"""MFPS: Mobility Friendly Publish/Subscribe, a rival of MobUser (U7).

Entry point: `Mfps`. Devices send heartbeats with their topics and speed. Devices that share a topic
tell each other the keys of their events in it, and then send the events that the other lacks: one
round more than MobUser. A device keeps only events of its user's topics. The heartbeat period
follows the speed of the neighbours. Source: the MobUser paper. The order of messages and the way
the period follows the speed are our reading of it and of the abstract of S. Baehni, C. S. Chhabra,
R. Guerraoui, "Frugal event dissemination in a mobile environment", Middleware 2005.
Clause: U7.
"""

from __future__ import annotations

import math

from thyme.model.ids import NodeId
from thyme.model.positions import Position
from thyme.model.tags import Tag
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.encounters import (
    SPEED_CM_S_MAX,
    EncounterEvents,
    Heartbeat,
    HeldEvents,
)
from thyme.protocol.node import Timer
from thyme.substrates.encounters.config import (
    EVENTS_PER_EXCHANGE_MAX,
    EXCHANGES_PER_MINUTE_MAX,
    MfpsConfig,
)
from thyme.substrates.encounters.dissemination import NodeServices, ReplyLimit, is_acceptable
from thyme.substrates.encounters.event_memory import Reception, SingleList
from thyme.substrates.encounters.events import CarriedEvent, pack_events, unpack_events

FIX_US_MIN = SECOND_US
"""Shortest time between two positions from which a speed is computed."""


class Mfps:
    """The MFPS protocol of one device; a `Dissemination`."""

    def __init__(self, services: NodeServices, config: MfpsConfig) -> None:
        self._services = services
        self._config = config
        self.memory = SingleList(config.memory_events, config.when_full)
        self.user_topics: frozenset[Tag] = frozenset()
        self.exchanges = 0
        self._fix: tuple[Position, int] | None = None
        self._speed_cm_s: int | None = None
        self._neighbour_speeds_cm_s: list[int] = []
        self._reply_limit = ReplyLimit(EXCHANGES_PER_MINUTE_MAX)

    @property
    def discovery_us(self) -> int:
        """The time in which neighbours move a given distance at their mean speed."""
        config, speeds = self._config, self._neighbour_speeds_cm_s
        if not speeds:
            return config.discovery_us
        mean_m_s = sum(speeds) / len(speeds) / 100
        if mean_m_s == 0:
            return config.discovery_us_max
        period_us = int(config.metres_per_period / mean_m_s * SECOND_US)
        return min(max(period_us, config.discovery_us_min), config.discovery_us_max)

    def discover(self, now_us: int) -> None:
        self.memory.drop_expired(now_us)
        self._neighbour_speeds_cm_s = []
        topics = tuple(sorted(self.user_topics))
        self._services.outbox.broadcast(Heartbeat(topics, self._speed_cm_s))

    def on_message(self, sender: NodeId, message: Message, now_us: int) -> bool:
        match message:
            case Heartbeat():
                self._on_heartbeat(sender, message, now_us)
            case HeldEvents():
                self._on_held_events(sender, message, now_us)
            case EncounterEvents():
                self._on_events(message, now_us)
            case _:
                return False
        return True

    def on_timer(self, timer: Timer, now_us: int) -> None:
        """MFPS has no timers besides heartbeats."""

    def on_send_failed(self, to: NodeId) -> None:
        """MFPS keeps nothing about its neighbours that a lost message would change."""

    def on_position(self, position: Position, now_us: int) -> None:
        if self._fix is not None:
            (x, y), since_us = self._fix
            if now_us - since_us < FIX_US_MIN:
                return
            metres = math.hypot(position[0] - x, position[1] - y)
            speed_cm_s = round(metres * 100 * SECOND_US / (now_us - since_us))
            self._speed_cm_s = min(speed_cm_s, SPEED_CM_S_MAX)
        self._fix = position, now_us

    def _on_heartbeat(self, sender: NodeId, message: Heartbeat, now_us: int) -> None:
        self._record_speed(message.speed_cm_s)
        if self.user_topics.isdisjoint(message.topics) and not self._has_events(message.topics):
            return
        if not self._reply_limit.allows_reply(now_us):
            self._services.dropped["too many exchanges"] += 1
            return
        self._send_held_events(sender, message.topics, is_reply=True)

    def _on_held_events(self, sender: NodeId, message: HeldEvents, now_us: int) -> None:
        self._record_speed(message.speed_cm_s)
        held = set(message.keys)
        events = [
            event
            for event in self.memory.matching(frozenset(message.topics))
            if event.key not in held
        ][:EVENTS_PER_EXCHANGE_MAX]
        if message.is_reply:
            self._send_held_events(sender, message.topics, is_reply=False)
        if events:
            items, data = pack_events(events)
            self._services.outbox.send(sender, EncounterEvents(0, items, data))

    def _send_held_events(
        self, neighbour: NodeId, topics: tuple[Tag, ...], *, is_reply: bool
    ) -> None:
        keys = tuple(event.key for event in self.memory.matching(frozenset(topics)))
        own_topics = tuple(sorted(self.user_topics))
        self._services.outbox.send(
            neighbour, HeldEvents(own_topics, self._speed_cm_s, keys, is_reply)
        )

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
            if self.user_topics.isdisjoint(event.topics):
                services.dropped["events in no user topic"] += 1
            elif not is_acceptable(event, services.limits, now_us):
                services.dropped["unacceptable events"] += 1
            else:
                self._receive(event, now_us)

    def _receive(self, event: CarriedEvent, now_us: int) -> None:
        match self.memory.receive(event):
            case Reception.NEW:
                self._services.on_new_event(event, now_us)
            case Reception.DROPPED:
                self._services.dropped["memory full"] += 1

    def _has_events(self, topics: tuple[Tag, ...]) -> bool:
        wanted = frozenset(topics)
        return any(not wanted.isdisjoint(event.topics) for event in self.memory)

    def _record_speed(self, speed_cm_s: int | None) -> None:
        if speed_cm_s is not None and len(self._neighbour_speeds_cm_s) < EXCHANGES_PER_MINUTE_MAX:
            self._neighbour_speeds_cm_s.append(speed_cm_s)

    def check(self) -> None:
        self.memory.check()
