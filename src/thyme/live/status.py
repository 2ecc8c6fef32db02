"""Status: how a node is, as it says itself to whoever asks on its machine."""

from __future__ import annotations

import msgspec


class World(msgspec.Struct, frozen=True, kw_only=True):
    """A world."""

    name: str
    wid: str
    substrate: str
    area_m: tuple[float, float] | None = None
    cell_m: float | None = None
    ends_us: int | None = None
    server: str | None = None
    """The server's node id, in a world of ES."""
    closed: bool = False
    """Whether it takes a secret; of such a world of others only the name is known."""


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A node in reach."""

    node: str
    address: str
    silent_us: int
    """How long ago it was last heard."""


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """What a node keeps."""

    objects: int
    """Objects whose bytes are here."""
    metadata: int
    """Objects that this node knows as a broker."""
    durable: bool
    file_bytes: int
    full: bool = False
    """Whether new objects are refused because the disk is full."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A node."""

    version: str
    node: str
    world: World
    address: str
    now_us: int
    up_us: int
    neighbours: tuple[Neighbour, ...]
    routes: int | None
    """How many nodes can be reached, over however many hops; None where cells are the routes."""
    cell: int | None
    serving: bool
    """Whether the node has joined its cell, and works for it."""
    storage: Storage
    subscriptions_own: int
    subscriptions_standing: int
    """Subscriptions of anybody that this node matches new objects against."""
    applications: int
    dropped: dict[str, int]
    """Datagrams and messages that came to nothing, by cause."""
    hint: str | None = None
    """What the user should look into."""
