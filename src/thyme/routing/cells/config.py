"""Settings of cell routing.

Clauses: D6, D7, D10, D26, D28, B2.
"""

from __future__ import annotations

import msgspec


class CellRoutingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of neighbours, forwarding and broadcasts inside a cell."""

    world: int | None = None
    """Id of the world; routing messages of other worlds in the same area are dropped (D26)."""
    neighbours_max: int = 1_000
    hops_max: int = 255
    """A message that crossed this number of links is dropped. Enough for open areas; mazes need
    more."""
    reroute: bool = True
    """Whether a message that a neighbour did not acknowledge is sent to another neighbour.

    Thyme (journal article) §4.3 leaves recovery to the layers above, but routes as GPSR does, and
    GPSR sends messages that the MAC could not deliver to another neighbour. No node is sent the
    same message twice. Without this setting, the message is dropped (D10).
    """
    beacon_gap_us_max: int | None = None
    """The mean time between two received beacons of a neighbour up to which the link to it is
    strong; None if all links are taken for strong. A weak link is used where no strong one leads
    closer: at the edge of the radio's range most frames are sent several times (D28)."""
    share_hops: bool = False
    """Whether a message to several targets goes over as few next hops as possible, where this needs
    no more hops by estimate; otherwise each target has its best next hop, and those with the same
    one share it (D9)."""
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
    insert_wait_tries: int = 2
    """Number of tries after which an insert is answered even if some nodes did not acknowledge it.
    On a congested channel a longer wait causes retransmissions of the insert, and more congestion.
    Subscriptions are answered only after all tries: the receiver of an insert must know them."""
    answer_when_known: bool = False
    """Whether a request that changes the state of a cell, also an insert or a repeated one, is
    answered only once all nodes of the cell in range have acknowledged it. A node in range that did
    not acknowledge a request in all tries is waited for only during `insert_wait_tries`, until it
    acknowledges one."""
    confirm_replicas: bool = False
    """Whether a new object is broadcast, as often as `broadcast_tries_max`, until another node of
    the cell has acknowledged it. Otherwise it is broadcast once (D11)."""
    ack_wait_us_max: int | None = None
    """How long a broadcast waits at most for acknowledgements before it is sent for the second
    time, if they take long at present (`protocol.round_trip`); None if the wait does not depend on
    it."""
    broadcasts_max: int = 1_000
    seen_max: int = 10_000
    """Maximum number of messages that a duplicate filter remembers."""
