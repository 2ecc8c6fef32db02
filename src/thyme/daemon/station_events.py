"""Station events: what a live station tells the analytics, and what it learns from them.

Entry points: `StationEventExport`, `PopularTagsFile`. Looks into the caches, mobile nodes that come
and go, and the load are exported as those of nodes are (`event_export`): in a thread, and without
delay. In return the station reads the popular tags that the analytics keep in a file, and asks the
other stations for objects with them, although its visitors may not subscribe to these tags yet.
Clauses: I9, I17, I29, P9.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from thyme.daemon.logs import log_warning
from thyme.events.background import BackgroundWriter
from thyme.events.popular_tags import PopularTagsError, read_popular_tags
from thyme.events.recorder import EventRecorder
from thyme.events.segments import EventStats, SegmentWriter
from thyme.live.station.open_station import LiveStation
from thyme.model.errors import InputError
from thyme.model.ids import Key, NodeId
from thyme.model.tags import Tag, as_tag
from thyme.model.worlds import INFRA, named_world_id
from thyme.substrates.infra.world_numbers import world_number

LOAD_EVERY_US = 10_000_000
STATION_WORLD = "stations"
"""The world of events that belong to a station and to no world."""
READ_TAGS_EVERY_US = 10_000_000
TAGS_AGE_US_MAX = 600_000_000
"""An older file counts as empty: popularity that nobody measures any more is not acted on."""
_NODE_DIGITS = 16


class StationEventExport:
    """The events of one live station."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._live: LiveStation | None = None
        self._mobiles: list[NodeId] = []
        self._load_us = 0
        self._counted = (0, 0, 0, 0)

    def start(self, live: LiveStation, now_us: int) -> None:
        """Records the start of the station."""
        self._live = live
        self._node_id = live.node.node_id
        family = self._node_id.hex()[:_NODE_DIGITS]
        writer = f"{family}-{secrets.token_hex(4)}"
        self._writer = BackgroundWriter(SegmentWriter(self._folder, writer, family=family))
        self._recorder = EventRecorder(
            writer, STATION_WORLD, self._writer.put, lambda node, key: False
        )
        self._recorder.on_started(self._node_id, now_us)
        self._load_us = now_us

    def on_download(self, world: int, key: Key, cache: str | None, now_us: int) -> None:
        """Records which caches had an object and which had not."""
        if self._live is None:
            return
        worlds = self._live.node.context.worlds
        world_id = named_world_id(INFRA, worlds[world].name) if world in worlds else STATION_WORLD
        self._recorder.on_download(self._node_id, world_id, key, cache, now_us)

    def sample(self, now_us: int) -> None:
        """Records mobile nodes that came or left, and every ten seconds the load."""
        assert self._live is not None
        current = self._live.links.mobiles.neighbours
        self._mobiles = self._recorder.on_neighbours(self._node_id, self._mobiles, current, now_us)
        if now_us - self._load_us >= LOAD_EVERY_US:
            self._record_load(now_us)

    def stop(self, now_us: int) -> None:
        """Records the end of the station and writes everything that is queued."""
        self._record_load(now_us)
        self._recorder.on_stopped(self._node_id, now_us)
        self._writer.close()

    def read_stats(self) -> EventStats:
        """The numbers of written and dropped events."""
        return self._writer.read_stats()

    def _record_load(self, now_us: int) -> None:
        assert self._live is not None
        self._load_us = now_us
        sockets = self._live.sockets
        counted = (
            sockets.datagrams["out"],
            sockets.datagrams["in"],
            sockets.bytes["out"],
            sockets.bytes["in"],
        )
        new = [count - before for count, before in zip(counted, self._counted, strict=True)]
        self._counted = counted
        self._recorder.on_load(
            self._node_id,
            now_us,
            neighbours=len(self._mobiles),
            sent=new[0],
            received=new[1],
            sent_bytes=new[2],
            received_bytes=new[3],
        )


class PopularTagsFile:
    """The popular tags that one station acts on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_us: int | None = None
        self._problem: str | None = None

    def update(self, live: LiveStation, now_us: int) -> None:
        """Reads the file from time to time; a file that cannot be read is logged once."""
        if self._read_us is not None and 0 <= now_us - self._read_us < READ_TAGS_EVERY_US:
            return
        self._read_us = now_us
        problem = None
        try:
            tags = read_popular_tags(self._file, now_us=now_us, age_us_max=TAGS_AGE_US_MAX)
        except (PopularTagsError, OSError) as error:
            problem, tags = str(error), ()
            if problem != self._problem:
                log_warning("popular_tags_unreadable", why=problem)
        self._problem = problem
        names = [entry.name for entry in live.node.context.worlds.entries()]
        worlds = {named_world_id(INFRA, name): world_number(name) for name in names}
        live.node.needs.set_popular(
            {
                (worlds[each.world], tag): each.retrieves
                for each in tags
                if each.world in worlds
                and each.retrieves > 0
                and (tag := _find_tag(each.tag)) is not None
            }
        )


def _find_tag(text: str) -> Tag | None:
    try:
        return as_tag(text)
    except InputError:
        return None
