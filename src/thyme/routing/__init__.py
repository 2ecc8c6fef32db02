"""Multi-hop routing of messages between nodes.

`RoutedNode` wraps a node so that it can send to any node; a `Routing` forwards its packets from
neighbour to neighbour. `dsdv` is the routing protocol of ES and LS, `flooding` sends a message to
all nodes, and `cells` is the geographic routing of Thyme-DCS.
Clauses: R1–R3.
"""

from thyme.routing.dsdv.config import DsdvConfig
from thyme.routing.dsdv.protocol import Dsdv
from thyme.routing.interface import Routing, RoutingTraffic
from thyme.routing.routed_node import RoutedNode

__all__ = ["Dsdv", "DsdvConfig", "RoutedNode", "Routing", "RoutingTraffic"]
