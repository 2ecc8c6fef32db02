"""Node options: the world and the settings of a live node as the user gives them; their checks.

Entry points: `NodeOptions`, `check_options`, `check_consistent`.
Clauses: M21, M29, B5.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from thyme.live.keys.identity import Identity
from thyme.live.node_factory import QUOTA
from thyme.live.sockets import NetworkConfig
from thyme.model.errors import OptionError, StoreError, WorldError, safe_repr
from thyme.model.ids import NodeId
from thyme.model.positions import Position
from thyme.model.worlds import (
    AUTO,
    ENCOUNTERS,
    INFRA,
    LIVE_SUBSTRATES,
    NAMED_SUBSTRATES,
    Area,
    GeoPoint,
    WorldInfo,
    WorldSettings,
    check_world_name,
)
from thyme.storage.node_profile import NodeProfile
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.common.quotas import Quota
from thyme.transport.encryption import check_secret
from thyme.transport.link_config import LinkConfig

DISCOVERY_TIMEOUT_S = 10.0


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a live node: the world to join or create, and the settings of the node."""

    world: str
    """Name of the world; to join an existing one, its id can be used, too."""
    substrate: str | None = None
    """One of `LIVE_SUBSTRATES`; None for that of the existing world. A new world is by default DCS
    if it has an area, else LS."""
    create: bool = False
    """Whether to create the world instead of joining it."""
    area: Area | None = None
    cell_m: float | None = None
    cells: int | None = None
    """Number of cells of an infra world before a station sets it; the same on all devices."""
    ends_us: int | None = None
    """End of a new world; in a world that its name makes, the same on all devices."""
    world_id: str | None = None
    """Id of a new world; None for a random id."""
    position: Position | None = None
    """Position of the device in metres; None for the centre of the area."""
    gps_fix: GeoPoint | None = None
    """Latitude and longitude of the device, instead of a position in metres."""
    origin: GeoPoint | None = None
    """Latitude and longitude of the south-west corner of a new world's area."""
    secret: str | None = None
    """Secret of a closed world; with a secret, a new world is closed (B5)."""
    data: Path | None = None
    """Directory of the node's key and store; None to keep both in memory."""
    network: NetworkConfig = NetworkConfig()
    discovery_timeout_s: float = DISCOVERY_TIMEOUT_S
    """How long to listen for the world to join."""
    link: LinkConfig = LinkConfig()
    quota: Quota = QUOTA
    """Storage quota for each other node (B5)."""
    retention: Retention = Retention()
    """Limits of age, bytes and objects that the node stores (M29)."""
    settings: WorldSettings | None = None
    """Profile, choice of keys and number of replicas of a new world; None for the usual ones."""
    stations: tuple[NodeId, ...] = ()
    """The base stations that a node of an infra world accepts; none named: the first to answer."""


def check_options(options: NodeOptions) -> None:
    check_world_name(options.world)
    if options.substrate is not None and options.substrate not in LIVE_SUBSTRATES:
        known = ", ".join((*LIVE_SUBSTRATES, AUTO))
        raise OptionError(
            f"the substrate must be one of {known}, not {safe_repr(options.substrate)}"
        )
    if options.secret is not None:
        check_secret(options.secret)
    if options.stations and options.substrate not in (None, INFRA):
        raise OptionError(f"only nodes of {INFRA} worlds use stations: use --substrate {INFRA}")
    if options.cells is not None and options.substrate != INFRA:
        raise OptionError(f"only {INFRA} worlds have a number of cells: use --substrate {INFRA}")
    new_world_options = [
        options.area,
        options.cell_m,
        options.world_id,
        options.origin,
        options.settings,
    ]
    if options.substrate not in NAMED_SUBSTRATES:
        new_world_options.append(options.ends_us)
    if not options.create and any(option is not None for option in new_world_options):
        raise OptionError(
            "area, cell, origin, id, end, profile, keys and replicas can only be set for a new "
            "world: use --create"
        )


def check_consistent(options: NodeOptions, profile: NodeProfile, identity: Identity) -> None:
    """Raises an error if the options contradict the world, the store or the key."""
    world = profile.world
    if options.substrate not in (None, world.substrate):
        raise WorldError(
            f"the world {safe_repr(world.name)} uses {world.substrate}, not {options.substrate}"
        )
    stored_settings = world.settings and replace(world.settings, durable=False)
    for name, wanted, stored in (
        ("area", options.area, world.area),
        ("cell size", options.cell_m, world.cell_m),
        ("number of cells", options.cells, world.cells),
        ("profile, choice of keys or number of replicas", options.settings, stored_settings),
    ):
        if wanted not in (None, stored):
            raise WorldError(
                f"the world {safe_repr(world.name)} exists already, with another {name}: leave it "
                "out, or use another --data"
            )
    if world.closed != (options.secret is not None):
        reason = "closed: it needs its secret" if world.closed else "open: it has no secret"
        raise WorldError(f"the world {safe_repr(world.name)} is {reason}")
    if options.position is not None:
        _check_position(options.position, world)
    if profile.node_id != identity.node_id:
        raise StoreError("the key file beside the store belongs to another node")


def _check_position(position: Position, world: WorldInfo) -> None:
    """Raises an error if a device cannot have this position in a world, or none is used there."""
    if world.area is not None:
        x_m, y_m = position
        width_m, height_m = world.area.width_m, world.area.height_m
        if not (0 <= x_m <= width_m and 0 <= y_m <= height_m):
            raise OptionError(
                f"the position {x_m:g},{y_m:g} is outside this world, which is "
                f"{width_m:g} by {height_m:g} m"
            )
    elif world.substrate not in (ENCOUNTERS, AUTO):
        raise OptionError(
            f"the world {safe_repr(world.name)} uses {world.substrate}, where devices have no "
            "position: leave it out"
        )
