"""Neighbour replicas: the objects that the nodes in range have retrieved, as their beacons say.

A beacon names the objects that its sender has retrieved since the last ones, by a hash of four
bytes. A reader then gets an object from a neighbour that has it already, instead of a replica
several links away. Names are hints: a neighbour that does not have the object refuses, and the next
replica is tried.
Entry points: `NeighbourReplicas.beacon_part`, `on_names` and `holders_of`.
Clauses: D13, D18, D28.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Final
from zlib import crc32

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key, NodeId
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.routing.cells import CellRouting

NAME_BYTES: Final = 4
_BEACONS: Final = 2
"""How many beacons name an object: one may be lost."""
_WAITING_MAX: Final = 256
_NEIGHBOURS_MAX: Final = 256
_NAMES_MAX: Final = 1_024
"""How many names of one neighbour are remembered."""


@dataclass(slots=True)
class _Named:
    """What one neighbour has."""

    cell: CellId
    names: bytearray = field(default_factory=bytearray)

    def has(self, name: bytes) -> bool:
        at = self.names.find(name)
        while at > 0 and at % NAME_BYTES:
            at = self.names.find(name, at + 1)
        return at >= 0


class NeighbourReplicas:
    """The replicas that this node names in its beacons, and those that its neighbours named."""

    def __init__(self, routing: CellRouting, names_max: int) -> None:
        """`names_max`: how many objects a beacon names at most."""
        self._routing = routing
        self._names_max = names_max
        self._waiting: BoundedDict[bytes, int] = BoundedDict(_WAITING_MAX)
        """In how many further beacons an object is named."""
        self._neighbours: BoundedDict[NodeId, _Named] = BoundedDict(_NEIGHBOURS_MAX)

    def add(self, key: Key) -> None:
        """Has the next beacons name an object that this node has retrieved."""
        self._waiting[_name_of(key)] = _BEACONS

    def beacon_part(self) -> bytes:
        """The names for the next beacon."""
        named = list(islice(self._waiting.items(), self._names_max))
        for name, beacons in named:
            if beacons > 1:
                self._waiting[name] = beacons - 1
            else:
                del self._waiting[name]
        return b"".join(name for name, _ in named)

    def on_names(self, node: NodeId, cell: CellId, names: bytes) -> None:
        """Remembers what a neighbour named in its beacon."""
        known = self._neighbours.get(node)
        if known is None or known.cell != cell:
            known = self._neighbours[node] = _Named(cell)
        known.names += names[: len(names) // NAME_BYTES * NAME_BYTES]
        del known.names[: -_NAMES_MAX * NAME_BYTES]

    def holders_of(self, key: Key) -> list[Replica]:
        """The neighbours that named an object and are still in range."""
        name = _name_of(key)
        return [
            Replica(known.cell, node)
            for node, known in self._neighbours.items()
            if known.has(name) and node in self._routing.nodes_in(known.cell)
        ]

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._waiting) <= _WAITING_MAX
        assert len(self._neighbours) <= _NEIGHBOURS_MAX


def _name_of(key: Key) -> bytes:
    return crc32(str(key).encode()).to_bytes(NAME_BYTES, "big")
