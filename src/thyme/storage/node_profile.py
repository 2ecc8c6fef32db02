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
from thyme.storage.sqlite.store import read_table
from thyme.storage.store import RecordTable, Store

NODE_ID_BYTES = 16
_SUFFIX = ".thyme"
_WORLD = RecordTable("world", WorldInfo)
_NODE = RecordTable("node", bytes)


class NodeProfile(msgspec.Struct, frozen=True):
    """A node's identifier and its world."""

    world: WorldInfo
    node_id: NodeId


def load_profile(store: Store) -> NodeProfile | None:
    """Loads the profile from a store; None if the store is new."""
    for _, world in store.load(_WORLD):
        for _, node_id in store.load(_NODE):
            return NodeProfile(world, NodeId(node_id))
    return None


def save_profile(store: Store, profile: NodeProfile) -> None:
    """Saves a profile to a store."""
    store.put(_WORLD, "info", profile.world)
    store.put(_NODE, "id", profile.node_id)
    store.commit()


def world_file(directory: Path, name: str) -> Path:
    """Returns the path of a world's store file: readable, and unique for the world's name."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return directory / f"{readable}-{sha256(name.encode()).hexdigest()[:8]}{_SUFFIX}"


def list_worlds(directory: Path) -> list[WorldInfo]:
    """Lists the worlds stored in a directory, by name."""
    paths = sorted(directory.glob(f"*{_SUFFIX}"))
    found = [info for path in paths for info in read_table(path, _WORLD)]
    return sorted(found, key=lambda info: info.name)
