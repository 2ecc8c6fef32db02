"""Node profile: the identifier and the world of a node, as kept in its store.

Entry points: `load_profile`, `save_profile`. A directory has one store file per world; each file
contains the world's description and the node's identifier.
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
    """A node's identifier and its world."""

    world: WorldInfo
    node_id: NodeId


def load_home(store: Store) -> Home | None:
    """Loads the profile from a store; None if the store is new."""
    for _, world in store.load(_WORLD):
        for _, node_id in store.load(_NODE):
            return Home(world, NodeId(node_id))
    return None


def keep_home(store: Store, home: Home) -> None:
    """Saves a profile to a store."""
    store.put(_WORLD, "info", home.world)
    store.put(_NODE, "id", home.node_id)
    store.commit()


def file_of(directory: Path, name: str) -> Path:
    """Returns the path of a world's store file: readable, and unique for the world's name."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return directory / f"{readable}-{sha256(name.encode()).hexdigest()[:8]}{_SUFFIX}"


def worlds_in(directory: Path) -> list[WorldInfo]:
    """Lists the worlds stored in a directory, by name."""
    paths = sorted(directory.glob(f"*{_SUFFIX}"))
    found = [info for path in paths for info in read_shelf(path, _WORLD)]
    return sorted(found, key=lambda info: info.name)
