"""Status: the JSON records of a node's status, as served at `/v1/status` and `/v1/worlds`.

Class names and class docstrings are part of the OpenAPI document. `thyme.daemon.collect_status`
fills the records.
"""

from __future__ import annotations

import msgspec


class WorldStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A world."""

    name: str
    wid: str
    substrate: str
    area_m: tuple[float, float] | None = None
    cell_m: float | None = None
    ends_us: int | None = None
    server: str | None = None
    """Node id of the server of an ES world."""
    closed: bool = False
    """Whether the world has a secret; of other closed worlds only name and id are known."""


class NeighbourStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node in reach."""

    node: str
    address: str
    silent_us: int
    """Time since the last datagram from the node."""
    clock_ahead_us: int | None = None
    """How far the clock of the node is ahead of this node's; None if it is not known yet."""


class StorageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a node keeps."""

    objects: int
    """Number of objects whose bytes are stored on this node."""
    metadata: int
    """Number of objects whose metadata this node stores as a broker."""
    durable: bool
    file_bytes: int
    full: bool = False
    """Whether the node refuses new objects because the disk is full."""


class EventsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The events that a node has exported for analytics."""

    written: int
    dropped: int
    """Events lost because the disk was full or too slow."""
    removed: int
    """Segments removed above the size limit."""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node."""

    version: str
    node: str
    world: WorldStatus
    address: str
    now_us: int
    up_us: int
    neighbours: tuple[NeighbourStatus, ...]
    routes: int | None
    """Number of reachable nodes, over any number of hops; None with cell routing (DCS)."""
    cell: int | None
    serving: bool
    """Whether the node has joined its cell and answers requests for it."""
    storage: StorageStatus
    subscriptions_own: int
    subscriptions_standing: int
    """Subscriptions of all nodes that this node matches new objects against."""
    applications: int
    dropped: dict[str, int]
    """Number of dropped datagrams and messages, by reason."""
    hint: str | None = None
    """Advice for the user, if there is a problem."""
    events: EventsStatus | None = None
    """None if the node exports no events."""
