"""Mobile address translation store (MATS): the mobile nodes that a station can send to directly.

Entry point: `MobileAddresses`. A node is known while its messages arrive: an entry expires some
time after the latest one, and when there are too many, the node that was silent for the longest
time is forgotten. The stable node of each cell is kept apart.
Clauses: I8, I25.
"""

from __future__ import annotations

import msgspec

from thyme.model.bounded import BoundedDict, drop_before
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId

CellName = tuple[int, CellId]
"""A cell of a world."""


class LogicalAddress(msgspec.Struct, frozen=True):
    """The logical address of a mobile node: its world and its cell."""

    world: int
    cell: CellId


class MobileAddresses:
    """The addresses that one station knows."""

    def __init__(self, size_max: int, ttl_us: int) -> None:
        self._size_max = size_max
        self._ttl_us = ttl_us
        self._addresses: dict[NodeId, LogicalAddress] = {}
        self._seen_us: dict[NodeId, int] = {}
        """When the latest message of a node arrived, the longest silent node first."""
        self._stable: BoundedDict[CellName, tuple[NodeId, int]] = BoundedDict(2**16)
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._addresses)

    def refresh(self, node_id: NodeId, address: LogicalAddress, now_us: int) -> None:
        """Notes that a message of a node has arrived."""
        self._seen_us.pop(node_id, None)
        self._addresses[node_id] = address
        self._seen_us[node_id] = now_us
        self._expire(now_us)
        while len(self._addresses) > self._size_max:
            self._drop(next(iter(self._seen_us)))

    def knows(self, node_id: NodeId, now_us: int) -> bool:
        """Whether a node can be sent to directly; counts a hit or a miss."""
        self._expire(now_us)
        known = node_id in self._addresses
        self.hits += known
        self.misses += not known
        return known

    def nodes_in(self, world: int, cell: CellId, now_us: int) -> list[NodeId]:
        """The known nodes of a cell, the latest sender first."""
        self._expire(now_us)
        wanted = LogicalAddress(world, cell)
        return [n for n in reversed(self._seen_us) if self._addresses[n] == wanted]

    def population(self, world: int, now_us: int) -> int:
        """The number of known nodes of a world."""
        self._expire(now_us)
        return sum(address.world == world for address in self._addresses.values())

    def forget(self, node_id: NodeId) -> None:
        """Removes a node that did not answer, also as the stable node of its cell."""
        self._drop(node_id)
        for name in [name for name, (stable, _) in self._stable.items() if stable == node_id]:
            del self._stable[name]

    def _drop(self, node_id: NodeId) -> None:
        self._addresses.pop(node_id, None)
        self._seen_us.pop(node_id, None)

    def _expire(self, now_us: int) -> None:
        for node_id in drop_before(self._seen_us, now_us - self._ttl_us):
            del self._addresses[node_id]

    # Stable nodes (I8)

    def set_stable(self, world: int, cell: CellId, node_id: NodeId, now_us: int) -> None:
        """Notes the node that speaks for a cell."""
        self._stable[world, cell] = node_id, now_us

    def stable_node(self, world: int, cell: CellId, now_us: int) -> NodeId | None:
        """The node that spoke for a cell last; None if that is too long ago."""
        node_id, since_us = self._stable.get((world, cell), (None, 0))
        return node_id if now_us - since_us <= self._ttl_us else None

    def stable_nodes(self, world: int, now_us: int) -> list[NodeId]:
        """The nodes that speak for any cell of a world, the latest one first."""
        found = sorted(
            (-since_us, node_id)
            for (its_world, _), (node_id, since_us) in self._stable.items()
            if its_world == world and now_us - since_us <= self._ttl_us
        )
        return list(dict.fromkeys(node_id for _, node_id in found))

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._addresses) == len(self._seen_us) <= self._size_max
