"""Hello records: the nodes, worlds and versions that hellos in range name.

Entry point: `HelloRecords`. Hellos of other worlds count, too: a device lists the worlds in range
(M21), and a node that chooses its substrate counts the nodes of each (B7). All tables are bounded.
Clauses: M21, B7.
"""

from __future__ import annotations

from typing import Final

from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo
from thyme.transport.datagrams import Hello
from thyme.transport.versions import UnknownVersion

_NODES_MAX: Final = 1_000
_WORLDS_MAX: Final = 1_000
"""Maximum number of open worlds, and of closed worlds, that are remembered."""


class HelloRecords:
    """Records of the hellos that one link received."""

    def __init__(self) -> None:
        self.worlds: dict[str, WorldInfo] = {}
        """Open worlds, by world id."""
        self.closed_worlds: dict[str, WorldInfo] = {}
        """Closed worlds, by world id; only their names are known."""
        self.senders: dict[NodeId, tuple[WorldInfo, int]] = {}
        """Nodes of any open world in range: the world of the last hello, and its time (B7)."""
        self.unknown_versions: dict[NodeId, UnknownVersion] = {}
        """Nodes of this world in range whose versions this node does not read."""

    def record_sender(self, sender: NodeId, world: WorldInfo, now_us: int) -> None:
        """Remembers the world of a sender."""
        if sender in self.senders or len(self.senders) < _NODES_MAX:
            self.senders[sender] = world, now_us

    def record_world(self, hello: Hello) -> None:
        """Remembers the world of a hello."""
        worlds, world = self.closed_worlds if hello.closed else self.worlds, hello.world
        if world.world_id in worlds or len(worlds) < _WORLDS_MAX:
            worlds[world.world_id] = world

    def record_unknown(self, sender: NodeId, unknown: UnknownVersion) -> None:
        """Remembers a node of this world with which no version can be agreed."""
        if sender in self.unknown_versions or len(self.unknown_versions) < _NODES_MAX:
            self.unknown_versions[sender] = unknown

    def expire(self, earlier_than_us: int) -> None:
        """Forgets the nodes from which no hello came since an instant."""
        for node_id, (_, at_us) in list(self.senders.items()):
            if at_us < earlier_than_us:
                del self.senders[node_id]
        for node_id, unknown in list(self.unknown_versions.items()):
            if unknown.last_seen_us < earlier_than_us:
                del self.unknown_versions[node_id]
