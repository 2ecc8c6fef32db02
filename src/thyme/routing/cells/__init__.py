"""Cell routing: messages are addressed to cells, whose nodes act as one.

`CellRouting` is the interface that a node of Thyme-DCS uses. `GeographicRouting` implements it over
a `Grid`, `LogicalRouting` over `LogicalCells`, where all nodes hear each other.
Clauses: D1–D10, I1.
"""

from thyme.routing.cells.config import CellRoutingConfig
from thyme.routing.cells.geographic import GeographicRouting
from thyme.routing.cells.grid import Grid
from thyme.routing.cells.interface import (
    BeaconReceived,
    CellRouting,
    CellRoutingUser,
    CellTraffic,
    Delivery,
    DeliveryFailure,
    Destination,
)
from thyme.routing.cells.logical import LogicalRouting
from thyme.routing.cells.logical_cells import STATION_CELL, LogicalCells

__all__ = [
    "STATION_CELL",
    "BeaconReceived",
    "CellRouting",
    "CellRoutingConfig",
    "CellRoutingUser",
    "CellTraffic",
    "Delivery",
    "DeliveryFailure",
    "Destination",
    "GeographicRouting",
    "Grid",
    "LogicalCells",
    "LogicalRouting",
]
