"""Settings of cell routing.

Clauses: D4, D6, D7, D10, D26, B2.
"""

from __future__ import annotations

import msgspec

from thyme.model.time_frames import SECOND_US


class CellRoutingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of beacons, neighbours, forwarding and broadcasts inside a cell."""

    world: int | None = None
    """Id of the world; routing messages of other worlds in the same area are dropped (D26)."""
    beacon_interval_us: int = SECOND_US
    """Mean time between two beacons (D4)."""
    beacon_jitter: float = 0.5
    """Random deviation of each beacon, as a fraction of the mean, against synchronised beacons."""
    beacon_first_us_max: int = SECOND_US // 10
    """Maximum delay of the first beacon after a start."""
    neighbour_timeout_us: int = 4 * SECOND_US + SECOND_US // 2
    """A neighbour without a beacon for this time is removed."""
    neighbours_max: int = 1_000
    failures_max: int = 3
    """A neighbour that failed to acknowledge this number of messages is removed until its next
    beacon."""
    failure_penalty_us: int = 4 * SECOND_US
    """How long a message that a neighbour did not acknowledge counts against it. Longer than the
    retry time of a request: over a link that carries only beacons, the retry must take another
    path before the request fails."""
    payload_bytes_max: int = 128
    """Maximum size of the payload that the layer above adds to a beacon."""
    hops_max: int = 255
    """A message that crossed this number of links is dropped. Enough for open areas; mazes need
    more."""
    reroute: bool = True
    """Whether a message that a neighbour did not acknowledge is sent to another neighbour.

    Thyme (journal article) §4.3 leaves recovery to the layers above, but routes as GPSR does, and
    GPSR sends messages that the MAC could not deliver to another neighbour. No node is sent the
    same message twice. Without this setting, the message is dropped (D10).
    """
    always_perimeter: bool = True
    """Whether a message for an empty cell always follows the whole perimeter, even if the proxy
    knows that no populated cell can be closer. The proxy is the same either way; the cost reported
    in the papers includes the perimeter (D6)."""
    broadcast_reads: bool = True
    """Whether read requests to a cell are broadcast to all of its nodes (D7), although only the
    first receiver replies."""
    broadcast_redundant: bool = True
    """Whether the first receiver broadcasts messages that are redundant for it (D7), such as a
    retransmitted request whose reply was slow."""
    broadcast_tries_max: int = 1
    """How often a message for all nodes of the own cell is sent until they acknowledge it. 1 is a
    broadcast without acknowledgements (D7). With more, the cell replies to a request once all of
    its nodes have acknowledged it (B2), or after the last try."""
    broadcast_wait_us: int = SECOND_US // 20
    """First wait for acknowledgements; doubled at each try."""
    insert_wait_tries: int = 2
    """Number of tries after which an insert is answered even if some nodes did not acknowledge it.
    On a congested channel a longer wait causes retransmissions of the insert, and more congestion.
    Subscriptions are answered only after all tries: the receiver of an insert must know them."""
    broadcasts_max: int = 1_000
    seen_us: int = 60 * SECOND_US
    """How long the duplicate filters remember a message."""
    seen_max: int = 10_000

    def __post_init__(self) -> None:
        if not 0 <= self.beacon_jitter < 1:
            raise ValueError("beacon_jitter must be at least 0 and less than 1")
        if not self.beacon_interval_us * (1 + self.beacon_jitter) < self.neighbour_timeout_us:
            raise ValueError(
                "neighbour timeout must be longer than the longest time between two beacons"
            )
