"""A node with much stored: how long it takes to start, and to find the past.

Run by bench_live as `python store.py JSON`: a process that starts a node on a store that
`fill` has made, and says how long that took since the instant it was told.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from indexes.history_workload import objects, queries
from live.lab import resident_mb

from thyme.api.world import World
from thyme.live.keys.identity import load_or_create_identity
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import open_node
from thyme.live.sockets import NetworkConfig
from thyme.model.worlds import WorldInfo
from thyme.storage.node_profile import NodeProfile, save_profile, world_file
from thyme.storage.sqlite.store import SqliteStore
from thyme.substrates.common.catalogue import OBJECTS

PAGE = 20
COMMIT_EVERY = 256
NAME = "bench"


def fill(directory: Path, entries: int) -> None:
    """The store of a server that looks after so many objects."""
    server = load_or_create_identity(directory).node_id
    store = SqliteStore(world_file(directory, NAME))
    save_profile(
        store, NodeProfile(WorldInfo(NAME, "bench", substrate="es", server=server), server)
    )
    history = store.open_history(OBJECTS)
    for number, metadata in enumerate(objects(entries)):
        store.put(OBJECTS, str(metadata.key), metadata)
        history.add(metadata)
        if not number % COMMIT_EVERY:
            store.commit()
    store.commit()
    store.close()


async def start(options: dict[str, Any]) -> dict[str, Any]:
    """Starts on it, and asks for the past as often as told."""
    network = NetworkConfig(group_port=options["port"])
    node = await open_node(NodeOptions(world=NAME, data=Path(options["data"]), network=network))
    world = await World(lambda: (node.world, node.start))
    await world.subscriptions()
    started_s = time.monotonic() - options["told_s"]
    resident = resident_mb(os.getpid())
    waits_ms, found = [], 0
    for query in queries(options["queries"]):
        formula = f"{query.a} & ({query.b} | {query.c}) & !{query.d}"
        begun = time.perf_counter()
        notes = await world.subscribe(formula, query.frame.start_us, query.frame.end_us, PAGE)
        for _ in range(min(PAGE, notes.total)):
            await anext(notes)
        waits_ms.append(1e3 * (time.perf_counter() - begun))
        found += notes.total
        await notes.cancel()
    await world.leave()
    return {
        "start_s": started_s,
        "past_ms": median(waits_ms),
        "past_p99_ms": sorted(waits_ms)[int(0.99 * len(waits_ms))],
        "found": found,
        "resident_mb": resident,
    }


def main() -> None:
    """Plays the role."""
    print(json.dumps(asyncio.run(start(json.loads(sys.argv[1])))), flush=True)


if __name__ == "__main__":
    main()
