"""The settings of DSDV, and its timers.

Clauses: R1, R3.
"""

from __future__ import annotations

import msgspec

from thyme.model.frames import SECOND_US
from thyme.model.ids import NodeId


class DsdvConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of DSDV; the defaults are those of ns-3."""

    dump_every_us: int = 15 * SECOND_US
    dump_jitter_us: int = 25_000
    first_dump_us_max: int = 1_000
    """A node that comes up waits up to this long before its first dump."""
    update_jitter_us: int = 1_000
    """News is told within this time after an update was heard."""
    settling_us: int = 5 * SECOND_US
    """How long a hop count takes to settle, before anything is known of it."""
    settling_weight: float = 0.875
    """How much the past counts for a route's own settling time."""
    dumps_missed_max: int = 3
    """A route that nobody confirmed during so many dumps is given up."""
    failures_max: int | None = None
    """Also give up a neighbour that did not acknowledge so many packets between two dumps."""
    take_back: bool = True
    """Whether news that a neighbour repeats before it was told is not told, as in ns-3. Without
    this, routes are shortest soon after every dump; with it, now and then one is longer."""
    waiting_max: int = 500
    waiting_per_destination_max: int = 5
    waiting_us_max: int = 30 * SECOND_US
    waiting_apart_us_max: int = 100_000
    """Packets that waited for the same route leave up to this far apart."""
    hops_max: int = 255
    """Whoever is further away is out of reach."""
    destinations_max: int = 10_000
    lives_apart_us: int = SECOND_US
    """Between two lives of a node at least this much time passes, or it is not believed at once:
    the sequence numbers of a life begin with so many of these since 1970."""


class DumpDue(msgspec.Struct, frozen=True):
    """The timer of the next full dump."""


class NewsDue(msgspec.Struct, frozen=True):
    """The timer of the next occasion to tell news."""


class SettleDue(msgspec.Struct, frozen=True):
    """The timer at which a hop count has settled."""


class WaitingDue(msgspec.Struct, frozen=True):
    """The timer of the next packet that waited for a route to a destination."""

    destination: NodeId
