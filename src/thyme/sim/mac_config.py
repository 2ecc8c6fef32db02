"""The parameters of the MAC. Clause: S4."""

from __future__ import annotations

import msgspec


class MacConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of the DCF."""

    window_min: int | None = None
    """None: what the standard says."""
    window_max: int = 1023
    transmissions_max: int = 7
    queue_max: int = 100
    lifetime_us: int = 500_000
    """How long a frame may wait in the queue."""
    rts_over_bytes: int = 1_500
    """A longer frame to one node is sent only after the medium was asked for and granted."""
