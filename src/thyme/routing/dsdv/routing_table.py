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
        "confirmed_by",
        "confirmed_us",
        "destination",
        "hops",
        "min_useful_sequence",
        "next_hop",
        "sequence",
        "settling_time_us",
    )  # fmt: skip

    def __init__(
        self,
        destination: NodeId,
        next_hop: NodeId,
        sequence: int,
        hops: int,
        confirmed_us: int,
        settling_time_us: int,
    ) -> None:
        self.destination = destination
        self.next_hop = next_hop
        self.sequence = sequence
        self.hops = hops
        self.confirmed_us = confirmed_us
        """When the route was last confirmed."""
        self.settling_time_us = settling_time_us
        """Weighted average of the time that the hop count took to settle."""
        self.min_useful_sequence = sequence
        """Route entries with a lower sequence number are ignored; −1 while an update is pending."""
        self.confirmed_by: NodeId | None = next_hop
        """The neighbour whose repeated entry confirms the route; None while the route settles."""


class RoutingTable:
    """The routes of one node, by destination."""

    def __init__(self, hold_us: int) -> None:
        self.routes: dict[NodeId, Route] = {}
        self.lost_sequences: dict[NodeId, int] = {}
        """Odd sequence numbers of lost routes, by destination."""
        self._hold_us = hold_us
        self._confirmed_us_min = 0
        """Lower bound of the confirmation times of all routes."""

    def add(self, route: Route) -> None:
        """Adds a route to a destination to which there was none."""
        self.routes[route.destination] = route
        self.lost_sequences.pop(route.destination, None)

    def forget(self, destination: NodeId) -> None:
        """Removes everything known about a destination."""
        self.routes.pop(destination, None)
        self.lost_sequences.pop(destination, None)

    def make_space_for(self, routes_max: int, destination: NodeId) -> bool:
        """Makes space for a route to a destination, by removing the oldest lost route if needed;
        returns whether there is space."""
        if (
            destination not in self.lost_sequences
            and len(self.routes) + len(self.lost_sequences) >= routes_max
        ):
            if not self.lost_sequences:
                return False
            del self.lost_sequences[next(iter(self.lost_sequences))]
        return True

    def mark_lost(self, route: Route, sequence: int) -> None:
        """Removes a route and records it as lost under an odd sequence number."""
        del self.routes[route.destination]
        self.lost_sequences[route.destination] = sequence

    def routes_via(self, next_hop: NodeId) -> list[Route]:
        """The routes whose next hop is a given neighbour."""
        return [route for route in self.routes.values() if route.next_hop == next_hop]

    def stale_routes(self, now_us: int) -> list[Route]:
        """Routes not confirmed for too long, and routes via the destinations of such routes."""
        if now_us - self._confirmed_us_min <= self._hold_us:
            return []
        stale: dict[NodeId, Route] = {}
        for route in self.routes.values():
            if now_us - route.confirmed_us > self._hold_us and route.destination not in stale:
                for other in self.routes_via(route.destination):
                    if other.hops != route.hops:
                        stale[other.destination] = other
                stale[route.destination] = route
        self._confirmed_us_min = min(
            (
                route.confirmed_us
                for destination, route in self.routes.items()
                if destination not in stale
            ),
            default=now_us,
        )
        return list(stale.values())
