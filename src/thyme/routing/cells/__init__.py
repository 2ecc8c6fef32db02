"""Cell routing: messages are addressed to cells, whose nodes act as one.

`CellRouting` is the interface that a node of Thyme-DCS uses; `GeographicRouting` implements it over
a `Grid`.
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
