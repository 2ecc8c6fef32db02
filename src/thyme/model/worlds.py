"""Worlds: descriptions of independent instances of Thyme, which may overlap in space.

Entry point: `WorldInfo`.
Clauses: M21.
"""

from __future__ import annotations

import math
from hashlib import sha256

import msgspec

from thyme.model.errors import WorldError, safe_repr
from thyme.model.ids import NodeId, as_node_id
from thyme.model.time_frames import check_instant_us

WORLD_NAME_BYTES_MAX = 128
NAME_CHARS_MAX = 64
ENCOUNTERS = "mobuser"
"""The substrate of worlds in which devices exchange events when they meet (U10)."""
INFRA = "infra"
"""The substrate of worlds whose nodes use base stations (I1)."""
AUTO = "auto"
"""Stands for the substrate of a node that chooses and changes it by itself (B7)."""
LIVE_SUBSTRATES = ("dcs", "ls", "es", INFRA, ENCOUNTERS)
"""The substrates available to worlds on real sockets."""
NAMED_SUBSTRATES = (INFRA, ENCOUNTERS)
"""The substrates whose worlds exist wherever devices use their name: nobody creates them."""


class Area(msgspec.Struct, frozen=True, array_like=True):
    """The rectangle a world covers, in metres."""

    width_m: float
    height_m: float

    def __post_init__(self) -> None:
        for side in (self.width_m, self.height_m):
            if not (math.isfinite(side) and side > 0):
                raise WorldError(f"an area has sides longer than 0 m, not {side}")


class GeoPoint(msgspec.Struct, frozen=True, array_like=True):
    """A point on the Earth: latitude and longitude in degrees."""

    latitude: float
    longitude: float

    def __post_init__(self) -> None:
        if not (-90 < self.latitude < 90 and -180 <= self.longitude <= 180):
            raise WorldError(
                "a geographic position has a latitude between -90 and 90 and a longitude from -180 "
                f"to 180, not {self.latitude},{self.longitude}"
            )


class WorldSettings(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """How the nodes of a world run its substrate, where it is not as usual."""

    profile: str = "robust"
    """`robust`, or `paper` for the protocol as the papers describe it."""
    key_choice: str | None = None
    """How the key of a conjunction is chosen (D16); None for the choice of the profile."""
    replicas: int | None = None
    """The number of nodes of a cell that store an object, 0 for all of them (D14); None for the
    choice of the profile."""
    durable: bool = False
    """As `WorldInfo.durable`."""


class WorldInfo(msgspec.Struct, frozen=True, array_like=True):
    """The description of a world: its name for users, its identifier for nodes, its settings.

    A world has an area and a cell size if its cells are geographic (DCS), a number of cells if they
    are logical (Infra), and neither without cells. It may have an end. A world on real sockets also
    names its substrate and, for ES, the server.
    """

    name: str
    world_id: str
    area: Area | None = None
    cell_m: float | None = None
    cells: int | None = None
    ends_us: int | None = None
    substrate: str = ""
    server: NodeId | None = None
    closed: bool = False
    """Whether only nodes that know the world's secret can take part (B5)."""
    origin: GeoPoint | None = None
    """The position of the south-west corner of the area, if known."""
    durable_or_settings: bool | WorldSettings = False
    """The settings of the world; only whether it is durable if the others are the usual ones."""

    def __post_init__(self) -> None:
        check_world_name(self.name)
        if not self.world_id:
            raise WorldError("a world needs an identifier")
        if (self.area is None) != (self.cell_m is None):
            raise WorldError("an area and a cell size go together")
        if self.cell_m is not None and not (math.isfinite(self.cell_m) and self.cell_m > 0):
            raise WorldError(f"a cell is larger than 0 m, not {self.cell_m}")
        if self.cells is not None and self.cells < 1:
            raise WorldError(f"a world has at least one cell, not {self.cells}")
        if self.ends_us is not None:
            check_instant_us(self.ends_us)
        if len(self.world_id) > NAME_CHARS_MAX or len(self.substrate) > NAME_CHARS_MAX:
            raise WorldError(
                f"a world's identifier and substrate have at most {NAME_CHARS_MAX} characters"
            )
        if self.server is not None:
            as_node_id(self.server)
        if self.origin is not None and self.area is None:
            raise WorldError("an origin needs an area")

    @property
    def durable(self) -> bool:
        """Whether the server writes data to disk before it acknowledges them (M30)."""
        extra = self.durable_or_settings
        return extra if isinstance(extra, bool) else extra.durable

    @property
    def settings(self) -> WorldSettings | None:
        """The profile and its choices, if they were chosen when the world was created."""
        extra = self.durable_or_settings
        return None if isinstance(extra, bool) else extra


def check_world_name(name: object) -> None:
    """Raises `WorldError` for a name that does not fit a line, a file name or a datagram."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise WorldError(f"a world's name is printable text, not {safe_repr(name)}")
    if len(name.encode()) > WORLD_NAME_BYTES_MAX:
        raise WorldError(
            f"a world's name has at most {WORLD_NAME_BYTES_MAX} bytes: {safe_repr(name, 30)}"
        )


def named_world_id(substrate: str, name: str) -> str:
    """The identifier of a world that its name alone makes, the same on every device."""
    return f"{substrate}-{sha256(name.encode()).hexdigest()[:16]}"


def auto_world(
    substrate: str,
    name: str,
    area: Area | None = None,
    cell_m: float | None = None,
    ends_us: int | None = None,
) -> WorldInfo:
    """The world of nodes that choose their substrate, while they use this one (B7): their name and
    area make it."""
    place = "" if area is None else f" {area.width_m:g}x{area.height_m:g} {cell_m:g}"
    wid = named_world_id(f"{AUTO}-{substrate}", name + place)
    return WorldInfo(name, wid, area, cell_m, ends_us=ends_us, substrate=substrate)


def is_auto_world(world: WorldInfo) -> bool:
    """Whether a world is one of nodes that choose their substrate."""
    expected = auto_world(world.substrate, world.name, world.area, world.cell_m)
    return world.world_id == expected.world_id
