"""The table of a distance-vector routing: where to go for whom, and how old that knowledge is.

A route's sequence number was given by its destination: higher is newer. Of a route that was lost
the table keeps the odd number under which it was given up, so that older hearsay cannot bring it
back; that is what keeps routes free of loops.
Clause: R1.
"""

from __future__ import annotations

from thyme.model.ids import NodeId


class Route:
    """The way to one destination."""

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
        """When it was last confirmed."""
        self.settling_us = settling_us
        """How long its hop count has taken to settle, weighted towards the past."""
        self.bar = sequence
        """Hearsay with a lower number teaches nothing; −1 while there is news to be told."""
        self.teller: NodeId | None = next_hop
        """Who confirms it by saying again what it said; nobody while the hop count settles."""


class Table:
    """The routes of one node."""

    def __init__(self, hold_us: int) -> None:
        self.routes: dict[NodeId, Route] = {}
        self.lost: dict[NodeId, int] = {}
        """The odd numbers of routes given up."""
        self._hold_us = hold_us
        self._oldest_us = 0
        """No route was confirmed before this."""

    def add(self, route: Route) -> None:
        """Takes in a way to where there was none."""
        self.routes[route.destination] = route
        self.lost.pop(route.destination, None)

    def has_room(self, most: int, destination: NodeId) -> bool:
        """Whether there is room for a route to a destination, if need be in place of the memory
        of the one that was lost first."""
        if destination not in self.lost and len(self.routes) + len(self.lost) >= most:
            if not self.lost:
                return False
            del self.lost[next(iter(self.lost))]
        return True

    def give_up(self, route: Route, number: int) -> None:
        """Forgets a route, but not that it was lost; `number` is odd."""
        del self.routes[route.destination]
        self.lost[route.destination] = number

    def over(self, next_hop: NodeId) -> list[Route]:
        """The routes that start with a neighbour."""
        return [route for route in self.routes.values() if route.next_hop == next_hop]

    def stale(self, now_us: int) -> list[Route]:
        """The routes that nobody confirmed for too long, and those that lead over their ends."""
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
