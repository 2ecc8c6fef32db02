"""Status: the JSON records of the status of a node or a station, as served at `/v1/status`.

Class names and class docstrings are part of the OpenAPI document. `thyme.daemon.status` fills the
records.
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
    cells: int | None = None
    """Number of cells of an infra world before a station sets it; None for the default."""
    ends_us: int | None = None
    server: str | None = None
    """Node id of the server of an ES world."""
    closed: bool = False
    """Whether the world has a secret; of other closed worlds only name and id are known."""
    profile: str | None = None
    """The profile of its nodes, `robust` or `paper`; None where there is no choice."""
    key_choice: str | None = None
    """How keys are chosen, if it was chosen for this world; else as the profile does."""
    replicas: int | None = None
    """Number of nodes of a cell that store an object, 0 for all; None: as the profile does."""


class NeighbourStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node in reach."""

    node: str
    address: str
    silent_us: int
    """Time since the last datagram from the node."""
    clock_ahead_us: int | None = None
    """How far the clock of the node is ahead of this node's; None if it is not known yet."""
    wire_version: int = 1
    """The version of the wire format that both nodes use."""


class UnknownVersionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node in range that uses another version of the wire format."""

    node: str
    address: str
    versions: str | None
    """The versions that it reads; None if they are too new to be known."""
    advice: str


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
    removed: dict[str, int] = {}
    """Objects removed since the start, by reason: deleted, expired, or evicted for space."""


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
    """Address on the first interface."""
    addresses: tuple[str, ...] = ()
    """Addresses on all interfaces."""
    now_us: int
    up_us: int
    neighbours: tuple[NeighbourStatus, ...]
    unknown_versions: tuple[UnknownVersionStatus, ...] = ()
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
    base_station: str | None = None
    """Node id of the base station that a node of an infra world uses; None without one."""
    reach_m: float | None = None
    """Distance to the farthest cell in range, centre to centre; None in worlds without places, and
    while no node is in range."""
    unreachable_cells: tuple[int, ...] = ()
    """Adjacent cells that have nodes, none of which is in range: the cells are too large."""


class AddressShare(msgspec.Struct, frozen=True, kw_only=True):
    """What came from one address, since the node first received from it or forgot it."""

    address: str
    nodes: tuple[str, ...]
    """Ids of the neighbours there; none for a stranger."""
    datagrams: int
    bytes: int
    dropped: int
    """Datagrams, messages and records that were useless or too many."""
    inbox_full: bool
    """Whether so many of its messages wait for this node that no more are taken."""
    reassembly_bytes: int
    """Bytes of messages that are not complete yet."""
    bans: int
    banned_us: int
    """How long its datagrams are still dropped unread; 0 if they are not."""


class AuthorShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one author of records costs this node, whoever passed the records on."""

    node: str
    verifications: int
    """Signatures verified; those that were verified before do not count."""
    rejected: int
    """Records with a false signature in its name."""
    objects: int
    bytes: int
    subscriptions: int


class SharesStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of neighbours and authors, those with most bytes first."""

    addresses: tuple[AddressShare, ...]
    authors: tuple[AuthorShare, ...]
    bans: int
    """Bans since the start, of all addresses."""
    stranger_share: float
    """The share of the datagrams of strangers that is received at all."""


class CacheStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A cache of a base station."""

    entries: int
    capacity: int
    hits: int
    misses: int
    hit_ratio: float


class StationWorldStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A world that a base station knows."""

    name: str
    wid: str
    cells: int
    """Number of cells in the venue of this station."""
    mobiles: int
    """Nodes of the world that use this station."""


class OtherStationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Another base station."""

    station: str
    """Its node id."""
    name: str
    address: str
    connected: bool
    """Whether messages reach it."""
    receiving: bool
    """Whether its messages arrive."""
    waiting: int
    """Messages that wait for the connection."""
    connects: int
    """How often the connection was made."""
    clock_ahead_us: int | None = None
    """How far its clock was ahead when it connected; None if it never did."""
    differences: tuple[str, ...] = ()
    """Settings that differ, although all stations must agree on them."""


class StationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A base station."""

    version: str
    station: str
    """Name of the station."""
    node: str
    address: str
    """Address for mobile nodes."""
    wired_address: str
    """Address for other stations."""
    now_us: int
    up_us: int
    worlds: tuple[StationWorldStatus, ...]
    mobiles: int
    addresses: int
    """Entries of the address store."""
    caches: dict[str, CacheStatus]
    stations: tuple[OtherStationStatus, ...]
    needs: int
    """Tags with subscriptions of visitors."""
    popular: int
    """Objects with counted downloads."""
    parked: int
    """Messages that wait for a node of their cell."""
    deletes: int
    """Objects that must not come back."""
    deletes_unconfirmed: int
    """Deletes that some station has not confirmed."""
    counts: dict[str, int]
    """Number of operations, by kind."""
    dropped: dict[str, int]
    """Number of dropped datagrams, messages and connections, by reason."""
    durable: bool
    full: bool
    """Whether the disk is full: cell data are not saved then."""
    not_saved: int
    """Reports of cells that were not saved because the disk was full."""
    events: EventsStatus | None = None
    """None if the station exports no events."""
