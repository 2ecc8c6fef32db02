"""Battery: a budget of energy for encounters, which slows a device down before its user notices.

Entry points: `Battery`, and `estimate_bytes`, the size of a message as its budget counts it. Energy
accrues at a constant rate, up to an hour's worth; a discovery and every byte on air spend it. A
device without energy neither discovers nor answers until some has accrued. The energy of a
discovery follows from the MobUser paper: 1.5 % of a phone's battery, about 20 kJ, for three hours
with one discovery in five minutes; that of a byte is the power of an 802.11 radio at 1 Mb/s.
Clause: U1.
"""

from __future__ import annotations

from thyme.model.errors import OptionError
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.common import Message

DISCOVERY_J = 8.0
BYTE_J = 1e-5
HOUR_US = 3_600 * SECOND_US
HEADER_BYTES, RECORD_BYTES = 40, 160
"""Rough sizes of a message without its content, and of the metadata of an event."""


class Battery:
    """The energy that a device may still spend on encounters."""

    def __init__(self, joules_per_hour: float) -> None:
        if not 0 < joules_per_hour < float("inf"):
            raise OptionError(
                f"a battery budget is above 0 joules per hour, not {joules_per_hour:g}"
            )
        self._joules_per_hour = joules_per_hour
        self._joules_max = max(joules_per_hour, 2 * DISCOVERY_J)
        self._joules = self._joules_max
        self._at_us = 0

    def can_discover(self, now_us: int) -> bool:
        """Whether there is energy for a discovery; spends it if so."""
        self._accrue(now_us)
        if self._joules < DISCOVERY_J:
            return False
        self._joules -= DISCOVERY_J
        return True

    def can_answer(self, now_us: int) -> bool:
        """Whether there is any energy left for an exchange that another device begins."""
        self._accrue(now_us)
        return self._joules > 0

    def spend_bytes(self, count: int) -> None:
        """Spends the energy of sending or receiving bytes."""
        self._joules -= count * BYTE_J

    def _accrue(self, now_us: int) -> None:
        gained = self._joules_per_hour * max(0, now_us - self._at_us) / HOUR_US
        self._joules = min(self._joules + gained, self._joules_max)
        self._at_us = max(self._at_us, now_us)


def estimate_bytes(message: Message) -> int:
    """The size of a message, from its events: the node does not know how it is encoded."""
    contents: tuple[bytes, ...] = getattr(message, "data", ())
    records: tuple[object, ...] = getattr(message, "items", ())
    return HEADER_BYTES + RECORD_BYTES * len(records) + sum(map(len, contents))
