"""Worlds: independent instances of Thyme that may share a place (M21)."""

from __future__ import annotations

import math

import msgspec

from thyme.model.errors import WorldError, shown
from thyme.model.frames import check_instant_us
from thyme.model.ids import NodeId, as_node_id

WORLD_NAME_BYTES_MAX = 128
NAME_LETTERS_MAX = 64
LIVE_SUBSTRATES = ("dcs", "ls", "es")
"""The ways in which a world on real sockets may work."""


class Area(msgspec.Struct, frozen=True, array_like=True):
    """The rectangle a world covers, in metres."""

    width_m: float
    height_m: float

    def __post_init__(self) -> None:
        for side in (self.width_m, self.height_m):
            if not (math.isfinite(side) and side > 0):
                raise WorldError(f"an area has sides longer than 0 m, not {side}")


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """A point on the Earth, in degrees."""

    latitude: float
    longitude: float

    def __post_init__(self) -> None:
        if not (-90 < self.latitude < 90 and -180 <= self.longitude <= 180):
            raise WorldError(
                "a place on the Earth is a latitude from -90 to 90 and a longitude from -180 to "
                f"180, not {self.latitude},{self.longitude}"
            )


class WorldInfo(msgspec.Struct, frozen=True, array_like=True):
    """What tells a world from another: its name for people, its identifier for nodes.

    A world has an area and a cell size where cells are places (DCS), a number of cells where they
    are not (Infra), neither where there are none; and it may have an end. A world on real sockets
    says by which substrate its nodes work, and which of them is the server (ES).
    """

    name: str
    wid: str
    area: Area | None = None
    cell_m: float | None = None
    cells: int | None = None
    ends_us: int | None = None
    substrate: str = ""
    server: NodeId | None = None
    closed: bool = False
    """Whether only those who know its secret are in it (B5)."""
    origin: Origin | None = None
    """Where the south-west corner of its area is, if that is known."""
    durable: bool = False
    """Whether what its server acknowledges is on a disk (M30)."""

    def __post_init__(self) -> None:
        check_world_name(self.name)
        if not self.wid:
            raise WorldError("a world needs an identifier")
        if (self.area is None) != (self.cell_m is None):
            raise WorldError("an area and a cell size go together")
        if self.cell_m is not None and not (math.isfinite(self.cell_m) and self.cell_m > 0):
            raise WorldError(f"a cell is larger than 0 m, not {self.cell_m}")
        if self.cells is not None and self.cells < 1:
            raise WorldError(f"a world has at least one cell, not {self.cells}")
        if self.ends_us is not None:
            check_instant_us(self.ends_us)
        if len(self.wid) > NAME_LETTERS_MAX or len(self.substrate) > NAME_LETTERS_MAX:
            raise WorldError("the name of a world's identifier or substrate is too long")
        if self.server is not None:
            as_node_id(self.server)
        if self.origin is not None and self.area is None:
            raise WorldError("only a world with an area has a place on the Earth")


def check_world_name(name: object) -> None:
    """Refuses what cannot name a world: it must fit a line, a file name and a datagram."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise WorldError(f"a world's name is printable text, not {shown(name)}")
    if len(name.encode()) > WORLD_NAME_BYTES_MAX:
        raise WorldError(
            f"a world's name has at most {WORLD_NAME_BYTES_MAX} bytes: {shown(name, 30)}"
        )
