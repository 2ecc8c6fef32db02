"""Cell routing: messages are addressed to cells, whose nodes act as one.

`CellRouting` is the interface that a node of Thyme-DCS uses; `GeographicRouting` implements it over
a `Grid`.
Clauses: D1–D10.
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

__all__ = [
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
]
