"""Station link: how a mobile node finds its base station, keeps in touch, and notices its loss.

Entry point: `StationLink`. A node without a station broadcasts world probes; the first station to
answer is the nearest. The node then probes that station alone, now and then: an answer brings the
number of cells, silence means that the station is lost, and the node goes on peer to peer while it
searches again.
Clauses: I2, I3, I27, B8.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.stations import CreateWorld, WorldEntry, WorldList, WorldProbe
from thyme.protocol.outbox import Outbox
from thyme.protocol.results import Ok, Result
from thyme.substrates.infra.requests import StationRequests, Wrap


class ProbeTimer(msgspec.Struct, frozen=True):
    """The next world probe."""


class StationLinkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the search for a station."""

    search_us: int = SECOND_US
    """The time between two probes of a node that just lost its station or has just started."""
    search_tries: int = 5
    """How often a node probes at that rate before it probes rarely (I2)."""
    idle_search_us: int = 10 * SECOND_US
    """The time between two probes of a node that found no station."""
    keep_alive_us: int = 3 * SECOND_US
    """The time between two probes of the own station."""
    accepted: tuple[NodeId, ...] = ()
    """The stations that the node uses; empty: the first one to answer."""


class StationLink:
    """The station of one mobile node, if there is one."""

    def __init__(
        self,
        world_name: str,
        outbox: Outbox,
        rng: Random,
        requests: StationRequests,
        wrap: Wrap,
        config: StationLinkConfig,
        on_world: Callable[[WorldEntry, int | None, int], None],
        on_station: Callable[[NodeId | None, int], None],
    ) -> None:
        """`on_world` receives the world's entry of each answer and the length of a cycle of cell
        data, `on_station` the new station, or None after its loss."""
        self._world_name = world_name
        self._outbox = outbox
        self._rng = rng
        self._requests = requests
        self._wrap = wrap
        self._config = config
        self._on_world = on_world
        self._on_station = on_station
        self.station: NodeId | None = None
        self._tries = 0
        self._probe_id = 0
        self._incarnation = 0
        self.losses = 0
        self.refused = 0
        """Answers of stations that the node does not accept."""

    def start(self, now_us: int) -> None:
        """Starts to search."""
        self._tries = 0
        self._outbox.set_timer(ProbeTimer(), now_us + self._rng.randint(0, SECOND_US // 10))

    def on_timer(self, now_us: int) -> None:
        """Probes the own station, or searches for one."""
        if self.station is not None:
            request_id = self._requests.next_id()
            probe = WorldProbe(request_id)
            self._requests.send(self.station, request_id, probe, now_us, self._on_alive)
            return
        self._tries += 1
        self._probe_id = self._requests.next_id()
        self._outbox.broadcast(self._wrap(WorldProbe(self._probe_id)))
        rarely = self._tries >= self._config.search_tries
        wait_us = self._config.idle_search_us if rarely else self._config.search_us
        self._outbox.set_timer(ProbeTimer(), now_us + wait_us)

    def on_world_list(self, sender: NodeId, message: WorldList, now_us: int) -> None:
        """Handles the answer to a search: the first station to answer is the nearest (I2)."""
        if self.station is not None or message.request_id != self._probe_id:
            return
        if self._config.accepted and sender not in self._config.accepted:
            self.refused += 1
            return
        self.station = sender
        self._incarnation = message.incarnation
        self._tries = 0
        self._schedule_keep_alive(now_us)
        self._take_worlds(message, now_us)
        self._on_station(sender, now_us)

    def report_loss(self, now_us: int) -> None:
        """The station did not answer a request: the node is on its own until it finds one (B8)."""
        lost = self.station
        if lost is not None:
            self.station = None
            self.losses += 1
            self._on_station(None, now_us)
            self._requests.fail_all(lost, now_us)
            self.start(now_us)

    def _schedule_keep_alive(self, now_us: int) -> None:
        wait_us = self._config.keep_alive_us
        wait_us += self._rng.randint(-wait_us // 4, wait_us // 4)
        self._outbox.set_timer(ProbeTimer(), now_us + wait_us)

    def _on_alive(self, result: Result[Message], now_us: int) -> None:
        if isinstance(result, Ok) and isinstance(result.value, WorldList):
            self._schedule_keep_alive(now_us)
            self._take_worlds(result.value, now_us)
            if result.value.incarnation != self._incarnation:  # it restarted with empty caches
                self._incarnation = result.value.incarnation
                self._on_station(self.station, now_us)
        elif self.station is not None:
            self.report_loss(now_us)

    def _take_worlds(self, message: WorldList, now_us: int) -> None:
        entry = next((each for each in message.worlds if each.name == self._world_name), None)
        if entry is not None:
            self._on_world(entry, message.cell_data_us, now_us)
        elif self.station is not None:
            request_id = self._requests.next_id()
            request = CreateWorld(request_id, self._world_name)
            self._requests.send(self.station, request_id, request, now_us, self._on_created)

    def _on_created(self, result: Result[Message], now_us: int) -> None:
        """Takes the created world; after a failure, the next answer to a probe asks again."""
        if isinstance(result, Ok) and isinstance(result.value, WorldList):
            for entry in result.value.worlds:
                if entry.name == self._world_name:
                    self._on_world(entry, result.value.cell_data_us, now_us)
