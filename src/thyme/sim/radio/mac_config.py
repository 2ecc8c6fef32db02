"""MAC configuration: the parameters of the DCF.

A module of its own because mypyc does not compile msgspec records; `mac` uses it.
Clause: S4.
"""

from __future__ import annotations

import msgspec


class MacConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the DCF (802.11 distributed coordination function)."""

    cw_min: int | None = None
    """The minimum contention window; None: that of the 802.11 mode."""
    transmissions_max: int = 7
    queue_max: int = 100
    lifetime_us: int = 500_000
    """The maximum time of a frame in the queue."""
    rts_over_bytes: int = 1_500
    """A longer unicast frame is sent with RTS/CTS."""
