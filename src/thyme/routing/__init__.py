"""Multi-hop routing of messages between nodes.

`RoutedNode` wraps a node so that it can send to any node; a `Routing` forwards its packets from
neighbour to neighbour. `dsdv` is the routing protocol of ES and LS, `flooding` sends a message to
all nodes, and `cells` is the geographic routing of Thyme-DCS.
Clauses: R1–R3.
"""

from thyme.routing.dsdv import Dsdv
from thyme.routing.dsdv_config import DsdvConfig
from thyme.routing.relay import Relay
from thyme.routing.routing import Routing, Traffic

__all__ = ["Dsdv", "DsdvConfig", "Relay", "Routing", "Traffic"]
