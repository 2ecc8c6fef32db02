"""Joining: which worlds there are, and the way into one (M21).

A world of one is kept in memory, or in a directory (`data`), one SQLite file a world.
"""

from __future__ import annotations

import re
import secrets
import time
from hashlib import sha256
from pathlib import Path
from random import Random

from thyme.app.inputs import Instant
from thyme.app.pacing import PacedPort
from thyme.app.port import PortMaker
from thyme.app.world import World
from thyme.model.errors import OptionError
from thyme.model.frames import as_instant_us
from thyme.model.ids import NodeId, draw_name
from thyme.model.metadata import Limits
from thyme.model.worlds import WorldInfo, check_world_name
from thyme.storage.sqlite import SqliteStore, read_shelf
from thyme.storage.store import MemoryStore, Shelf, Store
from thyme.substrates.catalogue import Retention
from thyme.substrates.solo import SoloConfig, solo_node

SUBSTRATES = ("solo",)
NODE_ID_BYTES = 16
_SUFFIX = ".thyme"
_WORLD = Shelf("world", WorldInfo)
_NODE = Shelf("node", bytes)


def join(
    name: str,
    *,
    substrate: str = "solo",
    data: str | Path | None = None,
    ends: Instant | None = None,
    limits: Limits | None = None,
    retention: Retention | None = None,
) -> World:
    """The world of this name, made if there is none: `async with thyme.join("lisbon") as world`.

    `data` is a directory to keep it in; without, it lives in memory. `ends` gives a new world a
    life span. `limits` and `retention` bound what is stored (M2, M29).
    """
    check_world_name(name)
    if substrate not in SUBSTRATES:
        raise OptionError(f"a substrate is one of {', '.join(SUBSTRATES)}, not {substrate!r}")

    def open_world() -> tuple[WorldInfo, PortMaker]:
        rng = Random(secrets.randbits(128))
        store: Store = MemoryStore() if data is None else SqliteStore(_path(Path(data), name))
        info, node_id = _settle_in(store, name, ends, rng)
        config = SoloConfig(
            limits=limits or Limits(),
            retention=retention or Retention(),
            world_ends_us=info.ends_us,
        )
        return info, lambda listener: PacedPort(
            solo_node(node_id, store, rng, config), store, listener
        )

    return World(open_world)


def worlds(data: str | Path) -> list[WorldInfo]:
    """The worlds kept in a directory, by name."""
    paths = sorted(Path(data).glob(f"*{_SUFFIX}"))
    found = [info for path in paths for info in read_shelf(path, _WORLD)]
    return sorted(found, key=lambda info: info.name)


def _settle_in(
    store: Store, name: str, ends: Instant | None, rng: Random
) -> tuple[WorldInfo, NodeId]:
    """Who we are in this world: as the store says, or anew."""
    for _, info in store.load(_WORLD):
        for _, node_id in store.load(_NODE):
            return info, NodeId(node_id)
    ends_us = None if ends is None else as_instant_us(ends, time.time_ns() // 1_000)
    info = WorldInfo(name, draw_name(rng), ends_us=ends_us)
    node_id = NodeId(rng.randbytes(NODE_ID_BYTES))
    store.put(_WORLD, "info", info)
    store.put(_NODE, "id", node_id)
    store.commit()
    return info, node_id


def _path(directory: Path, name: str) -> Path:
    """A file for a world: readable, and different for different names."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return directory / f"{readable}-{sha256(name.encode()).hexdigest()[:8]}{_SUFFIX}"
