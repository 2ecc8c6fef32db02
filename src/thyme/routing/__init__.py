"""Routing: how a message gets to where it belongs, over several hops.

A `Relay` wraps a node and a routing into one node: inside it messages go to anybody, outside they
go from neighbour to neighbour. `Dsdv` is the routing of distance vectors.
Clauses: R1–R3.
"""

from thyme.routing.dsdv import Dsdv
from thyme.routing.dsdv_config import DsdvConfig
from thyme.routing.relay import Relay
from thyme.routing.routing import Routing, Traffic

__all__ = ["Dsdv", "DsdvConfig", "Relay", "Routing", "Traffic"]
