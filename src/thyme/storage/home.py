"""Home: who a node is and in which world, as its store remembers.

One file a world, in a directory; in the file, the world's description and the node's name.
Clauses: M21, M24.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import msgspec

from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo
from thyme.storage.sqlite import read_shelf
from thyme.storage.store import Shelf, Store

NODE_ID_BYTES = 16
_SUFFIX = ".thyme"
_WORLD = Shelf("world", WorldInfo)
_NODE = Shelf("node", bytes)


class Home(msgspec.Struct, frozen=True):
    """A node's name, and the world it is in."""

    world: WorldInfo
    node_id: NodeId


def load_home(store: Store) -> Home | None:
    """What the store remembers; None if it is new."""
    for _, world in store.load(_WORLD):
        for _, node_id in store.load(_NODE):
            return Home(world, NodeId(node_id))
    return None


def keep_home(store: Store, home: Home) -> None:
    """Lets the store remember."""
    store.put(_WORLD, "info", home.world)
    store.put(_NODE, "id", home.node_id)
    store.commit()


def file_of(directory: Path, name: str) -> Path:
    """A file for a world: readable, and different for different names."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return directory / f"{readable}-{sha256(name.encode()).hexdigest()[:8]}{_SUFFIX}"


def worlds_in(directory: Path) -> list[WorldInfo]:
    """The worlds kept in a directory, by name."""
    paths = sorted(directory.glob(f"*{_SUFFIX}"))
    found = [info for path in paths for info in read_shelf(path, _WORLD)]
    return sorted(found, key=lambda info: info.name)
