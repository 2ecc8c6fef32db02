"""Routing by cells: messages go to places, and whoever is there acts as one node.

`CellRouting` is what a node of Thyme-DCS asks for, `GeographicRouting` does it over a `Grid`.
Clauses: D1–D10.
"""

from thyme.routing.cells.config import CellsConfig
from thyme.routing.cells.geographic import GeographicRouting
from thyme.routing.cells.grid import Grid
from thyme.routing.cells.routing import (
    Arrival,
    CellRouting,
    CellTraffic,
    Listener,
    NotThere,
    Sighting,
    To,
)

__all__ = [
    "Arrival",
    "CellRouting",
    "CellTraffic",
    "CellsConfig",
    "GeographicRouting",
    "Grid",
    "Listener",
    "NotThere",
    "Sighting",
    "To",
]
