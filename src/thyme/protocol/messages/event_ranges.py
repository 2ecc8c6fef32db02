"""Event ranges: the description of a part of a device's events, in messages (U3).

Entry point: `EventRange`. `thyme.protocol.range_reconciliation` compares them.
Clause: U3.
"""

from __future__ import annotations

import msgspec

from thyme.protocol.messages.list_limits import Items

ID_BYTES = 8
"""Size of an event's short identifier; two of a million events share one with odds of 1 to 3e7."""
FINGERPRINT_BYTES = 12
IDS_MAX = 4_096


class EventRange(msgspec.Struct, frozen=True, array_like=True):
    """The events from the end of the range before up to `until`: their fingerprint, or their short
    identifiers; neither, if the range is settled."""

    until: tuple[int, bytes] | None
    """Publication time and short identifier of the first event after the range; None: no end."""
    fingerprint: bytes | None
    ids: Items[bytes] | None

    def __post_init__(self) -> None:
        if self.until is not None and len(self.until[1]) != ID_BYTES:
            raise ValueError(f"a short identifier has {ID_BYTES} bytes")
        if self.fingerprint is not None:
            if len(self.fingerprint) != FINGERPRINT_BYTES:
                raise ValueError(f"a fingerprint has {FINGERPRINT_BYTES} bytes")
            if self.ids is not None:
                raise ValueError("a range has a fingerprint or identifiers, not both")
        if self.ids is not None:
            if len(self.ids) > IDS_MAX:
                raise ValueError(f"a range has at most {IDS_MAX} identifiers, not {len(self.ids)}")
            if any(len(name) != ID_BYTES for name in self.ids):
                raise ValueError(f"a short identifier has {ID_BYTES} bytes")
