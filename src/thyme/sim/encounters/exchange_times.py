"""Exchange times: how long a message takes during a contact.

Entry point: `ExchangeTimes`. Apart from `network` because mypyc cannot compile records.
Clause: C44.
"""

from __future__ import annotations

import msgspec

from thyme.model.time_frames import SECOND_US


class ExchangeTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long a message takes during a contact (C44)."""

    message_us: int = SECOND_US // 4
    """The time for the connection, which passes while other messages are sent, too."""
    bits_per_second: int = 1_000_000

    def airtime_us(self, size_bytes: int) -> int:
        """The time for which a message occupies the radio of its sender."""
        return size_bytes * 8 * SECOND_US // self.bits_per_second
