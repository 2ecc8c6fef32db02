"""Routing table of DSDV: next hop, sequence number and age of each route.

Entry point: `RoutingTable`. The destination of a route assigns its sequence number; a higher one
is newer. For a lost route the table keeps the odd sequence number under which it was lost, so that
an older route entry cannot restore it. This keeps routes free of loops.
Clauses: R1.
"""

from __future__ import annotations

from thyme.model.ids import NodeId


class Route:
    """The route to one destination."""

    __slots__ = (
        "bar", "destination", "heard_us", "hops", "next_hop", "sequence", "settling_us", "teller",
    )  # fmt: skip

    def __init__(
        self,
        destination: NodeId,
        next_hop: NodeId,
        sequence: int,
        hops: int,
        heard_us: int,
        settling_us: int,
    ) -> None:
        self.destination = destination
        self.next_hop = next_hop
        self.sequence = sequence
        self.hops = hops
        self.heard_us = heard_us
        """When the route was last confirmed."""
        self.settling_us = settling_us
        """Weighted average of the time that the hop count took to settle."""
        self.bar = sequence
        """Route entries with a lower sequence number are ignored; −1 while an update is pending."""
        self.teller: NodeId | None = next_hop
        """The neighbour whose repeated entry confirms the route; None while the route settles."""


class Table:
    """The routes of one node, by destination."""

    def __init__(self, hold_us: int) -> None:
        self.routes: dict[NodeId, Route] = {}
        self.lost: dict[NodeId, int] = {}
        """Odd sequence numbers of lost routes, by destination."""
        self._hold_us = hold_us
        self._oldest_us = 0
        """Lower bound of the confirmation times of all routes."""

    def add(self, route: Route) -> None:
        """Adds a route to a destination to which there was none."""
        self.routes[route.destination] = route
        self.lost.pop(route.destination, None)

    def has_room(self, most: int, destination: NodeId) -> bool:
        """Makes room for a route to a destination, by removing the oldest lost route if needed;
        returns whether there is room."""
        if destination not in self.lost and len(self.routes) + len(self.lost) >= most:
            if not self.lost:
                return False
            del self.lost[next(iter(self.lost))]
        return True

    def give_up(self, route: Route, number: int) -> None:
        """Removes a route and records it as lost under an odd sequence number."""
        del self.routes[route.destination]
        self.lost[route.destination] = number

    def over(self, next_hop: NodeId) -> list[Route]:
        """The routes whose next hop is a given neighbour."""
        return [route for route in self.routes.values() if route.next_hop == next_hop]

    def stale(self, now_us: int) -> list[Route]:
        """Routes not confirmed for too long, and routes via the destinations of such routes."""
        if now_us - self._oldest_us <= self._hold_us:
            return []
        found: dict[NodeId, Route] = {}
        for route in self.routes.values():
            if now_us - route.heard_us > self._hold_us and route.destination not in found:
                for other in self.over(route.destination):
                    if other.hops != route.hops:
                        found[other.destination] = other
                found[route.destination] = route
        self._oldest_us = min(
            (route.heard_us for name, route in self.routes.items() if name not in found),
            default=now_us,
        )
        return list(found.values())
