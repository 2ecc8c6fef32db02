"""Settings and timers of DSDV.

Separate from `thyme.routing.dsdv.protocol` because mypyc cannot compile msgspec records.

Clauses: R1, R3.
"""

from __future__ import annotations

import msgspec

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US


class DsdvConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of DSDV; the defaults are those of ns-3."""

    dump_interval_us: int = 15 * SECOND_US
    settling_us: int = 5 * SECOND_US
    """Settling time of a new route's hop count, before there is a measured average."""
    settling_weight: float = 0.875
    """Weight of the previous average in a route's settling time."""
    failures_max: int | None = None
    """Routes via a neighbour that did not acknowledge this number of packets between two dumps are
    marked as lost; None to ignore failures."""
    weak_link_hops: int = 0
    """What a link over which packets were lost lately counts in addition, in hops; with 0, such
    links count as others, as in ns-3."""
    suppress_repeated: bool = True
    """Whether a pending update is cancelled when a neighbour repeats it, as in ns-3. Without this,
    all routes are shortest soon after every dump; with it, a few are longer."""
    buffer_max: int = 500
    buffer_per_destination_max: int = 5
    buffer_us_max: int = 30 * SECOND_US
    buffer_spacing_us_max: int = 100_000
    """Maximum time between two buffered packets sent to the same destination."""
    hops_max: int = 255
    """Route entries with more hops are ignored."""
    destinations_max: int = 10_000
    restart_sequence_step_us: int = SECOND_US
    """A node starts with sequence number 2 · (time since 1970 / this step). After a restart within
    one step, other nodes ignore its updates until its sequence number exceeds the old one."""
    recover_sequence: bool = False
    """Whether neighbours tell a node the sequence number that they know, if its own is lower, and
    the node continues from there: its clock may have been corrected (M36)."""

    sequence_ahead_us_max: int | None = None
    """How far ahead of the clock the sequence number of an entry may be, as the start of its node.
    With a limit, a node's own entry counts more than any of another about it, whatever the numbers:
    only the link authenticates a sender (B5). None to believe every entry."""


ROBUST = DsdvConfig(weak_link_hops=2)
"""Avoids links over which packets are lost."""


class DumpTimer(msgspec.Struct, frozen=True):
    """Timer of the next full dump."""


class AdvertTimer(msgspec.Struct, frozen=True):
    """Timer of the next triggered update."""


class RouteSettledTimer(msgspec.Struct, frozen=True):
    """Timer at which the next hop count has settled."""


class BufferedPacketTimer(msgspec.Struct, frozen=True):
    """Timer of the next buffered packet for a destination."""

    destination: NodeId
